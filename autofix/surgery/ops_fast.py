"""Operators written for kernels that are fast in ONNX Runtime, where the exported form has lost what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

MOST_BRANCHES = 16
"""Edges that are compared at once in a search; comparing costs 1 ns an edge, gathering a row of edges and turning it about 15 ns."""


def search_fast(edges: Tensor, x: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """torch.bucketize: how many sorted `edges` [n] lie before each value of x; NaN lies behind all.

    A tree search with up to MOST_BRANCHES branches: at each level a value is compared with the last edges of the blocks left to it.
    """
    count = edges.shape[0]
    dtype = torch.promote_types(edges.dtype, x.dtype)
    if not dtype.is_floating_point:
        dtype = torch.int64
    edges, flat = edges.to(dtype), x.reshape(-1).to(dtype)
    levels = 1
    while MOST_BRANCHES**levels < count:
        levels += 1
    branches = next(b for b in range(2, MOST_BRANCHES + 1) if b**levels >= count)
    width = branches**levels
    top = float("inf") if dtype.is_floating_point else torch.iinfo(torch.int64).max
    padded = torch.cat([edges, torch.full((width - count,), top, dtype=dtype)])
    tables = [padded]
    for _ in range(levels - 1):
        tables.append(tables[-1].reshape(-1, branches)[:, -1])
    place = torch.zeros_like(flat, dtype=torch.int64)
    for level, table in enumerate(reversed(tables)):
        rows = table.reshape(-1, branches)
        # edges down, values across: the runtime compares long rows much faster than short ones
        own = rows[0].unsqueeze(1) if level == 0 else torch.nn.functional.embedding(place, rows).transpose(0, 1)
        beyond = own > flat.unsqueeze(0) if right else own >= flat.unsqueeze(0)
        passed = branches - beyond.to(torch.float32).sum(0).to(torch.int64)
        if level < levels - 1:
            passed = passed.clamp(max=branches - 1)
        place = place * branches + passed
    found = place.clamp(max=count).reshape(x.shape)
    return found.to(torch.int32) if out_int32 else found


def bucketize_fast(x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """aten.bucketize.Tensor."""
    return search_fast(boundaries, x, out_int32=out_int32, right=right)


def searchsorted_fast(
    sequence: Tensor, values: Tensor, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Tensor | None = None
) -> Tensor:
    """aten.searchsorted.Tensor; batches of sequences and orders by a sorter keep ATen's binary search."""
    if sequence.ndim != 1 or sorter is not None:
        from autofix.surgery.ops_order import searchsorted

        return searchsorted(sequence, values, out_int32=out_int32, right=right, side=side, sorter=sorter)
    return search_fast(sequence, values, out_int32=out_int32, right=right or side == "right")


def mean_or_sum(x: Tensor, reduction: int) -> Tensor:
    """ATen's reductions of a loss: 0 none, 1 mean, 2 sum."""
    return x if reduction == 0 else x.mean() if reduction == 1 else x.sum()


def huber_fast(x: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    """aten.huber_loss: with m = min(|d|, delta), m (|d| - m / 2) is d^2 / 2 up to delta and delta (|d| - delta / 2) beyond."""
    away = (x - target).abs()
    near = away.clamp(max=delta)
    return mean_or_sum(near * (away - 0.5 * near), reduction)


def smooth_l1_fast(x: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0) -> Tensor:
    """aten.smooth_l1_loss: the Huber loss over beta; the plain distance where beta is 0."""
    if beta == 0:
        return mean_or_sum((x - target).abs(), reduction)
    away = (x - target).abs()
    near = away.clamp(max=beta)
    return mean_or_sum(near * (away - 0.5 * near) * (1.0 / beta), reduction)


def softshrink_fast(x: Tensor, lambd: float = 0.5) -> Tensor:
    """aten.softshrink: what lies outside -lambd .. lambd, moved by lambd towards 0."""
    return x - x.clamp(-lambd, lambd)


def hardshrink_fast(x: Tensor, lambd: float = 0.5) -> Tensor:
    """aten.hardshrink: x times 1 outside -lambd .. lambd, times 0 inside."""
    return x * (x.abs() > lambd).to(x.dtype)


FAST_FUNCTIONS: dict[str, tuple[tuple[Any, ...], Callable[..., Any]]] = {
    "aten.softshrink.default": ((torch.nn.functional.softshrink,), softshrink_fast),
    "aten.hardshrink.default": ((torch.nn.functional.hardshrink, torch.hardshrink), hardshrink_fast),
}
"""Functions to be replaced while the model is captured, by the operator that they become."""

FAST_OPERATORS: dict[str, Callable[..., Any]] = {
    "aten.bucketize.Tensor": bucketize_fast,
    "aten.searchsorted.Tensor": searchsorted_fast,
    "aten.huber_loss.default": huber_fast,
    "aten.smooth_l1_loss.default": smooth_l1_fast,
}
"""Operators to be replaced when the program is decomposed."""
