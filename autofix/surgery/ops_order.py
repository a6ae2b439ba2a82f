"""Order statistics: stable sort, median, nanmedian, kthvalue, mode, searchsorted, bucketize.

ONNX's TopK breaks ties by the lower index, so that with k = n it is a stable sort; NaN is put where ATen puts it by a second,
stable pass over the NaN flags (a sort by the minor key, then by the major one).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from autofix.surgery.ops_loop import loop_until
from autofix.surgery.ops_scan import wide_enough


def topk_order(key: Tensor, dim: int, descending: bool) -> Tensor:
    """Indices of a stable sort, where topk is ONNX's; torch's own topk may order ties differently."""
    return torch.topk(key, key.shape[dim], dim, descending, True)[1]


def order_of(x: Tensor, dim: int, descending: bool) -> Tensor:
    """Indices of a stable sort along dim; NaN counts as the greatest."""
    key = wide_enough(x)
    if not x.dtype.is_floating_point:
        return topk_order(key, dim, descending)
    bad = key != key
    first = topk_order(torch.where(bad, 0.0, key), dim, descending)
    second = topk_order(bad.to(torch.int64).gather(dim, first), dim, descending)
    return first.gather(dim, second)


def sort_stable(x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """aten.sort.stable."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    order = order_of(x, dim, descending)
    return x.gather(dim, order), order


def sort_plain(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """aten.sort."""
    return sort_stable(x, dim=dim, descending=descending)


def at_rank(x: Tensor, rank: Tensor | int, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The entries of x that stand at a rank (0-based; an int, or a tensor of x's shape with size 1 at dim) in ascending order along dim."""
    order = order_of(x, dim, False)
    if isinstance(rank, Tensor):
        index = order.gather(dim, rank)
    else:
        index = order.narrow(dim, rank, 1)
    value = x.gather(dim, index)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def median_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """aten.median.dim: the lower median; NaN, at its first place, where there is one."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    n = x.shape[dim]
    rank = torch.zeros_like(x.narrow(dim, 0, 1), dtype=torch.int64) + (n - 1) // 2
    if x.dtype.is_floating_point:
        bad = (x != x).to(torch.int64).sum(dim, keepdim=True)
        rank = torch.where(bad > 0, n - bad, rank)
    return at_rank(x, rank, dim, keepdim)


def nanmedian_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """aten.nanmedian.dim: the lower median of what is not NaN."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    good = (x == x).to(torch.int64).sum(dim, keepdim=True)
    half = torch.div(good - 1, 2, rounding_mode="floor")
    return at_rank(x, torch.where(half < 0, 0, half), dim, keepdim)


def median_all(x: Tensor) -> Tensor:
    """aten.median."""
    return median_dim(x.reshape(-1), 0)[0]


def nanmedian_all(x: Tensor) -> Tensor:
    """aten.nanmedian."""
    return nanmedian_dim(x.reshape(-1), 0)[0]


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """aten.kthvalue."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    return at_rank(x, k - 1, dim, keepdim)


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """aten.mode: the most frequent value, the least of several; its last place."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    order = order_of(x, dim, False)
    work = wide_enough(x).gather(dim, order)
    n = x.shape[dim]
    changed = work.narrow(dim, 1, n - 1) != work.narrow(dim, 0, n - 1)
    group = torch.cat([torch.zeros_like(work.narrow(dim, 0, 1), dtype=torch.int64), changed.to(torch.int64)], dim).cumsum(dim)
    size = torch.zeros_like(group).scatter_add(dim, group, torch.ones_like(group))
    best = size.argmax(dim, keepdim=True)
    last = size.cumsum(dim).gather(dim, best) - 1
    index = order.gather(dim, last)
    value = x.gather(dim, index)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def halve_step_left(low: Tensor, high: Tensor, sequence: Tensor, values: Tensor) -> tuple[Tensor, ...]:
    """One step of a binary search for the first entry that is not below each value."""
    active = low < high
    middle = torch.where(active, low + torch.div(high - low, 2, rounding_mode="floor"), 0)
    up = active & ~(sequence.gather(-1, middle) >= values)
    return torch.where(up, middle + 1, low), torch.where(active & ~up, middle, high)


def halve_step_right(low: Tensor, high: Tensor, sequence: Tensor, values: Tensor) -> tuple[Tensor, ...]:
    """One step of a binary search for the first entry above each value."""
    active = low < high
    middle = torch.where(active, low + torch.div(high - low, 2, rounding_mode="floor"), 0)
    up = active & ~(sequence.gather(-1, middle) > values)
    return torch.where(up, middle + 1, low), torch.where(active & ~up, middle, high)


def search_open(low: Tensor, high: Tensor, *rest: Tensor) -> Tensor:
    """Whether some search goes on."""
    return (low < high).to(torch.int64).sum() > 0


def searchsorted(
    sequence: Tensor, values: Tensor, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Tensor | None = None
) -> Tensor:
    """aten.searchsorted.Tensor: ATen's own binary search, so that NaN and unsorted sequences come out alike."""
    dtype = torch.promote_types(sequence.dtype, values.dtype)
    ordered = sequence if sorter is None else sequence.gather(-1, sorter)
    ordered, wanted = wide_enough(ordered.to(dtype)), wide_enough(values.to(dtype))
    flat = wanted.reshape(-1) if sequence.ndim == 1 else wanted
    low = torch.zeros_like(flat, dtype=torch.int64)
    step = halve_step_right if right or side == "right" else halve_step_left
    place, _ = loop_until(step, search_open, (low, low + sequence.shape[-1]), (ordered, flat))
    return place.reshape(values.shape).to(torch.int32 if out_int32 else torch.int64)


def searchsorted_number(
    sequence: Tensor, value: float, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Tensor | None = None
) -> Tensor:
    """aten.searchsorted.Scalar."""
    one = torch.full((1,), value, dtype=sequence.dtype if sequence.dtype.is_floating_point or isinstance(value, int) else torch.float32)
    return searchsorted(sequence, one, out_int32=out_int32, right=right, side=side, sorter=sorter).reshape(())


def bucketize(x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """aten.bucketize.Tensor."""
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


def bucketize_number(x: float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """aten.bucketize.Scalar."""
    return searchsorted_number(boundaries, x, out_int32=out_int32, right=right)


def quantile_of_sorted(x: Tensor, q: Tensor, count: Tensor, dim: int, interpolation: str) -> Tensor:
    """Quantiles along the last axis: x [*, n] sorted, q [k], count [*, 1] of entries that take part; gives [*, k].

    As ATen: rank q (count - 1), and between neighbours linear, lower, higher, midpoint or nearest (half to even).
    """
    rank = q * (count - 1).to(q.dtype)
    rank = torch.where(rank < 0, 0.0, rank)
    if interpolation == "lower":
        rank = rank.floor()
    elif interpolation == "higher":
        rank = rank.ceil()
    elif interpolation == "nearest":
        rank = rank.round()
    below = rank.to(torch.int64)
    low = x.gather(-1, below)
    if interpolation not in ("linear", "midpoint"):
        return low
    high = x.gather(-1, rank.ceil().to(torch.int64))
    weight = torch.full_like(rank, 0.5) if interpolation == "midpoint" else rank - below.to(rank.dtype)
    return torch.lerp(low, high, weight)


def quantile_like(x: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool) -> Tensor:
    """torch.quantile or torch.nanquantile without the test that q lies in [0, 1]."""
    points = q.to(x.dtype) if isinstance(q, Tensor) else torch.full((), q, dtype=x.dtype)
    axis = 0 if dim is None else dim % max(x.ndim, 1)
    work = x.reshape(-1) if dim is None or x.ndim == 0 else x.movedim(axis, -1)
    work = work.gather(-1, order_of(work, -1, False))
    n = work.shape[-1]
    good = (work == work).to(torch.int64).sum(-1, keepdim=True)
    some = torch.broadcast_to(points.reshape(-1), (*work.shape[:-1], points.numel()))
    count = good if ignore_nan else torch.zeros_like(good) + n
    result = quantile_of_sorted(work, some, count, axis, interpolation)
    result = torch.where((good == 0) if ignore_nan else (good < n), math.nan, result)
    if dim is None:
        shape = [1] * x.ndim if keepdim else []
    elif x.ndim == 0:
        shape = []
    else:
        shape = [*x.shape[:axis], *([1] if keepdim else []), *x.shape[axis + 1 :]]
    if points.ndim == 0:
        return result.squeeze(-1).reshape(shape)
    return result.movedim(-1, 0).reshape([points.numel(), *shape])


def quantile_plain(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear", out: None = None
) -> Tensor:
    """torch.quantile, whose own body tests the value of q."""
    return quantile_like(input, q, dim, keepdim, interpolation, False)


def nanquantile_plain(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear", out: None = None
) -> Tensor:
    """torch.nanquantile."""
    return quantile_like(input, q, dim, keepdim, interpolation, True)


ORDER_DECOMPOSITIONS = {
    "aten.sort.stable": sort_stable,
    "aten.sort.default": sort_plain,
    "aten.median.default": median_all,
    "aten.median.dim": median_dim,
    "aten.nanmedian.default": nanmedian_all,
    "aten.nanmedian.dim": nanmedian_dim,
    "aten.kthvalue.default": kthvalue,
    "aten.mode.default": mode,
    "aten.searchsorted.Tensor": searchsorted,
    "aten.searchsorted.Scalar": searchsorted_number,
    "aten.bucketize.Tensor": bucketize,
    "aten.bucketize.Scalar": bucketize_number,
}

QUANTILE_OVERRIDES = {
    torch.quantile: quantile_plain,
    torch.Tensor.quantile: quantile_plain,
    torch.nanquantile: nanquantile_plain,
    torch.Tensor.nanquantile: nanquantile_plain,
}
