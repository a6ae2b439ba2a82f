"""Powers, exponentials, logarithms and circular functions of complex numbers, written with real parts."""

from __future__ import annotations

import math
from typing import Any

import torch

from autofix.surgery.complex_elementwise import atan2_full, complex_mul, hypot_scaled, pair_join, pair_operands
from autofix.surgery.complex_tensor import RealPair


def complex_exp(func: Any, a: Any) -> Any:
    """e^a."""
    size = torch.exp(a.re)
    return RealPair(size * torch.cos(a.im), size * torch.sin(a.im))


def complex_exp2(func: Any, a: Any) -> Any:
    """2^a."""
    return torch.exp(a * math.log(2.0))


def complex_log(func: Any, a: Any) -> Any:
    """The principal logarithm."""
    return RealPair(torch.log(hypot_scaled(a.re, a.im)), atan2_full(a.im, a.re))


def complex_log_scaled(a: Any, factor: float) -> Any:
    """log(a) * factor."""
    natural = complex_log(None, a)
    return RealPair(natural.re * factor, natural.im * factor)


def complex_log2(func: Any, a: Any) -> Any:
    """The principal logarithm to base 2."""
    return complex_log_scaled(a, 1.0 / math.log(2.0))


def complex_log10(func: Any, a: Any) -> Any:
    """The principal logarithm to base 10."""
    return complex_log_scaled(a, 1.0 / math.log(10.0))


def complex_sqrt(func: Any, a: Any) -> Any:
    """The principal square root."""
    half = torch.sqrt(0.5 * (a.re.abs() + hypot_scaled(a.re, a.im)))
    safe = torch.where(half == 0, torch.ones_like(half), half)
    other = a.im.abs() / (2.0 * safe)
    right = a.re >= 0
    re, im = torch.where(right, half, other), torch.where(right, other, half)
    negative = (a.im < 0) | ((a.im == 0) & (1.0 / a.im < 0))
    return RealPair(re, torch.where(negative, -im, im))


def complex_rsqrt(func: Any, a: Any) -> Any:
    """1 / sqrt(a)."""
    return torch.reciprocal(torch.sqrt(a))


def complex_square(func: Any, a: Any) -> Any:
    """a * a."""
    return complex_mul(func, a, a)


def complex_pow(func: Any, a: Any, b: Any) -> Any:
    """a ^ b; small whole exponents by multiplication, the rest through the logarithm."""
    if isinstance(b, (int, float)) and float(b) in (0.5, -0.5):
        return torch.sqrt(a) if b > 0 else torch.rsqrt(a)
    if isinstance(b, (int, float)) and float(b).is_integer() and 1 <= abs(b) <= 16:
        result: Any = None
        square, left = a, int(abs(b))
        while left:
            if left & 1:
                result = square if result is None else result * square
            left >>= 1
            square = square * square if left else square
        return result if b > 0 else torch.reciprocal(result)
    if isinstance(b, (int, float)) and b == 0:
        return torch.ones_like(a)
    dtype, ((ar, ai), (br, bi)) = pair_operands(a, b)
    base, exponent = pair_join(ar, ai, dtype), pair_join(br, bi, dtype)
    power: Any = torch.exp(torch.log(base) * exponent)
    zero_base = (base.re == 0) & (base.im == 0)
    at_zero = torch.where(exponent.re > 0, 0.0, torch.where(exponent.re < 0, math.inf, math.nan)).to(dtype)
    at_zero_im = torch.where(exponent.re > 0, 0.0, math.nan).to(dtype)
    return RealPair(torch.where(zero_base, at_zero, power.re), torch.where(zero_base, at_zero_im, power.im))


def complex_sinh(func: Any, a: Any) -> Any:
    """sinh(a)."""
    return RealPair(torch.sinh(a.re) * torch.cos(a.im), torch.cosh(a.re) * torch.sin(a.im))


def complex_cosh(func: Any, a: Any) -> Any:
    """cosh(a)."""
    return RealPair(torch.cosh(a.re) * torch.cos(a.im), torch.sinh(a.re) * torch.sin(a.im))


def complex_sin(func: Any, a: Any) -> Any:
    """sin(a)."""
    return RealPair(torch.sin(a.re) * torch.cosh(a.im), torch.cos(a.re) * torch.sinh(a.im))


def complex_cos(func: Any, a: Any) -> Any:
    """cos(a)."""
    return RealPair(torch.cos(a.re) * torch.cosh(a.im), -(torch.sin(a.re) * torch.sinh(a.im)))


def complex_tanh(func: Any, a: Any) -> Any:
    """tanh(a), from tanh and tan of the parts so that large parts do not overflow."""
    th, co, si = torch.tanh(a.re), torch.cos(a.im), torch.sin(a.im)
    sech2 = (1 - th) * (1 + th)
    den = co * co + th * th * si * si
    return RealPair(th / den, sech2 * si * co / den)


def complex_tan(func: Any, a: Any) -> Any:
    """tan(a) = -i tanh(i a)."""
    turned = complex_tanh(func, RealPair(-a.im, a.re))
    return RealPair(turned.im, -turned.re)


def complex_sigmoid(func: Any, a: Any) -> Any:
    """1 / (1 + e^-a)."""
    return torch.reciprocal(1.0 + torch.exp(-a))


def complex_log1p(func: Any, a: Any) -> Any:
    """log(1 + a); near 0 the real part is log1p(|1 + a|^2 - 1) / 2."""
    x, y = a.re, a.im
    near = 0.5 * torch.log1p(x * (2.0 + x) + y * y)
    far = torch.log(hypot_scaled(1.0 + x, y))
    return RealPair(torch.where((x.abs() < 0.5) & (y.abs() < 0.5), near, far), atan2_full(y, 1.0 + x))


def complex_expm1(func: Any, a: Any) -> Any:
    """e^a - 1 without cancellation: expm1(x) cos(y) - 2 sin(y/2)^2 + i e^x sin(y)."""
    half = torch.sin(0.5 * a.im)
    return RealPair(torch.expm1(a.re) * torch.cos(a.im) - 2.0 * half * half, torch.exp(a.re) * torch.sin(a.im))


COMPLEX_FUNCTIONS: dict[str, Any] = {
    "exp": complex_exp,
    "exp2": complex_exp2,
    "log": complex_log,
    "log2": complex_log2,
    "log10": complex_log10,
    "log1p": complex_log1p,
    "expm1": complex_expm1,
    "sqrt": complex_sqrt,
    "rsqrt": complex_rsqrt,
    "square": complex_square,
    "pow": complex_pow,
    "sinh": complex_sinh,
    "cosh": complex_cosh,
    "sin": complex_sin,
    "cos": complex_cos,
    "tanh": complex_tanh,
    "tan": complex_tan,
    "sigmoid": complex_sigmoid,
}
