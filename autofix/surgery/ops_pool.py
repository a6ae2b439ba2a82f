"""Adaptive pooling to any size, at any size of the input: exact windows by gathering, one axis at a time for means.

Window i of n over an axis of size s runs from floor(i s / n) up to ceil((i + 1) s / n), as in ATen; none is longer than ceil(s / n) + 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor


def windows(size: int, count: int) -> tuple[Tensor, Tensor]:
    """Places [count, longest] of the entries of each window, and which of them belong to it; size and count may be symbolic."""
    each = torch.arange(count)
    start = torch.div(each * size, count, rounding_mode="floor")
    end = torch.div((each + 1) * size + count - 1, count, rounding_mode="floor")
    bins = torch.sym_max(count, 1)  # type: ignore[no-untyped-call]
    longest = (size + bins - 1) // bins + 1
    places = start.unsqueeze(-1) + torch.arange(longest)
    inside = places < end.unsqueeze(-1)
    return torch.where(inside, places, start.unsqueeze(-1)), inside


def gathered(x: Tensor, dim: int, places: Tensor) -> Tensor:
    """x with axis dim replaced by the two axes of places."""
    flat = x.index_select(dim, places.reshape(-1))
    return flat.reshape(*x.shape[:dim], *places.shape, *x.shape[dim + 1 :])


def adaptive_mean(x: Tensor, output: Sequence[int]) -> Tensor:
    """Adaptive average pooling of the last len(output) axes."""
    rank = len(output)
    work = x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)
    for k, count in enumerate(output):
        dim = x.ndim - rank + k
        if isinstance(count, int) and count == 1:
            work = work.sum(dim, keepdim=True) / x.shape[dim]
            continue
        places, inside = windows(x.shape[dim], count)
        shape = [1] * (rank - 1 - k)
        mask = inside.reshape(*inside.shape, *shape)
        total = torch.where(mask, gathered(work, dim, places), 0.0).sum(dim + 1)
        work = total / inside.sum(-1).to(work.dtype).reshape(-1, *shape)
    return work.to(x.dtype)


def adaptive_max(x: Tensor, output: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Adaptive max pooling of the last len(output) axes: (values, indices into those axes, flattened).

    Of equal entries the first counts, of several NaN the last, as in ATen's loops.
    """
    rank = len(output)
    lead = x.ndim - rank
    sizes = x.shape[lead:]
    work = x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)
    position = torch.zeros((), dtype=torch.int64)
    mask = torch.ones((), dtype=torch.bool)
    for k, count in enumerate(output):
        places, inside = windows(sizes[k], count)
        work = gathered(work, lead + 2 * k, places)
        tail = [1] * (2 * (rank - 1 - k))
        head = [1] * (2 * k)
        position = position * sizes[k] + places.reshape(*head, *places.shape, *tail)
        mask = mask & inside.reshape(*head, *inside.shape, *tail)
    order = [*range(lead), *(lead + 2 * k for k in range(rank)), *(lead + 2 * k + 1 for k in range(rank))]
    counts = [work.shape[lead + 2 * k] for k in range(rank)]
    area = math.prod(work.shape[lead + 2 * k + 1] for k in range(rank))
    inner = [*(2 * k for k in range(rank)), *(2 * k + 1 for k in range(rank))]
    work = torch.where(mask, work, -math.inf).permute(order).reshape(*x.shape[:lead], *counts, area)
    inside = mask.permute(inner).reshape(*counts, area)
    position = position.permute(inner).reshape(*counts, area)
    bad = (work != work) & inside
    rank_in_window = torch.arange(area)
    last_bad = torch.where(bad, rank_in_window, -1).amax(-1, keepdim=True)
    # a window of -inf alone starts with an entry that is inside
    first_best = torch.where(bad, math.inf, work).argmax(-1, keepdim=True)
    choice = torch.where(last_bad >= 0, last_bad, first_best)
    values = work.gather(-1, choice).squeeze(-1).to(x.dtype)
    indices = position.expand(work.shape).gather(-1, choice).squeeze(-1)
    return values, indices


def adaptive_avg_pool1d(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """aten.adaptive_avg_pool1d."""
    return adaptive_mean(x, output_size)


def adaptive_avg_pool2d(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """aten._adaptive_avg_pool2d, aten.adaptive_avg_pool2d."""
    return adaptive_mean(x, output_size)


def adaptive_avg_pool3d(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """aten._adaptive_avg_pool3d, aten.adaptive_avg_pool3d."""
    return adaptive_mean(x, output_size)


def adaptive_max_pool1d(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """aten.adaptive_max_pool1d."""
    return adaptive_max(x, output_size)


def adaptive_max_pool2d(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """aten.adaptive_max_pool2d."""
    return adaptive_max(x, output_size)


def adaptive_max_pool3d(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """aten.adaptive_max_pool3d."""
    return adaptive_max(x, output_size)


def window_counts(size: int, count: int, kernel: int, step: int, margin: int) -> Tensor:
    """Number of entries of an axis that each of `count` windows holds; its padding left out."""
    start = torch.arange(count) * step - margin
    return torch.clamp(start + kernel, max=size) - torch.clamp(start, min=0)


def mean_by_divisor(
    pool: Callable[..., Tensor],
    rank: int,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """aten.avg_pool2d and avg_pool3d with a divisor of their own: the mean of the entries times their number over the divisor."""
    if divisor_override is None:
        return NotImplemented  # type: ignore[no-any-return]
    y: Tensor = pool(x, kernel_size, stride, padding, ceil_mode, False)
    kernel, steps, margins = (list(v) * (rank if len(v) == 1 else 1) for v in (kernel_size, stride or kernel_size, padding))
    for k in range(rank):
        dim = x.ndim - rank + k
        counts = window_counts(x.shape[dim], y.shape[dim], kernel[k], steps[k], margins[k]).to(y.dtype)
        y = y * counts.reshape(-1, *([1] * (rank - 1 - k)))
    return y / divisor_override


AVERAGE_DECOMPOSITIONS = {
    "aten.avg_pool2d.default": partial(mean_by_divisor, torch.ops.aten.avg_pool2d.default, 2),
    "aten.avg_pool3d.default": partial(mean_by_divisor, torch.ops.aten.avg_pool3d.default, 3),
}
POOL_DECOMPOSITIONS = {
    "aten.adaptive_avg_pool1d.default": adaptive_avg_pool1d,
    "aten._adaptive_avg_pool2d.default": adaptive_avg_pool2d,
    "aten.adaptive_avg_pool2d.default": adaptive_avg_pool2d,
    "aten._adaptive_avg_pool3d.default": adaptive_avg_pool3d,
    "aten.adaptive_avg_pool3d.default": adaptive_avg_pool3d,
    "aten.adaptive_max_pool1d.default": adaptive_max_pool1d,
    "aten.adaptive_max_pool2d.default": adaptive_max_pool2d,
    "aten.adaptive_max_pool3d.default": adaptive_max_pool3d,
}
