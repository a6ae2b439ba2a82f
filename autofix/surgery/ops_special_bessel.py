"""Bessel functions in float64: i0, i1, i0e, i1e, j0, j1, y0, y1, k0, k1.

Power series near 0 (Abramowitz and Stegun 9.1.10 to 9.1.13, 9.6.10 to 9.6.13), and Chebyshev series in 1/x beyond, of the modulus and phase of 9.2.5
and the scaled functions of 9.7; their coefficients were computed by interpolation with mpmath at 40 digits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autofix.surgery.ops_special import capped, chebyshev_sum, floored, is_infinite, power_sum, result_dtype

I0_TAIL = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06, 2.0489185894690638e-07, 2.266668990498178e-08,
    3.3962320257083865e-09, 4.94060238822497e-10, 1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12,
    7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14, -9.554846698828307e-15, 3.8116806693526224e-15,
    1.7725601330565263e-15, -3.425485619677219e-16, -2.8276239805165836e-16, 3.461222867697461e-17, 4.46562142029676e-17,
)
"""sqrt(x) exp(-x) I0(x) for x >= 8 in t = 16 / x - 1."""

I1_TAIL = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06, -2.512236237870209e-07, -2.6314688468895196e-08,
    -3.835380385964237e-09, -5.589743462196584e-10, -1.8974958123505413e-11, 3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12,
    -7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14, 1.0420276984128802e-14, -3.8144030724370075e-15,
    -1.8803547755107825e-15, 3.3082023109209285e-16, 2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17,
)
"""The same of I1."""

P0_TAIL = (
    0.9994603493475187, -0.0005365220468132117, 3.0751847875194745e-06, -5.1705945376060975e-08, 1.6306464635151382e-09, -7.86409137723707e-11,
    5.168262387349193e-12, -4.3045788699253914e-13, 4.3265957431549404e-14, -5.069034095935236e-15, 6.748072215733873e-16, -1.0011513723467786e-16,
)
"""Modulus and phase of J0 and Y0 for x >= 8 in t = 2 (8 / x)^2 - 1: the even part."""

Q0_TAIL = (
    -0.12444683684269607, 0.0005470815954089319, -5.9315987288485175e-06, 1.4377965798375193e-07, -5.817532749493056e-09, 3.376097523734991e-10,
    -2.565397936797308e-11, 2.404916100281365e-12, -2.6690625482579414e-13, 3.4041800321963686e-14, -4.87994410531204e-15, 7.729703176242605e-16,
    -1.3348852171502517e-16, 2.4865952389390515e-17, -4.952892629886516e-18,
)
"""The odd part, times x."""

P1_TAIL = (
    1.0009030408600137, 0.0008989898330859408, -3.987284300488908e-06, 6.177633960644299e-08, -1.8718907491063067e-09, 8.816898659582339e-11,
    -5.704863640395645e-12, 4.699195515230542e-13, -4.6842237839904895e-14, 5.452674896044717e-15, -7.221180842274018e-16, 1.0667689114335412e-16,
)
"""The even part of J1 and Y1."""

Q1_TAIL = (
    0.3742222965562826, -0.0007702178839325664, 7.3108922063643636e-06, -1.676782510726674e-07, 6.583354662120443e-09, -3.749090950541556e-10,
    2.8121750359748866e-11, -2.61145253946232e-12, 2.8774212663332235e-13, -3.649001916061838e-14, 5.206626366226707e-15, -8.215318025458595e-16,
    1.4141084390211833e-16, -2.626761589838529e-17,
)
"""The odd part, times x."""

K0_TAIL = (
    1.2201515410329777, -0.0314481013119645, 0.0015698838857300533, -0.00012849549581627802, 1.39498137188765e-05, -1.8317555227191195e-06,
    2.766813639445015e-07, -4.660489897687948e-08, 8.574034017414225e-09, -1.6975345093890614e-09, 3.5773972814003283e-10, -7.957489244477396e-11,
    1.8559491149549264e-11, -4.514597883374519e-12, 1.1403405882073441e-12, -2.9800969231481784e-13, 8.032890775068375e-14, -2.2275133267462965e-14,
    6.340076476276646e-15, -1.848593377920907e-15, 5.5120559994043335e-16, -1.6782311257549006e-16, 5.2103917776435543e-17,
)
"""sqrt(x) exp(x) K0(x) for x >= 2 in t = 4 / x - 1."""

K1_TAIL = (
    1.3603130952422213, 0.10392373657681724, -0.002857816859622779, 0.00019521551847135162, -1.936197974166083e-05, 2.406484947837217e-06,
    -3.5019606030878126e-07, 5.7410841254500495e-08, -1.0345762465678097e-08, 2.0150497551970347e-09, -4.1903547593419254e-10, 9.218315187605315e-11,
    -2.129967838427791e-11, 5.139639673482343e-12, -1.2891739609498229e-12, 3.348419666052243e-13, -8.976705182010146e-14, 2.4771544242195988e-14,
    -7.0198370892147685e-15, 2.038703166239861e-15, -6.057047270643018e-16, 1.8380935752430455e-16, -5.689462849193648e-17,
)
"""The same of K1."""


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
