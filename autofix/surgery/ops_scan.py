"""Scans along an axis: cummax, cummin, cumprod, logcumsumexp, by doubling (Hillis and Steele 1986) in about log2(n) steps.

Sums and products run in float64, as ATen's CPU kernels accumulate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from autofix.surgery.ops_loop import loop_until

Combine = Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]
"""An associative function of (what came earlier, what came later)."""


def scan_last_axis(combine: Combine, values: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Inclusive scan of tensors of one shape along their last axis."""
    count = values[0].shape[-1]
    place = torch.arange(count)

    def step(reach: Tensor, last: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        *now, at = rest
        source = at - reach
        inside = source >= 0
        taken = torch.where(inside, source, 0)
        earlier = [v.index_select(-1, taken) for v in now]
        both = combine(earlier, now)
        return (reach * 2, last.clone(), *(torch.where(inside, new, old) for new, old in zip(both, now, strict=True)), at.clone())

    def more(reach: Tensor, last: Tensor, *rest: Tensor) -> Tensor:
        return reach < last

    start = (torch.ones((), dtype=torch.int64), torch.full((), count, dtype=torch.int64), *values, place)
    return loop_until(step, more, start)[2:-1]


def later_if_more(earlier: Sequence[Tensor], later: Sequence[Tensor]) -> Sequence[Tensor]:
    """Maximum with its place; ties and NaN go to the later one."""
    pick = (later[0] >= earlier[0]) | (later[0] != later[0])
    return torch.where(pick, later[0], earlier[0]), torch.where(pick, later[1], earlier[1])


def later_if_less(earlier: Sequence[Tensor], later: Sequence[Tensor]) -> Sequence[Tensor]:
    """Minimum with its place; ties and NaN go to the later one."""
    pick = (later[0] <= earlier[0]) | (later[0] != later[0])
    return torch.where(pick, later[0], earlier[0]), torch.where(pick, later[1], earlier[1])


def product_of_two(earlier: Sequence[Tensor], later: Sequence[Tensor]) -> Sequence[Tensor]:
    """Product."""
    return (earlier[0] * later[0],)


def log_sum_of_two(earlier: Sequence[Tensor], later: Sequence[Tensor]) -> Sequence[Tensor]:
    """log(exp(a) + exp(b)), float64; equal infinities stay, NaN spreads."""
    a, b = earlier[0], later[0]
    high = torch.where((a > b) | (a != a), a, b)
    low = torch.where((a > b) | (a != a), b, a)
    gap = torch.where(high.abs() == math.inf, torch.where(low == low, -math.inf, math.nan), low - high)
    return (high + torch.log(1.0 + torch.exp(gap)),)


def scanned_dtype(x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of a cumulative sum or product."""
    if dtype is not None:
        return dtype
    return x.dtype if x.dtype.is_floating_point else torch.int64


def wide_enough(x: Tensor) -> Tensor:
    """x in a dtype that ONNX Runtime compares and selects: float16 and bfloat16 as float32, small integers and bool as int64."""
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.to(torch.float32)
    if x.dtype in (torch.bool, torch.uint8, torch.int8, torch.int16):
        return x.to(torch.int64)
    return x


def extreme_scan(x: Tensor, dim: int, combine: Combine) -> tuple[Tensor, Tensor]:
    """cummax or cummin: (values, indices)."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    work = wide_enough(x).movedim(dim, -1)
    places = torch.arange(work.shape[-1]).expand(work.shape)
    values, indices = scan_last_axis(combine, (work, places))
    return values.movedim(-1, dim).to(x.dtype), indices.movedim(-1, dim)


def cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """aten.cummax."""
    return extreme_scan(x, dim, later_if_more)


def cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """aten.cummin."""
    return extreme_scan(x, dim, later_if_less)


def cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """aten.cumprod."""
    wanted = scanned_dtype(x, dtype)
    work = x.to(wanted).to(torch.float64 if wanted.is_floating_point else torch.int64)
    if x.ndim == 0:
        return x.to(wanted)
    return scan_last_axis(product_of_two, (work.movedim(dim, -1),))[0].movedim(-1, dim).to(wanted)


def cumsum(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """aten.cumsum: half precision, integers and bool, whose dtype the exporter gets wrong; float32 summed in float64."""
    wanted = scanned_dtype(x, dtype)
    if wanted == x.dtype and wanted in (torch.float64, torch.int64):
        return NotImplemented  # type: ignore[no-any-return]
    work = torch.float64 if wanted.is_floating_point else torch.int64
    return torch.cumsum(x.to(wanted).to(work), dim).to(wanted)


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """aten.logcumsumexp."""
    if x.ndim == 0:
        return x.clone()
    return scan_last_axis(log_sum_of_two, (x.to(torch.float64).movedim(dim, -1),))[0].movedim(-1, dim).to(x.dtype)


def whole_product(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """aten.prod.dim_int of whole numbers, which wraps as PyTorch's does: ONNX Runtime's ReduceProd rounds above 2^53 and saturates."""
    if x.dtype.is_floating_point or x.dtype.is_complex or (dtype is not None and dtype.is_floating_point) or not x.ndim:
        return NotImplemented  # type: ignore[no-any-return]
    moved = x.to(dtype or torch.int64).movedim(dim, -1)
    start = torch.ones_like(moved.sum(-1, keepdim=True))
    total = cumprod(torch.cat([start, moved], -1), -1).select(-1, moved.shape[-1])
    return total.unsqueeze(dim) if keepdim else total


def whole_product_of_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """aten.prod.default of whole numbers."""
    return whole_product(x.reshape(-1), 0, dtype=dtype) if not x.dtype.is_floating_point else NotImplemented


PRODUCT_DECOMPOSITIONS = {"aten.prod.default": whole_product_of_all, "aten.prod.dim_int": whole_product}
SCAN_DECOMPOSITIONS = {
    "aten.cummax.default": cummax,
    "aten.cummin.default": cummin,
    "aten.cumprod.default": cumprod,
    "aten.cumsum.default": cumsum,
    "aten.logcumsumexp.default": logcumsumexp,
}
