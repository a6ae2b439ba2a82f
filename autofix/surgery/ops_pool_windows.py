"""Pooling whose windows are as large as only the graph knows: `avg_pool2d(x, (h // 2, w // 2))`; swapped in before capture."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def as_sizes(value: Any, rank: int) -> list[Any]:
    """One number an axis."""
    values = list(value) if isinstance(value, (tuple, list, torch.Size)) else [value]
    return values * rank if len(values) == 1 else values


def window_total(size: Any, kernel: Any, step: Any, margin: Any, spread: Any, ceil: bool) -> Any:
    """Number of windows of an axis: pooling_output_shape in aten/src/ATen/native/Pool.h. With `ceil` the last window must
    start inside of the axis or of its left padding."""
    free = size + 2 * margin - spread * (kernel - 1) - 1
    count = (free + (step - 1 if ceil else 0)) // step + 1
    return torch.sym_min(count, (size + margin - 1) // step + 1) if ceil else count


def window_places(size: Any, kernel: Any, step: Any, margin: Any, spread: Any, ceil: bool) -> tuple[Tensor, Any]:
    """(positions of the entries of each window along an axis, negative or past the end in the padding; number of windows)."""
    count = window_total(size, kernel, step, margin, spread, ceil)
    for number in (kernel, count):
        if not isinstance(number, int):
            torch._check(number >= 0)
    first = torch.arange(count) * step - margin
    return first.unsqueeze(1) + torch.arange(kernel) * spread, count


def windows_along(x: Tensor, dim: int, places: Tensor, count: Any, kernel: Any, fill: float) -> Tensor:
    """The windows of an axis: `dim` becomes (window, entry); padding holds `fill`."""
    size = x.shape[dim]
    flat = places.reshape(-1)
    inside = torch.logical_and(flat >= 0, flat < size)
    taken = x.index_select(dim, flat.clamp(min=0).minimum(torch.scalar_tensor(size - 1, dtype=torch.int64)))
    shape = [-1 if d == dim else 1 for d in range(x.ndim)]
    taken = torch.where(inside.reshape(shape), taken, torch.full((), fill, dtype=x.dtype))
    return taken.reshape([*x.shape[:dim], count, kernel, *x.shape[dim + 1 :]])


def fixed(*groups: Any) -> bool:
    """Whether all these numbers are plain integers."""
    return all(type(n) is int for group in groups if group is not None for n in as_sizes(group, 1))


def average_windows(original: Callable[..., Tensor], rank: int) -> Callable[..., Tensor]:
    """avg_pool1d, 2d, 3d for symbolic kernels, strides and paddings. The divisor is that of aten/src/ATen/native/cpu/AvgPoolKernel.cpp."""

    def replacement(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        if fixed(kernel_size, stride, padding):
            more = () if rank == 1 else (divisor_override,)
            return original(input, kernel_size, stride if stride is not None else (), padding, ceil_mode, count_include_pad, *more)
        kernels, margins = as_sizes(kernel_size, rank), as_sizes(padding, rank)
        steps = kernels if stride is None or stride == () or stride == [] else as_sizes(stride, rank)
        out, divisor = input, torch.ones((), dtype=input.dtype)
        for k in range(rank):
            dim = input.ndim - rank + k
            size = input.shape[dim]
            places, count = window_places(size, kernels[k], steps[k], margins[k], 1, ceil_mode)
            out = windows_along(out, dim, places, count, kernels[k], 0.0).sum(dim + 1)
            first = torch.arange(count) * steps[k] - margins[k]
            end = (first + kernels[k]).minimum(torch.scalar_tensor(size + margins[k], dtype=torch.int64))
            if not count_include_pad:
                end, first = end.minimum(torch.scalar_tensor(size, dtype=torch.int64)), first.clamp(min=0)
            divisor = divisor * (end - first).to(input.dtype).reshape([-1, *[1] * (rank - 1 - k)])
        return out / (divisor if divisor_override is None else divisor_override)

    return replacement


def largest_windows(original: Callable[..., Any], rank: int) -> Callable[..., Any]:
    """max_pool1d, 2d, 3d for symbolic kernels, strides and paddings."""

    def replacement(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        if fixed(kernel_size, stride, padding, dilation) and not any(needs_value(n) for n in input.shape[-rank:]):
            more = {"return_indices": True} if return_indices else {}
            return original(input, kernel_size, stride if stride is not None else (), padding, dilation, ceil_mode, **more)
        if return_indices:
            raise TypeError("max pooling with indices needs windows of known sizes")
        kernels, margins, spreads = (as_sizes(v, rank) for v in (kernel_size, padding, dilation))
        steps = kernels if stride is None or stride == () or stride == [] else as_sizes(stride, rank)
        out = input
        lowest = -float("inf") if input.dtype.is_floating_point else torch.iinfo(input.dtype).min
        for k in range(rank):
            dim = input.ndim - rank + k
            places, count = window_places(input.shape[dim], kernels[k], steps[k], margins[k], spreads[k], ceil_mode)
            out = windows_along(out, dim, places, count, kernels[k], lowest).amax(dim + 1)
        return out

    return replacement


def needs_value(size: Any) -> bool:
    """Whether a size is known only at run time and has no example value: the kernel's own checks would ask for it."""
    return isinstance(size, torch.SymInt) and any(str(s).startswith("u") for s in size.node.expr.free_symbols)


def pool_overrides() -> dict[str, dict[Callable[..., Any], Callable[..., Any]]]:
    """{name: {torch function: replacement}}."""
    averages: Sequence[Any] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
    largest: Sequence[Any] = ((torch.max_pool1d, F.max_pool1d), (torch.max_pool2d, F.max_pool2d), (torch.max_pool3d, F.max_pool3d))
    table = {f"avg_pool{k + 1}d": {f: average_windows(f, k + 1)} for k, f in enumerate(averages)}
    return {**table, **{f"max_pool{k + 1}d": {f: largest_windows(f, k + 1) for f in both} for k, both in enumerate(largest)}}
