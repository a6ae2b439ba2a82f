"""Interpolation to any size, at any size of the input, by gathering with ATen's own float32 index arithmetic.

Source index of output i: nearest floor(i s), nearest-exact floor((i + 1/2) s), linear max((i + 1/2) s - 1/2, 0), or i (n_in - 1) / (n_out - 1) with
align_corners; s is n_in / n_out, or 1 / scale_factor where one is given. Antialiasing: triangle (or cubic, a = -1/2) weights of width max(s, 1) about
(i + 1/2) s, normalised (ATen's UpSampleKernel.cpp, after Pillow's resize).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def ratio(size: int, count: int, scale: float | Tensor | None, dtype: torch.dtype = torch.float32, same: bool = True) -> Tensor:
    """Input steps per output step, 0-d; `same`: 1 where the sizes are equal, whatever the scale (ATen does so except for nearest-exact and
    bicubic). A scale in a tensor is positive and float64."""
    if isinstance(scale, Tensor) or (scale is not None and scale > 0):
        step = (1.0 / scale if isinstance(scale, Tensor) else torch.full((), 1.0 / scale, dtype=torch.float64)).to(dtype)
        equal = torch.scalar_tensor(size, dtype=dtype) == torch.scalar_tensor(count, dtype=dtype)
        return torch.where(equal, 1.0, step) if same else step
    return torch.scalar_tensor(size, dtype=dtype) / torch.scalar_tensor(count, dtype=dtype)


def limited(index: Tensor, size: int) -> Tensor:
    """min(index, size - 1), int64."""
    return torch.where(index > size - 1, size - 1, index)


def nearest_axis(x: Tensor, dim: int, count: int, scale: float | Tensor | None, exact: bool) -> Tensor:
    """One axis of nearest or nearest-exact."""
    size = x.shape[dim]
    each = torch.arange(count).to(torch.float32)
    if exact:
        each = each + 0.5
    index = torch.floor(each * ratio(size, count, scale, same=not exact)).to(torch.int64)
    if scale is not None and not exact:  # ATen's nearest_idx takes twice the size apart, whatever the scale
        twice = torch.scalar_tensor(count, dtype=torch.int64) == 2 * torch.scalar_tensor(size, dtype=torch.int64)
        index = torch.where(twice, torch.arange(count) // 2, index)
    return x.index_select(dim, limited(index, size))


def linear_place(size: int, count: int, scale: float | Tensor | None, align_corners: bool, dtype: torch.dtype) -> Tensor:
    """Real source places [count] of linear interpolation."""
    each = torch.arange(count).to(dtype)
    if align_corners:
        steps = torch.scalar_tensor(count, dtype=dtype) - 1.0
        step = torch.where(steps > 0, (torch.scalar_tensor(size, dtype=dtype) - 1.0) / torch.where(steps > 0, steps, 1.0), 0.0)
        return each * step
    place = (each + 0.5) * ratio(size, count, scale, dtype) - 0.5
    return torch.where(place < 0, 0.0, place)


def along(weights: Tensor, dim: int, ndim: int) -> Tensor:
    """A vector shaped so that it multiplies axis dim."""
    return weights.reshape(-1, *[1] * (ndim - 1 - dim))


def linear_axis(x: Tensor, dim: int, count: int, scale: float | Tensor | None, align_corners: bool) -> Tensor:
    """One axis of linear, bilinear or trilinear."""
    size = x.shape[dim]
    place = linear_place(size, count, scale, align_corners, x.dtype)
    low = limited(torch.floor(place).to(torch.int64), size)
    high = limited(low + 1, size)
    part = place - low.to(x.dtype)
    part = along(torch.where(part > 1, 1.0, part), dim, x.ndim)
    return x.index_select(dim, low) * (1.0 - part) + x.index_select(dim, high) * part


def triangle(t: Tensor) -> Tensor:
    """The linear filter."""
    return torch.where(t.abs() < 1.0, 1.0 - t.abs(), 0.0)


def cubic_filter(t: Tensor, a: float) -> Tensor:
    """Keys' cubic convolution kernel."""
    t = t.abs()
    near = ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0
    far = (((t - 5.0) * t + 8.0) * t - 4.0) * a
    return torch.where(t < 1.0, near, torch.where(t < 2.0, far, 0.0))


def cubic_half(t: Tensor) -> Tensor:
    """Keys' kernel as antialiasing uses it."""
    return cubic_filter(t, -0.5)


def weighted_windows(x: Tensor, dim: int, places: Tensor, weights: Tensor, inside: Tensor) -> Tensor:
    """Sums over windows: places, weights and inside [count, width]; what lies outside a window does not count, not even NaN."""
    count, width = places.shape
    taken = x.index_select(dim, places.reshape(-1)).reshape(*x.shape[:dim], count, width, *x.shape[dim + 1 :])
    tail = [1] * (x.ndim - 1 - dim)
    shape = [count, width, *tail]
    return torch.where(inside.reshape(shape), taken * weights.reshape(shape), 0.0).sum(dim + 1)


def antialias_axis(
    x: Tensor, dim: int, count: int, scale: float | None, align_corners: bool, reach: int, kernel: Callable[[Tensor], Tensor]
) -> Tensor:
    """One axis of an antialiased resize; reach is half the kernel's width (1 linear, 2 cubic)."""
    size = x.shape[dim]
    dtype = x.dtype
    each = torch.arange(count).to(dtype)
    if align_corners:
        steps = torch.scalar_tensor(count, dtype=dtype) - 1.0
        step = torch.where(steps > 0, (torch.scalar_tensor(size, dtype=dtype) - 1.0) / torch.where(steps > 0, steps, 1.0), 0.0)
    else:
        step = ratio(size, count, scale, dtype)
    wide = torch.where(step > 1.0, step, 1.0)
    center = (each + 0.5) * step
    support = wide * float(reach)
    first = torch.floor(torch.where(center - support + 0.5 < 0, 0.0, center - support + 0.5))
    last = torch.floor(torch.where(center + support + 0.5 > size, float_of(size, dtype), center + support + 0.5))
    if align_corners:
        spans = torch.sym_max(count - 1, 1)  # type: ignore[no-untyped-call]
        width = 2 * reach * torch.sym_max(1, (size + spans - 2) // spans) + 2  # type: ignore[no-untyped-call]
    elif scale is not None and scale > 0:
        width = 2 * reach * max(1, math.ceil(1.0 / scale)) + 2
    else:
        width = 2 * reach * torch.sym_max(1, (size + count - 1) // count) + 2  # type: ignore[no-untyped-call]
    offset = torch.arange(width).to(dtype)
    place = first.unsqueeze(-1) + offset
    inside = place < last.unsqueeze(-1)
    weights = torch.where(inside, kernel((place - center.unsqueeze(-1) + 0.5) / wide), 0.0)
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total == 0, 1.0, total)
    return weighted_windows(x, dim, limited(place.to(torch.int64), size), weights, inside)


def float_of(size: int, dtype: torch.dtype) -> Tensor:
    """A size as a 0-d floating tensor."""
    return torch.scalar_tensor(size, dtype=dtype)


def cubic_axis(x: Tensor, dim: int, count: int, scale: float | Tensor | None, align_corners: bool) -> Tensor:
    """One axis of bicubic, a = -3/4, edges repeated."""
    size = x.shape[dim]
    each = torch.arange(count).to(x.dtype)
    if align_corners:
        place = linear_place(size, count, scale, True, x.dtype)
    else:
        place = (each + 0.5) * ratio(size, count, scale, x.dtype, False) - 0.5
    start = torch.floor(place)
    part = place - start
    total = torch.zeros((), dtype=x.dtype)
    for k in range(-1, 3):
        index = start.to(torch.int64) + k
        index = limited(torch.where(index < 0, 0, index), size)
        total = total + x.index_select(dim, index) * along(cubic_filter(part - float(k), -0.75), dim, x.ndim)
    return total


def floating(x: Tensor) -> Tensor:
    """x in a dtype for arithmetic: half precision as float32, uint8 as float32."""
    return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)


def back_to(x: Tensor, like: Tensor) -> Tensor:
    """x in another tensor's dtype; rounded where that is an integer's."""
    return x.to(like.dtype) if like.dtype.is_floating_point else torch.round(x).to(like.dtype)


def resized(x: Tensor, output: Sequence[int], scales: Sequence[float | Tensor | None], axis: Callable[..., Tensor], *more: object) -> Tensor:
    """Every spatial axis resized in turn."""
    work = floating(x)
    for k, count in enumerate(output):
        work = axis(work, x.ndim - len(output) + k, count, scales[k], *more)
    return back_to(work, x)


def output_sizes(x: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> tuple[Sequence[int], Sequence[float | None]]:
    """Sizes and scales of the .vec overloads."""
    if output_size is not None:
        return output_size, [None] * len(output_size)
    assert scale_factors is not None
    lead = x.ndim - len(scale_factors)
    return [int_of_product(x.shape[lead + k], s) for k, s in enumerate(scale_factors)], list(scale_factors)


def int_of_product(size: int, scale: float) -> int:
    """floor(size scale), for a symbolic size too."""
    return int(size * scale) if isinstance(size, int) else torch.sym_int(size * scale)
