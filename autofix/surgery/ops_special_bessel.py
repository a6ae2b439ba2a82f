"""Bessel functions in float64: i0, i1, i0e, i1e, j0, j1, y0, y1, k0, k1.

Power series near 0 (Abramowitz and Stegun 9.1.10 to 9.1.13, 9.6.10 to 9.6.13), and Chebyshev series in 1/x beyond, of the modulus and phase of 9.2.5
and the scaled functions of 9.7; their coefficients were computed by interpolation with mpmath at 40 digits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autofix.surgery.ops_special import capped, chebyshev_sum, floored, is_infinite, power_sum, result_dtype
from autofix.surgery.ops_special_tables import I0_TAIL, I1_TAIL, K0_TAIL, K1_TAIL, P0_TAIL, P1_TAIL, Q0_TAIL, Q1_TAIL


def series_of(order: int, sign: int, terms: int = 36) -> list[float]:
    """Coefficients in (x/2)^2 of I_order (sign 1) or J_order (sign -1), without the factor (x/2)^order."""
    return [sign**k / (math.factorial(k) * math.factorial(k + order)) for k in range(terms)]


def i_scaled(x: Tensor, order: int) -> Tensor:
    """exp(-|x|) I_order(x) for order 0 or 1, float64."""
    size = x.abs()
    near = capped(size, 8.0)
    center = torch.exp(-near) * power_sum(series_of(order, 1), near * near * 0.25)
    if order:
        center = center * near * 0.5
    far = floored(size, 8.0)
    tail = chebyshev_sum(I1_TAIL if order else I0_TAIL, 16.0 / far - 1.0) / torch.sqrt(far)
    value = torch.where(size <= 8.0, center, tail)
    return torch.where(x < 0, -value, value) if order else value


def growth(x: Tensor) -> Tensor:
    """exp(|x|) in float64, infinite from where exp overflows in the result's dtype on, as ATen multiplies by that."""
    size = x.to(result_dtype(x)).to(torch.float64).abs()
    limit = 709.782712893384 if x.dtype == torch.float64 else 88.72283905206835
    return torch.where(size > limit, math.inf, torch.exp(capped(size, limit)))


def i0(x: Tensor) -> Tensor:
    """aten.i0, aten.special_i0."""
    z = x.to(torch.float64)
    return (growth(x) * i_scaled(z, 0)).to(result_dtype(x))


def i0e(x: Tensor) -> Tensor:
    """aten.special_i0e."""
    return i_scaled(x.to(torch.float64), 0).to(result_dtype(x))


def i1(x: Tensor) -> Tensor:
    """aten.special_i1."""
    z = x.to(torch.float64)
    return (growth(x) * i_scaled(z, 1)).to(result_dtype(x))


def i1e(x: Tensor) -> Tensor:
    """aten.special_i1e."""
    return i_scaled(x.to(torch.float64), 1).to(result_dtype(x))


def wave(size: Tensor, order: int, second: bool) -> Tensor:
    """J_order (or Y_order) at size >= 8, float64."""
    far = capped(floored(size, 8.0), 1e300)
    t = 128.0 / (far * far) - 1.0
    p = chebyshev_sum(P1_TAIL if order else P0_TAIL, t)
    q = chebyshev_sum(Q1_TAIL if order else Q0_TAIL, t) / far
    s, c = torch.sin(far), torch.cos(far)
    # sine and cosine of far - pi/4 or far - 3 pi/4, times sqrt 2
    sine, cosine = (-s - c, s - c) if order else (s - c, s + c)
    mixed = p * sine + q * cosine if second else p * cosine - q * sine
    return mixed / torch.sqrt(math.pi * far)


def j_double(x: Tensor, order: int) -> Tensor:
    """J_order(x) for order 0 or 1, float64."""
    size = x.abs()
    near = capped(size, 8.0)
    center = power_sum(series_of(order, -1), near * near * 0.25)
    if order:
        center = center * near * 0.5
    value = torch.where(size <= 8.0, center, wave(size, order, False))
    value = torch.where(is_infinite(x), math.nan, value)
    return torch.where(x < 0, -value, value) if order else value


def harmonic(n: int) -> float:
    """1 + 1/2 + ... + 1/n."""
    return math.fsum(1.0 / k for k in range(1, n + 1))


def y_double(x: Tensor, order: int) -> Tensor:
    """Y_order(x) for x > 0, float64."""
    near = capped(floored(x, 1e-300), 8.0)
    w = near * near * 0.25
    start = j_double(near, order) * (torch.log(near * 0.5) * (2.0 / math.pi))
    if order:
        weights = [(harmonic(k) + harmonic(k + 1) - 2 * 0.5772156649015329) * c for k, c in enumerate(series_of(1, -1))]
        center = start - (near * 0.5 * power_sum(weights, w) + 2.0 / near) / math.pi
    else:
        weights = [(harmonic(k) - 0.5772156649015329) * c for k, c in enumerate(series_of(0, -1))]
        center = start - power_sum(weights, w) * (2.0 / math.pi)
    value = torch.where(x <= 8.0, center, wave(x, order, True))
    return torch.where(x == 0, -math.inf, torch.where((x > 0) & (x < math.inf), value, math.nan))


def k_scaled(x: Tensor, order: int) -> Tensor:
    """exp(x) K_order(x) for x > 0, float64."""
    near = capped(floored(x, 1e-300), 2.0)
    w = near * near * 0.25
    center = power_sum(series_of(order, 1, 20), w)
    if order:
        weights = [(harmonic(k) + harmonic(k + 1) - 2 * 0.5772156649015329) * c for k, c in enumerate(series_of(1, 1, 20))]
        value = torch.log(near * 0.5) * center * near * 0.5 + 1.0 / near - near * 0.25 * power_sum(weights, w)
    else:
        weights = [(harmonic(k) - 0.5772156649015329) * c for k, c in enumerate(series_of(0, 1, 20))]
        value = power_sum(weights, w) - torch.log(near * 0.5) * center
    far = floored(x, 2.0)
    tail = chebyshev_sum(K1_TAIL if order else K0_TAIL, 4.0 / far - 1.0) / torch.sqrt(far)
    value = torch.where(x <= 2.0, torch.exp(near) * value, tail)
    return torch.where(x == 0, math.inf, torch.where(x < 0, math.nan, value))


def j0(x: Tensor) -> Tensor:
    """aten.special_bessel_j0."""
    return j_double(x.to(torch.float64), 0).to(result_dtype(x))


def j1(x: Tensor) -> Tensor:
    """aten.special_bessel_j1."""
    return j_double(x.to(torch.float64), 1).to(result_dtype(x))


def y0(x: Tensor) -> Tensor:
    """aten.special_bessel_y0."""
    return y_double(x.to(torch.float64), 0).to(result_dtype(x))


def y1(x: Tensor) -> Tensor:
    """aten.special_bessel_y1."""
    return y_double(x.to(torch.float64), 1).to(result_dtype(x))


def k0(x: Tensor) -> Tensor:
    """aten.special_modified_bessel_k0."""
    z = x.to(torch.float64)
    return (torch.exp(-z) * k_scaled(z, 0)).to(result_dtype(x))


def k1(x: Tensor) -> Tensor:
    """aten.special_modified_bessel_k1."""
    z = x.to(torch.float64)
    return (torch.exp(-z) * k_scaled(z, 1)).to(result_dtype(x))


def k0_scaled(x: Tensor) -> Tensor:
    """aten.special_scaled_modified_bessel_k0."""
    return k_scaled(x.to(torch.float64), 0).to(result_dtype(x))


def k1_scaled(x: Tensor) -> Tensor:
    """aten.special_scaled_modified_bessel_k1."""
    return k_scaled(x.to(torch.float64), 1).to(result_dtype(x))


def spherical_j0(x: Tensor) -> Tensor:
    """aten.special_spherical_bessel_j0: sin(x) / x."""
    z = x.to(torch.float64)
    flat = z == 0
    value = torch.sin(z) / torch.where(flat, 1.0, z)
    return torch.where(flat, 1.0, torch.where(is_infinite(z), 0.0, value)).to(result_dtype(x))


BESSEL_FUNCTIONS = {
    "aten.i0.default": i0,
    "aten.special_i0e.default": i0e,
    "aten.special_i1.default": i1,
    "aten.special_i1e.default": i1e,
    "aten.special_modified_bessel_i0.default": i0,
    "aten.special_modified_bessel_i1.default": i1,
    "aten.special_bessel_j0.default": j0,
    "aten.special_bessel_j1.default": j1,
    "aten.special_bessel_y0.default": y0,
    "aten.special_bessel_y1.default": y1,
    "aten.special_modified_bessel_k0.default": k0,
    "aten.special_modified_bessel_k1.default": k1,
    "aten.special_scaled_modified_bessel_k0.default": k0_scaled,
    "aten.special_scaled_modified_bessel_k1.default": k1_scaled,
    "aten.special_spherical_bessel_j0.default": spherical_j0,
}
