"""State that a model carries from one call to the next outside of its buffers, where no file can keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from autofix.case import uninitialized
from autofix.traces import same_tensor

if TYPE_CHECKING:
    from autofix.eager import Eager, Leaves

RTOL, ATOL = 1e-4, 1e-5
"""A second call that differs by no more than round-off (say, by way of a cache) counts as the same."""


def carried_attributes(eager: Eager, random: bool) -> list[str]:
    """The plain attributes that forward changes, where its next call depends on them: a second call on the same inputs, with the buffers put back,
    gives other values or raises. Empty for a model that draws random numbers or changes parameters, of which this can't be told."""
    if not eager.fresh_each_call or random or eager.mutated_parameters:
        return []
    model = eager.fresh()
    start = {n: b.detach().clone() for n, b in model.named_buffers() if not uninitialized(b)}
    first = eager.call(eager.example, model)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in start and buffer.shape == start[name].shape:
                buffer.copy_(start[name])
    names = list(eager.mutated_attributes) or ["something that no attribute shows"]
    try:
        second = eager.call(eager.example, model)
    except Exception:  # whatever forward raises, a fresh model did not
        return names
    return [] if same_outputs(first.outputs or [], second.outputs or []) else names


def same_outputs(first: Leaves, second: Leaves) -> bool:
    """Whether two calls gave the same outputs but for round-off."""
    if [n for n, _ in first] != [n for n, _ in second]:
        return False
    return all(same_tensor(a, b, RTOL, ATOL) for (_, a), (_, b) in zip(first, second, strict=True))
