"""Products, convolutions, norms and linear systems of complex numbers, written with real parts."""

from __future__ import annotations

from typing import Any

import torch

from autofix.surgery.complex_elementwise import pair_operands
from autofix.surgery.complex_tensor import RealPair, pair_of


def complex_bilinear(func: Any, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """mm, bmm, dot, mv, outer and the like: (ar + i ai)(br + i bi)."""
    _, ((ar, ai), (br, bi)) = pair_operands(a, b)
    if ai is None:
        return RealPair(func(ar, br, *args, **kwargs), func(ar, bi, *args, **kwargs))
    if bi is None:
        return RealPair(func(ar, br, *args, **kwargs), func(ai, br, *args, **kwargs))
    re = func(ar, br, *args, **kwargs) - func(ai, bi, *args, **kwargs)
    return RealPair(re, func(ar, bi, *args, **kwargs) + func(ai, br, *args, **kwargs))


def complex_vdot(func: Any, a: Any, b: Any) -> Any:
    """conj(a) . b."""
    return torch.dot(torch.conj(a), b)


def complex_addmm(func: Any, base: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * base + alpha * (a @ b); addmm, addmv, baddbmm."""
    product = torch.matmul(a, b)
    product = product * alpha if isinstance(alpha, complex) or alpha != 1 else product
    if not isinstance(beta, complex) and beta == 0:
        return product
    return product + (base * beta if isinstance(beta, complex) or beta != 1 else base)


def complex_linear(func: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    """x @ weight.T + bias."""
    y = torch.matmul(x, weight.transpose(-1, -2) if weight.dim() > 1 else weight)
    return y if bias is None else y + bias


def complex_convolution(func: Any, x: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Convolution with complex input, weight or bias."""
    y = (
        complex_bilinear(lambda p, q: func(p, q, None, *args, **kwargs), x, weight)
        if isinstance(x, RealPair) or isinstance(weight, RealPair)
        else func(x, weight, None, *args, **kwargs)
    )
    if bias is None:
        return y
    spatial = [1] * (weight.dim() - 2)
    return y + bias.reshape([-1, *spatial])


def complex_var(func: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    """The variance of a complex tensor is the sum of those of its parts."""
    return func(a.re, *args, **kwargs) + func(a.im, *args, **kwargs)


def complex_std(func: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    """The square root of `complex_var`."""
    overload = func._overloadname
    return torch.sqrt(complex_var(getattr(torch.ops.aten.var, overload), a, *args, **kwargs))


def complex_norm(func: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    """A vector norm: that of the absolute values."""
    kwargs.pop("dtype", None)
    return func(torch.abs(a), *args, **kwargs)


def complex_cumprod(func: Any, a: Any, dim: int, *, dtype: Any = None) -> Any:
    """Cumulative product by doubling (Hillis and Steele 1986): log2(n) products, for an axis of fixed length."""
    if a.dim() == 0:
        return RealPair(a.re, a.im)
    size = a.shape[dim]
    if not isinstance(size, int):
        raise NotImplementedError("a complex cumulative product along a dynamic axis")
    step = 1
    while step < size:
        head = torch.narrow(a, dim, 0, step)
        tail = torch.narrow(a, dim, step, size - step) * torch.narrow(a, dim, 0, size - step)
        a = torch.cat([head, tail], dim)
        step *= 2
    return a


def complex_prod(func: Any, a: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """Product by halving, for an axis of fixed length."""
    if dim is None:
        a, dim = a.reshape([-1]), 0
    size = a.shape[dim]
    if not isinstance(size, int) or size == 0:
        raise NotImplementedError("a complex product along a dynamic or empty axis")
    while size > 1:
        half = size // 2
        rest = torch.narrow(a, dim, 2 * half, size - 2 * half)
        a = torch.narrow(a, dim, 0, half) * torch.narrow(a, dim, half, half)
        a = torch.cat([a, rest], dim) if size % 2 else a
        size = half + size % 2
    return a if keepdim else torch.squeeze(a, dim)


def complex_block_matrix(a: Any) -> Any:
    """The real 2n x 2n matrix [[re, -im], [im, re]], a ring homomorphism."""
    return torch.cat([torch.cat([a.re, -a.im], -1), torch.cat([a.im, a.re], -1)], -2)


def complex_inverse(func: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    """The inverse, as the left blocks of the inverse of the real block matrix."""
    n = a.shape[-1]
    whole = torch.linalg.inv_ex(complex_block_matrix(a))[0]
    inverse = RealPair(whole[..., :n, :n], whole[..., n:, :n])
    if func.overloadpacket.__name__ == "linalg_inv_ex":
        return inverse, torch.zeros(a.shape[:-2], dtype=torch.int32)
    return inverse


def complex_solve(func: Any, a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """linalg.solve through the real block matrix."""
    if not left:
        raise NotImplementedError("complex linalg.solve with left=False")
    a, b = pair_of(a), pair_of(b)
    n, vector = a.shape[-1], b.dim() == 1 or (b.dim() == a.dim() - 1 and tuple(b.shape) == tuple(a.shape[:-1]))
    right = torch.cat([b.re, b.im], -1 if vector else -2)
    whole = torch.linalg.solve_ex(complex_block_matrix(a), right)[0]
    first, second = (whole[..., :n], whole[..., n:]) if vector else (whole[..., :n, :], whole[..., n:, :])
    return RealPair(first, second)


def complex_solve_ex(func: Any, a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """_linalg_solve_ex: the solution; the factors that come with it are not filled in."""
    solution = complex_solve(func, a, b, left=left)
    size = list(a.shape[:-1])
    return solution, a, torch.zeros(size, dtype=torch.int32), torch.zeros(size[:-1], dtype=torch.int32)


def complex_var_mean(func: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    """var_mean."""
    real, imaginary = func(a.re, *args, **kwargs), func(a.im, *args, **kwargs)
    return real[0] + imaginary[0], RealPair(real[1], imaginary[1])


COMPLEX_PRODUCTS: dict[str, Any] = {
    "mm": complex_bilinear,
    "bmm": complex_bilinear,
    "dot": complex_bilinear,
    "mv": complex_bilinear,
    "vdot": complex_vdot,
    "addmm": complex_addmm,
    "addmv": complex_addmm,
    "baddbmm": complex_addmm,
    "linear": complex_linear,
    "convolution": complex_convolution,
    "var": complex_var,
    "std": complex_std,
    "linalg_vector_norm": complex_norm,
    "norm": complex_norm,
    "cumprod": complex_cumprod,
    "prod": complex_prod,
    "_linalg_solve_ex": complex_solve_ex,
    "var_mean": complex_var_mean,
    "linalg_inv_ex": complex_inverse,
    "linalg_inv": complex_inverse,
    "inverse": complex_inverse,
    "linalg_solve": complex_solve,
}
