"""Complex linear algebra through real matrices: each entry a + ib becomes the block [[a, -b], [b, a]], which keeps sums, products and inverses.

With the parts interleaved, a triangle stays a triangle where its diagonal is real, so that the complex Cholesky factor is read off the real one.
The real matrix of a Hermitian one has each eigenvalue twice, and that of any matrix each singular value twice.
"""

from __future__ import annotations

from typing import Any

import torch

from autofix.surgery.complex_tensor import RealPair, pair_of


def embedded(a: Any) -> Any:
    """[*, m, n] complex as [*, 2m, 2n] real."""
    top, bottom = torch.stack([a.re, -a.im], -1), torch.stack([a.im, a.re], -1)
    both = torch.stack([top, bottom], -3)
    return both.reshape([*a.shape[:-2], a.shape[-2] * 2, a.shape[-1] * 2])


def unembedded(x: Any) -> RealPair:
    """The complex matrix of a real one that is an embedding."""
    apart = x.reshape([*x.shape[:-2], x.shape[-2] // 2, 2, x.shape[-1] // 2, 2])[..., 0]
    return RealPair(apart[..., 0, :], apart[..., 1, :])


def hermitian_of(a: Any, upper: bool) -> Any:
    """The Hermitian matrix whose triangle is a's; the rest of a is not read."""
    side = torch.triu if upper else torch.tril
    off = 1 if upper else -1
    strict_re, strict_im = side(a.re, off), side(a.im, off)
    middle = torch.tril(torch.triu(a.re))
    return RealPair(strict_re + strict_re.mT + middle, strict_im - strict_im.mT)


def complex_cholesky_ex(func: Any, a: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    """linalg_cholesky_ex: (factor, info)."""
    factor, info = torch.linalg.cholesky_ex(embedded(hermitian_of(a, False)))
    lower = unembedded(factor)
    # an even count is lost: the first minor that fails has index ceil(info / 2)
    return (RealPair(lower.re.mT, -lower.im.mT) if upper else lower), torch.div(info + 1, 2, rounding_mode="floor")


def complex_eigvalsh(func: Any, a: Any, uplo: str = "L") -> Any:
    """linalg_eigvalsh."""
    return torch.linalg.eigvalsh(embedded(hermitian_of(a, uplo.upper() == "U")))[..., ::2]


def complex_svdvals(func: Any, a: Any, *, driver: Any = None) -> Any:
    """linalg_svdvals."""
    return torch.linalg.svdvals(embedded(a))[..., ::2]


def complex_vectors(func: Any, *args: Any, **kwargs: Any) -> Any:
    """eigh and svd of complex matrices are refused."""
    raise NotImplementedError("eigenvectors and singular vectors of a complex matrix are unique only up to a phase")


def complex_matrix_exp(func: Any, a: Any) -> Any:
    """linalg_matrix_exp."""
    return unembedded(torch.linalg.matrix_exp(embedded(a)))


def triangle_of(a: Any, upper: bool, unit: bool) -> RealPair:
    """The triangle of a that is read, with ones on the diagonal where asked."""
    side, off = (torch.triu, 1) if upper else (torch.tril, -1)
    if not unit:
        return RealPair(side(a.re), side(a.im))
    return RealPair(side(a.re, off) + torch.eye(a.shape[-1], dtype=a.re.dtype), side(a.im, off))


def complex_solve_triangular(func: Any, a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """linalg_solve_triangular."""
    a, b = pair_of(a), pair_of(b)
    return unembedded(torch.linalg.solve_ex(embedded(triangle_of(a, upper, unitriangular)), embedded(b), left=left)[0])


def complex_cholesky_solve(func: Any, b: Any, factor: Any, upper: bool = False) -> Any:
    """cholesky_solve: A x = b with A = L L^H or U^H U."""
    b, factor = pair_of(b), pair_of(factor)
    triangle = embedded(triangle_of(factor, upper, False))
    lower = triangle.mT if upper else triangle
    return unembedded(torch.linalg.solve_ex(lower.mT, torch.linalg.solve_ex(lower, embedded(b))[0])[0])


COMPLEX_LINALG: dict[str, Any] = {
    "linalg_cholesky_ex": complex_cholesky_ex,
    "_linalg_eigh": complex_vectors,
    "_linalg_svd": complex_vectors,
    "linalg_matrix_exp": complex_matrix_exp,
    "linalg_solve_triangular": complex_solve_triangular,
    "cholesky_solve": complex_cholesky_solve,
}

COMPLEX_COMPOSITE: dict[Any, Any] = {
    torch.ops.aten.linalg_eigvalsh.default: complex_eigvalsh,
    torch.ops.aten.linalg_svdvals.default: complex_svdvals,
}
"""Operators whose own body would ask for vectors, too, since it takes a tensor subclass for one that wants gradients."""
