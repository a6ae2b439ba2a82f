"""Reductions, products with beta = 0, losses, normalisation and attention as ATen defines them in the cases that the exporter drops or
ONNX Runtime differs in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def is_half(dtype: torch.dtype) -> bool:
    """float16 or bfloat16."""
    return dtype in (torch.float16, torch.bfloat16)


def axes_of(x: Tensor, dim: Any) -> list[int]:
    """Reduced axes, all where none is named."""
    if dim is None:
        return list(range(x.ndim))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return [d % max(x.ndim, 1) for d in dims] if dims else list(range(x.ndim))


def may_be_empty(x: Tensor, axes: Sequence[int]) -> bool:
    """Whether some reduced axis is, or can become, empty."""
    return any(not isinstance(x.shape[a], int) or x.shape[a] == 0 for a in axes if x.ndim)


def sum_half(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """aten.sum.dim_IntList of half precision: summed in float32, given back in its own dtype. Of whole numbers: see sum_whole."""
    wanted = dtype or x.dtype
    if (dtype or torch.int64) == torch.int64 and x.dtype in (torch.int64, torch.uint8, torch.int8, torch.int16, torch.int32):
        return sum_whole(x.to(torch.int64), axes_of(x, dim), keepdim)
    if not is_half(wanted):
        return NotImplemented  # type: ignore[no-any-return]
    return torch.sum(x.to(torch.float32), axes_of(x, dim), keepdim).to(wanted)


def sum_whole(x: Tensor, axes: list[int], keepdim: bool) -> Tensor:
    """A sum of int64, modulo 2^64 as PyTorch's: ONNX Runtime's ReduceSum adds them as float64, which rounds above 2^53.

    Each number is cut into three digits to the base 2^21, whose sums are exact in float64 up to 2^32 terms.
    """
    base = 2**21
    low = torch.remainder(x, base)
    rest = torch.floor_divide(x - low, base)
    middle = torch.remainder(rest, base)
    high = torch.floor_divide(rest - middle, base)
    first, second, third = (part.to(torch.float64).sum(axes, keepdim).to(torch.int64) for part in (low, middle, high))
    return first + base * (second + base * third)


def sum_half_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """aten.sum of half precision."""
    return sum_half(x, None, dtype=dtype)


def mean(x: Tensor, dim: Any, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """aten.mean.dim: NaN over an empty axis; half precision in float32."""
    wanted = dtype or x.dtype
    axes = axes_of(x, dim)
    if not is_half(wanted) and not may_be_empty(x, axes):
        return NotImplemented  # type: ignore[no-any-return]
    work = x.to(torch.float32 if is_half(wanted) else wanted)
    count = math.prod(x.shape[a] for a in axes) if x.ndim else 1
    return (work.sum(axes, keepdim) / count).to(wanted)


def mean_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """aten.mean."""
    return mean(x, None, dtype=dtype)


def any_of(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """aten.any.dim, .dims: False over an empty axis."""
    return (x != 0).to(torch.int64).sum(axes_of(x, dim), keepdim) > 0


def any_of_all(x: Tensor) -> Tensor:
    """aten.any."""
    return any_of(x, None)


def all_of(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """aten.all.dim, .dims: True over an empty axis."""
    return (x == 0).to(torch.int64).sum(axes_of(x, dim), keepdim) == 0


def all_of_all(x: Tensor) -> Tensor:
    """aten.all."""
    return all_of(x, None)


def spread(x: Tensor, dim: Any, correction: float | None, keepdim: bool) -> tuple[Tensor, Tensor]:
    """(variance, mean) in float64, as ATen's WelfordOps sums up every real dtype; NaN where fewer entries than the correction are left."""
    axes = axes_of(x, dim)
    taken = 1.0 if correction is None else float(correction)
    count = math.prod(x.shape[a] for a in axes)
    work = x.to(torch.float64)
    center = work.sum(axes, True) / count
    rest = torch.scalar_tensor(count, dtype=work.dtype) - taken
    value = ((work - center) * (work - center)).sum(axes, keepdim) / torch.where(rest > 0, rest, 0.0)
    return value, center if keepdim else work.sum(axes) / count


def variance(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """aten.var.correction."""
    return spread(x, dim, correction, keepdim)[0].to(x.dtype)


def deviation(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """aten.std.correction: the root is taken before the variance could overflow."""
    return spread(x, dim, correction, keepdim)[0].sqrt().to(x.dtype)


def variance_and_mean(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """aten.var_mean.correction."""
    value, center = spread(x, dim, correction, keepdim)
    return value.to(x.dtype), center.to(x.dtype)


def deviation_and_mean(x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """aten.std_mean.correction."""
    value, center = spread(x, dim, correction, keepdim)
    return value.sqrt().to(x.dtype), center.to(x.dtype)


def product_without(name: str) -> Callable[..., Any]:
    """addmm and its kin for beta = 0, where the first tensor must not count, not even if it is NaN."""

    def product(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        if beta != 0:
            return NotImplemented  # type: ignore[no-any-return]
        if name == "addbmm":
            value = torch.bmm(a, b).sum(0)
        elif name == "addr":
            value = a.unsqueeze(1) * b.unsqueeze(0)
        else:
            value = a @ b
        return value if alpha == 1 else value * alpha

    return product


def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1, ignore_index: int = -100, label_smoothing: float = 0.0
) -> Tensor:
    """aten.cross_entropy_loss with every option: class weights, ignored labels, smoothing, class probabilities."""
    axis = 1 if x.ndim > 1 else 0
    classes = x.shape[axis]
    log_p = torch.log_softmax(x, axis)
    shape = [1] * x.ndim
    shape[axis] = -1
    weighted = log_p if weight is None else log_p * weight.reshape(shape)
    if target.dtype.is_floating_point:
        smooth = target * (1.0 - label_smoothing) + label_smoothing / classes if label_smoothing else target
        loss = -(weighted * smooth).sum(axis)
        return loss if reduction == 0 else loss.sum() / max_one(loss) if reduction == 1 else loss.sum()
    valid = target != ignore_index
    safe = torch.where(valid, target, 0)
    loss = torch.where(valid, -weighted.gather(axis, safe.unsqueeze(axis)).squeeze(axis), 0.0)
    counted = valid.to(x.dtype) if weight is None else torch.where(valid, weight.index_select(0, safe.reshape(-1)).reshape(safe.shape), 0.0)
    spread = torch.where(valid, -weighted.sum(axis), 0.0)
    if reduction == 1:
        loss, spread = loss.sum() / counted.sum(), spread.sum() / counted.sum()
    elif reduction == 2:
        loss, spread = loss.sum(), spread.sum()
    return loss if label_smoothing == 0 else loss * (1.0 - label_smoothing) + spread * (label_smoothing / classes)


def max_one(loss: Tensor) -> Any:
    """The number of items of a loss, 1 for a single one."""
    return loss.numel() if loss.ndim else 1


def batch_norm_functional(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """aten._native_batch_norm_legit_functional: (output, mean, 1/deviation, new running mean, new running variance)."""
    axes = [0, *range(2, x.ndim)]
    shape = [1, -1, *[1] * (x.ndim - 2)]
    if training:
        center = x.mean(axes)
        spread = ((x - center.reshape(shape)) ** 2).mean(axes)
        count = math.prod(x.shape[a] for a in axes)
        unbiased = spread * (count / (torch.scalar_tensor(count, dtype=x.dtype) - 1.0))
        kept_mean = running_mean * (1.0 - momentum) + center * momentum if momentum else running_mean.clone()
        kept_var = running_var * (1.0 - momentum) + unbiased * momentum if momentum else running_var.clone()
    else:
        center, spread, kept_mean, kept_var = running_mean, running_var, running_mean.clone(), running_var.clone()
    inverse = (spread + eps).rsqrt()
    y = (x - center.reshape(shape)) * inverse.reshape(shape)
    y = y if weight is None else y * weight.reshape(shape)
    y = y if bias is None else y + bias.reshape(shape)
    empty = x.new_zeros((0,))
    return y, center if training else empty, inverse if training else empty, kept_mean, kept_var


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """aten.scaled_dot_product_attention: rows with every key masked give 0, as ATen's safe softmax."""
    if dropout_p > 0:
        return NotImplemented  # type: ignore[no-any-return]
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.mT
    if is_causal:
        rows, columns = torch.arange(query.shape[-2]).unsqueeze(-1), torch.arange(key.shape[-2])
        scores = torch.where(columns <= rows, scores, -math.inf)
    if attn_mask is not None:
        scores = torch.where(attn_mask, scores, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    dead = (scores != -math.inf).to(torch.int64).sum(-1, keepdim=True) == 0
    weights = torch.softmax(torch.where(dead, 0.0, scores), -1)
    return torch.where(dead, 0.0, weights).to(value.dtype) @ value


REDUCTION_DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "aten.sum.default": sum_half_all,
    "aten.sum.dim_IntList": sum_half,
    "aten.mean.default": mean_all,
    "aten.mean.dim": mean,
    "aten.any.default": any_of_all,
    "aten.any.dim": any_of,
    "aten.any.dims": any_of,
    "aten.all.default": all_of_all,
    "aten.all.dim": all_of,
    "aten.all.dims": all_of,
    "aten.std.correction": deviation,
    "aten.std_mean.correction": deviation_and_mean,
    "aten.var.correction": variance,
    "aten.var_mean.correction": variance_and_mean,
    "aten.addmm.default": product_without("addmm"),
    "aten.addmv.default": product_without("addmv"),
    "aten.baddbmm.default": product_without("baddbmm"),
    "aten.addbmm.default": product_without("addbmm"),
    "aten.addr.default": product_without("addr"),
    "aten.cross_entropy_loss.default": cross_entropy,
    "aten._native_batch_norm_legit_functional.default": batch_norm_functional,
    "aten.scaled_dot_product_attention.default": attention,
}
