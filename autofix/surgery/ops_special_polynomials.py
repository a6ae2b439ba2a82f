"""Orthogonal polynomials: Chebyshev of four kinds, plain and shifted, Hermite of both, Laguerre, Legendre.

Three-term recurrences (Abramowitz and Stegun, chapter 22; NIST DLMF 18.9) as ATen's Math.h takes them, in the operand's own precision, and
Chebyshev's by angles inside of (-1, 1) from the degrees on at which ATen does so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autofix.surgery.ops_loop import loop_steps

Step = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(k, x, p, q) -> the polynomial of degree k, from those of degrees k - 2 and k - 1; k a 0-d tensor of x's dtype."""


def chebyshev_step(k: Tensor, x: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """2 x q - p."""
    return (x + x) * q - p


def hermite_h_step(k: Tensor, x: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """2 x q - 2 (k - 1) p."""
    return (x + x) * q - (k + k - 2.0) * p


def hermite_he_step(k: Tensor, x: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """x q - (k - 1) p."""
    return x * q - (k - 1.0) * p


def laguerre_step(k: Tensor, x: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """((2 k - 1 - x) q - (k - 1) p) / k."""
    return ((k + k - 2.0 + (1.0 - x)) * q - (k - 1.0) * p) / k


def legendre_step(k: Tensor, x: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """((2 k - 1) x q - (k - 1) p) / k."""
    return ((k + k - 1.0) * x * q - (k - 1.0) * p) / k


FIRSTS: dict[str, Callable[[Tensor], Tensor]] = {
    "chebyshev_t": lambda x: x,
    "chebyshev_u": lambda x: x + x,
    "chebyshev_v": lambda x: x + x - 1.0,
    "chebyshev_w": lambda x: x + x + 1.0,
    "hermite_h": lambda x: x + x,
    "hermite_he": lambda x: x,
    "laguerre_l": lambda x: 1.0 - x,
    "legendre_p": lambda x: x,
}
"""The polynomial of degree 1."""
STEPS: dict[str, Step] = {"hermite_h": hermite_h_step, "hermite_he": hermite_he_step, "laguerre_l": laguerre_step, "legendre_p": legendre_step}


def by_angle(kind: str, x: Tensor, n: Tensor) -> Tensor:
    """Chebyshev's polynomials of degree n (x's dtype) for |x| < 1."""
    angle = torch.acos(torch.where(x.abs() < 1, x, 0.0))
    if kind == "chebyshev_t":
        return torch.cos(n * angle)
    if kind == "chebyshev_u":
        return torch.sin((n + 1.0) * angle) / torch.sin(angle)
    if kind == "chebyshev_v":
        return torch.cos((n + 0.5) * angle) / torch.cos(angle / 2.0)
    return torch.sin((n + 0.5) * angle) / torch.sin(angle / 2.0)


def at_the_ends(kind: str, x: Tensor, n: Tensor) -> Tensor:
    """Chebyshev's polynomials of degree n at 1 and -1."""
    odd = torch.remainder(n, 2.0) != 0
    many = {"chebyshev_t": torch.ones_like(n), "chebyshev_u": n + 1.0}
    high = many.get(kind, torch.ones_like(n) if kind == "chebyshev_v" else n + n + 1.0)
    low = many.get(kind, torch.ones_like(n) if kind == "chebyshev_w" else n + n + 1.0)
    return torch.where(x > 0, high, torch.where(odd, -low, low))


def whole_degrees(n: Tensor) -> Tensor:
    """Degrees cut off to whole numbers; what is none (NaN, infinity) becomes the least integer in ATen's cast, and so counts as negative."""
    return torch.where(n.abs() < 2.0**62, torch.trunc(n), -1.0)


def greatest_degree(n: Any, degree: Tensor) -> Any:
    """How many degrees are to be gone through: a number, or one known at run time only."""
    if isinstance(n, int):
        return max(n, 1)
    most = degree.reshape(-1).amax(0).to(torch.int64).clamp(min=1).item()
    torch._check(most >= 1)  # type: ignore[no-untyped-call]
    return most


def polynomial(kind: str, x: Any, n: Any, shifted: bool = False) -> Tensor:
    """The polynomial of degree n (a number or a tensor, cut off to whole ones) at x; 0 for negative degrees."""
    like = x if isinstance(x, Tensor) else n
    dtype = like.dtype if like.dtype.is_floating_point else torch.get_default_dtype()
    place = x.to(dtype) if isinstance(x, Tensor) else torch.full((), x, dtype=dtype)
    known = int(n) if isinstance(n, (int, float)) else n
    degree = torch.full((), known, dtype=dtype) if isinstance(known, int) else whole_degrees(n.to(dtype))
    place, degree = torch.broadcast_tensors(place, degree)  # type: ignore[no-untyped-call]
    if shifted:
        place = place + place - 1.0
    one = torch.ones_like(place)
    first = FIRSTS[kind](place)
    step = STEPS.get(kind, chebyshev_step)

    def body(k: Tensor, p: Tensor, q: Tensor, found: Tensor, at: Tensor, wanted: Tensor) -> tuple[Tensor, ...]:
        now = (k + 2).to(dtype)
        value = step(now, at, p, q)
        return q.clone(), value, torch.where(wanted == now, value, found)

    start = torch.where(degree < 1, one, first)
    value = loop_steps(body, greatest_degree(known, degree) - 1, (one, first, start), (place, degree))[2]
    if kind.startswith("chebyshev"):
        beyond = 6.0 if kind == "chebyshev_t" else 8.0
        inside = place.abs() < 1
        value = torch.where((degree > beyond) & inside, by_angle(kind, place, degree), value)
        value = torch.where(place.abs() == 1, at_the_ends(kind, place, degree), value)
    if kind.startswith("hermite"):
        value = torch.where(degree > (128.0 if dtype == torch.float32 else 512.0), math.nan, value)
    return torch.where(degree < 0, 0.0, value)


NAMES = {
    **{f"chebyshev_polynomial_{letter}": (f"chebyshev_{letter}", False) for letter in "tuvw"},
    **{f"shifted_chebyshev_polynomial_{letter}": (f"chebyshev_{letter}", True) for letter in "tuvw"},
    "hermite_polynomial_h": ("hermite_h", False),
    "hermite_polynomial_he": ("hermite_he", False),
    "laguerre_polynomial_l": ("laguerre_l", False),
    "legendre_polynomial_p": ("legendre_p", False),
}
"""torch.special's name -> (kind, whether x counts from 0 to 1)."""

POLYNOMIALS: dict[str, Callable[..., Tensor]] = {
    f"aten.special_{name}.{overload}": partial(polynomial, kind, shifted=shifted)
    for name, (kind, shifted) in NAMES.items()
    for overload in ("default", "n_scalar", "x_scalar")
}
