"""Symmetric eigenvalues and singular values by Jacobi rotations in float64: eigh, svd, pinv, lstsq, and the matrix exponential.

Golub and Van Loan, Matrix Computations, 4th edition, sections 8.5 (parallel cyclic Jacobi, the tournament ordering) and 8.6.3
(one-sided Jacobi for singular values); convergence is quadratic, and a loop ends when no rotation is left above rounding. Values agree
with LAPACK to rounding; eigenvectors and singular vectors are determined up to their signs only, so that just what does not depend on
those signs is the same as in PyTorch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autofix.surgery.ops_linalg_qr import householder_factors, reflected
from autofix.surgery.ops_loop import flatten_batch, loop_until

JACOBI_SWEEPS = 24
"""Upper limit; 6 to 10 sweeps are what convergence takes."""


def tournament(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """For n columns padded to an even N: the partner of each place, the place each column is taken from for the next round, +1/-1 for
    first/second of a pair.

    Place i is paired with place N - 1 - i; column 0 stays while the others move on by one, so that N - 1 rounds pair all.
    """
    even = n + n % 2
    place = torch.arange(even)
    following = torch.where(place == 0, 0, torch.where(place == 1, even - 1, place - 1))
    return even - 1 - place, following, torch.where(place * 2 < even, 1.0, -1.0).to(torch.float64)


def rotation(app: Tensor, aqq: Tensor, apq: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and signed sine per place that make the off-diagonal apq vanish; antisymmetric in the pair (sym.schur2, algorithm 8.5.1)."""
    idle = apq == 0
    theta = (aqq - app) / (2.0 * torch.where(idle, 1.0, apq))
    sign = torch.where(theta == 0, side, torch.sign(theta))
    t = torch.where(idle, 0.0, sign / (theta.abs() + (theta * theta + 1.0).sqrt()))
    c = (t * t + 1.0).rsqrt()
    return c, t * c


def finite_most(x: Tensor) -> Tensor:
    """The greatest entry, 0-d, at least 0; NaN left out, so that one bad matrix does not stop the others."""
    flat = torch.where(x == x, x, 0.0).reshape(-1)
    return torch.cat([flat, torch.zeros(1, dtype=x.dtype)]).amax(0)


def eigh_round(
    k: Tensor, last: Tensor, off: Tensor, tags: Tensor, a: Tensor, v: Tensor, partner: Tensor, following: Tensor, side: Tensor
) -> tuple[Tensor, ...]:
    """One round: all pairs of places rotated at once, then moved on. a, v [B, N, N]; off: off-diagonal over whole, squared norms."""
    d = a.diagonal(dim1=-2, dim2=-1)
    cross = a.index_select(2, partner).diagonal(dim1=-2, dim2=-1)
    c, s = rotation(d, d.index_select(1, partner), cross, side)
    a = a * c.unsqueeze(1) - a.index_select(2, partner) * s.unsqueeze(1)
    a = a * c.unsqueeze(2) - a.index_select(1, partner) * s.unsqueeze(2)
    a = torch.where(partner.index_select(0, partner).unsqueeze(1) == partner, 0.0, a).index_select(1, following).index_select(2, following)
    v = (v * c.unsqueeze(1) - v.index_select(2, partner) * s.unsqueeze(1)).index_select(2, following)
    square = a * a
    outside = torch.where(partner.unsqueeze(1) == partner, 0.0, square).sum((1, 2))
    total = square.sum((1, 2))
    off = finite_most(outside / torch.where(total == 0, 1.0, total))
    return k + 1, last.clone(), off, tags.index_select(0, following), a, v


def rounds_left(k: Tensor, last: Tensor, off: Tensor, *rest: Tensor) -> Tensor:
    """Whether to go on: squares of relative rounding errors are about 1e-32."""
    return (k < last) & (off > 1e-30)


def size_of(a: Tensor) -> Tensor:
    """A scale per matrix, [B, 1, 1], never 0."""
    total = a.abs().sum((1, 2), keepdim=True)
    return torch.where(total == 0, 1.0, total)


def jacobi_start(n: int) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
    """The tournament for n columns, and the loop's counter, limit and first measure."""
    rounds = torch.full((), JACOBI_SWEEPS, dtype=torch.int64) * (n + n % 2 - 1)
    return tournament(n), (torch.zeros((), dtype=torch.int64), rounds, torch.ones((), dtype=torch.float64))


def eigh_jacobi(a: Tensor) -> tuple[Tensor, Tensor]:
    """Ascending eigenvalues [B, n] and eigenvectors [B, n, n] of a symmetric float64 [B, n, n]."""
    b, n, _ = a.shape
    odd = n % 2
    scale = size_of(a)
    padded = torch.nn.functional.pad(a / scale, (0, odd, 0, odd))
    turns, counters = jacobi_start(n)
    tags = torch.arange(n + odd)
    v = torch.eye(n + odd, dtype=a.dtype).expand_as(padded)
    _, _, _, tags, d, v = loop_until(eigh_round, rounds_left, (*counters, tags, padded, v), turns)
    w = torch.where(tags == n, float("inf"), d.diagonal(dim1=-2, dim2=-1))
    w, order = w.sort(-1)
    v = v.gather(2, order.unsqueeze(1).expand_as(v)).narrow(1, 0, n).narrow(2, 0, n)
    return w.narrow(1, 0, n) * scale.squeeze(-1), v


def eigh(a: Tensor, uplo: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    """aten._linalg_eigh: (eigenvalues, eigenvectors)."""
    half = flatten_batch(a.to(torch.float64))
    lower = half.tril() if uplo.upper() == "L" else half.triu().mT
    w, v = eigh_jacobi(lower + lower.tril(-1).mT)
    w = w.reshape(a.shape[:-1]).to(a.dtype)
    return w, v.reshape(a.shape).to(a.dtype) if compute_v else a.new_zeros((0,))


def svd_round(
    k: Tensor,
    last: Tensor,
    off: Tensor,
    worst: Tensor,
    tags: Tensor,
    a: Tensor,
    v: Tensor,
    sweep: Tensor,
    partner: Tensor,
    following: Tensor,
    side: Tensor,
) -> tuple[Tensor, ...]:
    """One round of one-sided rotations on the columns of a [B, m, N]; worst: greatest squared cosine between columns in this sweep, off:
    in the last one."""
    other = a.index_select(2, partner)
    app, apq = (a * a).sum(1), (a * other).sum(1)
    aqq = app.index_select(1, partner)
    norms = app * aqq
    cosine = apq * apq / torch.where(norms == 0, 1.0, norms)
    c, s = rotation(app, aqq, torch.where(cosine > 1e-33, apq, 0.0), side)
    a = (a * c.unsqueeze(1) - other * s.unsqueeze(1)).index_select(2, following)
    v = (v * c.unsqueeze(1) - v.index_select(2, partner) * s.unsqueeze(1)).index_select(2, following)
    worst = torch.maximum(worst, finite_most(cosine))
    ends = (k + 1) % sweep == 0
    return k + 1, last.clone(), torch.where(ends, worst, off), torch.where(ends, 0.0, worst), tags.index_select(0, following), a, v


def svd_jacobi(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """a = U diag(S) V^T for a float64 [B, m, n]: U S [B, m, n], S [B, n] descending, V [B, n, n]; S ends in zeros where m < n."""
    b, m, n = a.shape
    odd = n % 2
    scale = size_of(a)
    turns, counters = jacobi_start(n)
    v = torch.eye(n + odd, dtype=a.dtype).expand(b, n + odd, n + odd)
    start = (*counters, torch.zeros((), dtype=a.dtype), torch.arange(n + odd), torch.nn.functional.pad(a / scale, (0, odd)), v)
    sweep = torch.full((), 1, dtype=torch.int64) * (n + odd - 1)
    _, _, _, _, tags, us, v = loop_until(svd_round, rounds_left, start, (sweep, *turns))
    s = torch.where(tags == n, -1.0, (us * us).sum(1).sqrt())
    s, order = s.sort(-1, descending=True)
    us = us.gather(2, order.unsqueeze(1).expand_as(us)).narrow(2, 0, n) * scale
    v = v.gather(2, order.unsqueeze(1).expand_as(v)).narrow(1, 0, n).narrow(2, 0, n)
    return us, s.narrow(1, 0, n) * scale.squeeze(-1), v


def svd_thin(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U [B, m, k], S [B, k], V [B, n, k] of a float64 [B, m, n], k = min(m, n)."""
    m, n = a.shape[-2:]
    if isinstance(m, int) and isinstance(n, int) and m < n:
        v, s, u = svd_thin(a.mT)
        return u, s, v
    us, s, v = svd_jacobi(a)
    k = torch.sym_min(m, n)  # type: ignore[no-untyped-call]
    us, s, v = us.narrow(2, 0, k), s.narrow(1, 0, k), v.narrow(2, 0, k)
    row = s.unsqueeze(1)
    return us / torch.where(row == 0, 1.0, row), s, v


def completed(q: Tensor) -> Tensor:
    """Orthonormal columns [B, m, k] extended to a basis [B, m, m]."""
    b, m, k = q.shape
    packed, tau = householder_factors(q)
    basis = reflected(packed, tau, torch.eye(m, dtype=q.dtype).expand(b, m, m), False)
    return torch.cat([q, basis.narrow(2, k, m - k)], 2)


def svd(a: Tensor, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """aten._linalg_svd: (U, S, Vh); singular vectors up to their signs."""
    head, (m, n) = tuple(a.shape[:-2]), a.shape[-2:]
    u, s, v = svd_thin(flatten_batch(a.to(torch.float64)))
    s = s.reshape(*head, s.shape[-1]).to(a.dtype)
    if not compute_uv:
        return a.new_zeros((0,)), s, a.new_zeros((0,))
    if full_matrices:
        u, v = completed(u), completed(v)
    return u.reshape(*head, m, u.shape[-1]).to(a.dtype), s, v.mT.reshape(*head, v.shape[-1], n).to(a.dtype)


def cutoff(s: Tensor, m: int, n: int, dtype: torch.dtype, atol: Tensor | None, rtol: Tensor | None) -> Tensor:
    """The magnitude [B..., 1] up to which singular values count as 0; s [B..., k]; defaults as torch.linalg.pinv's."""
    eps = torch.sym_max(m, n) * torch.finfo(dtype).eps  # type: ignore[no-untyped-call]
    most = torch.cat([s, torch.zeros_like(s.sum(-1, keepdim=True))], -1).amax(-1, keepdim=True)
    floor = torch.zeros((), dtype=s.dtype) if atol is None else atol.to(s.dtype).unsqueeze(-1)
    if rtol is not None:
        part = rtol.to(s.dtype).unsqueeze(-1)
    else:
        part = torch.where(floor > 0, 0.0, torch.ones((), dtype=s.dtype) * eps)
    return torch.maximum(floor, part * most)


def pinv(a: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Tensor:
    """aten.linalg_pinv.atol_rtol_tensor."""
    head, (m, n) = tuple(a.shape[:-2]), a.shape[-2:]
    a64 = flatten_batch(a.to(torch.float64))
    if hermitian:
        lower = a64.tril()
        s, v = eigh_jacobi(lower + lower.tril(-1).mT)
        u = v
    else:
        u, s, v = svd_thin(a64)
    s = s.reshape(*head, s.shape[-1])
    kept = s.abs() > cutoff(s.abs(), m, n, a.dtype, atol, rtol)
    inverse = torch.where(kept, 1.0 / torch.where(kept, s, 1.0), 0.0)
    x = (v.reshape(*head, n, v.shape[-1]) * inverse.unsqueeze(-2)) @ u.mT.reshape(*head, u.shape[-1], m)
    return x.to(a.dtype)


def lstsq(a: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """aten.linalg_lstsq: (solution, residuals, rank, singular values); minimum-norm solution; residuals as for full rank."""
    head, (m, n) = tuple(a.shape[:-2]), a.shape[-2:]
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and tuple(b.shape) == tuple(a.shape[:-1]))
    rhs = (b.unsqueeze(-1) if vector else b).to(torch.float64)
    u, s, v = svd_thin(flatten_batch(a.to(torch.float64)))
    s = s.reshape(*head, s.shape[-1])
    kept = s > cutoff(s, m, n, a.dtype, None, None if rcond is None else torch.full((), rcond, dtype=torch.float64))
    inverse = torch.where(kept, 1.0 / torch.where(kept, s, 1.0), 0.0)
    x = v.reshape(*head, n, v.shape[-1]) @ (inverse.unsqueeze(-1) * (u.mT.reshape(*head, u.shape[-1], m) @ rhs))
    empty = a.new_zeros((0,))
    residuals = ((a.to(torch.float64) @ x - rhs) ** 2).sum(-2).to(a.dtype) if driver not in (None, "gelsy") and m > n else empty
    rank = empty.to(torch.int64) if driver == "gels" else kept.to(torch.int64).sum(-1)
    return (x.squeeze(-1) if vector else x).to(a.dtype), residuals, rank, s.to(a.dtype) if driver in ("gelsd", "gelss") else empty


def squaring_step(k: Tensor, last: Tensor, x: Tensor, times: Tensor) -> tuple[Tensor, ...]:
    """Square those of x [B, n, n] that need more than k squarings."""
    return k + 1, last.clone(), torch.where(k < times, x @ x, x)


def squarings_left(k: Tensor, last: Tensor, x: Tensor, times: Tensor) -> Tensor:
    """Whether some matrix needs another squaring."""
    return k < last


def matrix_exp(a: Tensor) -> Tensor:
    """aten.linalg_matrix_exp: scaling to norm 1/2, Taylor polynomial of degree 14 (remainder below 1e-17), squaring (Higham, Functions of
    Matrices, 10.3)."""
    x = flatten_batch(a.to(torch.float64))
    n = a.shape[-1]
    norm = torch.cat([x.abs().sum(1), torch.zeros_like(x.sum((1, 2)).unsqueeze(-1))], 1).amax(1).reshape(-1, 1, 1)
    sane = (norm < 1e300) & (norm > 0.5)
    times = torch.where(sane, torch.log(torch.where(sane, norm * 2.0, 1.0)) * 1.4426950408889634, 0.0).ceil()
    x = x * torch.exp(times * -0.6931471805599453)
    unit = torch.eye(n, dtype=torch.float64)
    power = unit + x / 14.0
    for degree in range(13, 0, -1):
        power = unit + (x @ power) / float(degree)
    times = times.to(torch.int64)
    most = torch.cat([times.reshape(-1), torch.zeros(1, dtype=torch.int64)]).amax(0)
    _, _, power = loop_until(squaring_step, squarings_left, (torch.zeros((), dtype=torch.int64), most, power), (times,))
    return power.reshape(a.shape).to(a.dtype)


def lstsq_named(input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """torch.linalg.lstsq, which can't be captured because the sizes of its outputs depend on values."""
    return torch.return_types.linalg_lstsq(lstsq(input, b, rcond, driver=driver))  # type: ignore[attr-defined]


LINALG_OVERRIDES = {torch.linalg.lstsq: lstsq_named}

EIG_DECOMPOSITIONS = {
    "aten._linalg_eigh.default": eigh,
    "aten._linalg_svd.default": svd,
    "aten.linalg_pinv.atol_rtol_tensor": pinv,
    "aten.linalg_lstsq.default": lstsq,
    "aten.linalg_matrix_exp.default": matrix_exp,
}
