"""Input sets for operators that divide with a remainder and jump at multiples of their divisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from autofix.values import LeafPlan

if TYPE_CHECKING:
    from autofix.inputs import Explorer

DIVIDERS = ("aten.floor_divide", "aten.remainder", "aten.fmod", "aten.div.Tensor_mode", "aten.div.Scalar_mode")
"""Operators that jump at multiples of their divisor."""
UNCHECKED = ("aten._ctc_loss",)
"""Operators that read past their tables where an integer is out of range: PyTorch does not check the labels."""


def multiple_sets(explorer: Explorer) -> None:
    """For models that divide with a remainder: multiples, as float32 rounds them, of the source's constants or of another input. Large
    quotients are tried too but do not count."""
    floats = [p for p in explorer.plans if p.is_float and p.example.dtype == torch.float32 and p.example.numel()]
    if not floats or not any(name.startswith(DIVIDERS) for name in explorer.facts["operators"]):
        return
    steps = torch.tensor([*(abs(c) for c in explorer.floats[:6]), 0.1, 0.3, 0.7, 3.0])
    pairs: list[tuple[LeafPlan, LeafPlan | None]] = [(a, b) for a in floats for b in floats if a is not b] + [(a, None) for a in floats]
    for a, b in pairs[:6]:
        shape = list(a.example.shape) if b is None else common_shape(a, b)
        if shape is None:
            continue
        for name, reach in (("multiples", 20), ("large multiples", 10_000_000)):
            step = steps[torch.randint(0, len(steps), shape if b is None else b.example.shape, generator=explorer.rng)]
            step = step if b is None or b.low >= 0 else step * (1 - 2 * (torch.rand(step.shape, generator=explorer.rng) < 0.5).float())
            if b is not None and list(a.example.shape) != shape:
                step = step.reshape(-1)[0].expand(step.shape).clone()
            count = torch.randint(0 if a.low >= 0 else -reach, reach + 1, a.example.shape, generator=explorer.rng)
            value = count * (step if step.shape == a.example.shape else step.reshape(-1)[0])
            made = {a.name: value, **({b.name: step} if b is not None else {})}
            leaves = explorer.leaves_of(lambda p, made=made: made.get(p.name, p.example))
            one = explorer.attempt(f"{name} in {a.name}" + (f" of {b.name}" if b else ""), "values", leaves, quiet=True)
            if one is not None:
                one.must, one.advisory = True, reach > 20  # ONNX's own Mod loses the digits of large quotients


def common_shape(a: LeafPlan, b: LeafPlan) -> list[int] | None:
    """The shape that two leaves broadcast to, or None."""
    try:
        shape = torch.broadcast_shapes(a.example.shape, b.example.shape)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
    return list(shape)
