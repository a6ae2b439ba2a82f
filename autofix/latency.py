"""Paired latency: eager PyTorch and ONNX Runtime sessions interleaved in shuffled order, a ratio per round.

Time is process CPU time where one thread is used (wall time is drowned by neighbours), wall time otherwise.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autofix.session import SessionSettings, open_session
from autofix.target import Target


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """(first quartile, median, third quartile)."""
    if len(values) < 2:
        return (values[0],) * 3
    q1, q2, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return q1, q2, q3


def time_rounds(calls: dict[str, Callable[[], Any]], seconds: float, threads: int, least: int = 7, most: int = 200) -> dict[str, list[float]]:
    """Milliseconds per call, one list entry a round; every round times every call once, in shuffled order.

    A call is repeated inside a round until it fills about 2 ms, so that the clock's resolution does not count.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        took = time.perf_counter() - start
        repeats[name] = max(1, min(1000, int(0.002 / max(took, 1e-7))))
    shuffled = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    for done in range(most):
        if done >= least and time.perf_counter() > end:
            break
        order = list(calls)
        shuffled.shuffle(order)
        for name in order:
            start = clock()
            for _ in range(repeats[name]):
                calls[name]()
            times[name].append((clock() - start) * 1000 / repeats[name])
    return times


def measure_files(model: Any, reference: Any, folders: list[Path], target: Target, seconds: float) -> dict[str, Any]:
    """Latency of eager and of the model.onnx in each folder, on the given inputs; equal threads, spinning off.

    Returns {eager_ms, control (A/A ratio of two sessions of the first file), rounds, files: [{ort_ms, q1_ms, q3_ms,
    speedup, speedup_q1, speedup_q3}]}; ratios are formed per round, medians over rounds.
    """
    import copy

    import torch

    from autofix.verify import make_feed

    torch.set_num_threads(target.threads)
    given = reference.sets[0]
    calls: dict[str, Callable[[], Any]] = {}

    def eager() -> Any:
        with torch.inference_mode():
            return model(*given.args, **given.kwargs)

    given.args[:] = copy.deepcopy(given.args)
    calls["eager"] = eager
    for i, folder in enumerate([*folders, folders[0]]):
        settings = SessionSettings.from_json(json.loads((folder / "session.json").read_text()))
        session = open_session(str(folder / "model.onnx"), settings, target.threads)
        feed = make_feed(given, [v.name for v in session.get_inputs()])
        calls["control" if i == len(folders) else str(i)] = lambda s=session, f=feed: s.run(None, f)  # type: ignore[misc]
    times = time_rounds(calls, seconds, target.threads)
    files = []
    for i in range(len(folders)):
        ms = times[str(i)]
        q1, median, q3 = quartiles(ms)
        s1, speedup, s3 = quartiles([e / max(o, 1e-9) for e, o in zip(times["eager"], ms, strict=True)])
        files.append(
            {k: round(v, 4) for k, v in {"ort_ms": median, "q1_ms": q1, "q3_ms": q3, "speedup": speedup, "speedup_q1": s1, "speedup_q3": s3}.items()}
        )
    control = statistics.median([a / max(b, 1e-9) for a, b in zip(times["0"], times["control"], strict=True)])
    return {
        "eager_ms": round(statistics.median(times["eager"]), 4),
        "control": round(control, 3),
        "rounds": len(times["eager"]),
        "threads": target.threads,
        "files": files,
    }
