"""Gradient operators of padding, pooling and resizing, of picks by place, and of grids of sampling places.

Sources: padding, means and resizing are linear and work on each axis alone: y = A x B^T, so the gradient is A^T g B, where A^T is read off by
running the operator itself over an identity matrix; the gradient of a maximum goes to its place; sampling follows
aten/src/ATen/native/GridSampler.h and cpu/GridSamplerKernel.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from autofix.surgery.ops_grid import reflected_place, unnormalized

aten = torch.ops.aten


def along_axes(grad: Any, sizes: Any, run: Callable[[Any, int], Any]) -> Any:
    """The gradient of an operator that is linear along each of the last axes; run(identity (1, n, n), axis number) -> (1, n, output size)."""
    for axis, size in enumerate(sizes):
        matrix, last_first = run(torch.eye(size, dtype=grad.dtype).unsqueeze(0), axis)[0], axis - len(sizes)
        if last_first == -1:
            grad = grad @ matrix.mT
        elif last_first == -2:
            grad = matrix @ grad
        else:
            grad = (grad.movedim(last_first, -1) @ matrix.mT).movedim(-1, last_first)
    return grad


def pad_backward(forward: Any, grad: Any, x: Any, padding: Any) -> Any:
    """aten.replication_pad1d_backward and aten.reflection_pad1d_backward to 3d; `padding` begins with the last axis, forward: the operator of one."""
    rank = len(padding) // 2

    def run(eye: Any, axis: int) -> Any:
        last_first = rank - 1 - axis
        return forward(eye, padding[2 * last_first : 2 * last_first + 2])

    return along_axes(grad, x.shape[-rank:], run)


def each_axis(rank: int, value: Any, otherwise: Any = None) -> list[Any]:
    """One number an axis from a list of none, one or all."""
    given = list(value) or list(otherwise)
    return given if len(given) == rank else given * rank


def avg_pool_backward(
    rank: int, grad: Any, x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, divisor_override: Any
) -> Any:
    """aten.avg_pool2d_backward and 3d; with a divisor of its own only where all windows are whole (else NotImplementedError)."""
    kernel, padding = each_axis(rank, kernel_size), each_axis(rank, padding)
    stride = each_axis(rank, stride, kernel)
    if divisor_override is not None and ceil_mode:
        raise NotImplementedError(f"avg_pool{rank}d_backward with divisor_override and ceil_mode")
    counted = count_include_pad or divisor_override is not None

    def run(eye: Any, axis: int) -> Any:
        return aten.avg_pool1d(eye, [kernel[axis]], [stride[axis]], [padding[axis]], ceil_mode, counted)

    made = along_axes(grad, x.shape[-rank:], run)
    return made if divisor_override is None else made * (math.prod(kernel) / divisor_override)


def adaptive_avg_pool_backward(rank: int, grad: Any, x: Any) -> Any:
    """aten._adaptive_avg_pool2d_backward and 3d."""
    return along_axes(grad, x.shape[-rank:], lambda eye, axis: aten.adaptive_avg_pool1d(eye, [grad.shape[axis - rank]]))


def nearest_backward(forward: Any, grad: Any, output_size: Any, input_size: Any, *scales: Any) -> Any:
    """aten.upsample_nearest1d_backward and aten._upsample_nearest_exact1d_backward to 3d; forward: the operator of one axis."""
    given = [*scales, *[None] * (len(output_size) - len(scales))]
    return along_axes(grad, input_size[2:], lambda eye, axis: forward(eye, [output_size[axis]], given[axis]))


def linear_backward(grad: Any, output_size: Any, input_size: Any, align_corners: bool, *scales: Any) -> Any:
    """aten.upsample_linear1d_backward, bilinear2d and trilinear3d."""
    given = [*scales, *[None] * (len(output_size) - len(scales))]
    return along_axes(grad, input_size[2:], lambda eye, axis: aten.upsample_linear1d(eye, [output_size[axis]], align_corners, given[axis]))


def plane_backward(forward: Any, grad: Any, output_size: Any, input_size: Any, align_corners: bool, *scales: Any) -> Any:
    """aten.upsample_bicubic2d_backward, and those with antialiasing, by the operator on images whose columns are the
    identity's; they stay as they are where the width stays."""
    given = [*scales, *[None] * (2 - len(scales))]

    def run(eye: Any, axis: int) -> Any:
        return forward(eye.unsqueeze(1), [output_size[axis], input_size[2 + axis]], align_corners, given[axis], None).squeeze(1).mT

    return along_axes(grad, input_size[2:], run)


def to_places(rank: int, grad: Any, x: Any, *rest: Any) -> Any:
    """A gradient handed to the places that a pooling took its values from: the last argument, flat indices into the last `rank` axes."""
    lead = x.shape[: x.ndim - rank]
    flat = torch.zeros_like(x).reshape(*lead, -1)
    return flat.scatter_add(-1, rest[-1].reshape(*lead, -1), grad.reshape(*lead, -1)).reshape(x.shape)


def place_and_slope(g: Any, size: Any, padding: int, align_corners: bool) -> tuple[Any, Any]:
    """Where a coordinate of a grid lies along an axis, and by how much that moves with it."""
    last = torch.scalar_tensor(size, dtype=g.dtype) - 1.0
    place = unnormalized(g, size, align_corners)
    slope = torch.ones_like(place) * (last if align_corners else last + 1.0) * 0.5
    if padding == 0:
        return place, slope
    if padding == 2:
        low = torch.zeros_like(last) if align_corners else torch.zeros_like(last) - 0.5
        span = last if align_corners else last + 1.0
        odd = torch.floor((place - low).abs() / torch.where(span > 0, span, 1.0)) * 0.5
        back = (torch.floor(odd) != odd) != (place < low)
        slope = torch.where(span > 0, torch.where(back, -slope, slope), 0.0)
        place = reflected_place(place, low, span)
    inside = (place > 0) & (place < last)
    place = torch.where(place > 0, place, 0.0)
    return torch.where(place < last, place, last), torch.where(inside, slope, 0.0)


def grid_sampler_backward(
    grad: Any, x: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool, output_mask: Any
) -> tuple[Any, Any]:
    """aten.grid_sampler_2d_backward and 3d: (for x, for the grid); linear (0) and nearest (1)."""
    if interpolation_mode > 1:
        raise NotImplementedError("the gradient of cubic sampling")
    spatial, (n, c), rank = x.shape[2:], x.shape[:2], x.ndim - 2
    found = [place_and_slope(grid[..., rank - 1 - k], spatial[k], padding_mode, align_corners) for k in range(rank)]
    flat = x.reshape(n, c, -1)
    pushed = grad.reshape(n, c, -1)
    for_x, for_grid = torch.zeros_like(flat), [torch.zeros_like(grid[..., 0]) for _ in range(rank)]
    for bits in range(2**rank if interpolation_mode == 0 else 1):
        index, inside = torch.zeros_like(grid[..., 0], dtype=torch.int64), torch.ones_like(grid[..., 0], dtype=torch.bool)
        weights, signs = [], []
        for k, (place, _) in enumerate(found):
            low = torch.floor(place) if interpolation_mode == 0 else torch.round(place)
            upper = bool(bits >> k & 1)
            pick = low + 1.0 if upper else low
            good = (pick >= 0) & (pick <= spatial[k] - 1)
            index = index * spatial[k] + torch.where(good, pick, 0.0).to(torch.int64)
            inside = inside & good
            part = place - low if interpolation_mode == 0 else torch.zeros_like(place)
            weights.append(part if upper else 1.0 - part)
            signs.append(1.0 if upper else -1.0)
        at = index.reshape(n, 1, -1).expand(n, c, -1)
        held = inside.reshape(n, 1, -1)
        share = math.prod(weights[1:], start=weights[0]).reshape(n, 1, -1)
        for_x = for_x.scatter_add(2, at, torch.where(held, pushed * share, 0.0))
        if output_mask[1] and interpolation_mode == 0:
            along = torch.where(held, pushed * flat.gather(2, at), 0.0).sum(1).reshape(inside.shape)
            for k in range(rank):
                others = [w for j, w in enumerate(weights) if j != k]
                for_grid[k] = for_grid[k] + along * math.prod(others[1:], start=others[0]) * signs[k]
    turned = [for_grid[k] * found[k][1] for k in reversed(range(rank))]
    return for_x.reshape(x.shape), torch.stack(turned, -1) if output_mask[1] else None


def counting_losses() -> dict[str, Callable[..., Any]]:
    """Negative log likelihoods that give the total weight as well, by which gradients are divided; the exporter's own forms give 1."""
    from torch._decomp import decompositions

    names = ("nll_loss_forward", "nll_loss2d_forward")
    return {f"aten.{name}.default": getattr(decompositions, name) for name in names}


PLACE_GRADIENTS: dict[str, Callable[..., Any]] = {
    **{f"aten.replication_pad{rank}d_backward.default": partial(pad_backward, aten.replication_pad1d) for rank in (1, 2, 3)},
    **{f"aten.reflection_pad{rank}d_backward.default": partial(pad_backward, aten.reflection_pad1d) for rank in (1, 2, 3)},
    **{f"aten.avg_pool{rank}d_backward.default": partial(avg_pool_backward, rank) for rank in (2, 3)},
    **{f"aten._adaptive_avg_pool{rank}d_backward.default": partial(adaptive_avg_pool_backward, rank) for rank in (2, 3)},
    **{f"aten.upsample_nearest{rank}d_backward.default": partial(nearest_backward, aten.upsample_nearest1d.default) for rank in (1, 2, 3)},
    **{
        f"aten._upsample_nearest_exact{rank}d_backward.default": partial(nearest_backward, aten._upsample_nearest_exact1d.default)
        for rank in (1, 2, 3)
    },
    "aten.upsample_linear1d_backward.default": linear_backward,
    "aten.upsample_bilinear2d_backward.default": linear_backward,
    "aten.upsample_trilinear3d_backward.default": linear_backward,
    "aten.upsample_bicubic2d_backward.default": partial(plane_backward, aten.upsample_bicubic2d.default),
    "aten._upsample_bilinear2d_aa_backward.default": partial(plane_backward, aten._upsample_bilinear2d_aa.default),
    "aten._upsample_bicubic2d_aa_backward.default": partial(plane_backward, aten._upsample_bicubic2d_aa.default),
    "aten.max_pool2d_with_indices_backward.default": partial(to_places, 2),
    "aten.max_pool3d_with_indices_backward.default": partial(to_places, 3),
    "aten.adaptive_max_pool2d_backward.default": partial(to_places, 2),
    "aten.adaptive_max_pool3d_backward.default": partial(to_places, 3),
    "aten.fractional_max_pool2d_backward.default": partial(to_places, 2),
    "aten.fractional_max_pool3d_backward.default": partial(to_places, 3),
    "aten.grid_sampler_2d_backward.default": grid_sampler_backward,
    "aten.grid_sampler_3d_backward.default": grid_sampler_backward,
}
