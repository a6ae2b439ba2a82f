"""Determinants, QR factors and pseudo-inverses of complex matrices, in pairs of float64.

Elimination picks its pivots by |re| + |im|, as LAPACK's getrf does; the QR factors have the signs of its geqrf: R's diagonal is real, and
each reflection turns against the real part of its entry (Golub and Van Loan, Matrix Computations, 4th edition, 3.4 and 5.1.13).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from autofix.surgery.complex_linalg import embedded, unembedded
from autofix.surgery.complex_tensor import RealPair
from autofix.surgery.ops_loop import flatten_batch

LARGEST = 64
"""Columns at most: each is written out, since the pass that uses these rules puts no loops into a graph."""


def all_steps(body: Callable[..., Sequence[Tensor]], count: Any, state: Sequence[Tensor], extra: Sequence[Tensor]) -> Sequence[Tensor]:
    """state = body(k, *state, *extra) for k = 0 .. count - 1."""
    if not isinstance(count, int) or count > LARGEST:
        raise NotImplementedError(f"factors of a complex matrix of {count} columns")
    for k in range(count):
        state = body(torch.full((), k, dtype=torch.int64), *state, *extra)
    return state


def times(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """(a + ib)(c + id)."""
    return a * c - b * d, a * d + b * c


def divided(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """(a + ib) / (c + id), 0 where the divisor is."""
    size = c * c + d * d
    safe = torch.where(size == 0, 1.0, size)
    nothing = size == 0
    return torch.where(nothing, 0.0, (a * c + b * d) / safe), torch.where(nothing, 0.0, (b * c - a * d) / safe)


def elimination_step(
    k: Tensor, re: Tensor, im: Tensor, det_re: Tensor, det_im: Tensor, turn_re: Tensor, turn_im: Tensor, size: Tensor, rows: Tensor
) -> tuple[Tensor, ...]:
    """One column of elimination of [B, n, n]; det, its direction (turn) and the logarithm of its size are those of the pivots so far, [B, 1, 1]."""
    at = k.reshape(1)
    weight = torch.where(rows >= k, re.index_select(2, at).abs() + im.index_select(2, at).abs(), -1.0)
    p = weight.argmax(1, keepdim=True)
    top, chosen = rows == k, rows == p

    def swapped(a: Tensor) -> Tensor:
        picked = torch.where(chosen, a, 0.0).sum(1, keepdim=True)
        return torch.where(top, picked, torch.where(chosen, a.index_select(1, at), a))

    re, im = swapped(re), swapped(im)
    row_re, row_im = re.index_select(1, at), im.index_select(1, at)
    pivot_re, pivot_im = row_re.index_select(2, at), row_im.index_select(2, at)
    factor_re, factor_im = divided(re.index_select(2, at), im.index_select(2, at), pivot_re, pivot_im)
    less_re, less_im = times(factor_re, factor_im, row_re, row_im)
    below = rows > k
    sign = torch.where(p == k, 1.0, -1.0).to(re.dtype)
    length = torch.sqrt(pivot_re * pivot_re + pivot_im * pivot_im)
    safe = torch.where(length == 0, 1.0, length)
    det_re, det_im = times(det_re, det_im, sign * pivot_re, sign * pivot_im)
    turn_re, turn_im = times(turn_re, turn_im, sign * pivot_re / safe, sign * pivot_im / safe)
    alive = length > 0
    turn_re, turn_im = torch.where(alive, turn_re, 0.0), torch.where(alive, turn_im, 0.0)
    return torch.where(below, re - less_re, re), torch.where(below, im - less_im, im), det_re, det_im, turn_re, turn_im, size + torch.log(length)


def eliminated(a: Any) -> tuple[Tensor, ...]:
    """(re and im of the determinant, re and im of its direction, logarithm of its size), float64 of a's batch shape."""
    re, im = flatten_batch(a.re.to(torch.float64)), flatten_batch(a.im.to(torch.float64))
    b, n = re.shape[0], re.shape[1]
    one, zero = torch.ones(b, 1, 1, dtype=re.dtype), torch.zeros(b, 1, 1, dtype=re.dtype)
    state = all_steps(elimination_step, n, (re, im, one, zero, one, zero, zero), (torch.arange(n).unsqueeze(-1),))
    return tuple(part.reshape(a.re.shape[:-2]) for part in state[2:])


def complex_det(func: Any, a: Any) -> Any:
    """linalg_det."""
    re, im = eliminated(a)[:2]
    return RealPair(re.to(a.re.dtype), im.to(a.re.dtype))


def complex_det_with_factors(func: Any, a: Any) -> Any:
    """_linalg_det: (determinant, and in place of the factors, which only gradients need, the matrix)."""
    return complex_det(func, a), a, torch.zeros(a.re.shape[:-1], dtype=torch.int32)


def complex_slogdet(func: Any, a: Any) -> Any:
    """_linalg_slogdet: (direction, log of the size, and in place of the factors, which only gradients need, the matrix)."""
    _, _, re, im, size = eliminated(a)
    return RealPair(re.to(a.re.dtype), im.to(a.re.dtype)), size.to(a.re.dtype), a, torch.zeros(a.re.shape[:-1], dtype=torch.int32)


def reflection_step(k: Tensor, re: Tensor, im: Tensor, q_re: Tensor, q_im: Tensor, rows: Tensor, places: Tensor) -> tuple[Tensor, ...]:
    """One column of [B, m, n] turned onto the diagonal by H = I - t v v^H, as geqrf does: A = H^H A, Q = Q H."""
    at = k.reshape(1)
    top, below = rows == k, rows > k
    x_re, x_im = re.index_select(2, at), im.index_select(2, at)
    first_re, first_im = torch.where(top, x_re, 0.0).sum(1, keepdim=True), torch.where(top, x_im, 0.0).sum(1, keepdim=True)
    rest = torch.where(below, x_re * x_re + x_im * x_im, 0.0).sum(1, keepdim=True)
    still = (rest == 0) & (first_im == 0)
    length = torch.sqrt(rest + first_re * first_re + first_im * first_im)
    beta = torch.where(first_re >= 0, -length, length)
    safe = torch.where(still, 1.0, beta)
    t_re, t_im = torch.where(still, 0.0, (beta - first_re) / safe), torch.where(still, 0.0, -first_im / safe)
    v_re, v_im = divided(x_re, x_im, first_re - beta, first_im)
    v_re = torch.where(top, 1.0, torch.where(below, v_re, 0.0))
    v_im = torch.where(below, v_im, 0.0)
    # w = v^H A; A - conj(t) v w
    w_re, w_im = v_re.mT @ re + v_im.mT @ im, v_re.mT @ im - v_im.mT @ re
    u_re, u_im = times(t_re, -t_im, w_re, w_im)
    new_re, new_im = re - (v_re @ u_re - v_im @ u_im), im - (v_re @ u_im + v_im @ u_re)
    # below the diagonal there is nothing left, not even rounding
    column = places == k
    new_re = torch.where(column & below, 0.0, new_re)
    new_im = torch.where(column & (rows >= k), 0.0, new_im)
    # z = Q v; Q - t z v^H
    z_re, z_im = times_columns(q_re, q_im, v_re, v_im)
    s_re, s_im = times(t_re, t_im, z_re, z_im)
    return new_re, new_im, q_re - (s_re @ v_re.mT + s_im @ v_im.mT), q_im - (s_im @ v_re.mT - s_re @ v_im.mT)


def times_columns(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """(a + ib) @ (c + id)."""
    return a @ c - b @ d, a @ d + b @ c


def complex_qr(func: Any, a: Any, mode: str = "reduced") -> Any:
    """linalg_qr: (Q, R)."""
    head, m, n = a.re.shape[:-2], a.re.shape[-2], a.re.shape[-1]
    re, im = flatten_batch(a.re.to(torch.float64)), flatten_batch(a.im.to(torch.float64))
    count: Any = torch.sym_min(m, n)  # type: ignore[no-untyped-call]
    eye = torch.eye(m, dtype=re.dtype).expand(re.shape[0], m, m)
    extra = (torch.arange(m).unsqueeze(-1), torch.arange(n))
    re, im, q_re, q_im = all_steps(reflection_step, count, (re, im, eye, torch.zeros_like(eye)), extra)
    kept = m if mode == "complete" else count

    def part(x: Tensor, rows: Any, columns: Any) -> Tensor:
        return x.narrow(1, 0, rows).narrow(2, 0, columns).reshape(*head, rows, columns).to(a.re.dtype)

    r = RealPair(part(re, kept, n), part(im, kept, n))
    if mode == "r":
        nothing = torch.empty(0, dtype=a.re.dtype)
        return RealPair(nothing, nothing), r
    return RealPair(part(q_re, m, kept), part(q_im, m, kept)), r


def complex_pinv(func: Any, a: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    """linalg_pinv.atol_rtol_tensor: the real matrix has each singular value twice, and twice the size, which the default tolerance goes by."""
    if rtol is None:
        most = torch.sym_max(a.re.shape[-2], a.re.shape[-1])  # type: ignore[no-untyped-call]
        default = torch.scalar_tensor(most, dtype=a.re.dtype) * torch.finfo(a.re.dtype).eps
        rtol = default if atol is None else torch.where(torch.as_tensor(atol) > 0, 0.0, default)
    return unembedded(torch.ops.aten.linalg_pinv.atol_rtol_tensor(embedded(a), atol=atol, rtol=rtol, hermitian=hermitian))


COMPLEX_FACTORS: dict[str, Any] = {
    "linalg_det": complex_det,
    "_linalg_det": complex_det_with_factors,
    "_linalg_slogdet": complex_slogdet,
    "linalg_qr": complex_qr,
    "linalg_pinv": complex_pinv,
}
