"""Convolutions whose number of groups is a size known at run time only: ONNX's Conv takes it as a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def one_per_axis(value: Any, rank: int) -> tuple[int, ...]:
    """A stride, padding or dilation as one number an axis."""
    return tuple(value) * (rank if len(value) == 1 else 1) if isinstance(value, (tuple, list)) else (value,) * rank


def grouped_by_size(original: Callable[..., Any], rank: int) -> Callable[..., Any]:
    """conv1d, conv2d or conv3d that accepts a symbolic number of groups.

    The definition of a grouped convolution: with the shifted, strided views of the padded input stacked as
    [N, groups, C/groups * places, outputs], each group is one product with its kernel of [O/groups, C/groups * places].
    """

    def convolve(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: Any = 1) -> Any:
        if type(groups) is int or input.dim() != rank + 2:
            return original(input, weight, bias, stride, padding, dilation, groups)
        steps, gaps = one_per_axis(stride, rank), one_per_axis(dilation, rank)
        kernel = [int(n) for n in weight.shape[2:]]
        if isinstance(padding, str):
            total = [0 if padding == "valid" else d * (k - 1) for d, k in zip(gaps, kernel, strict=True)]
            margins = [(t // 2, t - t // 2) for t in total]
        else:
            margins = [(p, p) for p in one_per_axis(padding, rank)]
        padded = torch.nn.functional.pad(input, [n for pair in reversed(margins) for n in pair])
        out = [(padded.shape[2 + i] - gaps[i] * (kernel[i] - 1) - 1) // steps[i] + 1 for i in range(rank)]
        places: list[tuple[int, ...]] = [()]
        for size in kernel:
            places = [(*p, i) for p in places for i in range(size)]
        views = []
        for place in places:
            view = padded
            for i in range(rank):
                start = place[i] * gaps[i]
                view = view[(slice(None),) * (2 + i) + (slice(start, start + (out[i] - 1) * steps[i] + 1, steps[i]),)]
            views.append(view)
        inner = weight.shape[1]
        batch = input.shape[0]
        count = len(places)
        columns = torch.stack(views, 2).reshape(batch, groups, inner * count, -1)
        kernels = weight.reshape(groups, weight.shape[0] // groups, inner * count)
        result = torch.matmul(kernels, columns).reshape(batch, weight.shape[0], *out)
        return result if bias is None else result + bias.reshape(-1, *([1] * rank))

    return convolve


def transposed_by_size(original: Callable[..., Any], rank: int) -> Callable[..., Any]:
    """conv_transpose1d, 2d or 3d that accepts a symbolic number of groups: the convolution of the input, zeros between its places, with the
    kernels turned round and their axes of channels swapped within each group."""

    def convolve(
        input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: Any = 1, dilation: Any = 1
    ) -> Any:
        if type(groups) is int or input.dim() != rank + 2:
            return original(input, weight, bias, stride, padding, output_padding, groups, dilation)
        steps, cut, more, gaps = (one_per_axis(v, rank) for v in (stride, padding, output_padding, dilation))
        kernel = [int(n) for n in weight.shape[2:]]
        for axis, step in enumerate(steps, 2):
            if step > 1:
                spread = torch.stack([input, *[torch.zeros_like(input)] * (step - 1)], axis + 1).flatten(axis, axis + 1)
                input = spread.narrow(axis, 0, (input.shape[axis] - 1) * step + 1)
        margins = [d * (k - 1) - p for d, k, p in zip(gaps, kernel, cut, strict=True)]
        padded = torch.nn.functional.pad(input, [n for m, extra in zip(reversed(margins), reversed(more), strict=True) for n in (m, m + extra)])
        swapped = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], *kernel).transpose(1, 2)
        turned = swapped.reshape(groups * weight.shape[1], weight.shape[0] // groups, *kernel).flip(list(range(2, 2 + rank)))
        return grouped_by_size(original, rank)(padded, turned, bias, 1, 0, dilation, groups)

    return convolve


def grouped_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """torch function -> replacement."""
    plain = {f: grouped_by_size(f, rank) for rank, f in enumerate((torch.conv1d, torch.conv2d, torch.conv3d), 1)}
    turned = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
    return {**plain, **{f: transposed_by_size(f, rank) for rank, f in enumerate(turned, 1)}}
