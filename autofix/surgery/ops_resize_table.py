"""The interpolation operators of ATen, each overload with its signature, by the axis functions of ops_resize."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from autofix.surgery.ops_resize import antialias_axis, cubic_axis, cubic_half, linear_axis, nearest_axis, output_sizes, resized, triangle


def nearest_form(exact: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(default overload, vec overload) of nearest or nearest-exact."""

    def plain(x: Tensor, output_size: Sequence[int], *scales: float | None, **named: float | None) -> Tensor:
        given = list(scales) + [named.get(n) for n in ("scales", "scales_d", "scales_h", "scales_w") if n in named]
        given += [None] * (len(output_size) - len(given))
        return resized_exactly(x, output_size, given, exact)

    def vec(x: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> Tensor:
        return resized_exactly(x, *output_sizes(x, output_size, scale_factors), exact)

    return plain, vec


def resized_exactly(x: Tensor, output: Sequence[int], scales: Sequence[float | Tensor | None], exact: bool) -> Tensor:
    """Nearest keeps the dtype all the way."""
    for k, count in enumerate(output):
        x = nearest_axis(x, x.ndim - len(output) + k, count, scales[k], exact)
    return x


def smooth_form(axis: Callable[..., Tensor], *more: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(default overload, vec overload) of linear, cubic or an antialiased one."""

    def plain(x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None, **named: float | None) -> Tensor:
        given = list(scales) + [named.get(n) for n in ("scales", "scales_d", "scales_h", "scales_w") if n in named]
        given += [None] * (len(output_size) - len(given))
        return resized(x, output_size, given, axis, align_corners, *more)

    def vec(x: Tensor, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None) -> Tensor:
        sizes, scales = output_sizes(x, output_size, scale_factors)
        return resized(x, sizes, scales, axis, align_corners, *more)

    return plain, vec


def resize_table() -> dict[str, Callable[..., Any]]:
    """ATen name -> function, both overloads of each operator."""
    forms: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
    for d in (1, 2, 3):
        forms[f"upsample_nearest{d}d"] = nearest_form(False)
        forms[f"_upsample_nearest_exact{d}d"] = nearest_form(True)
    for name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"):
        forms[name] = smooth_form(linear_axis)
    forms["upsample_bicubic2d"] = smooth_form(cubic_axis)
    forms["_upsample_bilinear2d_aa"] = smooth_form(antialias_axis, 1, triangle)
    forms["_upsample_bicubic2d_aa"] = smooth_form(antialias_axis, 2, cubic_half)
    table: dict[str, Callable[..., Any]] = {}
    for name, (plain, vec) in forms.items():
        table[f"aten.{name}.default"] = plain
        table[f"aten.{name}.vec"] = vec
    return table
