"""What is true, for mutation.py: PyTorch's answers on inputs of the benchmark's own, and whether a file keeps to them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autofix.target import Target

TRUTH_INPUTS_OF_CASES = 24
Run = Callable[[dict[str, Any]], list[Any]]


@dataclass
class Truth:
    """The benchmark's own inputs on which PyTorch is sure of its answer and the unchanged file is right."""

    feeds: list[dict[str, Any]]
    outputs: list[list[tuple[Any, Any]]]
    unsure: int = 0
    wrong: list[str] = field(default_factory=list)
    wrong_on_nan: list[str] = field(default_factory=list)


def make_truth(case: Any, draws: Iterator[list[Any]], run: Run, target: Target) -> Truth:
    """Eager outputs, in float32 and float64, on the drawn inputs; and whether the unchanged file keeps to them."""
    from autofix.adapter import input_leaves
    from autofix.eager import Eager
    from autofix.reference import ReferenceSet
    from autofix.verify import make_feed

    eager = Eager(case)
    names = [n for n, _ in eager.example]
    truth = Truth([], [])
    clean = not any(bool(v.isnan().any()) for _, v in eager.call(eager.example).outputs)
    for values in draws:
        leaves = list(zip(names, values, strict=True)) if len(values) == len(names) else input_leaves(eager.model.forward, values, {})
        try:
            outputs = eager.call(leaves).outputs
        except Exception:  # no input that the model allows
            continue
        if clean and any(bool(v.isnan().any()) for _, v in outputs):
            continue
        wide = eager.call64(leaves)
        if not sure(eager, leaves, outputs, wide):
            truth.unsure += 1
            continue
        one = ReferenceSet("", "", [], {}, leaves, outputs)
        feed = make_feed(one, names)
        expected = [(v, w) for (_, v), (_, w) in zip(outputs, wide or [(n, None) for n, _ in outputs], strict=True)]
        why = differs(run, feed, expected, target)
        if why:
            truth.wrong.append(why)
            continue
        truth.feeds.append(feed)
        truth.outputs.append(expected)
    return truth


def sure(eager: Any, leaves: list[Any], outputs: list[Any], wide: Any) -> bool:
    """Whether PyTorch's answer is one that an implementation can be held to: float64 confirms it, and round-off does not move it."""
    from autofix.compare import check_output
    from autofix.conditioning import KNIFE_EDGE, disagreement
    from autofix.shake import shaken_change, shaken_ratio

    if wide is not None:
        if disagreement(outputs, wide) > KNIFE_EDGE:
            return False
        if not all(check_output(v, w.to(v.dtype))["ok"] for (_, v), (_, w) in zip(outputs, wide, strict=True)):
            return False
    change, met = shaken_change(eager, leaves, outputs)
    return change is not None and not met.ties and (not change or shaken_ratio(outputs, change) <= 0.25)


def try_nan(case: Any, truth: Truth, run: Run, target: Target) -> None:
    """Whether the unchanged file gives NaN where PyTorch does: an alarm about that is no false one where it does not."""
    import torch

    from autofix.eager import Eager
    from autofix.reference import ReferenceSet
    from autofix.verify import make_feed

    eager = Eager(case)
    rng = torch.Generator().manual_seed(7)
    for _ in range(12):
        leaves = [(n, v.clone()) for n, v in eager.example]
        floats = [v for _, v in leaves if v.is_floating_point() and v.numel()]
        for value in floats:
            place = int(torch.randint(0, value.numel(), (), generator=rng))
            value.view(-1)[place] = (float("nan"), float("inf"), -float("inf"))[int(torch.randint(0, 3, (), generator=rng))]
        with contextlib.suppress(Exception):
            outputs = eager.call(leaves).outputs
            why = differs(
                run, make_feed(ReferenceSet("", "", [], {}, leaves, outputs), [n for n, _ in leaves]), [(v, None) for _, v in outputs], target
            )
            truth.wrong_on_nan += [why] if why and floats else []


def differs(run: Run, feed: dict[str, Any], expected: list[tuple[Any, Any]], target: Target) -> str:
    """Empty, or how what run gives differs from PyTorch's by more than the gate allows."""
    from autofix.compare import check_output

    try:
        got = run(feed)
    except Exception as error:
        return f"does not run: {str(error)[:160]}"
    if len(got) != len(expected):
        return "another number of outputs"
    for (value, wide), out in zip(expected, got, strict=True):
        found = check_output(value, out, wide, None, target.rtol, target.atol)
        if not found["ok"]:
            return str(found["message"])
    return ""


def plainly_close(run: Run, given: Any, inputs: list[str]) -> bool:
    """The usual test: allclose on the one given input."""
    from autofix.compare import as_array
    from autofix.verify import make_feed

    got = run(make_feed(given, inputs))
    want = [as_array(v) for _, v in given.outputs]
    return len(got) == len(want) and all(
        g.shape == w.shape and np.allclose(g.astype(np.float64), w.astype(np.float64), rtol=1e-3, atol=1e-5, equal_nan=True)
        for g, w in zip(got, want, strict=True)
    )


def runner(model: Any) -> Run:
    """A session of a model, opened as the gate opens files; raises what ONNX Runtime raises."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feed: list(session.run(None, feed))


def case_inputs(case: Any, seed: int) -> Iterator[list[Any]]:
    """Truth inputs of a corpus case: its own sets, and its get_inputs() under other seeds."""
    from autofix.adapter import input_leaves
    from autofix.eager import ordered_call
    from autofix.loading import seed_all

    model = case.build()
    for one in case.sets:
        yield [v for _, v in input_leaves(model.forward, *ordered_call(model.forward, one))]
    for turn in range(TRUTH_INPUTS_OF_CASES):
        seed_all(seed + turn)
        with contextlib.suppress(Exception):
            made = case.module.get_inputs()
            yield [v for _, v in input_leaves(model.forward, list(made), dict(case.given.kwargs))]
