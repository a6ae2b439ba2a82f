"""Numbers taken apart: frexp, ldexp, copysign, signbit, hypot, nextafter, gcd, lcm, shifts, and float32 read as int32 and back.

Done with comparisons, powers of two and integer division alone, all exact in float64 or int64 for operands of 32 bits or fewer. The sign of a
zero is read from its reciprocal; that of a NaN can't be read in ONNX and counts as positive.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from autofix.surgery.ops_loop import loop_until


def power_of_two(e: Tensor) -> Tensor:
    """2^e, float64, for whole e (a float64 tensor); two factors, so that results below 2^-1022 come out as well."""
    half = torch.floor(e * 0.5)
    two = torch.full((), 2.0, dtype=torch.float64)
    return torch.pow(two, half) * torch.pow(two, e - half)


def is_negative(x: Tensor) -> Tensor:
    """The sign bit of a floating x, -0.0 included."""
    return (x < 0) | ((x == 0) & (1.0 / x < 0))


def signbit(x: Tensor) -> Tensor:
    """aten.signbit."""
    return is_negative(x) if x.dtype.is_floating_point else x < 0


def copysign(x: Tensor, y: Tensor) -> Tensor:
    """aten.copysign.Tensor."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    size = x.to(dtype).abs()
    return torch.where(signbit(y), -size, size)


def copysign_number(x: Tensor, y: float) -> Tensor:
    """aten.copysign.Scalar."""
    size = (x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())).abs()
    return -size if math.copysign(1.0, y) < 0 else size


def fraction_and_exponent(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissa in [1/2, 1) and exponent of a float64 x, both float64; (x, 0) for 0, infinities and NaN."""
    size = x.abs()
    plain = (size > 0) & (size < math.inf)
    tiny = size < 2.0**-1000
    # normal numbers only, so that the quotient below is exact
    z = torch.where(plain, torch.where(tiny, size * 2.0**60 * 2.0**60, size), 1.0)
    e = torch.floor(torch.log(z) * 1.4426950408889634) + 1.0
    m = z * power_of_two(-e)
    low, high = m < 0.5, m >= 1.0
    e = torch.where(low, e - 1.0, torch.where(high, e + 1.0, e))
    m = torch.where(low, m * 2.0, torch.where(high, m * 0.5, m))
    e = torch.where(tiny, e - 120.0, e)
    return torch.where(plain, torch.where(x < 0, -m, m), x), torch.where(plain, e, 0.0)


def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """aten.frexp.Tensor."""
    m, e = fraction_and_exponent(x.to(torch.float64))
    return m.to(x.dtype), e.to(torch.int32)


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """aten.hypot: no overflow between, infinite if either is."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    a, b = x.to(torch.float64).abs(), y.to(torch.float64).abs()
    top = torch.where((a > b) | (a != a), a, b)
    scale = torch.where((top > 0) & (top < math.inf), top, 1.0)
    value = scale * torch.sqrt((a / scale) * (a / scale) + (b / scale) * (b / scale))
    return torch.where((a == math.inf) | (b == math.inf), math.inf, value).to(dtype)


def nextafter(x: Tensor, y: Tensor) -> Tensor:
    """aten.nextafter of float32."""
    if x.dtype != torch.float32:
        return NotImplemented  # type: ignore[no-any-return]
    a, b = torch.broadcast_tensors(x.to(torch.float64), y.to(torch.float64))  # type: ignore[no-untyped-call]
    least = 2.0**-149
    size = torch.where(a.abs() == math.inf, 2.0**128, a.abs())
    m, e = fraction_and_exponent(size)
    ulp = power_of_two(torch.where(e < -125.0, -149.0, e - 24.0))
    inward = torch.where((m == 0.5) & (e > -125.0), ulp * 0.5, ulp)
    outward = (b > a) == (a > 0)
    moved = torch.where(outward, size + ulp, size - inward)
    moved = torch.where(a < 0, -moved, moved)
    moved = torch.where(a == 0, torch.where(b > 0, least, -least), moved)
    value = torch.where(a == b, b, moved)
    return torch.where((a != a) | (b != b), math.nan, value).to(torch.float32)


def euclid_step(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """One division of Euclid's algorithm where it is not done."""
    open_ = b != 0
    rest = torch.remainder(a, torch.where(open_, b, 1))
    return torch.where(open_, b, a), torch.where(open_, rest, b)


def euclid_open(a: Tensor, b: Tensor) -> Tensor:
    """Whether some pair goes on."""
    return (b != 0).to(torch.int64).sum() > 0


def gcd(x: Tensor, y: Tensor) -> Tensor:
    """aten.gcd."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    a, b = torch.broadcast_tensors(x.to(torch.int64).abs(), y.to(torch.int64).abs())  # type: ignore[no-untyped-call]
    return loop_until(euclid_step, euclid_open, (a, b))[0].to(dtype)


def lcm(x: Tensor, y: Tensor) -> Tensor:
    """aten.lcm."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    a, b = torch.broadcast_tensors(x.to(torch.int64), y.to(torch.int64))  # type: ignore[no-untyped-call]
    divisor = loop_until(euclid_step, euclid_open, (a.abs(), b.abs()))[0]
    safe = torch.where(divisor == 0, 1, divisor)
    return ((a - torch.remainder(a, safe)) // safe * b).abs().to(dtype)  # type: ignore[no-any-return]


def int_width(dtype: torch.dtype) -> int:
    """Bits of an integer dtype."""
    return torch.iinfo(dtype).bits


def shift_factor(k: Tensor) -> Tensor:
    """2^k for int64 k in 0..62, int64, exact (2^k is exact in float64)."""
    return power_of_two(k.to(torch.float64)).to(torch.int64)


def wrapped(v: Tensor, dtype: torch.dtype) -> Tensor:
    """An int64 reduced to a narrower dtype modulo 2^bits."""
    bits = int_width(dtype)
    if bits == 64:
        return v
    low = torch.bitwise_and(v, (1 << bits) - 1)
    if dtype != torch.uint8:
        low = torch.where(low >= 1 << (bits - 1), low - (1 << bits), low)
    return low.to(dtype)


def shifted_left(x: Tensor, k: Tensor) -> Tensor:
    """x << k; 0 where k is negative or not below the width."""
    dtype = torch.promote_types(x.dtype, k.dtype)
    bits = int_width(dtype)
    a, n = x.to(torch.int64), k.to(torch.int64)
    fits = (n >= 0) & (n < bits)
    most = n == 63
    product = a * shift_factor(torch.where(fits & ~most, n, 0))
    top = torch.where(torch.remainder(a, 2) == 1, -(2**63), 0)
    return wrapped(torch.where(fits, torch.where(most, top, product), 0), dtype)


def shifted_right(x: Tensor, k: Tensor) -> Tensor:
    """x >> k rounding down; -1 or 0 where k is negative or not below the width."""
    dtype = torch.promote_types(x.dtype, k.dtype)
    bits = int_width(dtype)
    a, n = x.to(torch.int64), k.to(torch.int64)
    fits = (n >= 0) & (n < min(bits, 63))
    factor = shift_factor(torch.where(fits, n, 0))
    # the quotient of a multiple is the same in every rounding
    quotient = (a - torch.remainder(a, factor)) // factor
    return torch.where(fits, quotient, torch.where(a < 0, -1, 0)).to(dtype)


def left_by_tensor(x: Tensor, k: Tensor) -> Tensor:
    """aten.bitwise_left_shift.Tensor."""
    return shifted_left(x, k)


def left_by_number(x: Tensor, k: int) -> Tensor:
    """aten.bitwise_left_shift.Tensor_Scalar."""
    return shifted_left(x, torch.full((), int(k), dtype=x.dtype))


def left_of_number(x: int, k: Tensor) -> Tensor:
    """aten.bitwise_left_shift.Scalar_Tensor."""
    return shifted_left(torch.full((), int(x), dtype=k.dtype), k)


def right_by_tensor(x: Tensor, k: Tensor) -> Tensor:
    """aten.bitwise_right_shift.Tensor."""
    return shifted_right(x, k)


def right_by_number(x: Tensor, k: int) -> Tensor:
    """aten.bitwise_right_shift.Tensor_Scalar."""
    return shifted_right(x, torch.full((), int(k), dtype=x.dtype))


def right_of_number(x: int, k: Tensor) -> Tensor:
    """aten.bitwise_right_shift.Scalar_Tensor."""
    return shifted_right(torch.full((), int(x), dtype=k.dtype), k)


def float_bits(x: Tensor) -> Tensor:
    """The bits of a float32 as int64 in 0 .. 2^32 - 1; NaN as 0x7fc00000."""
    z = x.to(torch.float64)
    size = z.abs()
    m, e = fraction_and_exponent(torch.where(size < math.inf, size, 0.0))
    normal = e > -126.0
    significand = torch.where(normal, (m * 2.0 - 1.0) * 2.0**23, size * 2.0**149)
    field = torch.where(normal, e + 126.0, 0.0)
    bits = torch.where(size == 0, 0.0, field * 2.0**23 + significand)
    bits = torch.where(size == math.inf, 2139095040.0, torch.where(x == x, bits, 2143289344.0)).to(torch.int64)
    return torch.where(is_negative(x), bits + 2**31, bits)


def bits_float(bits: Tensor) -> Tensor:
    """The float32 with these bits (an int32 tensor)."""
    b = bits.to(torch.int64)
    negative = b < 0
    b = torch.where(negative, b + 2**31, b)
    significand = torch.remainder(b, 2**23)
    field = (b - significand) // 2**23
    e = field.to(torch.float64)
    part = significand.to(torch.float64)
    value = torch.where(field == 0, part * 2.0**-149, (part + 2.0**23) * power_of_two(e - 150.0))
    value = torch.where(field == 255, torch.where(significand == 0, math.inf, math.nan), value)
    return torch.where(negative, -value, value).to(torch.float32)


def view_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """aten.view.dtype between float32 and int32."""
    if x.dtype == torch.float32 and dtype == torch.int32:
        return wrapped(float_bits(x), torch.int32)
    if x.dtype == torch.int32 and dtype == torch.float32:
        return bits_float(x)
    return NotImplemented  # type: ignore[no-any-return]


BIT_DECOMPOSITIONS = {
    "aten.frexp.Tensor": frexp,
    "aten.copysign.Tensor": copysign,
    "aten.copysign.Scalar": copysign_number,
    "aten.signbit.default": signbit,
    "aten.hypot.default": hypot,
    "aten.nextafter.default": nextafter,
    "aten.gcd.default": gcd,
    "aten.lcm.default": lcm,
    "aten.__lshift__.Tensor": left_by_tensor,
    "aten.__lshift__.Scalar": left_by_number,
    "aten.__rshift__.Tensor": right_by_tensor,
    "aten.__rshift__.Scalar": right_by_number,
    "aten.bitwise_left_shift.Tensor": left_by_tensor,
    "aten.bitwise_left_shift.Tensor_Scalar": left_by_number,
    "aten.bitwise_left_shift.Scalar_Tensor": left_of_number,
    "aten.bitwise_right_shift.Tensor": right_by_tensor,
    "aten.bitwise_right_shift.Tensor_Scalar": right_by_number,
    "aten.bitwise_right_shift.Scalar_Tensor": right_of_number,
    "aten.view.dtype": view_dtype,
}
