"""Powers of whole numbers, by squaring and multiplying in their own type, where ONNX Runtime takes a detour through float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def whole_power(base: Tensor, exponent: Tensor) -> Tensor:
    """base ** exponent of one whole type, modulo 2 to its width (ATen's powi): for a negative exponent 1, -1 or 0."""
    result, square = torch.ones_like(base) + torch.zeros_like(exponent), base
    for k in range(torch.iinfo(exponent.dtype).bits - (exponent.dtype != torch.uint8)):
        odd = torch.remainder(torch.floor_divide(exponent, 2**k), 2) == 1
        result = torch.where(odd & (exponent > 0), result * square, result)
        square = square * square
    turned = torch.where(torch.remainder(exponent, 2) == 0, 1, -1).to(result.dtype)
    negative = torch.where(base == 1, 1, torch.where(base == -1, turned, 0)).to(result.dtype)
    return torch.where(exponent < 0, negative, result)


def whole_power_by_number(base: Tensor, exponent: int) -> Tensor:
    """As whole_power, for a number that is not negative."""
    result: Tensor | None = None
    square = base
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        square = square * square if exponent else square
    return torch.ones_like(base) if result is None else result


def is_whole(dtype: torch.dtype) -> bool:
    """Whether a dtype holds whole numbers."""
    return not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool


def power(x: Any, y: Any) -> Tensor:
    """aten.pow.Tensor_Tensor of whole numbers or of two dtypes, aten.pow.Scalar, and aten.pow.Tensor_Scalar of integers to a fraction."""
    dtype = torch.result_type(x, y)
    a = x.to(dtype) if isinstance(x, Tensor) else torch.full((), x, dtype=dtype)
    b = y.to(dtype) if isinstance(y, Tensor) else torch.full((), y, dtype=dtype)
    if is_whole(dtype):
        return whole_power(a, b)
    same = isinstance(x, Tensor) and isinstance(y, Tensor) and x.dtype == y.dtype
    return NotImplemented if same else torch.pow(a, b)


def power_by_number(x: Tensor, y: float) -> Tensor:
    """aten.pow.Tensor_Scalar of an integer tensor."""
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return NotImplemented  # type: ignore[no-any-return]
    if is_whole(x.dtype) and isinstance(y, int) and y >= 0:
        return whole_power_by_number(x, y)
    return NotImplemented if isinstance(y, int) else power(x, y)
