"""Discrete Fourier transforms as matrix products with real numbers.

ONNX Runtime's DFT and STFT lose up to four digits where the length is no power of two (it steps its roots of unity forward
by multiplication), so the transform is written as products with matrices of roots that are rounded once from float64. Lengths
with small factors are split (Cooley and Tukey 1965), large prime lengths go through a convolution (Bluestein 1970). A
dynamic length builds its matrix in the graph, from products of indices reduced modulo the length while they are still whole numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

FFT_DENSE_LIMIT = 512
FFT_DENSE_PRIME_LIMIT = 2048


def fft_constant(values: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    """A float64 array as a real tensor constant of `dtype`, made outside of any tracing mode."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        return torch.from_numpy(np.ascontiguousarray(values)).to(dtype)


def fft_roots(products: np.ndarray[Any, Any], n: int, sign: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """cos and sin of sign * 2 pi * products / n; `products` are whole numbers."""
    angle = (2.0 * np.pi / n) * (products % n)
    return np.cos(angle), sign * np.sin(angle)


def fft_split_length(n: int) -> int:
    """The divisor of n nearest below its square root, 1 for a prime."""
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)


def fft_dense(re: Any, im: Any, n: Any, sign: float, kept: Any) -> tuple[Any, Any]:
    """The first `kept` outputs of the transform of length `n` along the last axis by one matrix product; `im` None is zero."""
    if isinstance(n, int) and isinstance(kept, int):
        cos, sin = fft_roots(np.outer(np.arange(n), np.arange(kept)), n, sign)
        if im is None:
            both = torch.matmul(re, fft_constant(np.concatenate([cos, sin], 1), re.dtype))
        else:
            block = np.concatenate([np.concatenate([cos, sin], 1), np.concatenate([-sin, cos], 1)], 0)
            both = torch.matmul(torch.cat([re, im], -1), fft_constant(block, re.dtype))
        return torch.narrow(both, -1, 0, kept), torch.narrow(both, -1, kept, kept)
    products = torch.arange(n, dtype=torch.int64).unsqueeze(1) * torch.arange(kept, dtype=torch.int64).unsqueeze(0)
    whole = torch.remainder(products, torch.ops.aten.scalar_tensor.default(n, dtype=torch.int64)).to(torch.float64)
    turn = whole * (2.0 * math.pi) / torch.ops.aten.scalar_tensor.default(n, dtype=torch.float64)
    cosine, sine = torch.cos(turn).to(re.dtype), (torch.sin(turn) * sign).to(re.dtype)
    if im is None:
        return torch.matmul(re, cosine), torch.matmul(re, sine)
    return torch.matmul(re, cosine) - torch.matmul(im, sine), torch.matmul(re, sine) + torch.matmul(im, cosine)


def fft_last_axis(re: Any, im: Any, n: Any, sign: float, kept: Any) -> tuple[Any, Any]:
    """The first `kept` of the n outputs sum_j x_j exp(sign 2 pi i j k / n) along the last axis, which has length n.

    `n` and `kept` may be symbolic; `im` is None for real input.
    """
    if not isinstance(n, int) or n <= FFT_DENSE_LIMIT:
        return fft_dense(re, im, n, sign, kept)
    first = fft_split_length(n)
    if n // first > FFT_DENSE_PRIME_LIMIT:
        return fft_chirp(re, im, n, sign, kept)
    if first == 1:
        return fft_dense(re, im, n, sign, kept)
    re, im = fft_split(re, im, first, n // first, sign)
    return torch.narrow(re, -1, 0, kept), torch.narrow(im, -1, 0, kept)


def fft_split(re: Any, im: Any, first: int, second: int, sign: float) -> tuple[Any, Any]:
    """A transform of length first * second: index j = second * j1 + j2, output k = k1 + first * k2."""
    n, lead = first * second, list(re.shape[:-1])
    re = re.reshape([*lead, first, second]).transpose(-1, -2)
    im = None if im is None else im.reshape([*lead, first, second]).transpose(-1, -2)
    re, im = fft_last_axis(re, im, first, sign, first)
    cos, sin = fft_roots(np.outer(np.arange(second), np.arange(first)), n, sign)
    c, s = fft_constant(cos, re.dtype), fft_constant(sin, re.dtype)
    re, im = (re * c - im * s).transpose(-1, -2), (re * s + im * c).transpose(-1, -2)
    re, im = fft_last_axis(re, im, second, sign, second)
    return re.transpose(-1, -2).reshape([*lead, n]), im.transpose(-1, -2).reshape([*lead, n])


def fft_chirp(re: Any, im: Any, n: int, sign: float, kept: int) -> tuple[Any, Any]:
    """Bluestein's transform: jk = (j^2 + k^2 - (k - j)^2) / 2 turns it into a convolution of a power-of-two length."""
    size = 1 << (2 * n - 1).bit_length()
    cos, sin = fft_roots(np.arange(n, dtype=np.int64) ** 2 % (2 * n), 2 * n, sign)
    kernel = np.zeros(size, dtype=np.complex128)
    kernel[:n] = cos - 1j * sin
    kernel[size - n + 1 :] = kernel[1:n][::-1]
    spectrum = np.fft.fft(kernel)
    c, s = fft_constant(cos, re.dtype), fft_constant(sin, re.dtype)
    pr, pi = (re * c, re * s) if im is None else (re * c - im * s, re * s + im * c)
    pad = [0, size - n]
    fr, fi = fft_last_axis(torch.constant_pad_nd(pr, pad), torch.constant_pad_nd(pi, pad), size, -1.0, size)
    kr, ki = fft_constant(spectrum.real / size, re.dtype), fft_constant(spectrum.imag / size, re.dtype)
    fr, fi = fft_last_axis(fr * kr - fi * ki, fr * ki + fi * kr, size, 1.0, size)
    fr, fi = torch.narrow(fr, -1, 0, kept), torch.narrow(fi, -1, 0, kept)
    c, s = fft_constant(cos[:kept], re.dtype), fft_constant(sin[:kept], re.dtype)
    return fr * c - fi * s, fr * s + fi * c


def fft_half_to_real(re: Any, im: Any, n: Any) -> Any:
    """The real inverse of a half spectrum along the last axis, not scaled: sum over the n outputs' conjugate-symmetric terms.

    The half spectrum is cut or padded with zeros to n // 2 + 1; the imaginary parts of the first and, for even n, the middle term do not count.
    """
    half = n // 2 + 1
    if not statically_known_true(re.shape[-1] == half):
        re, im = fft_resize(re, half), fft_resize(im, half)
    if isinstance(n, int) and n <= FFT_DENSE_PRIME_LIMIT:
        cos, sin = fft_roots(np.outer(np.arange(half), np.arange(n)), n, 1.0)
        weight = np.full((half, 1), 2.0)
        weight[0] = 1.0
        if n % 2 == 0:
            weight[-1] = 1.0
        sin[0] = 0.0
        if n % 2 == 0:
            sin[-1] = 0.0
        block = np.concatenate([weight * cos, -weight * sin], 0)
        return torch.matmul(torch.cat([re, im], -1), fft_constant(block, re.dtype))
    if isinstance(n, int):
        middle = (n + 1) // 2
        tail_re, tail_im = torch.flip(torch.narrow(re, -1, 1, middle - 1), [-1]), torch.flip(torch.narrow(im, -1, 1, middle - 1), [-1])
        mask = np.ones(half)
        mask[0] = 0.0
        if n % 2 == 0:
            mask[-1] = 0.0
        full_re = torch.cat([re, tail_re], -1)
        full_im = torch.cat([im * fft_constant(mask, im.dtype), -tail_im], -1)
        return fft_last_axis(full_re, full_im, n, 1.0, n)[0]
    k = torch.arange(half, dtype=torch.int64)
    size = torch.ops.aten.scalar_tensor.default(n, dtype=torch.int64)
    whole = torch.remainder(k.unsqueeze(1) * torch.arange(n, dtype=torch.int64).unsqueeze(0), size).to(torch.float64)
    turn = whole * (2.0 * math.pi) / torch.ops.aten.scalar_tensor.default(n, dtype=torch.float64)
    edge = ((k == 0) | (k * 2 == size)).unsqueeze(1)
    cosine = torch.where(edge, torch.cos(turn), torch.cos(turn) * 2.0).to(re.dtype)
    sine = torch.where(edge, torch.zeros_like(turn), torch.sin(turn) * 2.0).to(re.dtype)
    return torch.matmul(re, cosine) - torch.matmul(im, sine)


def fft_resize(x: Any, size: Any) -> Any:
    """The last axis cut or padded with zeros to `size`."""
    have = x.shape[-1]
    if isinstance(have, int) and isinstance(size, int):
        return x if have == size else torch.narrow(x, -1, 0, size) if have > size else torch.constant_pad_nd(x, [0, size - have])
    return torch.narrow(torch.cat([x, torch.zeros([*x.shape[:-1], size], dtype=x.dtype)], -1), -1, 0, size)


def fft_scale(normalization: int, n: Any, dtype: torch.dtype) -> Any:
    """The factor of ATen's normalization code: 0 none, 1 1/sqrt(n), 2 1/n; a number, or a tensor where n is symbolic."""
    if normalization == 0:
        return None
    if isinstance(n, int):
        return 1.0 / math.sqrt(n) if normalization == 1 else 1.0 / n
    size = torch.ops.aten.scalar_tensor.default(n, dtype=torch.float64)
    return (1.0 / (torch.sqrt(size) if normalization == 1 else size)).to(dtype)
