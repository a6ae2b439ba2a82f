"""The angle of a point, right for zeros and infinities of either sign, without loss of digits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autofix.surgery.ops_bits import is_negative
from autofix.surgery.ops_special import result_dtype


def atan_double(t: Tensor) -> Tensor:
    """atan(t) for 0 <= t <= 1, float64: the float32 value and one Newton step on tan."""
    start = torch.atan(t.to(torch.float32)).to(torch.float64)
    s, c = torch.sin(start), torch.cos(start)
    return start + (t * c - s) / (c + t * s)


def atan2(y: Tensor, x: Tensor) -> Tensor:
    """aten.atan2; the signs of zeros count."""
    dtype = result_dtype(y, x)
    if dtype == torch.float64:
        return atan2_double(y.to(dtype), x.to(dtype))
    return atan2_single(y.to(torch.float32), x.to(torch.float32)).to(dtype)


def atan2_single(y: Tensor, x: Tensor) -> Tensor:
    """The angle in float32: atan(y / x), and half a turn to the side of y where x has a minus sign.

    v + 1 / v is at least 2 in size and has the sign of v, those of zeros and infinities included. 0 / 0 counts as 0, infinity / infinity
    as 1, each with its sign, which is what the product of the operands cut at 1 gives.
    """
    ratio = y / x
    ratio = torch.where(torch.isnan(ratio), y.clamp(-1.0, 1.0) * x.clamp(-1.0, 1.0), ratio)
    side = (y + torch.reciprocal(y)).clamp(-math.pi / 2, math.pi / 2)
    behind = (x + torch.reciprocal(x)).clamp(-2.0, -0.0)  # minus 0: nothing is taken from the sign of a zero
    return torch.atan(ratio) - side * behind


def atan2_double(y: Tensor, x: Tensor) -> Tensor:
    """The angle in float64, by octants."""
    b, a = torch.broadcast_tensors(y, x)  # type: ignore[no-untyped-call]
    high, low = b.abs(), a.abs()
    steep = high > low
    top, bottom = torch.where(steep, low, high), torch.where(steep, high, low)
    both = (top == math.inf) & (bottom == math.inf)
    ratio = torch.where(both, 1.0, top / torch.where((bottom == 0) | both, 1.0, bottom))
    angle = atan_double(ratio)
    angle = torch.where(steep, math.pi / 2 - angle, angle)
    angle = torch.where(is_negative(a), math.pi - angle, angle)
    return torch.where(is_negative(b), -angle, angle)
