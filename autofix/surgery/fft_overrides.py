"""Replacements, while a model is captured, for Fourier functions that fix a dynamic length or lose digits.

Formulas: PyTorch's documentation of torch.stft and torch.istft, and ATen's SpectralOps.cpp and TensorFactories.cpp for the
order of operations (windows are computed in their own dtype).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from autofix.surgery.fft_matrix import fft_constant, fft_roots

STFT_CONVOLUTION_LIMIT = 2048


def fft_known_equal(a: Any, b: Any) -> bool:
    """Whether two sizes are equal for every value of the dynamic axes."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return bool(statically_known_true(a == b))


def fft_resize_axis(x: Any, dim: int, size: Any) -> Any:
    """One axis cut or padded with zeros at its end to `size`, which may be symbolic."""
    have = x.shape[dim]
    if fft_known_equal(have, size):
        return x
    known = isinstance(have, int) and isinstance(size, int)
    if known and have > size:
        return torch.narrow(x, dim, 0, size)
    shape = list(x.shape)
    shape[dim] = size - have if known else size
    longer = torch.cat([x, torch.zeros(shape, dtype=x.dtype)], dim)
    return longer if known else torch.narrow(longer, dim, 0, size)


def fft_norm_code(norm: str | None, forward: bool) -> int:
    """ATen's normalization code: 0 none, 1 by the root of n, 2 by n."""
    if norm == "ortho":
        return 1
    return 2 if (norm or "backward") == ("forward" if forward else "backward") else 0


def fft_to_real(x: Any, sizes: list[Any], dims: list[int], norm: str | None, forward: bool) -> Any:
    """The complex-to-real transforms (irfft and hfft families) for any mixture of fixed and dynamic sizes."""
    if not x.is_complex():
        x = torch.complex(x.float() if not x.is_floating_point() else x, torch.zeros_like(x, dtype=None if x.is_floating_point() else torch.float32))
    for dim, size in zip(dims[:-1], sizes[:-1], strict=True):
        x = fft_resize_axis(x, dim, size)
    last = sizes[-1]
    x = fft_resize_axis(x, dims[-1], last // 2 + 1)
    if forward:
        x = torch.conj(x).resolve_conj()
    return torch.ops.aten._fft_c2r.default(x, dims, fft_norm_code(norm, forward), last)


def fft_sizes(x: Any, s: Any, dim: Any) -> tuple[list[Any], list[int]]:
    """Sizes and axes of an n-dimensional complex-to-real transform, in ATen's order."""
    if dim is None:
        dims = list(range(-len(s), 0)) if s is not None else list(range(-x.dim(), 0))
    else:
        dims = [dim] if isinstance(dim, int) else list(dim)
    dims = [d % x.dim() for d in dims]
    sizes = [x.shape[d] for d in dims]
    sizes[-1] = 2 * (sizes[-1] - 1)
    if s is not None:
        given = [s] if isinstance(s, int) else list(s)
        sizes = [have if isinstance(g, int) and g == -1 else g for g, have in zip(given, sizes, strict=True)]
    return sizes, dims


def fft_irfft(input: Any, n: Any = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Any:
    """torch.fft.irfft."""
    return fft_to_real(input, [2 * (input.shape[dim] - 1) if n is None else n], [dim % input.dim()], norm, False)


def fft_hfft(input: Any, n: Any = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Any:
    """torch.fft.hfft."""
    return fft_to_real(input, [2 * (input.shape[dim] - 1) if n is None else n], [dim % input.dim()], norm, True)


def fft_irfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None, *, out: Any = None) -> Any:
    """torch.fft.irfftn."""
    return fft_to_real(input, *fft_sizes(input, s, dim), norm, False)


def fft_irfft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None, *, out: Any = None) -> Any:
    """torch.fft.irfft2."""
    return fft_irfftn(input, s, dim, norm)


def stft_window(window: Any, n_fft: int, win_length: Any, x: Any) -> Any:
    """The window padded with zeros on both sides to n_fft, in the real dtype of x; None where it is all ones."""
    length = n_fft if win_length is None else win_length
    kind = torch.empty(0, dtype=x.dtype).real.dtype if x.is_complex() else x.dtype
    if window is None:
        if length == n_fft:
            return None
        window = torch.ones(length, dtype=kind)
    window = window.to(kind)
    left = (n_fft - length) // 2
    return window if length == n_fft else torch.nn.functional.pad(window, [left, n_fft - length - left])


def stft_kernel(n_fft: int, kept: int, window: Any, dtype: torch.dtype, scale: float) -> tuple[Any, Any]:
    """The analysis filters [kept, 1, n_fft], cosine and minus sine parts."""
    cos, sin = fft_roots(np.outer(np.arange(kept), np.arange(n_fft)), n_fft, -1.0)
    c, s = fft_constant(cos * scale, dtype), fft_constant(sin * scale, dtype)
    if window is not None:
        c, s = c * window, s * window
    return c.unsqueeze(1), s.unsqueeze(1)


def stft_frames(x: Any, n_fft: int, hop: int) -> Any:
    """[batch, frames, n_fft] samples of x [batch, samples]."""
    count = (x.shape[-1] - n_fft) // hop + 1
    index = (torch.arange(count) * hop).unsqueeze(1) + torch.arange(n_fft)
    return x[:, index]


def stft_filtered(x: Any, kernel: Any, hop: int) -> Any:
    """Correlation of x [batch, samples] with kernel [outputs, 1, n_fft] every `hop` samples: [batch, outputs, frames]."""
    if x.dtype == torch.float32:
        return torch.nn.functional.conv1d(x.unsqueeze(1), kernel, stride=hop)
    return torch.matmul(stft_frames(x, kernel.shape[-1], hop), kernel.squeeze(1).transpose(0, 1)).transpose(1, 2)


def fft_stft(
    input: Any,
    n_fft: int,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: Any = None,
    return_complex: Any = None,
    align_to_window: Any = None,
) -> Any:
    """torch.stft as a strided convolution with windowed sines and cosines."""
    hop = n_fft // 4 if hop_length is None else hop_length
    x = input
    flat = x.dim() == 1
    x = x.unsqueeze(0) if flat else x
    if center:
        pad = n_fft // 2
        if x.is_complex():
            x = torch.complex(*(torch.nn.functional.pad(p.unsqueeze(0), [pad, pad], pad_mode).squeeze(0) for p in (x.real, x.imag)))
        else:
            x = torch.nn.functional.pad(x.unsqueeze(0), [pad, pad], pad_mode).squeeze(0)
    win = stft_window(window.real if window is not None and window.is_complex() else window, n_fft, win_length, x)
    half = onesided if onesided is not None else not x.is_complex()
    kept = n_fft // 2 + 1 if half else n_fft
    scale = 1.0 / math.sqrt(n_fft) if normalized else 1.0
    if x.is_complex():
        c, s = stft_kernel(n_fft, kept, win, x.real.dtype, scale)
        re = stft_filtered(x.real, c, hop) - stft_filtered(x.imag, s, hop)
        im = stft_filtered(x.real, s, hop) + stft_filtered(x.imag, c, hop)
    elif n_fft <= STFT_CONVOLUTION_LIMIT:
        c, s = stft_kernel(n_fft, kept, win, x.dtype, scale)
        both = stft_filtered(x, torch.cat([c, s], 0), hop)
        # Laid out frame by frame, as torch.stft's own result is: later operators look at the strides.
        re, im = (torch.narrow(both, 1, at, kept).transpose(1, 2).contiguous().transpose(1, 2) for at in (0, kept))
    else:
        frames = stft_frames(x, n_fft, hop)
        frames = frames if win is None else frames * win
        spectrum = (torch.fft.rfft(frames) if half else torch.fft.fft(frames)).transpose(1, 2) * scale
        re, im = spectrum.real, spectrum.imag
    if flat:
        re, im = re.squeeze(0), im.squeeze(0)
    return torch.complex(re, im) if return_complex or (return_complex is None and input.is_complex()) else torch.stack([re, im], -1)


def istft_synthesis(n_fft: int, half: bool, window: Any, dtype: torch.dtype, scale: float) -> Any:
    """The synthesis filters [2 * bins, 1, n_fft] of the real inverse transform times the window."""
    bins = n_fft // 2 + 1 if half else n_fft
    cos, sin = fft_roots(np.outer(np.arange(bins), np.arange(n_fft)), n_fft, 1.0)
    weight = np.full((bins, 1), scale)
    if half:
        weight *= 2.0
        weight[0] = scale
        sin[0] = 0.0
        if n_fft % 2 == 0:
            weight[-1] = scale
            sin[-1] = 0.0
    filters = fft_constant(np.concatenate([weight * cos, -weight * sin], 0), dtype)
    return (filters if window is None else filters * window).unsqueeze(1)


def fft_istft(
    input: Any,
    n_fft: int,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: Any = None,
    length: Any = None,
    return_complex: bool = False,
) -> Any:
    """torch.istft as a transposed convolution over its window envelope."""
    if return_complex:
        raise NotImplementedError("torch.istft with return_complex=True")
    hop = n_fft // 4 if hop_length is None else hop_length
    flat = input.dim() == 2
    spectrum = input.unsqueeze(0) if flat else input
    re, im = spectrum.real, spectrum.imag
    win = stft_window(window, n_fft, win_length, re)
    half = onesided if onesided is not None else input.shape[-2] != n_fft
    filters = istft_synthesis(n_fft, half, win, re.dtype, 1.0 / math.sqrt(n_fft) if normalized else 1.0 / n_fft)
    parts = torch.cat([re, im], 1)
    frames = spectrum.shape[-1]
    square = torch.ones(n_fft, dtype=re.dtype) if win is None else win * win
    ones = torch.ones([1, 1, frames], dtype=re.dtype)
    y = torch.nn.functional.conv_transpose1d(parts, filters, stride=hop)
    envelope = torch.nn.functional.conv_transpose1d(ones, square.reshape(1, 1, n_fft), stride=hop)
    y = (y / envelope).squeeze(1)
    whole = n_fft + hop * (frames - 1)
    start = n_fft // 2 if center else 0
    if length is None:
        y = torch.narrow(y, 1, start, whole - 2 * start)
    else:
        y = torch.narrow(torch.cat([y, torch.zeros([y.shape[0], length], dtype=y.dtype)], 1), 1, start, length)
    return y.squeeze(0) if flat else y


def fft_function_overrides() -> dict[Any, Any]:
    """Transforms to real numbers and short-time transforms."""
    return {
        torch.fft.irfft: fft_irfft,
        torch.fft.hfft: fft_hfft,
        torch.fft.irfft2: fft_irfft2,
        torch.fft.irfftn: fft_irfftn,
        torch.stft: fft_stft,
        torch.Tensor.stft: fft_stft,
        torch.istft: fft_istft,
        torch.Tensor.istft: fft_istft,
    }
