"""Group and instance normalisation with means and variances in float64.

ONNX Runtime's InstanceNormalization adds a group up in float32 one number after another: where all are nearly equal, the error of the mean is
divided by sqrt(eps) and shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def group_norm(x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, enabled: bool = True) -> Tensor:
    """aten.group_norm of x [N, C, ...]: each of `groups` groups of channels by its own mean and variance."""
    flat = x.reshape(x.shape[0], groups, -1).to(torch.float64)
    away = flat - flat.mean(-1, keepdim=True)
    inverse = ((away * away).mean(-1, keepdim=True) + eps).rsqrt()
    y = (away * inverse).to(x.dtype).reshape(x.shape)
    shape = [-1, *[1] * (x.ndim - 2)]
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    enabled: bool,
) -> Tensor:
    """aten.instance_norm by the statistics of the input; by running ones it is a plain affine map."""
    if not use_input_stats or running_mean is not None:
        return NotImplemented  # type: ignore[no-any-return]
    return group_norm(x, x.shape[1], weight, bias, eps)


NORM_DECOMPOSITIONS: dict[str, Callable[..., Any]] = {"aten.group_norm.default": group_norm, "aten.instance_norm.default": instance_norm}
