"""affine_grid and grid_sample of volumes at any size, and transposed convolution to a size that is known at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def grid_axis(size: int, align_corners: bool, dtype: torch.dtype) -> Tensor:
    """Centers of `size` cells over [-1, 1] (or its ends, with align_corners); 0 for one cell."""
    each = torch.arange(size).to(dtype)
    last = torch.scalar_tensor(size, dtype=dtype) - 1.0
    if not align_corners:
        return (each * 2.0 - last) / (last + 1.0)
    return (each * 2.0 - last) / torch.where(last > 0, last, 1.0)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """aten.affine_grid_generator for [N, C, H, W] and [N, C, D, H, W]."""
    spatial = list(size)[2:]
    rank = len(spatial)
    columns = []
    for k in reversed(range(rank)):
        shape = [1] * rank
        shape[k] = -1
        columns.append(grid_axis(spatial[k], align_corners, theta.dtype).reshape(shape).expand(spatial))
    columns.append(torch.ones_like(columns[0]))
    base = torch.stack(columns, -1).reshape(1, -1, rank + 1)
    return (base @ theta.mT).reshape(size[0], *spatial, rank)


def affine_grid_unchecked(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """torch.nn.functional.affine_grid, whose tests of the size fix it."""
    return affine_grid(theta, size, bool(align_corners))


def unnormalized(g: Tensor, size: int, align_corners: bool) -> Tensor:
    """[-1, 1] to places of an axis."""
    n = torch.scalar_tensor(size, dtype=g.dtype)
    return (g + 1.0) * 0.5 * (n - 1.0) if align_corners else ((g + 1.0) * n - 1.0) * 0.5


def reflected_place(p: Tensor, low: Tensor, span: Tensor) -> Tensor:
    """p reflected into [low, low + span]."""
    away = (p - low).abs()
    safe = torch.where(span > 0, span, 1.0)
    extra = away - torch.floor(away / safe) * safe
    flips = torch.floor(away / safe)
    even = flips - 2.0 * torch.floor(flips * 0.5) == 0
    return torch.where(span > 0, torch.where(even, extra + low, span - extra + low), 0.0)


def padded_place(p: Tensor, size: int, padding: int, align_corners: bool, image: bool = False) -> Tensor:
    """Places moved inside for padding 1 (border) and 2 (reflection); as they are for 0 (zeros)."""
    last = torch.scalar_tensor(size, dtype=p.dtype) - 1.0
    if padding == 0:
        return p
    if padding == 2:
        low = torch.zeros_like(last) if align_corners else torch.zeros_like(last) - 0.5
        p = reflected_place(p, low, last if align_corners else last + 1.0)
    # NaN goes to the last place, as in ATen's clip; in its vectorised kernel for images to the first
    p = torch.where(p > 0, p, 0.0) if image else torch.where(p < 0, 0.0, p)
    return torch.where(p < last, p, last)


def corner(x: Tensor, places: Sequence[Tensor], weight: Tensor | None = None) -> Tensor:
    """x [N, C, *spatial] at whole places [N, *out] per axis, times a weight [N, *out]; 0 outside; gives [N, C, *out]."""
    spatial = x.shape[2:]
    inside = torch.ones_like(places[0], dtype=torch.bool)
    flat = torch.zeros_like(places[0], dtype=torch.int64)
    for p, size in zip(places, spatial, strict=True):
        good = (p >= 0) & (p <= size - 1)
        inside = inside & good
        flat = flat * size + torch.where(good, p, 0.0).to(torch.int64)
    n, c = x.shape[:2]
    out = places[0].shape[1:]
    index = flat.reshape(n, 1, -1).expand(n, c, -1)
    taken = x.reshape(n, c, -1).gather(2, index).reshape(n, c, *out)
    return torch.where(inside.unsqueeze(1), taken if weight is None else taken * weight.unsqueeze(1), 0.0)


def grid_sample_volume(x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """aten.grid_sampler_3d, and aten.grid_sampler_2d of images: linear (0) or nearest (1)."""
    spatial = x.shape[2:]
    rank = len(spatial)
    places = [
        padded_place(unnormalized(grid[..., rank - 1 - k], spatial[k], align_corners), spatial[k], padding_mode, align_corners, rank == 2)
        for k in range(rank)
    ]
    if interpolation_mode == 1:
        return corner(x, [torch.round(p) for p in places])
    lows = [torch.floor(p) for p in places]
    total: Tensor | None = None
    for bits in range(2**rank):
        picks = [lows[k] + float(bits >> k & 1) for k in range(rank)]
        weight: Any = 1.0
        for k in range(rank):
            part = places[k] - lows[k]
            weight = weight * (part if bits >> k & 1 else 1.0 - part)
        term = corner(x, picks, weight)
        total = term if total is None else total + term
    assert total is not None
    return total


def flexible_transposed(original: Callable[..., Tensor], rank: int) -> Callable[..., Tensor]:
    """torch.conv_transpose{rank}d that takes a symbolic output_padding: the greatest padding, then a cut to size."""

    def as_list(value: Any) -> list[Any]:
        return list(value) * (rank if len(value) == 1 else 1) if isinstance(value, (tuple, list, torch.Size)) else [value] * rank

    def replacement(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        extra, steps, spread, pads = as_list(output_padding), as_list(stride), as_list(dilation), as_list(padding)
        if all(isinstance(e, int) for e in extra):
            return original(input, weight, bias, stride, padding, output_padding, groups, dilation)
        most = [max(s, d) - 1 for s, d in zip(steps, spread, strict=True)]
        y = original(input, weight, bias, stride, padding, most, groups, dilation)
        lead = y.ndim - rank
        for k in range(rank):
            base = (input.shape[lead + k] - 1) * steps[k] - 2 * pads[k] + spread[k] * (weight.shape[2 + k] - 1) + 1
            y = y.narrow(lead + k, 0, base + extra[k])
        return y

    return replacement


GRID_OVERRIDES: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.nn.functional.affine_grid: affine_grid_unchecked,
    torch.affine_grid_generator: affine_grid_unchecked,
}


def transposed_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """torch function -> replacement."""
    names = ((1, "conv_transpose1d"), (2, "conv_transpose2d"), (3, "conv_transpose3d"))
    return {getattr(torch, name): flexible_transposed(getattr(torch, name), rank) for rank, name in names}


GRID_DECOMPOSITIONS = {
    "aten.affine_grid_generator.default": affine_grid,
    "aten.grid_sampler_3d.default": grid_sample_volume,
}


def grid_sample_any(x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """aten.grid_sampler, also of images: linear (0) or nearest (1) as for volumes, cubic (2) by torch's own decomposition."""
    if interpolation_mode == 2:
        from torch._decomp.decompositions import grid_sampler_2d

        made: Tensor = grid_sampler_2d(x, grid, interpolation_mode, padding_mode, align_corners)
        return made
    return grid_sample_volume(x, grid, interpolation_mode, padding_mode, align_corners)


GRID_SAMPLERS = {
    "aten.grid_sampler.default": grid_sample_any,
    "aten.grid_sampler_2d.default": grid_sample_any,
    "aten.grid_sampler_3d.default": grid_sample_volume,
}
