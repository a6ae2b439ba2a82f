"""Operators written for kernels that are fast in ONNX Runtime, where the exported form has lost what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

FIRST_BLOCKS = 8
"""Blocks of edges told apart at once before a search is halved: comparing costs 0.4 ns an edge, a step of halving about 2 ns."""


def search_fast(edges: Tensor, x: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """torch.bucketize: how many sorted `edges` [n] lie before each value of x; NaN lies behind all.

    Values are compared with the last edges of all blocks but the last, then with the middle of what is left of their block, until one place is left.
    """
    count = edges.shape[0]
    dtype = torch.promote_types(edges.dtype, x.dtype)
    if not dtype.is_floating_point:
        dtype = torch.int64
    edges, flat = edges.to(dtype), x.reshape(-1).to(dtype)
    halvings = 0
    while FIRST_BLOCKS << halvings <= count:
        halvings += 1
    block = 1 << halvings
    blocks = count // block + 1
    top = float("inf") if dtype.is_floating_point else torch.iinfo(torch.int64).max
    # at least one more than there are edges: the places are 0 to count
    padded = torch.cat([edges, torch.full((blocks * block - count,), top, dtype=dtype)])
    place = torch.zeros_like(flat, dtype=torch.int64)
    if blocks > 1:
        # edges down, values across: the runtime compares long rows much faster than short ones
        lasts = padded.reshape(blocks, block)[:-1, -1:]
        beyond = lasts > flat.unsqueeze(0) if right else lasts >= flat.unsqueeze(0)
        # a product of matrices adds them up faster than a sum along the first axis
        place = (blocks - 1 - (torch.ones(1, blocks - 1) @ beyond.to(torch.float32))[0].to(torch.int64)) * block
    for k in reversed(range(halvings)):
        edge = padded[(1 << k) - 1 :].gather(0, place)  # GatherElements takes 0.6 ns a number, Gather 8
        beyond = edge > flat if right else edge >= flat
        place = place + (1 << k) * (~beyond).to(torch.int64)
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
