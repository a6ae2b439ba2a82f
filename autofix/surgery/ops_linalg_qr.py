"""Cholesky and QR factorizations in float64: cholesky, cholesky_solve, cholesky_inverse, qr, geqrf, householder_product, ormqr.

Golub and Van Loan, Matrix Computations, 4th edition, algorithms 4.2.1 (Cholesky) and 5.2.1 (Householder QR); signs as in LAPACK's geqrf and
larfg: the diagonal of R has the sign opposite to that of the entry it replaces, and a column that is already zero below it is left alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from autofix.surgery.ops_linalg_lu import batches_matched, first_flag, triangle_solved
from autofix.surgery.ops_loop import flatten_batch, loop_steps


def cholesky_step(k: Tensor, lower: Tensor, a: Tensor, rows: Tensor, cols: Tensor) -> tuple[Tensor, ...]:
    """Column k of L: lower [B, n, n] has its first k columns; rows [n, 1], cols [n]."""
    at = k.reshape(1)
    rest = a.index_select(2, at) - lower @ lower.index_select(1, at).mT
    column = torch.where(rows >= k, rest / rest.index_select(1, at).sqrt(), 0.0)
    return (torch.where(cols == k, column, lower),)


def cholesky_factor(a: Tensor) -> Tensor:
    """L [B, n, n] with L L^T = a, from the lower triangle of a float64 a; NaN from the first column that fails on."""
    cols = torch.arange(a.shape[-1])
    return loop_steps(cholesky_step, a.shape[-1], (torch.zeros_like(a),), (a, cols.unsqueeze(-1), cols))[0]


def cholesky_ex(a: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """aten.linalg_cholesky_ex: (factor, info)."""
    lower = cholesky_factor(flatten_batch((a.mT if upper else a).to(torch.float64)))
    diagonal = lower.diagonal(dim1=-2, dim2=-1)
    info = first_flag(~(diagonal > 0)).reshape(a.shape[:-2])
    lower = lower.reshape(a.shape).to(a.dtype)
    return (lower.mT if upper else lower), info


def cholesky_plain(a: Tensor, upper: bool = False) -> Tensor:
    """aten.cholesky, aten.linalg_cholesky."""
    return cholesky_ex(a, upper=upper)[0]


def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """aten.cholesky_solve: x with (L L^T) x = b, or (U^T U) x = b."""
    f64, b64, batch = batches_matched(factor.mT if upper else factor, b)
    x = triangle_solved(f64.mT, triangle_solved(f64, b64, False, False), True, False)
    return x.reshape(*batch, *x.shape[1:]).to(b.dtype)


def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    """aten.cholesky_inverse: the inverse of L L^T, or of U^T U."""
    return cholesky_solve(torch.eye(factor.shape[-1], dtype=factor.dtype).expand_as(factor), factor, upper)


def householder_step(k: Tensor, a: Tensor, tau: Tensor, rows: Tensor, cols: Tensor, steps: Tensor) -> tuple[Tensor, ...]:
    """Column k of geqrf on a [B, m, n]; tau [B, min(m, n)]; rows [m, 1], cols [n], steps [min(m, n)]."""
    at = k.reshape(1)
    column = a.index_select(2, at)
    below = rows > k
    tail = torch.where(below, column, 0.0)
    alpha = column.index_select(1, at)
    rest = (tail * tail).sum(1, keepdim=True)
    idle = rest == 0
    norm = (alpha * alpha + rest).sqrt()
    beta = torch.where(idle, alpha, torch.where(alpha >= 0, -norm, norm))
    scale = torch.where(idle, 0.0, (beta - alpha) / torch.where(idle, 1.0, beta))
    v = torch.where(rows == k, 1.0, tail / torch.where(idle, 1.0, alpha - beta))
    swept = a - scale * v @ (v.mT @ a)
    new_column = torch.where(below, v, torch.where(rows == k, beta, column))
    a = torch.where(cols > k, swept, torch.where(cols == k, new_column, a))
    return a, torch.where(steps == k, scale.squeeze(-1), tau)


def householder_factors(a: Tensor) -> tuple[Tensor, Tensor]:
    """LAPACK's geqrf of a float64 [B, m, n]: R over the reflectors [B, m, n], and tau [B, min(m, n)]."""
    b, m, n = a.shape
    count = torch.sym_min(m, n)  # type: ignore[no-untyped-call]
    rows, cols, steps = torch.arange(m), torch.arange(n), torch.arange(count)
    packed, tau = loop_steps(householder_step, count, (a, torch.zeros(b, count, dtype=a.dtype)), (rows.unsqueeze(-1), cols, steps))
    return packed, tau


def reflect_step(k: Tensor, x: Tensor, order: Tensor, packed: Tensor, tau: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """x [B, m, r] reflected by the vector number order[k]."""
    at = order.index_select(0, k.reshape(1))
    v = torch.where(rows == at, 1.0, torch.where(rows > at, packed.index_select(2, at), 0.0))
    return (x - tau.index_select(1, at).unsqueeze(-1) * v @ (v.mT @ x),)


def reflected(packed: Tensor, tau: Tensor, x: Tensor, transpose: bool) -> Tensor:
    """Q x, or Q^T x, for Q = H_0 H_1 ... given by packed [B, m, n] and tau [B, k]; all float64."""
    order = torch.arange(tau.shape[-1])
    order = order if transpose else order.flip(0)
    return loop_steps(reflect_step, tau.shape[-1], (x,), (order, packed, tau, torch.arange(packed.shape[-2]).unsqueeze(-1)))[0]


def geqrf(a: Tensor) -> tuple[Tensor, Tensor]:
    """aten.geqrf."""
    packed, tau = householder_factors(flatten_batch(a.to(torch.float64)))
    return packed.reshape(a.shape).to(a.dtype), tau.reshape(*a.shape[:-2], tau.shape[-1]).to(a.dtype)


def qr(a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """aten.linalg_qr: (Q, R); Q is empty for mode "r"."""
    head, (m, n) = tuple(a.shape[:-2]), a.shape[-2:]
    packed, tau = householder_factors(flatten_batch(a.to(torch.float64)))
    k = torch.sym_min(m, n)  # type: ignore[no-untyped-call]
    width = m if mode == "complete" else k
    upper = packed.triu().reshape(a.shape).to(a.dtype)
    r = upper if mode == "complete" else upper.narrow(-2, 0, k)
    if mode == "r":
        return a.new_zeros((0,)), r
    q = reflected(packed, tau, torch.eye(m, width, dtype=torch.float64).expand(packed.shape[0], m, width), False)
    return q.reshape(*head, m, width).to(a.dtype), r


def qr_old(a: Tensor, some: bool = True) -> tuple[Tensor, Tensor]:
    """aten.qr."""
    return qr(a, "reduced" if some else "complete")


def householder_product(packed: Tensor, tau: Tensor) -> Tensor:
    """aten.linalg_householder_product (orgqr): the first columns of Q, [*, m, n]."""
    m, n = packed.shape[-2:]
    flat = flatten_batch(packed.to(torch.float64))
    q = reflected(flat, flatten_batch(tau.to(torch.float64), 1), torch.eye(m, n, dtype=torch.float64).expand_as(flat), False)
    return q.reshape(packed.shape).to(packed.dtype)


def ormqr(packed: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """aten.ormqr: Q other, Q^T other, other Q or other Q^T."""
    x = other if left else other.mT
    y = reflected(
        flatten_batch(packed.to(torch.float64)), flatten_batch(tau.to(torch.float64), 1), flatten_batch(x.to(torch.float64)), transpose == left
    )
    y = y.reshape(x.shape).to(other.dtype)
    return y if left else y.mT


QR_DECOMPOSITIONS = {
    "aten.linalg_cholesky_ex.default": cholesky_ex,
    "aten.linalg_cholesky.default": cholesky_plain,
    "aten.cholesky.default": cholesky_plain,
    "aten.cholesky_solve.default": cholesky_solve,
    "aten.cholesky_inverse.default": cholesky_inverse,
    "aten.geqrf.default": geqrf,
    "aten.linalg_qr.default": qr,
    "aten.qr.default": qr_old,
    "aten.linalg_householder_product.default": householder_product,
    "aten.ormqr.default": ormqr,
}
