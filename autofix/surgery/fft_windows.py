"""Windows and frequency axes whose length may be dynamic, for the time that a model is captured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch


def fft_scalar(value: Any, dtype: torch.dtype = torch.float64) -> Any:
    """A size as a 0-d tensor, kept in the graph where it is symbolic."""
    return torch.ops.aten.scalar_tensor.default(value, dtype=dtype)


def fft_float(dtype: Any) -> Any:
    """The dtype of a factory function that was given `dtype`."""
    return torch.get_default_dtype() if dtype is None else dtype


def fft_fftfreq(n: Any, d: float = 1.0, *, dtype: Any = None, **kwargs: Any) -> Any:
    """torch.fft.fftfreq of a length that may be dynamic."""
    if isinstance(n, int):
        return torch.fft.fftfreq(n, d, dtype=dtype)
    index = torch.arange(n)
    index = torch.where(index < (n + 1) // 2, index, index - n).to(fft_float(dtype))
    return index * (1.0 / (fft_scalar(n) * d)).to(index.dtype)


def fft_rfftfreq(n: Any, d: float = 1.0, *, dtype: Any = None, **kwargs: Any) -> Any:
    """torch.fft.rfftfreq of a length that may be dynamic."""
    if isinstance(n, int):
        return torch.fft.rfftfreq(n, d, dtype=dtype)
    index = torch.arange(n // 2 + 1).to(fft_float(dtype))
    return index * (1.0 / (fft_scalar(n) * d)).to(index.dtype)


def window_as_constant(make: Any, *args: Any, dtype: Any) -> Any:
    """A window of known length, whose values become a constant of the graph: the exporter has no form of its operator."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        values = make(*args, dtype=fft_float(dtype)).tolist()
    return torch.tensor(values, dtype=fft_float(dtype))


def window_ramp(n: Any, periodic: bool, turns: float, dtype: Any) -> tuple[Any, Any]:
    """(k * turns / (N - 1) for the N = n + periodic samples without the last one if periodic, whether n is 1)."""
    last = fft_scalar(n) if periodic else torch.clamp(fft_scalar(n) - 1.0, min=1.0)
    ramp = torch.arange(n).to(fft_float(dtype))
    return ramp * (turns / last).to(ramp.dtype), fft_scalar(n) == 1.0


def window_hamming(window_length: Any, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None, **kwargs: Any) -> Any:
    """torch.hamming_window."""
    if isinstance(window_length, int):
        return window_as_constant(torch.hamming_window, window_length, periodic, alpha, beta, dtype=dtype)
    ramp, single = window_ramp(window_length, periodic, 2.0 * math.pi, dtype)
    return torch.where(single, torch.ones_like(ramp), torch.cos(ramp) * -beta + alpha)


def window_hann(window_length: Any, periodic: bool = True, *, dtype: Any = None, **kwargs: Any) -> Any:
    """torch.hann_window."""
    if isinstance(window_length, int):
        return torch.hann_window(window_length, periodic, dtype=dtype)
    return window_hamming(window_length, periodic, 0.5, 0.5, dtype=dtype)


def window_blackman(window_length: Any, periodic: bool = True, *, dtype: Any = None, **kwargs: Any) -> Any:
    """torch.blackman_window."""
    if isinstance(window_length, int):
        return window_as_constant(torch.blackman_window, window_length, periodic, dtype=dtype)
    ramp, single = window_ramp(window_length, periodic, math.pi, dtype)
    return torch.where(single, torch.ones_like(ramp), torch.cos(ramp * 4.0) * 0.08 - torch.cos(ramp * 2.0) * 0.5 + 0.42)


def window_bartlett(window_length: Any, periodic: bool = True, *, dtype: Any = None, **kwargs: Any) -> Any:
    """torch.bartlett_window."""
    if isinstance(window_length, int):
        return window_as_constant(torch.bartlett_window, window_length, periodic, dtype=dtype)
    ramp, single = window_ramp(window_length, periodic, 2.0, dtype)
    return torch.where(single, torch.ones_like(ramp), torch.where(ramp <= 1.0, ramp, 2.0 - ramp))


def window_kaiser(window_length: Any, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, **kwargs: Any) -> Any:
    """torch.kaiser_window."""
    if isinstance(window_length, int):
        return window_as_constant(torch.kaiser_window, window_length, periodic, beta, dtype=dtype)
    ramp, single = window_ramp(window_length, periodic, 2.0, dtype)
    ratio = ramp - 1.0
    top = torch.special.i0(torch.sqrt(torch.clamp(1.0 - ratio * ratio, min=0.0)) * beta)
    return torch.where(single, torch.ones_like(ramp), top / float(np.i0(beta)))


def window_linspace(start: Any, end: Any, steps: Any = 100, *, dtype: Any = None, **kwargs: Any) -> Any:
    """torch.linspace with a number of steps that may be dynamic, counted from both ends as ATen does."""
    if isinstance(steps, int):
        return (
            torch.ops.aten.linspace.default(start, end, steps, dtype=dtype)
            if not isinstance(start, torch.Tensor) and not isinstance(end, torch.Tensor)
            else torch.linspace(start, end, steps, dtype=dtype)
        )
    kind = fft_float(dtype)
    low, high = (v if isinstance(v, torch.Tensor) else fft_scalar(v, kind) for v in (start, end))
    low, high = low.to(kind), high.to(kind)
    index = torch.arange(steps).to(kind)
    step = (high - low) / torch.clamp(fft_scalar(steps, kind) - 1.0, min=1.0)
    back = fft_scalar(steps, kind) - 1.0 - index
    values = torch.where(torch.arange(steps) < steps // 2, low + step * index, high - step * back)
    return torch.where(fft_scalar(steps, kind) == 1.0, low, values)


def fft_shifted(original: Any, back: bool) -> Any:
    """torch.fft.fftshift and ifftshift (back): along each axis, the upper half goes first; of an odd length, the lower half is the longer."""

    def replacement(input: Any, dim: Any = None) -> Any:
        axes = range(input.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
        if all(isinstance(input.shape[axis], int) for axis in axes):
            return original(input, dim)
        for axis in axes:
            n = input.shape[axis]
            lower = n // 2 if back else (n + 1) // 2
            input = torch.cat([input.narrow(axis, lower, n - lower), input.narrow(axis, 0, lower)], axis)
        return input

    return replacement


def fft_window_overrides() -> dict[Any, Any]:
    """Factories whose length may be dynamic."""
    return {
        torch.hann_window: window_hann,
        torch.hamming_window: window_hamming,
        torch.blackman_window: window_blackman,
        torch.bartlett_window: window_bartlett,
        torch.kaiser_window: window_kaiser,
        torch.fft.fftfreq: fft_fftfreq,
        torch.fft.rfftfreq: fft_rfftfreq,
        torch.fft.fftshift: fft_shifted(torch.fft.fftshift, False),
        torch.fft.ifftshift: fft_shifted(torch.fft.ifftshift, True),
        torch.linspace: window_linspace,
    }
