"""Batch and instance normalisation with the statistics of the batch itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def normalized(x: Tensor, axes: list[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """(x - mean) / sqrt(var + eps) over `axes`, with the biased variance, then scale and shift along axis 1."""
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    result = centred * torch.rsqrt((centred * centred).mean(axes, keepdim=True) + eps)
    shape = [1, -1] + [1] * (x.dim() - 2)
    if weight is not None:
        result = result * weight.reshape(shape)
    return result if bias is None else result + bias.reshape(shape)


def batch_norm_any(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """For torch.nn.functional.batch_norm."""
    if training or running_mean is None or running_var is None:
        return normalized(input, [0, *range(2, input.dim())], weight, bias, eps)
    return torch.batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps, False)


def instance_norm_any(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """For torch.nn.functional.instance_norm."""
    if use_input_stats or running_mean is None or running_var is None:
        return normalized(input, list(range(2, input.dim())), weight, bias, eps)
    return torch.batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps, False)
