"""Fake quantisation in plain arithmetic."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def fake_quantized(x: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int) -> Tensor:
    """(clamp(round(x / scale) + zero_point) - zero_point) * scale, with x / scale as x * (1 / scale) as in PyTorch's kernel
    (aten/src/ATen/native/quantized/cpu/kernels/QuantizedOpKernels.cpp) and ties rounded to even."""
    zero = zero_point.to(x.dtype)
    steps = (torch.round(x * (1.0 / scale)) + zero).clamp(quant_min, quant_max)
    return (steps - zero) * scale


def fake_quantize_tensor_any(input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Tensor:
    """For torch.fake_quantize_per_tensor_affine."""
    return fake_quantized(
        input, torch.as_tensor(scale, dtype=torch.float32).reshape(()), torch.as_tensor(zero_point).reshape(()), quant_min, quant_max
    )


def fake_quantize_channel_any(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int) -> Tensor:
    """For torch.fake_quantize_per_channel_affine."""
    shape = [1] * input.dim()
    shape[axis] = -1
    return fake_quantized(input, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


class PlainFakeQuantize(nn.Module):
    """A FakeQuantize module whose switches are decided; observers are off."""

    scale: Tensor
    zero_point: Tensor

    def __init__(self, source: Any) -> None:
        super().__init__()
        self.enabled = bool(source.fake_quant_enabled[0] == 1)
        self.register_buffer("scale", source.scale.detach().clone().float())
        self.register_buffer("zero_point", source.zero_point.detach().clone())
        self.axis = int(source.ch_axis) if source.is_per_channel else None
        bounds = source.activation_post_process if hasattr(source, "activation_post_process") else source
        self.quant_min, self.quant_max = int(bounds.quant_min), int(bounds.quant_max)

    def forward(self, x: Tensor) -> Tensor:
        """Fake-quantised x, or x itself where the module is switched off."""
        if not self.enabled:
            return x
        if self.axis is None:
            return fake_quantize_tensor_any(x, self.scale, self.zero_point, self.quant_min, self.quant_max)
        return fake_quantize_channel_any(x, self.scale, self.zero_point, self.axis, self.quant_min, self.quant_max)


def plain_fake_quantize(model: nn.Module) -> list[str]:
    """Replace FakeQuantize modules whose observers are off, in place; returns their paths."""
    changed = []
    for path, module in list(model.named_modules()):
        if path and hasattr(module, "fake_quant_enabled") and hasattr(module, "observer_enabled") and hasattr(module, "is_per_channel"):
            if bool(module.observer_enabled[0] == 1):
                continue  # its scale changes from call to call
            owner, _, name = path.rpartition(".")
            setattr(model.get_submodule(owner), name, PlainFakeQuantize(module))
            changed.append(path)
    return changed
