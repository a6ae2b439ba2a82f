"""Adaptive pooling for any input and output size, also sizes that are only known at run time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def adaptive_windows(size: Any, bins: Any) -> tuple[Tensor, Tensor]:
    """Indices [bins, widest] into an axis and whether each counts. Window i runs from floor(i size / bins) to
    ceil((i + 1) size / bins) (PyTorch's AdaptiveAveragePooling kernel); places beyond a window repeat its last one."""
    axis = torch.arange(bins)
    starts = (axis * size).div(bins, rounding_mode="floor")
    ends = ((axis + 1) * size + bins - 1).div(bins, rounding_mode="floor")
    some = torch.sym_max(bins, 1) if isinstance(bins, torch.SymInt) else bins  # type: ignore[no-untyped-call]
    widest = (size + some - 1) // some + 1
    places = starts[:, None] + torch.arange(widest)[None]
    return torch.minimum(places, ends[:, None] - 1), places < ends[:, None]


def windows_of(x: Tensor, axis: int, places: Tensor) -> Tensor:
    """x with `axis` (not the last: whole rows are gathered much faster than single numbers) opened up into windows [bins, widest]."""
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    return x.index_select(axis, places.reshape(-1)).reshape(*before, *places.shape, *after)


def adaptive_pool_axis(x: Tensor, axis: int, bins: Any, largest: bool) -> Tensor:
    """Pool one axis (counted from the end) to `bins` places."""
    size = x.shape[axis]
    if type(size) is int and type(bins) is int and size == bins:
        return x
    if type(bins) is int and bins == 1:
        return x.amax(axis, keepdim=True) if largest else x.mean(axis, keepdim=True)
    if axis == -1:
        return adaptive_pool_axis(x.transpose(-1, -2), -2, bins, largest).transpose(-1, -2)
    places, counts = adaptive_windows(size, bins)
    if largest:
        return windows_of(x, axis, places).amax(axis)
    # places beyond a window are those of a row of zeros at the end, which adds nothing whatever x holds
    rows = torch.cat([x, torch.zeros_like(x.narrow(axis, 0, 1))], axis)
    inner = (1,) * (-1 - axis)
    return windows_of(rows, axis, torch.where(counts, places, size)).sum(axis) / counts.sum(-1).reshape(-1, *inner).to(x.dtype)


def adaptive_sizes(output_size: Any, dims: int) -> list[Any]:
    """One bin count an axis, which may be a symbolic size; None keeps an axis."""
    sizes = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size]
    return sizes * dims if len(sizes) == 1 else sizes


def adaptive_pool(x: Tensor, output_size: Any, dims: int, largest: bool) -> Tensor:
    """Adaptive average or maximum pooling over the last `dims` axes."""
    for axis, bins in zip(range(-dims, 0), adaptive_sizes(output_size, dims), strict=True):
        if bins is not None:
            x = adaptive_pool_axis(x, axis, bins, largest)
    return x


def adaptive_is_plain(x: Tensor, output_size: Any, dims: int) -> bool:
    """Whether exporters have a form of their own: every axis of known size and a multiple of its bins, or one bin."""
    for size, bins in zip(x.shape[-dims:], adaptive_sizes(output_size, dims), strict=True):
        if bins is None or (type(bins) is int and bins == 1):
            continue
        if not (type(size) is int and type(bins) is int and torch._C._get_tracing_state() is None and size % bins == 0):
            return False
    return True


def adaptive_avg_pool1d_any(input: Tensor, output_size: Any) -> Tensor:
    """For torch.adaptive_avg_pool1d."""
    return torch.adaptive_avg_pool1d(input, output_size) if adaptive_is_plain(input, output_size, 1) else adaptive_pool(input, output_size, 1, False)


def adaptive_avg_pool2d_any(input: Tensor, output_size: Any) -> Any:
    """For torch._C._nn.adaptive_avg_pool2d."""
    if adaptive_is_plain(input, output_size, 2):
        return torch._C._nn.adaptive_avg_pool2d(input, output_size)
    return adaptive_pool(input, output_size, 2, False)


def adaptive_avg_pool3d_any(input: Tensor, output_size: Any) -> Any:
    """For torch._C._nn.adaptive_avg_pool3d."""
    if adaptive_is_plain(input, output_size, 3):
        return torch._C._nn.adaptive_avg_pool3d(input, output_size)
    return adaptive_pool(input, output_size, 3, False)


def adaptive_max(x: Tensor, output_size: Any, dims: int) -> tuple[Tensor, Tensor]:
    """Maximum pooling and the flat index of each window's first maximum within the pooled axes; an exporter drops the latter where unused."""
    values = adaptive_pool(x, output_size, dims, True)
    flat = torch.arange(x[(0,) * (x.dim() - dims)].numel()).reshape(x.shape[-dims:]).expand(x.shape)
    for axis, bins in zip(range(-dims, 0), adaptive_sizes(output_size, dims), strict=True):
        if bins is None:
            continue
        if axis == -1:
            x, flat = x.transpose(-1, -2), flat.transpose(-1, -2)
        along = min(axis, -2)
        places, _ = adaptive_windows(x.shape[along], bins)
        window, place = (windows_of(value, along, places) for value in (x, flat))
        best = window.amax(along, keepdim=True)  # among equals, also those of other rows, PyTorch's kernel keeps the first in row-major order
        first = torch.where((window == best) | (window != window), place, torch.iinfo(place.dtype).max).amin(along)
        x, flat = best.squeeze(along), first
        if axis == -1:
            x, flat = x.transpose(-1, -2), flat.transpose(-1, -2)
    return values, flat


def adaptive_max_pool1d_any(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """For torch.nn.functional.adaptive_max_pool1d."""
    both = adaptive_max(input, output_size, 1)
    return both if return_indices else both[0]


def adaptive_max_pool1d_both(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """For torch's own adaptive_max_pool1d, which always gives the indices too."""
    return adaptive_max(input, output_size, 1)


def adaptive_max_pool2d_any(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """For torch.nn.functional.adaptive_max_pool2d."""
    both = adaptive_max(input, output_size, 2)
    return both if return_indices else both[0]


def adaptive_max_pool2d_both(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """For torch's own adaptive_max_pool2d, which always gives the indices too."""
    return adaptive_max(input, output_size, 2)


def adaptive_max_pool3d_any(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """For torch.nn.functional.adaptive_max_pool3d."""
    both = adaptive_max(input, output_size, 3)
    return both if return_indices else both[0]


def adaptive_max_pool3d_both(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """For torch's own adaptive_max_pool3d, which always gives the indices too."""
    return adaptive_max(input, output_size, 3)


def interpolate_area(otherwise: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """For torch.nn.functional.interpolate, whose mode "area" is adaptive average pooling; `otherwise` does the other modes."""

    def interpolate(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", *args: Any, **kwargs: Any) -> Tensor:
        dims = input.dim() - 2
        if mode != "area" or (size is None and isinstance(scale_factor, Tensor)):
            return otherwise(input, size, scale_factor, mode, *args, **kwargs)
        if size is None:
            factors = adaptive_sizes(scale_factor, dims)
            size = [math.floor(s * f) for s, f in zip(input.shape[2:], factors, strict=True)]
        return (adaptive_avg_pool1d_any, adaptive_avg_pool2d_any, adaptive_avg_pool3d_any)[dims - 1](input, adaptive_sizes(size, dims))

    return interpolate
