"""Arithmetic and elementary functions of complex numbers, written with real parts.

Every rule has the signature rule(func, *args, **kwargs) of the ATen operator it stands for. Formulas: Abramowitz and Stegun,
chapters 3 and 4; division scaled by the larger component of the divisor, square root after Kahan (1987), as in ATen.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from autofix.surgery.complex_tensor import PAIR_REAL_DTYPES, RealPair, pair_broadcast, pair_of, pair_parts, pair_real_dtype


def pair_mode_is_complex(value: Any) -> bool:
    """Whether an operand is complex: a pair or a Python complex number."""
    return isinstance(value, (RealPair, complex))


def pair_cast(value: Any, dtype: torch.dtype) -> Any:
    """A real tensor in `dtype`; Python numbers and None pass."""
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype != dtype else value


def pair_operands(*values: Any) -> tuple[torch.dtype, list[tuple[Any, Any]]]:
    """The common real dtype and the parts of each operand in it; an imaginary part that is None is zero."""
    dtype = pair_real_dtype(*values)
    return dtype, [(pair_cast(re, dtype), pair_cast(im, dtype)) for re, im in map(pair_parts, values)]


def pair_join(re: Any, im: Any, dtype: torch.dtype) -> RealPair:
    """A pair from parts that may be Python numbers or of smaller shape."""
    parts = [p if isinstance(p, torch.Tensor) else torch.scalar_tensor(0.0 if p is None else p, dtype=dtype) for p in (re, im)]
    if tuple(parts[0].shape) != tuple(parts[1].shape):
        parts = pair_broadcast(*parts)
    return RealPair(parts[0], parts[1])


def complex_add(func: Any, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    """a + alpha * b."""
    if isinstance(alpha, complex) or alpha != 1:
        b = b * alpha
    dtype, ((ar, ai), (br, bi)) = pair_operands(a, b)
    re = ar + br
    im = bi if ai is None else ai if bi is None else ai + bi
    return pair_join(re, im, dtype)


def complex_sub(func: Any, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    """a - alpha * b."""
    if isinstance(alpha, complex) or alpha != 1:
        b = b * alpha
    dtype, ((ar, ai), (br, bi)) = pair_operands(a, b)
    re = ar - br
    im = -bi if ai is None else ai if bi is None else ai - bi
    return pair_join(re, im, dtype)


def complex_rsub(func: Any, a: Any, b: Any, alpha: Any = 1) -> Any:
    """b - alpha * a."""
    return complex_sub(func, b, a, alpha=alpha)


def complex_mul(func: Any, a: Any, b: Any) -> Any:
    """a * b; a real operand counts as one with imaginary part 0, so that NaN and infinities spread as in ATen."""
    dtype, ((ar, ai), (br, bi)) = pair_operands(a, b)
    if ai is None:
        return pair_join(ar * br - 0.0 * bi, ar * bi + 0.0 * br, dtype)
    if bi is None:
        return pair_join(ar * br - ai * 0.0, ai * br + ar * 0.0, dtype)
    return pair_join(ar * br - ai * bi, ar * bi + ai * br, dtype)


def complex_div(func: Any, a: Any, b: Any) -> Any:
    """a / b; by zero each part of a is."""
    dtype, ((ar, ai), (br, bi)) = pair_operands(a, b)
    if bi is None:
        return pair_join(ar / br, ai / br, dtype)
    if not isinstance(br, torch.Tensor):
        size = abs(complex(br, bi)) ** 2
        return complex_mul(func, a, complex(br / size, -bi / size))
    big = torch.maximum(br.abs(), bi.abs())
    zero = big == 0
    scale = 1.0 / torch.where(zero, torch.ones_like(big), big)
    br, bi = br * scale, bi * scale
    den = torch.where(zero, torch.ones_like(big), br * br + bi * bi)
    cr, ci = ar * scale, None if ai is None else ai * scale
    re = cr * br if ci is None else cr * br + ci * bi
    im = -(cr * bi) if ci is None else ci * br - cr * bi
    return pair_join(torch.where(zero, ar / big, re / den), torch.where(zero, (0.0 if ai is None else ai) / big, im / den), dtype)


def complex_reciprocal(func: Any, a: Any) -> Any:
    """1 / a."""
    return complex_div(func, 1.0, a)


def hypot_scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """sqrt(x^2 + y^2) that neither overflows nor underflows."""
    x, y = x.abs(), y.abs()
    big = torch.maximum(x, y)
    scale = torch.where((big == 0) | torch.isinf(big), torch.ones_like(big), big)
    x, y = x / scale, y / scale
    return torch.where(torch.isinf(big), big, scale * torch.sqrt(x * x + y * y))


def atan2_full(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """atan2 with the signs of zeros and the infinities of IEEE 754, from atan of a ratio that is at most 1."""
    ax, ay = x.abs(), y.abs()
    big, small = torch.maximum(ax, ay), torch.minimum(ax, ay)
    ratio = torch.where(big == 0, torch.zeros_like(big), small / torch.where(big == 0, torch.ones_like(big), big))
    ratio = torch.where(torch.isinf(small), torch.ones_like(ratio), ratio)
    angle = torch.atan(ratio)
    angle = torch.where(ay > ax, math.pi / 2 - angle, angle)
    x_negative = (x < 0) | ((x == 0) & (1.0 / x < 0))
    y_negative = (y < 0) | ((y == 0) & (1.0 / y < 0))
    angle = torch.where(x_negative, math.pi - angle, angle)
    return torch.where(y_negative, -angle, angle)


def complex_abs(func: Any, a: Any) -> Any:
    """|a|."""
    return hypot_scaled(a.re, a.im)


def complex_angle(func: Any, a: Any) -> Any:
    """The argument of a."""
    return atan2_full(a.im, a.re)


def complex_sgn(func: Any, a: Any) -> Any:
    """a / |a|, 0 at 0."""
    size = hypot_scaled(a.re, a.im)
    safe = torch.where(size == 0, torch.ones_like(size), size)
    return RealPair(a.re / safe, a.im / safe)


def complex_neg(func: Any, a: Any) -> Any:
    """-a."""
    return RealPair(-a.re, -a.im)


def complex_conj(func: Any, a: Any) -> Any:
    """The conjugate of a."""
    return RealPair(a.re, -a.im) if isinstance(a, RealPair) else a


def complex_same(func: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    """a itself: a copy, an alias, a resolved view."""
    return RealPair(a.re, a.im)


def complex_eq(func: Any, a: Any, b: Any) -> Any:
    """a == b."""
    _, ((ar, ai), (br, bi)) = pair_operands(a, b)
    return (ar == br) & ((0.0 if ai is None else ai) == (0.0 if bi is None else bi))


def complex_ne(func: Any, a: Any, b: Any) -> Any:
    """a != b."""
    return ~complex_eq(func, a, b)


def complex_nonzero_test(func: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    """An operator that looks at which elements are not zero."""
    others = [(v.re != 0) | (v.im != 0) if isinstance(v, RealPair) else v for v in args]
    return func((a.re != 0) | (a.im != 0), *others, **kwargs) if isinstance(a, RealPair) else func(a, *others, **kwargs)


def complex_either(func: Any, a: Any) -> Any:
    """isnan, isinf: where either part is."""
    return func(a.re) | func(a.im)


def complex_both(func: Any, a: Any) -> Any:
    """isfinite: where both parts are."""
    return func(a.re) & func(a.im)


def complex_to_copy(func: Any, a: Any, *, dtype: Any = None, **kwargs: Any) -> Any:
    """A change of dtype, real to complex, complex to real (the real part) or between precisions."""
    if dtype is None:
        return RealPair(a.re, a.im) if isinstance(a, RealPair) else a
    if not dtype.is_complex:
        if dtype is torch.bool:
            return (a.re != 0) | (a.im != 0)
        return pair_cast(a.re, dtype)
    return pair_of(a, PAIR_REAL_DTYPES[dtype])


COMPLEX_ELEMENTWISE: dict[str, Any] = {
    "add": complex_add,
    "sub": complex_sub,
    "rsub": complex_rsub,
    "mul": complex_mul,
    "div.Tensor": complex_div,
    "div.Scalar": complex_div,
    "reciprocal": complex_reciprocal,
    "abs": complex_abs,
    "angle": complex_angle,
    "sgn": complex_sgn,
    "neg": complex_neg,
    "_conj": complex_conj,
    "_conj_physical": complex_conj,
    "conj_physical": complex_conj,
    "_conj_copy": complex_conj,
    "resolve_conj": complex_same,
    "resolve_neg": complex_same,
    "alias": complex_same,
    "detach": complex_same,
    "detach_copy": complex_same,
    "alias_copy": complex_same,
    "lift_fresh_copy": complex_same,
    "lift": complex_same,
    "positive": complex_same,
    "eq": complex_eq,
    "ne": complex_ne,
    "any": complex_nonzero_test,
    "all": complex_nonzero_test,
    "logical_not": complex_nonzero_test,
    "logical_and": complex_nonzero_test,
    "logical_or": complex_nonzero_test,
    "logical_xor": complex_nonzero_test,
    "nonzero": complex_nonzero_test,
    "count_nonzero": complex_nonzero_test,
    "isnan": complex_either,
    "isinf": complex_either,
    "isfinite": complex_both,
    "_to_copy": complex_to_copy,
}
