"""Paired latency: eager PyTorch and files interleaved in shuffled order, a ratio per round. Runs in a forked child.

Time is process CPU time where one thread is used (wall time is drowned by neighbours), wall time otherwise.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autofix.elimination import Race, quartiles, ratios
from autofix.session import SessionSettings, open_session
from autofix.target import Target

FILL_SECONDS = 0.002
"""A call is repeated inside a round until it fills this, so that the clock's resolution does not count."""
WARM_SECONDS, MOST_WARM, WARM_ROUNDS = 0.1, 8, 2
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Options of glibc's mallopt."""
LONG_SECONDS = 0.5
"""A measurement that may take this long makes seven rounds at least; a shorter one is a first look, and three do."""
Calls = dict[str, Callable[[], Any]]


def keep_memory() -> None:
    """Have the C library keep freed memory in this process. Otherwise it is chance, set by what the process did before, whether each large tensor's
    pages are fetched from the system anew: eager PyTorch then takes one or three times as long. ONNX Runtime's arena keeps its memory as well."""
    import ctypes
    import sys

    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            libc.mallopt(M_MMAP_MAX, 0)
            libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def repeats_of(calls: Calls) -> dict[str, int]:
    """How often each call is made in a round; warms each up."""
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        end = time.perf_counter() + WARM_SECONDS
        for done in range(MOST_WARM):
            if done > 0 and time.perf_counter() > end:
                break
            call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, min(1000, int(FILL_SECONDS / max(time.perf_counter() - start, 1e-7))))
    return repeats


def timed_call(call: Callable[[], Any], repeats: int, threads: int) -> float:
    """Milliseconds a call."""
    clock = time.process_time if threads == 1 else time.perf_counter
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) * 1000 / repeats


def time_rounds(calls: Calls, seconds: float, threads: int, least: int = 7, most: int = 200) -> dict[str, list[float]]:
    """Milliseconds per call, one list entry a round; every round times every call once, in shuffled order. The first rounds warm up."""
    repeats = repeats_of(calls)
    shuffled = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    for done in range(-WARM_ROUNDS, most):
        if done >= least and time.perf_counter() > end:
            break
        order = list(calls)
        shuffled.shuffle(order)
        for name in order:
            took = timed_call(calls[name], repeats[name], threads)
            if done >= 0:
                times[name].append(took)
    return times


def race_rounds(calls: Calls, seconds: float, threads: int, keep: list[str]) -> dict[str, list[float]]:
    """As time_rounds, with what is clearly slower dropped on the way; `keep` are timed to the end."""
    repeats = repeats_of(calls)
    race = Race(list(calls), seconds, keep)
    while not race.over:
        start = time.perf_counter()
        times = {name: timed_call(calls[name], repeats[name], threads) for name in race.next_round()}
        race.record(times, time.perf_counter() - start)
    return race.times


def eager_call(model: Any, given: Any) -> Callable[[], Any]:
    """The untouched model on the given inputs."""
    import torch

    args, kwargs = copy.deepcopy(given.args), copy.deepcopy(given.kwargs)

    def eager() -> Any:
        with torch.inference_mode():
            return model(*args, **kwargs)

    return eager


def file_call(folder: Path, given: Any, threads: int) -> Callable[[], Any]:
    """The model.onnx of a trial's folder on the given inputs, opened as its session.json says."""
    from autofix.verify import make_feed

    settings = SessionSettings.from_json(json.loads((folder / "session.json").read_text()))
    session = open_session(str(folder / "model.onnx"), settings, threads)
    feed = make_feed(given, [v.name for v in session.get_inputs()])
    return lambda: session.run(None, feed)


def time_files(
    model: Any, reference: Any, folders: list[Path], target: Target, seconds: float, racing: bool = False, rounds: int = 0
) -> dict[str, Any]:
    """Times per round of eager and of the file in each folder, and of a second session of the first file (the A/A control).

    {"eager": [ms], "control": [ms], "files": [[ms], ...], "threads"}. racing: eager is left out, the first file is what the others are compared
    with, and those that are clearly slower are dropped early (their lists are shorter). rounds: so many, however long they take (0: by `seconds`).
    Spinning is off, threads are equal.
    """
    import torch

    keep_memory()
    torch.set_num_threads(target.threads)
    given = reference.sets[0]
    calls: Calls = {} if racing else {"eager": eager_call(model, given)}
    for i, folder in enumerate(folders):
        calls[str(i)] = file_call(folder, given, target.threads)
    calls["control"] = file_call(folders[0], given, target.threads)
    if racing:
        times = race_rounds(calls, seconds, target.threads, ["0", "control"])
    else:
        times = time_rounds(calls, seconds, target.threads, least=rounds or (7 if seconds >= LONG_SECONDS else 3), most=rounds or 200)
    files = [times[str(i)] for i in range(len(folders))]
    return {"eager": times.get("eager", []), "control": times["control"], "files": files, "threads": target.threads}


Session = dict[str, Any]
"""What time_files gave in one process."""


def latency_row(sessions: list[Session], index: int) -> dict[str, Any]:
    """The latency of one file over all its sessions: medians and quartiles of all rounds, each session's own beside them.

    ort_ms, q1_ms, q3_ms; eager_ms; speedup, speedup_q1, speedup_q3 (eager over file, per round); control (A/A: the median ratio of two sessions of
    one file, the one furthest from 1); rounds; threads; sessions [{speedup, speedup_q1, speedup_q3, ort_ms, control, rounds}].
    """
    ms = [v for s in sessions for v in s["files"][index]]
    eager = [v for s in sessions for v in s["eager"]]
    speedups = [r for s in sessions for r in ratios(s["eager"], s["files"][index])]
    single = []
    for one in sessions:
        q1, median, q3 = quartiles(ratios(one["eager"], one["files"][index]))
        control = statistics.median(ratios(one["files"][0], one["control"]))
        own = {"ort_ms": statistics.median(one["files"][index]), "speedup": median, "speedup_q1": q1, "speedup_q3": q3, "control": control}
        single.append({k: round(v, 4) for k, v in own.items()} | {"rounds": len(one["files"][index])})
    q1, median, q3 = quartiles(ms)
    s1, speedup, s3 = quartiles(speedups)
    numbers = {
        "ort_ms": median,
        "q1_ms": q1,
        "q3_ms": q3,
        "eager_ms": statistics.median(eager),
        "speedup": speedup,
        "speedup_q1": s1,
        "speedup_q3": s3,
    }
    numbers["control"] = max((s["control"] for s in single), key=lambda c: abs(c - 1))
    row: dict[str, Any] = {k: round(v, 4) for k, v in numbers.items()}
    return row | {"rounds": len(ms), "threads": sessions[0]["threads"], "sessions": single}


def race_row(session: Session, index: int) -> dict[str, Any]:
    """What a race says of one file: {ort_ms, q1_ms, q3_ms, gain, gain_q1, gain_q3, rounds}; gain is the first file's time over its own, per round."""
    q1, median, q3 = quartiles(session["files"][index])
    g1, gain, g3 = quartiles(ratios(session["files"][0], session["files"][index]))
    numbers = {"ort_ms": median, "q1_ms": q1, "q3_ms": q3, "gain": gain, "gain_q1": g1, "gain_q3": g3}
    return {k: round(v, 4) for k, v in numbers.items()} | {"rounds": len(session["files"][index])}
