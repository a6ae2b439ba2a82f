"""LU factorization with partial pivoting and triangular solves, and what torch builds on them: inv, solve, det, slogdet, lu, lu_solve.

Gaussian elimination as in Golub and Van Loan, Matrix Computations, 4th edition, algorithm 3.4.1; pivots are the first entry of largest
magnitude, as in LAPACK's getrf. All arithmetic is in float64, so float32 results are at least as near to the truth as LAPACK's own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autofix.surgery.ops_loop import flatten_batch, loop_steps


def row_picked(a: Tensor, chosen: Tensor) -> Tensor:
    """The row of a [B, m, n] where chosen [B, m, 1] is true, [B, 1, n]; infinities elsewhere do no harm."""
    return torch.where(chosen, a, 0).sum(1, keepdim=True)


def lu_step(k: Tensor, a: Tensor, perm: Tensor, pivots: Tensor, sign: Tensor, rows: Tensor, cols: Tensor, steps: Tensor) -> tuple[Tensor, ...]:
    """One column of elimination: a [B, m, n] packed factors, perm [B, m, 1] rows of P A, pivots [B, steps] 0-based, sign [B, 1, 1] of the
    permutation.

    rows [m, 1], cols [n] and steps [min(m, n)] count from 0.
    """
    at = k.reshape(1)
    size = torch.where(rows >= k, a.index_select(2, at).abs(), -1.0)
    p = size.argmax(1, keepdim=True)
    top, chosen = rows == k, rows == p
    a = torch.where(top, row_picked(a, chosen), torch.where(chosen, a.index_select(1, at), a))
    perm = torch.where(top, row_picked(perm, chosen), torch.where(chosen, perm.index_select(1, at), perm))
    pivots = torch.where(steps == k, p.squeeze(-1), pivots)
    sign = torch.where(p == k, sign, -sign)
    row = a.index_select(1, at)
    pivot = row.index_select(2, at)
    below = rows > k
    factor = torch.where(below, a.index_select(2, at) / torch.where(pivot == 0, 1.0, pivot), 0.0)
    reduced = torch.where(cols > k, a - factor * row, a)
    return torch.where((cols == k) & below, factor, reduced), perm, pivots, sign


def lu_factors(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """P a = L U for a float64 [B, m, n]: packed [B, m, n], perm [B, m], pivots [B, min(m, n)] (0-based), sign [B]."""
    b, m, n = a.shape
    count = torch.sym_min(m, n)  # type: ignore[no-untyped-call]
    rows, cols, steps = torch.arange(m), torch.arange(n), torch.arange(count)
    start = (a, rows.unsqueeze(-1).expand(b, m, 1), steps.expand(b, count), torch.ones(b, 1, 1, dtype=a.dtype))
    packed, perm, pivots, sign = loop_steps(lu_step, count, start, (rows.unsqueeze(-1), cols, steps))
    return packed, perm.squeeze(-1), pivots, sign.reshape(b)


def triangle_step(k: Tensor, x: Tensor, order: Tensor, rows: Tensor, strict: Tensor, diagonal: Tensor, rhs: Tensor) -> tuple[Tensor, ...]:
    """One row of forward or back substitution: rows that are not solved yet are 0 in x."""
    at = order.index_select(0, k.reshape(1))
    value = (rhs.index_select(1, at) - strict.index_select(1, at) @ x) / diagonal.index_select(1, at)
    return (torch.where(rows == at, value, x),)


def triangle_solved(a: Tensor, rhs: Tensor, upper: bool, unit: bool) -> Tensor:
    """x with tri(a) x = rhs; a [B, n, n], rhs [B, n, r], float64."""
    diagonal = a.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    if unit:
        diagonal = torch.ones_like(diagonal)
    strict = a.triu(1) if upper else a.tril(-1)
    rows = torch.arange(a.shape[-1])
    order = rows.flip(0) if upper else rows
    return loop_steps(triangle_step, a.shape[-1], (torch.zeros_like(rhs),), (order, rows.unsqueeze(-1), strict, diagonal.contiguous(), rhs))[0]


def batches_matched(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """a [*, m, n] and b [*, p, q] as float64 with one broadcast, flattened batch axis, and that batch shape."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    a = a.to(torch.float64).expand(*batch, *a.shape[-2:])
    b = b.to(torch.float64).expand(*batch, *b.shape[-2:])
    return flatten_batch(a), flatten_batch(b), tuple(batch)


def lu_solved(packed: Tensor, perm: Tensor, rhs: Tensor) -> Tensor:
    """x with L U x = P rhs; [B, n, n], [B, n], [B, n, r]."""
    moved = rhs.gather(1, perm.unsqueeze(-1).expand_as(rhs))
    return triangle_solved(packed, triangle_solved(packed, moved, False, True), True, False)


def first_flag(flags: Tensor) -> Tensor:
    """1-based place of the first true entry of the last axis, 0 where there is none, as LAPACK's info; int32."""
    before = (flags.to(torch.int64).cumsum(-1) == 0).to(torch.int64).sum(-1)
    return torch.where(before < flags.shape[-1], before + 1, 0).to(torch.int32)


def first_zero_pivot(packed: Tensor) -> Tensor:
    """LAPACK's info [B] for a packed factorization."""
    return first_flag(packed.diagonal(dim1=-2, dim2=-1) == 0)


def solve_ex_full(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """aten._linalg_solve_ex: (x, LU, pivots, info)."""
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and tuple(b.shape) == tuple(a.shape[:-1]))
    rhs = b.unsqueeze(-1) if vector else b
    flip = not left and not vector
    packed, perm, pivots, _ = lu_factors(flatten_batch((a.mT if flip else a).to(torch.float64)))
    wide_a, rhs64, batch = batches_matched(a, rhs.mT if flip else rhs)
    n = a.shape[-1]
    many_packed = flatten_batch(packed.reshape(*a.shape[:-2], n, n).expand(*batch, n, n))
    many_perm = flatten_batch(perm.reshape(*a.shape[:-2], n).expand(*batch, n), 1)
    x = lu_solved(many_packed, many_perm, rhs64)
    x = x.reshape(*batch, *x.shape[1:]).to(b.dtype)
    x = x.squeeze(-1) if vector else x.mT if flip else x
    head = tuple(a.shape[:-2])
    return x, packed.reshape(a.shape).to(a.dtype), (pivots + 1).to(torch.int32).reshape(*head, n), first_zero_pivot(packed).reshape(head)


def solve_ex(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """aten.linalg_solve_ex: (x, info)."""
    x, _, _, info = solve_ex_full(a, b, left=left)
    return x, info


def inv_ex(a: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """aten.linalg_inv_ex: (inverse, info)."""
    x, info = solve_ex(a, torch.eye(a.shape[-1], dtype=a.dtype).expand_as(a))
    return x, info


def det_with_factors(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """aten._linalg_det: (determinant, LU, pivots)."""
    packed, _, pivots, sign = lu_factors(flatten_batch(a.to(torch.float64)))
    head = tuple(a.shape[:-2])
    det = sign * packed.diagonal(dim1=-2, dim2=-1).prod(-1)
    return det.reshape(head).to(a.dtype), packed.reshape(a.shape).to(a.dtype), (pivots + 1).to(torch.int32).reshape(*head, pivots.shape[-1])


def det_only(a: Tensor) -> Tensor:
    """aten.linalg_det, which ONNX has for float32 alone."""
    return det_with_factors(a)[0]


def slogdet_with_factors(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """aten._linalg_slogdet: (sign, log|determinant|, LU, pivots)."""
    packed, _, pivots, sign = lu_factors(flatten_batch(a.to(torch.float64)))
    head = tuple(a.shape[:-2])
    d = packed.diagonal(dim1=-2, dim2=-1)
    sign = (sign * torch.sign(d).prod(-1)).reshape(head)
    logabs = d.abs().log().sum(-1).reshape(head)
    return sign.to(a.dtype), logabs.to(a.dtype), packed.reshape(a.shape).to(a.dtype), (pivots + 1).to(torch.int32).reshape(*head, pivots.shape[-1])


def logdet(a: Tensor) -> Tensor:
    """aten.logdet, without the determinant itself, which may overflow: NaN where it is negative."""
    sign, logabs = slogdet_with_factors(a)[:2]
    return torch.where(sign < 0, math.nan, logabs)


def lu_factor_ex(a: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """aten.linalg_lu_factor_ex: (LU, pivots, info); CPU always pivots."""
    packed, _, pivots, _ = lu_factors(flatten_batch(a.to(torch.float64)))
    head = tuple(a.shape[:-2])
    return packed.reshape(a.shape).to(a.dtype), (pivots + 1).to(torch.int32).reshape(*head, pivots.shape[-1]), first_zero_pivot(packed).reshape(head)


def split_packed(packed: Tensor) -> tuple[Tensor, Tensor]:
    """L [*, m, k] with unit diagonal and U [*, k, n] of a packed factorization, k = min(m, n)."""
    m, n = packed.shape[-2:]
    k = torch.sym_min(m, n)  # type: ignore[no-untyped-call]
    lower = packed.narrow(-1, 0, k).tril(-1) + torch.eye(m, k, dtype=packed.dtype)
    return lower, packed.narrow(-2, 0, k).triu()


def permutation_matrix(perm: Tensor, dtype: torch.dtype) -> Tensor:
    """P [B, m, m] with A = P L U, where perm [B, m] lists the rows of A in the order of L U."""
    return (torch.arange(perm.shape[-1]).unsqueeze(-1) == perm.unsqueeze(-2)).to(dtype)


def lu_full(a: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """aten.linalg_lu: (P, L, U)."""
    packed, perm, _, _ = lu_factors(flatten_batch(a.to(torch.float64)))
    lower, upper = split_packed(packed.reshape(a.shape).to(a.dtype))
    m = a.shape[-2]
    return permutation_matrix(perm, a.dtype).reshape(*a.shape[:-2], m, m), lower, upper


def swap_step(k: Tensor, perm: Tensor, pivots: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """Apply the k-th of LAPACK's row swaps to perm [B, m, 1]."""
    at = k.reshape(1)
    chosen = rows == pivots.index_select(1, at).unsqueeze(-1)
    return (torch.where(rows == k, row_picked(perm, chosen), torch.where(chosen, perm.index_select(1, at), perm)),)


def pivots_to_rows(pivots: Tensor, m: int) -> Tensor:
    """LAPACK's 1-based swaps [B, k] as the row order [B, m]."""
    rows = torch.arange(m).unsqueeze(-1)
    start = rows.expand(pivots.shape[0], m, 1)
    return loop_steps(swap_step, pivots.shape[-1], (start,), (pivots.to(torch.int64) - 1, rows))[0].squeeze(-1)


def lu_unpack(packed: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """aten.lu_unpack: (P, L, U); what is not asked for is empty."""
    empty = packed.new_zeros((0,))
    lower, upper = split_packed(packed) if unpack_data else (empty, empty)
    if not unpack_pivots:
        return empty, lower, upper
    m = packed.shape[-2]
    perm = pivots_to_rows(flatten_batch(pivots, 1), m)
    return permutation_matrix(perm, packed.dtype).reshape(*packed.shape[:-2], m, m), lower, upper


def lu_solve(packed: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """aten.linalg_lu_solve: A x = b, x A = b (left=False) or the same with A^T (adjoint)."""
    lu64, b64, batch = batches_matched(packed, b if left else b.mT)
    n = packed.shape[-1]
    perm = pivots_to_rows(flatten_batch(pivots.expand(*batch, n), 1), n)
    if left != adjoint:
        x = lu_solved(lu64, perm, b64)
    else:  # A^T x = b: U^T y = b, L^T z = y, x = P z
        y = triangle_solved(lu64.mT, b64, False, False)
        z = triangle_solved((lu64.tril(-1)).mT, y, True, True)
        x = torch.zeros_like(z).scatter(1, perm.unsqueeze(-1).expand_as(z), z)
    x = x.reshape(*batch, *x.shape[1:]).to(b.dtype)
    return x if left else x.mT


def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """aten.linalg_solve_triangular: tri(a) x = b, or x tri(a) = b."""
    if not left:
        return solve_triangular(a.mT, b.mT, upper=not upper, unitriangular=unitriangular).mT
    a64, b64, batch = batches_matched(a, b)
    x = triangle_solved(a64, b64, upper, unitriangular)
    return x.reshape(*batch, *x.shape[1:]).to(b.dtype)


def triangular_solve_old(b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> tuple[Tensor, Tensor]:
    """aten.triangular_solve: (x, copy of a)."""
    used = a.mT if transpose else a
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    return solve_triangular(used, b, upper=upper != transpose, unitriangular=unitriangular), a.expand(*batch, *a.shape[-2:]).clone()


def solve_plain(a: Tensor, b: Tensor, *, left: bool = True) -> Tensor:
    """aten.linalg_solve; here as the functions below because its own body calls an error check that can't be exported."""
    return solve_ex_full(a, b, left=left)[0]


def inv_plain(a: Tensor) -> Tensor:
    """aten.linalg_inv, aten.inverse."""
    return inv_ex(a)[0]


def tensorinv(a: Tensor, ind: int = 2) -> Tensor:
    """aten.linalg_tensorinv."""
    head, tail = tuple(a.shape[:ind]), tuple(a.shape[ind:])
    n = math.prod(tail)
    return inv_ex(a.reshape(n, n))[0].reshape(*tail, *head)


def lu_factor_plain(a: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    """aten.linalg_lu_factor."""
    packed, pivots, _ = lu_factor_ex(a)
    return packed, pivots


LU_DECOMPOSITIONS = {
    "aten.linalg_solve.default": solve_plain,
    "aten.linalg_inv.default": inv_plain,
    "aten.inverse.default": inv_plain,
    "aten.linalg_tensorinv.default": tensorinv,
    "aten.linalg_lu_factor.default": lu_factor_plain,
    "aten._linalg_solve_ex.default": solve_ex_full,
    "aten.linalg_solve_ex.default": solve_ex,
    "aten.linalg_inv_ex.default": inv_ex,
    "aten._linalg_det.default": det_with_factors,
    "aten.linalg_det.default": det_only,
    "aten._linalg_slogdet.default": slogdet_with_factors,
    "aten.logdet.default": logdet,
    "aten.linalg_lu_factor_ex.default": lu_factor_ex,
    "aten.linalg_lu.default": lu_full,
    "aten.lu_unpack.default": lu_unpack,
    "aten.linalg_lu_solve.default": lu_solve,
    "aten.linalg_solve_triangular.default": solve_triangular,
    "aten.triangular_solve.default": triangular_solve_old,
}
