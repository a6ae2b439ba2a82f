"""torch.nn.functional.interpolate by scale factors that are computed from sizes: as numbers of the graph, by the axis functions of ops_resize.

Output sizes are floor(size * factor) in double precision and source places are stepped by 1 / factor, as ATen does it (UpSample.h); a
symbolic factor would be fixed at the example's, or written in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from autofix.surgery.ops_resize import cubic_axis, linear_axis, resized
from autofix.surgery.ops_resize_table import resized_exactly
from autofix.surgery.source_numbers import real_number, whole_number

SMOOTH_AXES = {"linear": linear_axis, "bilinear": linear_axis, "trilinear": linear_axis, "bicubic": cubic_axis}


def interpolate_scaled(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """torch.nn.functional.interpolate; scale_factor may hold 0-d tensors. Raises NotImplementedError for antialiasing by such a factor."""
    factors = list(scale_factor) if isinstance(scale_factor, (list, tuple)) else [scale_factor] * (input.ndim - 2)
    if not any(isinstance(f, (Tensor, torch.SymFloat)) for f in factors):
        return torch.nn.functional.interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    known = [torch.as_tensor(real_number(f), dtype=torch.float64).reshape(()) for f in factors]
    counts = [whole_number(torch.floor(real_number(n) * f)) for n, f in zip(input.shape[2:], known, strict=True)]
    if recompute_scale_factor or mode == "area":
        return torch.nn.functional.interpolate(input, counts, None, mode, align_corners, None, antialias)
    if antialias:
        raise NotImplementedError("antialiasing by a scale factor that is computed from sizes")
    if mode in ("nearest", "nearest-exact"):
        return resized_exactly(input, counts, known, mode == "nearest-exact")
    return resized(input, counts, known, SMOOTH_AXES[mode], bool(align_corners))


def scaled_overrides() -> dict[Any, Any]:
    """Interpolation."""
    return {torch.nn.functional.interpolate: interpolate_scaled}
