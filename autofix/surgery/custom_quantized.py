"""Statically quantized modules computed on whole numbers held in floating point, with the rounding of PyTorch's FBGEMM kernels.

A quantized tensor becomes a QuantizedValues: its whole numbers as float32 and its scale and zero point. Products of
whole numbers are exact: inputs are split into two digits of base 16, whose sums stay below 2^24. Requantization after FBGEMM (Khudia et al. 2021):
round((acc + bias / (scale_x scale_w)) * (scale_x scale_w / scale_y)) + zero point, in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


class QuantizedValues:
    """Whole numbers `q` (float32), with value (q - zero_point) * scale, inside low..high."""

    def __init__(self, q: Any, scale: float, zero_point: int, low: int = 0, high: int = 255) -> None:
        self.q, self.scale, self.zero_point, self.low, self.high = q, scale, zero_point, low, high

    def like(self, q: Any) -> QuantizedValues:
        """Other whole numbers of the same scale."""
        return QuantizedValues(q, self.scale, self.zero_point, self.low, self.high)

    def dequantize(self) -> Any:
        """The values in float32."""
        return (self.q - float(self.zero_point)) * float(np.float32(self.scale))

    @property
    def shape(self) -> Any:
        """The shape."""
        return self.q.shape

    def dim(self) -> int:
        """The number of axes."""
        return int(self.q.dim())

    def size(self, *args: Any) -> Any:
        """The size."""
        return self.q.size(*args)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Functions that move or compare whole numbers; NotImplementedError for others."""
        name = getattr(func, "__name__", "")
        first = args[0][0] if isinstance(args[0], (tuple, list)) else args[0]
        if name in ("relu", "relu_"):
            return first.like(torch.clamp(first.q, min=float(first.zero_point)))
        if name in ("dequantize",):
            return first.dequantize()
        if name in QUANTIZED_MOVES:
            return first.like(func(first.q, *args[1:], **(kwargs or {})))
        raise NotImplementedError(f"{name} on quantized values")

    def __getattr__(self, name: str) -> Any:
        if name not in QUANTIZED_MOVES:
            raise AttributeError(name)
        return lambda *args, **kwargs: self.like(getattr(self.q, name)(*args, **kwargs))


QUANTIZED_MOVES = (
    "flatten",
    "reshape",
    "view",
    "permute",
    "transpose",
    "squeeze",
    "unsqueeze",
    "contiguous",
    "max_pool2d",
    "max_pool1d",
    "boolean_dispatch",
    "dropout",
    "clone",
    "select",
    "detach",
)


def quantized_from_float(x: Any, scale: float, zero_point: int, low: int, high: int) -> QuantizedValues:
    """quantize_per_tensor: one fused multiply and add, then round half to even."""
    inverse = float(np.float32(1.0) / np.float32(scale))
    q = torch.round((x.to(torch.float64) * inverse + float(zero_point)).to(torch.float32))
    return QuantizedValues(torch.clamp(q, float(low), float(high)), scale, zero_point, low, high)


def quantized_exact(product: Callable[[Any], Any], q: Any) -> Any:
    """A linear function of whole numbers |q| < 2^12 with whole coefficients, exact, as float64 rounded to float32."""
    high = torch.floor(q / 16.0)
    low = q - high * 16.0
    return (product(high).to(torch.float64) * 16.0 + product(low).to(torch.float64)).to(torch.float32)


def quantized_rounded(acc: Any, shift: Any, factor: Any, scale: float, zero_point: int, relu: bool) -> QuantizedValues:
    """Requantization of exact sums."""
    q = torch.round((acc + shift) * factor) + float(zero_point)
    return QuantizedValues(torch.clamp(q, float(zero_point) if relu else 0.0, 255.0), scale, zero_point)


class QuantizedInput(torch.nn.Module):
    """nnq.Quantize."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.scale, self.zero_point = float(module.scale.reshape(-1)[0]), int(module.zero_point.reshape(-1)[0])
        self.low, self.high = (0, 255) if module.dtype == torch.quint8 else (-128, 127)

    def forward(self, x: Any) -> Any:
        """Float to whole numbers."""
        return quantized_from_float(x, self.scale, self.zero_point, self.low, self.high)


class QuantizedOutput(torch.nn.Module):
    """nnq.DeQuantize."""

    def forward(self, x: Any) -> Any:
        """Whole numbers to float."""
        return x.dequantize() if isinstance(x, QuantizedValues) else x


class QuantizedProduct(torch.nn.Module):
    """nnq.Linear, nnq.Conv1d, nnq.Conv2d and their fusions with ReLU."""

    def __init__(self, module: Any, relu: bool) -> None:
        super().__init__()
        weight, bias = module._weight_bias()
        channels = weight.shape[0]
        if weight.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric):
            scales, zeros = weight.q_per_channel_scales().to(torch.float32), weight.q_per_channel_zero_points()
        else:
            scales, zeros = torch.full((channels,), weight.q_scale(), dtype=torch.float32), torch.full((channels,), weight.q_zero_point())
        self.rank = weight.dim() - 2
        self.register_buffer("weight", weight.int_repr().to(torch.float32) - zeros.to(torch.float32).reshape([-1] + [1] * (weight.dim() - 1)))
        self.register_buffer("scales", scales)
        self.register_buffer("bias", torch.zeros(channels) if bias is None else bias.detach().to(torch.float32))
        self.scale, self.zero_point, self.relu = float(module.scale), int(module.zero_point), relu
        self.options = (module.stride, module.padding, module.dilation, module.groups) if self.rank > 0 else ()
        if self.rank > 0 and getattr(module, "padding_mode", "zeros") != "zeros":
            raise NotImplementedError("quantized convolution with another padding mode")

    def forward(self, x: Any) -> Any:
        """The quantized product; padding counts as zero, which is the zero point."""
        weight: Any = self.weight
        scales: Any = self.scales
        bias: Any = self.bias
        if self.rank > 0:
            convolve = torch.nn.functional.conv1d if self.rank == 1 else torch.nn.functional.conv2d
            acc = quantized_exact(lambda q: convolve(q, weight, None, *self.options), x.q - float(x.zero_point))
            shape = [1, -1] + [1] * self.rank
        else:
            acc = quantized_exact(lambda q: torch.matmul(q, weight.transpose(0, 1)), x.q - float(x.zero_point))
            shape = [-1]
        both = scales * float(np.float32(x.scale))
        factor = both / float(np.float32(self.scale))
        return quantized_rounded(acc, (bias / both).reshape(shape), factor.reshape(shape), self.scale, self.zero_point, self.relu)


def quantized_replacement(module: Any) -> Any:
    """The module that stands for a quantized one, or None."""
    name, home = type(module).__name__, type(module).__module__
    if "quantized" not in home or "dynamic" in home or "reference" in home:
        return None
    if name == "Quantize":
        return QuantizedInput(module)
    if name == "DeQuantize":
        return QuantizedOutput()
    if name in ("Linear", "Conv1d", "Conv2d"):
        return QuantizedProduct(module, False)
    if name in ("LinearReLU", "ConvReLU1d", "ConvReLU2d"):
        return QuantizedProduct(module, True)
    return None


def quantized_replaced(model: Any) -> int:
    """Replace quantized modules inside `model`; how many."""
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            new = quantized_replacement(child)
            if new is not None:
                setattr(parent, name, new)
                count += 1
    return count
