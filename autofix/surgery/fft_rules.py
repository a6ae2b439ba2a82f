"""The three Fourier operators of ATen as real arithmetic, for PairMode's table."""

from __future__ import annotations

from typing import Any

import torch

from autofix.surgery.complex_tensor import RealPair, pair_of
from autofix.surgery.fft_matrix import fft_half_to_real, fft_last_axis, fft_scale


def fft_along(re: Any, im: Any, dim: int, sign: float, kept: Any = None) -> tuple[Any, Any]:
    """The transform along one axis; `kept` of its outputs, all by default."""
    last = re.dim() - 1
    dim = dim % re.dim()
    if dim != last:
        re, im = re.transpose(dim, last), None if im is None else im.transpose(dim, last)
    n = re.shape[-1]
    re, im = fft_last_axis(re, im, n, sign, n if kept is None else kept)
    return (re.transpose(dim, last), im.transpose(dim, last)) if dim != last else (re, im)


def fft_normalized(re: Any, im: Any, normalization: int, sizes: list[Any]) -> tuple[Any, Any]:
    """Both parts (or one) times the factor for the product of the transformed sizes."""
    total: Any = 1
    for size in sizes:
        total = total * size
    factor = fft_scale(normalization, total, re.dtype)
    if factor is None:
        return re, im
    return re * factor, None if im is None else im * factor


def fft_wide(x: Any, dim: Any) -> Any:
    """Real numbers as float64 for transforms over several axes: a matrix product rounds partial sums as large as the last results at every
    term, an FFT at the last few only. None stays None."""
    return x.to(torch.float64) if len(dim) > 1 and x is not None and x.dtype == torch.float32 else x


def fft_complex_to_complex(func: Any, x: Any, dim: Any, normalization: int, forward: bool) -> Any:
    """aten._fft_c2c."""
    x = pair_of(x)
    re, im, sizes = fft_wide(x.re, dim), fft_wide(x.im, dim), [x.shape[d] for d in dim]
    for axis in dim:
        re, im = fft_along(re, im, axis, -1.0 if forward else 1.0)
    return RealPair(*(part.to(x.re.dtype) for part in fft_normalized(re, im, normalization, sizes)))


def fft_real_to_complex(func: Any, x: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    """aten._fft_r2c: the last axis of `dim` first, one-sided, then the others."""
    sizes = [x.shape[d] for d in dim]
    kept = sizes[-1] // 2 + 1 if onesided else sizes[-1]
    re, im = fft_along(fft_wide(x, dim), None, dim[-1], -1.0, kept)
    for axis in dim[:-1]:
        re, im = fft_along(re, im, axis, -1.0)
    return RealPair(*(part.to(x.dtype) for part in fft_normalized(re, im, normalization, sizes)))


def fft_complex_to_real(func: Any, x: Any, dim: Any, normalization: int, last_dim_size: Any) -> Any:
    """aten._fft_c2r: the other axes inverse, then the last one from its half spectrum."""
    x = pair_of(x)
    re, im = fft_wide(x.re, dim), fft_wide(x.im, dim)
    for axis in dim[:-1]:
        re, im = fft_along(re, im, axis, 1.0)
    last, axis = re.dim() - 1, dim[-1] % re.dim()
    if axis != last:
        re, im = re.transpose(axis, last), im.transpose(axis, last)
    y = fft_half_to_real(re, im, last_dim_size)
    y = y.transpose(axis, last) if axis != last else y
    return fft_normalized(y, None, normalization, [x.shape[d] for d in dim[:-1]] + [last_dim_size])[0].to(x.re.dtype)


FFT_RULES: dict[str, Any] = {
    "_fft_c2c": fft_complex_to_complex,
    "_fft_r2c": fft_real_to_complex,
    "_fft_c2r": fft_complex_to_real,
}
