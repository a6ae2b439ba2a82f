"""Elementwise functions whose usual ONNX forms lose digits, overflow, or part from ATen at zeros, infinities and NaN.

Computed in float64 where rounding matters; the forms are those of Goldberg (ACM Computing Surveys 23, 1991) for log1p, and max +
log1p(exp(-gap)) for sums of
exponentials.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from autofix.surgery.ops_angles import atan2
from autofix.surgery.ops_powers import power, power_by_number
from autofix.surgery.ops_special import expm1_double, log1p_double, result_dtype


def expm1(x: Tensor) -> Tensor:
    """aten.expm1."""
    return expm1_double(x.to(torch.float64)).to(result_dtype(x))


def log1p(x: Tensor) -> Tensor:
    """aten.log1p."""
    return log1p_double(x.to(torch.float64)).to(result_dtype(x))


def softplus_double(x: Tensor) -> Tensor:
    """log(1 + exp(x)), float64, without overflow."""
    return torch.where(x > 0, x, 0.0) + torch.where(x == x, log1p_double(torch.exp(-x.abs())), math.nan)


def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """aten.softplus."""
    z = x.to(torch.float64) * float(beta)
    return torch.where(z > threshold, x.to(torch.float64), softplus_double(z) / float(beta)).to(x.dtype)


def log_sigmoid(x: Tensor) -> Tensor:
    """aten.log_sigmoid."""
    return (-softplus_double(-x.to(torch.float64))).to(x.dtype)


def log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """aten.log_sigmoid_forward: (value, empty buffer)."""
    return log_sigmoid(x), x.new_zeros((0,))


def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """aten.logaddexp."""
    a, b = x.to(torch.float64), y.to(torch.float64)
    gap = torch.where(a == b, 0.0, a - b)
    high = torch.where(a > b, a, b)
    value = high + log1p_double(torch.exp(-gap.abs()))
    value = torch.where((a == b) & (a.abs() == math.inf), a, value)
    return torch.where((a != a) | (b != b), math.nan, value).to(result_dtype(x, y))


def logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    """aten.logaddexp2."""
    ln2 = math.log(2.0)
    return (logaddexp(x.to(torch.float64) * ln2, y.to(torch.float64) * ln2) / ln2).to(result_dtype(x, y))


def product_with_log(x: Tensor, y: Tensor, log_y: Tensor, dtype: torch.dtype) -> Tensor:
    """x log_y, 0 where x is 0 and NaN where y is NaN."""
    value = torch.where(x == 0, 0.0, x * log_y)
    return torch.where(y == y, value, math.nan).to(dtype)


def xlogy(x: Tensor, y: Tensor) -> Tensor:
    """aten.xlogy.Tensor."""
    dtype = result_dtype(x, y)
    return product_with_log(x.to(dtype), y.to(dtype), torch.log(y.to(dtype)), dtype)


def xlogy_of_number(x: float, y: Tensor) -> Tensor:
    """aten.xlogy.Scalar_Self."""
    return xlogy(torch.full((), x, dtype=result_dtype(y)), y)


def xlogy_by_number(x: Tensor, y: float) -> Tensor:
    """aten.xlogy.Scalar_Other."""
    return xlogy(x, torch.full((), y, dtype=result_dtype(x)))


def xlog1py(x: Tensor, y: Tensor) -> Tensor:
    """aten.special_xlog1py."""
    dtype = result_dtype(x, y)
    a, b = x.to(torch.float64), y.to(torch.float64)
    return product_with_log(a, b, log1p_double(b), dtype)


def xlog1py_of_number(x: float, y: Tensor) -> Tensor:
    """aten.special_xlog1py.self_scalar."""
    return xlog1py(torch.full((), x, dtype=result_dtype(y)), y)


def xlog1py_by_number(x: Tensor, y: float) -> Tensor:
    """aten.special_xlog1py.other_scalar."""
    return xlog1py(x, torch.full((), y, dtype=result_dtype(x)))


def binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1) -> Tensor:
    """aten.binary_cross_entropy: logarithms are at least -100, as in ATen."""
    z, t = x.to(torch.float64), target.to(torch.float64)
    left, right = log1p_double(-z), torch.log(z)
    left, right = torch.where(left < -100.0, -100.0, left), torch.where(right < -100.0, -100.0, right)
    return reduced_loss((t - 1.0) * left - t * right, weight, reduction).to(x.dtype)


def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """aten.binary_cross_entropy_with_logits."""
    z, t = x.to(torch.float64), target.to(torch.float64)
    scale = 1.0 if pos_weight is None else (pos_weight.to(torch.float64) - 1.0) * t + 1.0
    return reduced_loss((1.0 - t) * z + softplus_double(-z) * scale, weight, reduction).to(x.dtype)


def reduced_loss(loss: Tensor, weight: Tensor | None, reduction: int) -> Tensor:
    """A loss weighted and reduced: 0 none, 1 mean, 2 sum."""
    loss = loss if weight is None else loss * weight.to(loss.dtype)
    if reduction == 0:
        return loss
    total = loss.sum()
    return total / loss.numel() if reduction == 1 else total


def sign(x: Tensor) -> Tensor:
    """aten.sign, aten.sgn of real numbers: 0 for NaN."""
    if not x.dtype.is_floating_point:
        return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)
    return torch.where(x > 0, 1.0, torch.where(x < 0, -1.0, 0.0)).to(x.dtype)


def heaviside(x: Tensor, at_zero: Tensor) -> Tensor:
    """aten.heaviside: 0 for NaN."""
    return torch.where(x == 0, at_zero, (x > 0).to(x.dtype)).to(x.dtype)


def modulus(x: Tensor) -> Any:
    """aten.abs of complex numbers: the larger part is taken out first, so that no square overflows or vanishes (Moler and Morrison 1983 name
    the fault); infinite where a part is, be the other NaN or not, as C's hypot."""
    if not x.is_complex():
        return NotImplemented
    parts = torch.view_as_real(x).abs()
    largest = parts.amax(-1)
    scale = torch.where((largest > 0) & (largest < math.inf), largest, 1.0)
    shares = parts / scale.unsqueeze(-1)
    return torch.where((parts == math.inf).any(-1), math.inf, scale * torch.sqrt((shares * shares).sum(-1)))


def sinc(x: Tensor) -> Tensor:
    """aten.sinc."""
    dtype = result_dtype(x)
    z = x.to(torch.float64) * math.pi
    return torch.where(z == 0, 1.0, torch.sin(z) / torch.where(z == 0, 1.0, z)).to(dtype)


def fmod_exact(a: Tensor, b: Tensor) -> Tensor:
    """The remainder of a / b with the sign of a; a itself where b is infinite."""
    wide = torch.fmod(a.to(torch.float64), torch.where(b.abs() == math.inf, 1.0, b).to(torch.float64)).to(a.dtype)
    return torch.where((b.abs() == math.inf) & (a.abs() < math.inf), a, wide)


def fmod(x: Tensor, y: Tensor) -> Tensor:
    """aten.fmod.Tensor of float32 and half precision: taken in float64."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    if not dtype.is_floating_point or dtype == torch.float64:
        return NotImplemented  # type: ignore[no-any-return]
    a, b = torch.broadcast_tensors(x.to(dtype), y.to(dtype))  # type: ignore[no-untyped-call]
    return fmod_exact(a, b)


def remainder(x: Tensor, y: Tensor) -> Tensor:
    """aten.remainder.Tensor of float32 and half precision: fmod, moved to the divisor's sign."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    if not dtype.is_floating_point or dtype == torch.float64:
        return NotImplemented  # type: ignore[no-any-return]
    a, b = torch.broadcast_tensors(x.to(dtype), y.to(dtype))  # type: ignore[no-untyped-call]
    rest = fmod_exact(a, b)
    return torch.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


def remainder_by_number(x: Tensor, y: float) -> Tensor:
    """aten.remainder.Scalar."""
    return remainder(x, torch.full((), y, dtype=x.dtype)) if x.dtype.is_floating_point else NotImplemented


def floor_divide(x: Tensor, y: Any) -> Tensor:
    """aten.floor_divide of float32 and half precision, rounded after an exact remainder (c10's div_floor_floating)."""
    if not isinstance(y, Tensor):
        return floor_divide(x, torch.full((), y, dtype=x.dtype)) if x.dtype.is_floating_point else NotImplemented
    dtype = torch.promote_types(x.dtype, y.dtype)
    if not dtype.is_floating_point or dtype == torch.float64:
        return NotImplemented  # type: ignore[no-any-return]
    a, b = torch.broadcast_tensors(x.to(dtype), y.to(dtype))  # type: ignore[no-untyped-call]
    rest = fmod_exact(a, b)
    whole = (a - rest) / b
    whole = torch.where((rest != 0) & ((b < 0) != (rest < 0)), whole - 1.0, whole)
    down = torch.floor(whole)
    value = torch.where(whole == 0, a / b * 0.0, torch.where(whole - down > 0.5, down + 1.0, down))
    value = torch.where(a.abs() == math.inf, math.nan, value)
    return torch.where(b == 0, a / b, value).to(dtype)


def div_mode(x: Tensor, y: Any, *, rounding_mode: str | None) -> Tensor:
    """aten.div.Tensor_mode and .Scalar_mode: "floor" of reals, both of whole numbers (the exporter divides them as float32)."""
    other = y if isinstance(y, Tensor) else torch.full((), y)
    whole = not any(t.dtype.is_floating_point or t.dtype == torch.bool for t in (x, other))
    if rounding_mode == "floor" and whole:
        return torch.floor_divide(x, y)
    if rounding_mode == "trunc" and whole:
        down = torch.floor_divide(x, y)
        return down + (((x < 0) != (other < 0)) & (torch.remainder(x, y) != 0)).to(down.dtype)
    if rounding_mode != "floor" or not x.dtype.is_floating_point:
        return NotImplemented  # type: ignore[no-any-return]
    return floor_divide(x, y)


def lesser(x: Tensor, y: Tensor) -> Tensor:
    """aten.fmin: NaN only where both are."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    a, b = x.to(dtype), y.to(dtype)
    return torch.where((a < b) | (b != b), a, b)


def greater(x: Tensor, y: Tensor) -> Tensor:
    """aten.fmax: NaN only where both are."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    a, b = x.to(dtype), y.to(dtype)
    return torch.where((a > b) | (b != b), a, b)


def clamp(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """aten.clamp of float tensors: infinities and NaN pass where no bound stops them."""
    if not x.dtype.is_floating_point:
        return NotImplemented  # type: ignore[no-any-return]
    y = x if min is None else torch.where(x < min, torch.full((), min, dtype=x.dtype), x)
    return y if max is None else torch.where(y > max, torch.full((), max, dtype=x.dtype), y)


def clamp_min(x: Tensor, min: float) -> Tensor:
    """aten.clamp_min."""
    return clamp(x, min)


def clamp_max(x: Tensor, max: float) -> Tensor:
    """aten.clamp_max."""
    return clamp(x, None, max)


def sigmoid(x: Tensor) -> Tensor:
    """aten.sigmoid: ONNX Runtime's is 0 from -20 on. In ATen's own precision, so that it is 0 from where ATen's is."""
    dtype = result_dtype(x)
    z = x.to(dtype if dtype == torch.float64 else torch.float32)
    return (1.0 / (torch.exp(-z) + 1.0)).to(dtype)


def silu(x: Tensor) -> Tensor:
    """aten.silu."""
    z = x.to(torch.float64)
    return (z / (torch.exp(-z) + 1.0)).to(x.dtype)


def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """aten.elu (selu and celu too)."""
    z = x.to(torch.float64)
    return torch.where(z > 0, z * float(scale), expm1_double(z * float(input_scale)) * float(alpha * scale)).to(x.dtype)


def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """aten.celu."""
    return elu(x, alpha, 1.0, 1.0 / alpha)


def selu(x: Tensor) -> Tensor:
    """aten.selu."""
    return elu(x, 1.6732632423543772, 1.0507009873554805)


NUMERIC_DECOMPOSITIONS = {
    "aten.abs.default": modulus,
    "aten.expm1.default": expm1,
    "aten.log1p.default": log1p,
    "aten.softplus.default": softplus,
    "aten.log_sigmoid.default": log_sigmoid,
    "aten.log_sigmoid_forward.default": log_sigmoid_forward,
    "aten.logaddexp.default": logaddexp,
    "aten.logaddexp2.default": logaddexp2,
    "aten.xlogy.Tensor": xlogy,
    "aten.xlogy.Scalar_Self": xlogy_of_number,
    "aten.xlogy.Scalar_Other": xlogy_by_number,
    "aten.special_xlog1py.default": xlog1py,
    "aten.special_xlog1py.self_scalar": xlog1py_of_number,
    "aten.special_xlog1py.other_scalar": xlog1py_by_number,
    "aten.binary_cross_entropy.default": binary_cross_entropy,
    "aten.binary_cross_entropy_with_logits.default": binary_cross_entropy_with_logits,
    "aten.atan2.default": atan2,
    "aten.sign.default": sign,
    "aten.sgn.default": sign,
    "aten.heaviside.default": heaviside,
    "aten.sinc.default": sinc,
    "aten.floor_divide.default": floor_divide,
    "aten.fmod.Tensor": fmod,
    "aten.remainder.Tensor": remainder,
    "aten.remainder.Scalar": remainder_by_number,
    "aten.div.Tensor_mode": div_mode,
    "aten.div.Scalar_mode": div_mode,
    "aten.fmin.default": lesser,
    "aten.fmax.default": greater,
    "aten.clamp.default": clamp,
    "aten.clamp_min.default": clamp_min,
    "aten.clamp_max.default": clamp_max,
    "aten.sigmoid.default": sigmoid,
    "aten.silu.default": silu,
    "aten.elu.default": elu,
    "aten.celu.default": celu,
    "aten.selu.default": selu,
    "aten.pow.Tensor_Tensor": power,
    "aten.pow.Scalar": power,
    "aten.pow.Tensor_Scalar": power_by_number,
}
