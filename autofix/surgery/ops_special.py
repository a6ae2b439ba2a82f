"""The error function's family in float64: erf, erfc, erfcx, erfinv, ndtri, log_ndtr; and helpers that the other special functions share.

exp(x^2) erfc(x) is one Chebyshev series on [0, inf), after Shepherd and Laframboise, Mathematics of Computation 36 (1981); coefficients were
computed by interpolation with mpmath at 40 digits. Inverses are Newton and Halley iterations on these functions, started from Winitzki's formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

SCALED_ERFC = (
    1.1774832005374487,
    -0.007260796620301901,
    -0.081265123236185,
    0.06009212804122225,
    -0.02875393558027666,
    0.01059566336347286,
    -0.003136927294554264,
    0.0007456494372536184,
    -0.0001369696503010054,
    1.7183861600300937e-05,
    -7.158364623450346e-07,
    -2.426139944244954e-07,
    5.57657093957034e-08,
    -2.1057869513811065e-09,
    -1.1717889351885613e-09,
    1.909835517246284e-10,
    1.408871764224244e-11,
    -6.901108320318567e-12,
    9.167958372252664e-14,
    2.1454508282204776e-13,
    -1.4716575170889863e-14,
    -6.668675283678271e-15,
    7.504597554676747e-16,
    2.2200932640843567e-16,
)
"""(1 + 2 x) exp(x^2) erfc(x) for x >= 0 in t = (x - 4) / (x + 4)."""


def result_dtype(*xs: Tensor) -> torch.dtype:
    """The floating dtype of a result: integers become the default dtype."""
    dtype = xs[0].dtype
    for x in xs[1:]:
        dtype = torch.promote_types(dtype, x.dtype)
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def power_coefficients(chebyshev: Sequence[float]) -> list[float]:
    """Coefficients in powers of t of sum c_k T_k(t), exact until they are rounded; the series used here stay well conditioned."""
    below, at = [Fraction(1)], [Fraction(0), Fraction(1)]
    total = [Fraction(0)] * len(chebyshev)
    for c in chebyshev:
        for k, t in enumerate(below):
            total[k] += Fraction(c) * t
        below, at = at, [(2 * at[k - 1] if k else Fraction(0)) - (below[k] if k < len(below) else 0) for k in range(len(at) + 1)]
    return [float(t) for t in total]


def capped(x: Tensor, high: float) -> Tensor:
    """min(x, high), NaN kept; not clamp, since the exporter's optimizer merges clamps wrongly."""
    return torch.where(x > high, high, x)


def floored(x: Tensor, low: float) -> Tensor:
    """max(x, low), NaN kept."""
    return torch.where(x < low, low, x)


def chebyshev_sum(coefficients: Sequence[float], t: Tensor) -> Tensor:
    """sum c_k T_k(t)."""
    return power_sum(power_coefficients(coefficients), t)


def power_sum(coefficients: Sequence[float], x: Tensor) -> Tensor:
    """sum c_k x^k by Horner's rule, for two coefficients or more.

    The exporter's optimizer drops additions of constants below 1e-8, so that small coefficients are scaled up by a power of two until the end.
    """
    least = min(abs(c) for c in coefficients if c)
    scale = 2.0 ** max(0, math.ceil(-math.log2(least) - 20))
    total = x * (coefficients[-1] * scale) + coefficients[-2] * scale
    for c in reversed(coefficients[:-2]):
        total = total * x + c * scale if c else total * x
    return total / scale if scale > 1.0 else total


def is_infinite(x: Tensor) -> Tensor:
    """Where x is +inf or -inf."""
    return x.abs() == math.inf


def erfcx_right(x: Tensor) -> Tensor:
    """exp(x^2) erfc(x) for x >= 0, float64."""
    near = torch.where(is_infinite(x), 1e300, x)
    return chebyshev_sum(SCALED_ERFC, (near - 4.0) / (near + 4.0)) / (1.0 + 2.0 * near)


def erf_center(x: Tensor) -> Tensor:
    """erf(x) by its Taylor series, for |x| <= 1; float64."""
    return x * power_sum([2.0 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(20)], x * x)


def erfc_double(x: Tensor) -> Tensor:
    """erfc(x), float64."""
    right = x.abs()
    tail = torch.exp(-right * right) * erfcx_right(right)
    tail = torch.where(is_infinite(x), 0.0, tail)
    return torch.where(right < 0.5, 1.0 - erf_center(x), torch.where(x < 0, 2.0 - tail, tail))


def erf_double(x: Tensor) -> Tensor:
    """erf(x), float64."""
    return torch.where(x.abs() < 0.5, erf_center(x), torch.where(x < 0, erfc_double(-x) - 1.0, 1.0 - erfc_double(x)))


def erfcx_double(x: Tensor) -> Tensor:
    """exp(x^2) erfc(x), float64."""
    right = erfcx_right(x.abs())
    return torch.where(x < 0, 2.0 * torch.exp(x * x) - right, right)


def erfc_inverse(q: Tensor) -> Tensor:
    """y >= 0 with erfc(y) = q for 0 < q <= 1, by Newton's method on log erfc, which is concave; float64."""
    big = torch.log(q * (2.0 - q))
    half = big * 0.5 + 2.0 / (math.pi * 0.147)
    y = floored(torch.sqrt(floored(half * half - big / 0.147, 0.0)) - half, 0.0).sqrt()
    goal = torch.log(q)
    for _ in range(3):
        scaled = erfcx_right(y)
        y = y + (torch.log(scaled) - y * y - goal) * scaled * (math.sqrt(math.pi) / 2.0)
    return y


def erf_inverse(x: Tensor) -> Tensor:
    """y with erf(y) = x for |x| <= 1/2, by Newton's method; float64."""
    w = x * x * (math.pi / 4.0)
    y = x * (math.sqrt(math.pi) / 2.0) * power_sum([1.0, 1.0 / 3.0, 7.0 / 30.0, 127.0 / 630.0], w)
    for _ in range(2):
        y = y - (erf_center(y) - x) * torch.exp(y * y) * (math.sqrt(math.pi) / 2.0)
    return y


def erfinv(x: Tensor) -> Tensor:
    """aten.erfinv."""
    z = x.to(torch.float64)
    size = z.abs()
    inside = size < 1.0
    tail = erfc_inverse(torch.where(inside & (size > 0.4), 1.0 - size, 0.5))
    tail = torch.where(z < 0, -tail, tail)
    center = erf_inverse(torch.where(size <= 0.5, z, 0.0))
    y = torch.where(size <= 0.5, center, tail)
    edge = torch.where(size == 1.0, z * math.inf, math.nan)
    return torch.where(inside, y, edge).to(result_dtype(x))


def ndtri(p: Tensor) -> Tensor:
    """aten.special_ndtri: the quantile of the standard normal distribution."""
    z = p.to(torch.float64)
    inside = (z > 0) & (z < 1)
    lower = torch.where(z < 0.5, z, 1.0 - z)
    tail = erfc_inverse(torch.where(inside, 2.0 * lower, 0.5))
    tail = torch.where(z < 0.5, -tail, tail)
    offset = 2.0 * z - 1.0
    near = offset.abs() <= 0.5
    y = torch.where(near, erf_inverse(torch.where(near, offset, 0.0)), tail) * math.sqrt(2.0)
    edge = torch.where(z == 0, -math.inf, torch.where(z == 1, math.inf, math.nan))
    return torch.where(inside, y, edge).to(result_dtype(p))


def log_ndtr(x: Tensor) -> Tensor:
    """aten.special_log_ndtr."""
    z = x.to(torch.float64) * math.sqrt(0.5)
    left = capped(z, 0.0)
    low = torch.log(erfcx_right(-left) * 0.5) - left * left
    high = log1p_double(-0.5 * erfc_double(floored(z, -1.0)))
    return torch.where(z < -0.7, low, high).to(result_dtype(x))


def log1p_double(x: Tensor) -> Tensor:
    """log(1 + x) with full relative accuracy, float64 (Kahan: log(u) x / (u - 1) for u = 1 + x rounded)."""
    u = 1.0 + x
    d = u - 1.0
    plain = (d == 0) | ~(u.abs() < math.inf) | (u <= 0)
    return torch.where(d == 0, x, torch.where(plain, torch.log(u), torch.log(u) * (x / torch.where(d == 0, 1.0, d))))


def expm1_double(x: Tensor) -> Tensor:
    """exp(x) - 1 with full relative accuracy, float64 (tanh(x/2) (exp(x) + 1) near 0)."""
    small = x.abs() < 1.0
    near = torch.where(small, x, 0.0)
    series = near * power_sum([1.0 / math.factorial(k + 1) for k in range(18)], near)
    return torch.where(small, series, torch.exp(x) - 1.0)


def erf_wide(x: Tensor) -> Tensor:
    """aten.erf, aten.special_erf."""
    return erf_double(x.to(torch.float64)).to(result_dtype(x))


def erfc_wide(x: Tensor) -> Tensor:
    """aten.erfc, aten.special_erfc."""
    return erfc_double(x.to(torch.float64)).to(result_dtype(x))


def erfcx_wide(x: Tensor) -> Tensor:
    """aten.special_erfcx."""
    return erfcx_double(x.to(torch.float64)).to(result_dtype(x))


def ndtr(x: Tensor) -> Tensor:
    """aten.special_ndtr: the standard normal distribution function."""
    return (erfc_double(x.to(torch.float64) * -math.sqrt(0.5)) * 0.5).to(result_dtype(x))


ERROR_FUNCTIONS = {
    "aten.erfinv.default": erfinv,
    "aten.special_ndtri.default": ndtri,
    "aten.special_log_ndtr.default": log_ndtr,
    "aten.erfc.default": erfc_wide,
    "aten.special_erfcx.default": erfcx_wide,
}
