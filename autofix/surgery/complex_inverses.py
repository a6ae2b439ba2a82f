"""Inverse circular and hyperbolic functions of complex numbers, written with real parts in float64.

Kahan, Branch Cuts for Complex Elementary Functions (1987): square roots of 1 - z and 1 + z keep the side of a branch cut and lose no digits.
"""

from __future__ import annotations

from typing import Any

import torch

from autofix.surgery.complex_elementwise import atan2_full
from autofix.surgery.complex_functions import complex_sqrt
from autofix.surgery.complex_tensor import RealPair
from autofix.surgery.ops_special import log1p_double


def wide_pair(a: Any) -> RealPair:
    """A pair of float64."""
    return RealPair(a.re.to(torch.float64), a.im.to(torch.float64))


def narrowed(a: Any, re: torch.Tensor, im: torch.Tensor) -> RealPair:
    """A pair in a's own dtype."""
    return RealPair(re.to(a.re.dtype), im.to(a.re.dtype))


def asinh_double(x: torch.Tensor) -> torch.Tensor:
    """asinh of float64, for which ONNX Runtime has no kernel: log1p(|x| + x^2 / (1 + sqrt(1 + x^2))) with x's sign."""
    size = x.abs()
    value = log1p_double(size + size * size / (1.0 + torch.sqrt(1.0 + size * size)))
    return torch.where(x < 0, -value, value)


def angle_of(a: Any, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """atan2(y, x) in a's own precision: ONNX Runtime has no float64 arctangent."""
    return atan2_full(y.to(a.re.dtype), x.to(a.re.dtype))


def roots_beside(z: RealPair) -> tuple[Any, Any]:
    """sqrt(1 - z) and sqrt(1 + z)."""
    return complex_sqrt(None, RealPair(1.0 - z.re, -z.im)), complex_sqrt(None, RealPair(1.0 + z.re, z.im))


def complex_asin(func: Any, a: Any) -> Any:
    """The inverse sine."""
    z = wide_pair(a)
    below, above = roots_beside(z)
    re = angle_of(a, z.re, below.re * above.re - below.im * above.im)
    return narrowed(a, re, asinh_double(below.re * above.im - below.im * above.re))


def complex_acos(func: Any, a: Any) -> Any:
    """The inverse cosine."""
    below, above = roots_beside(wide_pair(a))
    return narrowed(a, 2.0 * angle_of(a, below.re, above.re), asinh_double(above.re * below.im - above.im * below.re))


def complex_acosh(func: Any, a: Any) -> Any:
    """The inverse hyperbolic cosine."""
    z = wide_pair(a)
    below, above = complex_sqrt(None, RealPair(z.re - 1.0, z.im)), complex_sqrt(None, RealPair(z.re + 1.0, z.im))
    return narrowed(a, asinh_double(below.re * above.re + below.im * above.im), 2.0 * angle_of(a, below.im, above.re))


def complex_atanh(func: Any, a: Any) -> Any:
    """The inverse hyperbolic tangent: log1p(4x / ((1 - x)^2 + y^2)) / 4 + i atan2(2y, (1 - x)(1 + x) - y^2) / 2."""
    z = wide_pair(a)
    x, y = z.re, z.im
    size = x.abs()
    re = 0.25 * log1p_double(4.0 * size / ((1.0 - size) * (1.0 - size) + y * y))
    return narrowed(a, torch.where(x < 0, -re, re), 0.5 * angle_of(a, 2.0 * y, (1.0 - x) * (1.0 + x) - y * y))


def complex_asinh(func: Any, a: Any) -> Any:
    """asinh(a) = -i asin(i a)."""
    turned = complex_asin(func, RealPair(-a.im, a.re))
    return RealPair(turned.im, -turned.re)


def complex_atan(func: Any, a: Any) -> Any:
    """atan(a) = -i atanh(i a)."""
    turned = complex_atanh(func, RealPair(-a.im, a.re))
    return RealPair(turned.im, -turned.re)


COMPLEX_INVERSES: dict[str, Any] = {
    prefix + name: rule
    for prefix in ("", "prims::")
    for name, rule in {
        "asin": complex_asin,
        "acos": complex_acos,
        "atan": complex_atan,
        "asinh": complex_asinh,
        "acosh": complex_acosh,
        "atanh": complex_atanh,
    }.items()
}
