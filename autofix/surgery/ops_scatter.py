"""Reductions by index: scatter with a reduction, scatter_reduce, index_reduce, segment_reduce, index_put of repeated indices; and cdist, pdist.

ONNX's ScatterElements adds, multiplies and takes extremes over repeated indices, always including what was there; means, exclusion of what was
there, and NaN in extremes are built around it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autofix.surgery.ops_order import searchsorted


def matched_source(index: Tensor, source: Tensor) -> Tensor:
    """The part of source that index covers: ScatterElements wants equal shapes."""
    for d in range(index.ndim):
        here, there = index.shape[d], source.shape[d]
        if not (isinstance(here, int) and isinstance(there, int) and here == there) and str(here) != str(there):
            source = source.narrow(d, 0, here)
    return source


def lowest_of(dtype: torch.dtype) -> float:
    """The identity of max."""
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def highest_of(dtype: torch.dtype) -> float:
    """The identity of min."""
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max


def emptied(x: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    """x with the entries that index meets set to a value."""
    return x.scatter(dim, index, torch.full_like(index, value, dtype=x.dtype))


def scattered_count(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """How often index meets each entry, int64."""
    return torch.zeros_like(x, dtype=torch.int64).scatter_add(dim, index, torch.ones_like(index))


def scatter_reduced(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool) -> Tensor:
    """scatter_reduce for tensors of one dimension or more whose source has index's shape."""
    if reduce == "sum":
        return (x if include_self else emptied(x, dim, index, 0)).scatter_add(dim, index, source)
    if reduce == "prod":
        return (x if include_self else emptied(x, dim, index, 1)).scatter_reduce(dim, index, source, "prod", include_self=True)
    if reduce == "mean":
        total = (x if include_self else emptied(x, dim, index, 0)).scatter_add(dim, index, source)
        count = scattered_count(x, dim, index)
        count = count + 1 if include_self else torch.where(count == 0, 1, count)
        if x.dtype.is_floating_point:
            return total / count.to(x.dtype)
        return torch.div(total, count.to(x.dtype), rounding_mode="floor")
    start = x if include_self else emptied(x, dim, index, lowest_of(x.dtype) if reduce == "amax" else highest_of(x.dtype))
    if not x.dtype.is_floating_point:
        return start.scatter_reduce(dim, index, source, reduce, include_self=True)
    bad = source != source
    neutral = lowest_of(x.dtype) if reduce == "amax" else highest_of(x.dtype)
    result = start.scatter_reduce(dim, index, torch.where(bad, neutral, source), reduce, include_self=True)
    spoiled = torch.zeros_like(x, dtype=torch.int64).scatter_add(dim, index, bad.to(torch.int64)) > 0
    return torch.where(spoiled | (start != start), math.nan, result)


def scatter_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """aten.scatter_reduce.two; products and extremes that include what was there are ONNX's own."""
    if x.ndim == 0:
        return scatter_reduced(x.reshape(1), 0, index.reshape(1), source.reshape(1), reduce, include_self).reshape(())
    fits = matched_source(index, source)
    if include_self and reduce in ("prod", "amax", "amin") and fits is source:
        return NotImplemented  # type: ignore[no-any-return]
    return scatter_reduced(x, dim, index, fits, reduce, include_self)


REDUCE_NAMES = {"add": "sum", "multiply": "prod"}
"""torch.scatter's names for a reduction by scatter_reduce's."""


def scatter_with(x: Tensor, dim: int, index: Tensor, source: Tensor, *, reduce: str) -> Tensor:
    """aten.scatter.reduce."""
    return torch.scatter_reduce(x, dim, index, matched_source(index, source) if x.ndim else source, REDUCE_NAMES[reduce], include_self=True)


def scatter_number_with(x: Tensor, dim: int, index: Tensor, value: float, *, reduce: str) -> Tensor:
    """aten.scatter.value_reduce."""
    return scatter_with(x, dim, index, torch.full_like(index, value, dtype=x.dtype), reduce=reduce)


def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """aten.scatter_add of a 0-d tensor, or with more source than index."""
    if x.ndim == 0:
        return x.reshape(1).scatter_add(0, index.reshape(1), source.reshape(1)).reshape(())
    fits = matched_source(index, source)
    return NotImplemented if fits is source else x.scatter_add(dim, index, fits)


def widened_index(index: Tensor, like: Tensor, dim: int) -> Tensor:
    """A 1-d index along dim in the shape of `like`."""
    shape = [1] * like.ndim
    shape[dim] = -1
    return index.reshape(shape).expand(like.shape)


def index_reduce(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """aten.index_reduce."""
    if x.ndim == 0:
        return scatter_reduced(x.reshape(1), 0, index.reshape(1), source.reshape(1), reduce, include_self).reshape(())
    dim = dim % x.ndim
    return scatter_reduced(x, dim, widened_index(index, source, dim), source, reduce, include_self)


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """aten.index_add."""
    if x.ndim == 0:
        return x + source.reshape(()) * alpha
    dim = dim % x.ndim
    return x.scatter_add(dim, widened_index(index, source, dim), source * alpha if alpha != 1 else source)


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """aten.put: into the flattened tensor."""
    flat, places, values = x.reshape(-1), index.reshape(-1), source.reshape(-1)
    places = torch.where(places < 0, places + flat.shape[0], places)
    flat = flat.scatter_add(0, places, values) if accumulate else flat.scatter(0, places, values)
    return flat.reshape(x.shape)


def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """aten.diagonal_scatter by a mask: element (i, i + offset) of the two axes comes from src. torch's own decomposition writes in place."""
    x = torch.movedim(input, (dim1, dim2), (-2, -1))
    rows = torch.arange(x.shape[-2], dtype=torch.int64)
    columns = torch.arange(x.shape[-1], dtype=torch.int64)
    on_diagonal = columns.unsqueeze(0) == rows.unsqueeze(1) + offset
    at = torch.clamp(rows if offset >= 0 else columns, max=src.shape[-1] - 1)
    values = torch.index_select(src, -1, at).unsqueeze(-1 if offset >= 0 else -2)
    return torch.movedim(torch.where(on_diagonal, values, x), (-2, -1), (dim1, dim2))


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """aten.masked_select: the entries of the common shape where the mask is true."""
    values, chosen = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]
    return values.reshape(-1).index_select(0, chosen.reshape(-1).nonzero().squeeze(1))  # type: ignore[no-any-return]


SEGMENT_EMPTY = {"sum": 0.0, "mean": math.nan, "max": -math.inf, "min": math.inf, "prod": 1.0}
"""What an empty segment reduces to."""


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """aten.segment_reduce along the first axis, for one list of lengths or offsets."""
    if axis != 0 or (lengths is None and offsets is None):
        return NotImplemented  # type: ignore[no-any-return]
    if lengths is not None:
        ends = lengths.to(torch.int64).cumsum(0)
    else:
        assert offsets is not None
        ends = offsets.to(torch.int64).narrow(0, 1, offsets.shape[0] - 1)
    segment = searchsorted(ends, torch.arange(data.shape[0]), right=True)
    empty = SEGMENT_EMPTY[reduce] if initial is None else initial
    start = torch.full((ends.shape[0], *data.shape[1:]), empty, dtype=data.dtype)
    name = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    return scatter_reduced(start, 0, widened_index(segment, data, 0), data, name, initial is not None and reduce != "mean")


def difference_norm(d: Tensor, p: float) -> Tensor:
    """The p-norm over the last axis, as ATen's distance kernels take it."""
    if p == 0:
        return (d != 0).to(d.dtype).sum(-1)
    if p == 1:
        return d.abs().sum(-1)
    if p == 2:
        return (d * d).sum(-1).sqrt()
    if p == math.inf:
        return d.abs().amax(-1)
    return (d.abs() ** p).sum(-1) ** (1.0 / p)


def cdist_forward(a: Tensor, b: Tensor, p: float, compute_mode: int | None = None) -> Tensor:
    """aten._cdist_forward: distances [*, n, m] between rows of a [*, n, k] and b [*, m, k].

    float32 with p = 2 by |a|^2 + |b|^2 - 2 a.b in float64, which needs no [n, m, k] of memory; all else from differences.
    """
    if p == 2 and a.dtype == torch.float32:
        x, y = a.to(torch.float64), b.to(torch.float64)
        square = (x * x).sum(-1).unsqueeze(-1) + (y * y).sum(-1).unsqueeze(-2) - 2.0 * (x @ y.mT)
        return torch.where(square < 0, 0.0, square).sqrt().to(a.dtype)
    return difference_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p)


def cdist(a: Tensor, b: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """aten.cdist."""
    return cdist_forward(a, b, p)


def pdist_forward(x: Tensor, p: float = 2.0) -> Tensor:
    """aten._pdist_forward, aten.pdist: distances between the pairs (i, j), i < j, in row order."""
    n = x.shape[0]
    k = torch.arange(n * (n - 1) // 2).to(torch.float64)
    side = torch.scalar_tensor(n, dtype=torch.float64) * 2.0 - 1.0
    row = torch.floor((side - torch.sqrt(side * side - 8.0 * k)) / 2.0)
    # the root may round to the wrong side of a whole number
    row = torch.where(k < row * (side - row) / 2.0, row - 1.0, row)
    row = torch.where(k >= (row + 1.0) * (side - row - 1.0) / 2.0, row + 1.0, row)
    column = k - row * (side - row) / 2.0 + row + 1.0
    return difference_norm(x.index_select(0, row.to(torch.int64)) - x.index_select(0, column.to(torch.int64)), p)


SCATTER_DECOMPOSITIONS = {
    "aten.scatter_reduce.two": scatter_reduce,
    "aten.scatter.reduce": scatter_with,
    "aten.scatter.value_reduce": scatter_number_with,
    "aten.scatter_add.default": scatter_add,
    "aten.index_reduce.default": index_reduce,
    "aten.index_add.default": index_add,
    "aten.put.default": put,
    "aten.diagonal_scatter.default": diagonal_scatter,
    "aten.masked_select.default": masked_select,
    "aten.segment_reduce.default": segment_reduce,
    "aten._cdist_forward.default": cdist_forward,
    "aten.cdist.default": cdist,
    "aten._pdist_forward.default": pdist_forward,
    "aten.pdist.default": pdist_forward,
}
