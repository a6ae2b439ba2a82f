"""Fractional max pooling at given random samples, as ATen's FractionalMaxPool2d.cpp and FractionalMaxPool3d.cpp place the windows (Graham 2014)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from autofix.surgery.ops_pool_windows import as_sizes


def window_starts(samples: Tensor, size: Any, count: Any, kernel: int) -> Tensor:
    """First entries [N, C, count] of the windows along an axis: int((i + u) a) - int(u a) with a = (size - kernel) / (count - 1); the last window
    ends with the axis."""
    each = torch.arange(count)
    reach = torch.scalar_tensor(size, dtype=samples.dtype) - kernel
    steps = torch.scalar_tensor(count, dtype=samples.dtype) - 1
    slope = reach / torch.where(steps > 0, steps, 1.0)
    at = samples.unsqueeze(-1)
    moved = torch.trunc((each.to(samples.dtype) + at) * slope) - torch.trunc(at * slope)
    return torch.where(each < steps, moved, reach).to(torch.int64)


def fractional_max(x: Tensor, kernel: Sequence[int], output: Sequence[int], samples: Tensor, order: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(values, indices into the flattened axes) of [N, C, *spatial]; `order`: which sample places the windows of each axis.

    Of equal entries the first counts, of several NaN the last.
    """
    rank = len(kernel)
    spatial = x.shape[2:]
    position = torch.zeros((), dtype=torch.int64)
    for k in range(rank):
        starts = window_starts(samples[..., order[k]], spatial[k], output[k], kernel[k])
        places = starts.unsqueeze(-1) + torch.arange(kernel[k])
        shape = [1] * (2 * rank)
        shape[k], shape[rank + k] = output[k], kernel[k]
        position = position * spatial[k] + places.reshape(*starts.shape[:2], *shape)
    position = position.reshape(*position.shape[: 2 + rank], -1)
    seen = x.reshape(*x.shape[:2], -1).gather(2, position.reshape(*position.shape[:2], -1)).reshape(position.shape)
    bad = seen != seen
    last_bad = torch.where(bad, torch.arange(seen.shape[-1]), -1).amax(-1, keepdim=True)
    first_best = torch.where(bad, float("inf"), seen).argmax(-1, keepdim=True)
    choice = torch.where(last_bad >= 0, last_bad, first_best)
    return seen.gather(-1, choice).squeeze(-1), position.gather(-1, choice).squeeze(-1)


SAMPLE_ORDERS = {2: (1, 0), 3: (0, 1, 2)}
"""Which random sample places the windows of each axis: of images the first is that of the width."""


def fractional_max_pool(x: Tensor, kernel: Sequence[int], output: Sequence[int], samples: Tensor) -> tuple[Tensor, Tensor]:
    """aten.fractional_max_pool2d and 3d, of an image or volume alone, too."""
    order = SAMPLE_ORDERS[len(kernel)]
    if x.ndim == len(kernel) + 2:
        return fractional_max(x, kernel, output, samples, order)
    values, indices = fractional_max(x.unsqueeze(0), kernel, output, samples, order)
    return values.squeeze(0), indices.squeeze(0)


FRACTIONAL_DECOMPOSITIONS = {
    "aten.fractional_max_pool2d.default": fractional_max_pool,
    "aten.fractional_max_pool3d.default": fractional_max_pool,
}


def fractional_function(rank: int, both: bool) -> Callable[..., Any]:
    """fractional_max_pool{rank}d of torch.nn.functional; `both`: its form that always gives indices, too. The operator's own rule for shapes
    makes constants of dynamic sizes."""

    def replacement(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        spatial = input.shape[-rank:]
        if output_size is None:
            output_size = [int(size * part) for size, part in zip(spatial, as_sizes(output_ratio, rank), strict=True)]
        if _random_samples is None:
            batch = 1 if input.ndim == rank + 1 else input.shape[0]
            _random_samples = torch.rand(batch, input.shape[-rank - 1], rank, dtype=input.dtype)
        found = fractional_max_pool(input, as_sizes(kernel_size, rank), as_sizes(output_size, rank), _random_samples)
        return found if both or return_indices else found[0]

    return replacement


def fractional_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """torch function -> replacement."""
    table: dict[Callable[..., Any], Callable[..., Any]] = {}
    for rank in (2, 3):
        name = f"fractional_max_pool{rank}d"
        table[getattr(torch.nn.functional, name)] = fractional_function(rank, False)
        table[getattr(torch.nn.functional, f"{name}_with_indices")] = fractional_function(rank, True)
    return table
