"""The gamma function's family in float64: lgamma, digamma, polygamma, zeta, igamma, igammac.

Asymptotic series after a shift of the argument, and reflection for negative arguments: Abramowitz and Stegun 6.1.17, 6.1.40, 6.3.7, 6.3.18, 6.4.7,
6.4.10, 6.5.29, 6.5.31; the Hurwitz zeta function by Euler-Maclaurin summation, NIST DLMF 25.11.5.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from autofix.surgery.ops_loop import loop_until
from autofix.surgery.ops_special import is_infinite, power_sum, result_dtype

BERNOULLI = (
    Fraction(1, 6),
    Fraction(-1, 30),
    Fraction(1, 42),
    Fraction(-1, 30),
    Fraction(5, 66),
    Fraction(-691, 2730),
    Fraction(7, 6),
    Fraction(-3617, 510),
    Fraction(43867, 798),
    Fraction(-174611, 330),
)
"""B_2, B_4, ..."""


def turned(x: Tensor) -> tuple[Tensor, Tensor]:
    """sin(pi x) and cos(pi x) up to a common sign, exact zeros at the integers; float64."""
    r = (x - torch.round(x)) * math.pi
    return torch.sin(r), torch.cos(r)


def lgamma_right(x: Tensor) -> Tensor:
    """log gamma(x) for x > 0, float64."""
    small = x < 8.0
    near = torch.where(small, x, 1.0)
    product = near
    for k in range(1, 8):
        product = product * (near + float(k))
    z = torch.where(small, x + 8.0, x)
    w = 1.0 / z
    series = w * power_sum([float(b) / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI[:8], 1)], w * w)
    return (z - 0.5) * torch.log(z) - z + 0.5 * math.log(2.0 * math.pi) + series - torch.where(small, torch.log(product), 0.0)


def lgamma_double(x: Tensor) -> Tensor:
    """log |gamma(x)|, float64."""
    left = x < 0
    right = lgamma_right(torch.where(left, 1.0 - x, x))
    sine, _ = turned(x)
    value = torch.where(left, math.log(math.pi) - torch.log(sine.abs()) - right, right)
    value = torch.where((x == 1) | (x == 2), 0.0, value)
    return torch.where(is_infinite(x) | (x == 0), math.inf, value)


def lgamma(x: Tensor) -> Tensor:
    """aten.lgamma, aten.special_gammaln."""
    return lgamma_double(x.to(torch.float64)).to(result_dtype(x))


def digamma_right(x: Tensor) -> Tensor:
    """psi(x) for x > 0, float64."""
    small = x < 10.0
    near = torch.where(small, x, 1.0)
    lost = (1.0 / (near.unsqueeze(-1) + torch.arange(10, dtype=torch.float64))).sum(-1)
    z = torch.where(small, x + 10.0, x)
    w = 1.0 / z
    series = w * w * power_sum([float(b) / (2 * k) for k, b in enumerate(BERNOULLI[:8], 1)], w * w)
    return torch.log(z) - 0.5 * w - series - torch.where(small, lost, 0.0)


def digamma(x: Tensor) -> Tensor:
    """aten.digamma, aten.special_psi."""
    z = x.to(torch.float64)
    left = z < 0
    right = digamma_right(torch.where(left, 1.0 - z, z))
    sine, cosine = turned(z)
    value = torch.where(left, right - math.pi * cosine / sine, right)
    value = torch.where(left & (sine == 0), math.nan, value)
    return torch.where(z == 0, -1.0 / z, value).to(result_dtype(x))


def zeta_tail(s: Tensor, w: Tensor) -> Tensor:
    """The Euler-Maclaurin remainder of sum (q + k)^-s from q + k = w on."""
    power = torch.exp(-s * torch.log(w))
    total = power * (w / (s - 1.0) + 0.5)
    factor = s * power / w
    step = 1.0 / (w * w)
    for j, b in enumerate(BERNOULLI, 1):
        total = total + factor * float(b / math.factorial(2 * j))
        factor = factor * (s + float(2 * j - 1)) * (s + float(2 * j)) * step
    return total


def zeta_right(s: Tensor, q: Tensor) -> Tensor:
    """Hurwitz zeta(s, q) for s > 1, q > 0, float64."""
    head = torch.exp(-s.unsqueeze(-1) * torch.log(q.unsqueeze(-1) + torch.arange(12, dtype=torch.float64))).sum(-1)
    return head + zeta_tail(s, q + 12.0)


def zeta_shift(q: Tensor, total: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    """Take one term off where q < 0."""
    low = q < 0
    odd = s - 2.0 * torch.floor(s * 0.5) == 1.0
    power = torch.exp(-s * torch.log(q.abs()))
    return torch.where(low, q + 1.0, q), total + torch.where(low, torch.where(odd, -power, power), 0.0)


def zeta_low(q: Tensor, total: Tensor, s: Tensor) -> Tensor:
    """Whether a negative q is left."""
    return (q < 0).to(torch.int64).sum() > 0


def zeta(s: Tensor, q: Tensor) -> Tensor:
    """aten.special_zeta (for negative q, s must be an integer, as in PyTorch)."""
    dtype = result_dtype(s, q)
    a, b = torch.broadcast_tensors(s.to(torch.float64), q.to(torch.float64))  # type: ignore[no-untyped-call]
    whole = b == torch.floor(b)
    bad = (b < 0) & ~whole & (a != torch.floor(a))
    start = torch.where((b <= 0) & whole | bad | ~(b > -1e6), 1.0, b)
    shifted, total = loop_until(zeta_shift, zeta_low, (start, torch.zeros_like(start)), (a,))
    value = total + zeta_right(torch.where(a > 1, a, 2.0), shifted)
    value = torch.where((b <= 0) & whole, math.inf, torch.where(bad, math.nan, value))
    value = torch.where(a == 1, math.inf, torch.where(a > 1, value, math.nan))
    return torch.where(b == b, value, math.nan).to(dtype)


def zeta_of_number(s: float, q: Tensor) -> Tensor:
    """aten.special_zeta.self_scalar."""
    return zeta(torch.full((), s, dtype=q.dtype), q)


def zeta_at_number(s: Tensor, q: float) -> Tensor:
    """aten.special_zeta.other_scalar."""
    return zeta(s, torch.full((), q, dtype=s.dtype))


def cotangent_derivative(n: int) -> list[float]:
    """Coefficients of P with d^n/dx^n cot(x) = P(cot x); each derivative turns P into -(1 + c^2) P'."""
    p = [0.0, 1.0]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(p)][1:]
        p = [0.0] * (len(slope) + 2)
        for k, c in enumerate(slope):
            p[k] -= c
            p[k + 2] -= c
    return p


def polygamma(n: int, x: Tensor) -> Tensor:
    """aten.polygamma."""
    if n == 0:
        return digamma(x)
    z = x.to(torch.float64)
    left = z < 0
    right = torch.where(left, 1.0 - z, z)
    sign = 1.0 if n % 2 else -1.0
    value = sign * math.factorial(n) * zeta_right(torch.full_like(z, n + 1.0), torch.where(right == 0, 1.0, right))
    sine, cosine = turned(z)
    mirrored = -(math.pi ** (n + 1)) * power_sum(cotangent_derivative(n), cosine / sine) - sign * value
    value = torch.where(left, mirrored, value)
    value = torch.where((z <= 0) & (sine == 0), sign * math.inf, value)
    # at infinity ATen's zeta gives NaN, but its trigamma 0
    ends = torch.where(z > 0, 0.0 if n == 1 else math.nan, math.nan if n == 1 else sign * math.inf)
    return torch.where(is_infinite(z), ends, value).to(result_dtype(x))


def igamma_step(
    k: Tensor, rest: Tensor, term: Tensor, total: Tensor, c: Tensor, d: Tensor, h: Tensor, a: Tensor, x: Tensor, low: Tensor
) -> tuple[Tensor, ...]:
    """One term of the power series (6.5.29), and one of the continued fraction (6.5.31) by Lentz's method."""
    n = k.to(torch.float64)
    term = term * x / (a + n)
    total = total + term
    numerator = n * (a - n)
    b = x + 2.0 * n + 1.0 - a
    d = 1.0 / (b + numerator * d)
    c = b + numerator / c
    delta = c * d
    h = h * delta
    open_series = low & (term.abs() > total.abs() * 1e-17)
    open_fraction = ~low & ((delta - 1.0).abs() > 1e-15)
    return k + 1, (open_series | open_fraction).to(torch.int64).sum(), term, total, c, d, h


def igamma_open(k: Tensor, rest: Tensor, *others: Tensor) -> Tensor:
    """Whether some element has not converged."""
    return (rest > 0) & (k < 20000)


def igamma_both(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The regularized incomplete gamma functions P(a, x) and Q(a, x), float64."""
    a, x = torch.broadcast_tensors(a.to(torch.float64), x.to(torch.float64))  # type: ignore[no-untyped-call]
    plain = plain_pair(a, x)
    b, y = torch.where(plain, a, 1.0), torch.where(plain, x, 1.0)
    low = y < b + 1.0
    first = 1.0 / b
    start = torch.where(low, 1.0, y + 1.0 - b)
    zero = torch.zeros((), dtype=torch.int64)
    state = (zero + 1, zero + 1, first, first, torch.zeros_like(start) + 1e300, 1.0 / start, 1.0 / start)
    _, _, _, total, _, _, h = loop_until(igamma_step, igamma_open, state, (b, y, low))
    weight = torch.exp(b * torch.log(y) - y - lgamma_right(b))
    lower = torch.where(low, weight * total, 1.0 - weight * h)
    upper = torch.where(low, 1.0 - weight * total, weight * h)
    return chosen_edges(a, x, lower, 0.0, 1.0), chosen_edges(a, x, upper, 1.0, 0.0)


def chosen_edges(a: Tensor, x: Tensor, value: Tensor, none: float, whole: float) -> Tensor:
    """The values at the edges in the order of ATen's tests; none and whole are those at x = 0 and x = inf."""
    value = torch.where(plain_pair(a, x), value, math.nan)
    value = torch.where(is_infinite(x), whole, value)
    value = torch.where(is_infinite(a), torch.where(is_infinite(x), math.nan, none), value)
    value = torch.where(x == 0, none, value)
    value = torch.where(a == 0, torch.where(x > 0, whole, math.nan), value)
    return torch.where((a < 0) | (x < 0), math.nan, value)


def plain_pair(a: Tensor, x: Tensor) -> Tensor:
    """Where both are positive and finite."""
    return (a > 0) & (a < math.inf) & (x > 0) & (x < math.inf)


def igamma(a: Tensor, x: Tensor) -> Tensor:
    """aten.igamma, aten.special_gammainc."""
    return igamma_both(a, x)[0].to(result_dtype(a, x))


def igammac(a: Tensor, x: Tensor) -> Tensor:
    """aten.igammac, aten.special_gammaincc."""
    return igamma_both(a, x)[1].to(result_dtype(a, x))


def special_polygamma(n: int, x: Tensor) -> Tensor:
    """aten.special_polygamma."""
    return polygamma(n, x)


GAMMA_FUNCTIONS = {
    "aten.lgamma.default": lgamma,
    "aten.digamma.default": digamma,
    "aten.polygamma.default": polygamma,
    "aten.special_zeta.default": zeta,
    "aten.special_zeta.self_scalar": zeta_of_number,
    "aten.special_zeta.other_scalar": zeta_at_number,
    "aten.igamma.default": igamma,
    "aten.igammac.default": igammac,
}
