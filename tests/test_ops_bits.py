"""Operators on the parts and bits of numbers against PyTorch's own, in eager mode."""

import math

import pytest
import torch

from autofix.surgery.ops_bits import (
    BIT_DECOMPOSITIONS,
    float_bits,
    frexp,
    hypot,
    left_by_number,
    nextafter,
    right_by_number,
    shifted_left,
    shifted_right,
    view_dtype,
)

EDGES = [0.0, -0.0, 1, -1, 0.5, -0.5, 2, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1.1754944e-38, 1e-39, 3.4028235e38, 1.9999999, 0.99999994, -3]
F = torch.cat(
    [
        torch.tensor(EDGES),
        torch.randn(50, generator=torch.Generator().manual_seed(0)) * torch.exp(torch.randn(50, generator=torch.Generator().manual_seed(1)) * 20),
    ]
)
FINITE = F[F.abs() < math.inf]


def same(a, b):
    assert a.dtype == b.dtype
    if a.dtype.is_floating_point:
        assert torch.equal(a.isnan(), b.isnan())
        a, b = a[~a.isnan()], b[~b.isnan()]
        assert torch.equal(torch.signbit(a), torch.signbit(b))
    assert torch.equal(a, b)


def test_mantissa_and_exponent():
    for x in (FINITE, torch.cat([FINITE.double(), torch.tensor([5e-324, 1e-310, 1.7e308, 2.0**-1022], dtype=torch.float64)])):
        for ours, theirs in zip(frexp(x), torch.frexp(x), strict=True):
            same(ours, theirs)
    same(frexp(F)[0], torch.frexp(F).mantissa)


def test_signs_neighbours_and_hypotenuses():
    positive_nan = torch.where(F.isnan(), 1.0, F)
    a, b = torch.meshgrid(F, positive_nan, indexing="ij")
    same(BIT_DECOMPOSITIONS["aten.copysign.Tensor"](a, b), torch.copysign(a, b))
    same(BIT_DECOMPOSITIONS["aten.copysign.Scalar"](F, -0.0), torch.copysign(F, -0.0))
    same(BIT_DECOMPOSITIONS["aten.signbit.default"](positive_nan), torch.signbit(positive_nan))
    same(nextafter(a, b), torch.nextafter(a, b))
    torch.testing.assert_close(hypot(a, b), torch.hypot(a, b), rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_shifts_and_divisors_of_every_width(dtype):
    info = torch.iinfo(dtype)
    g = torch.Generator().manual_seed(2)
    x = torch.cat(
        [
            torch.randint(max(info.min, -(2**62)), min(info.max, 2**62), (60,), generator=g).to(dtype),
            torch.tensor([info.min, info.max, 0, 1], dtype=dtype),
        ]
    )
    k = torch.randint(0, info.bits, (64,), generator=g).to(dtype)
    k[-4:] = info.bits - 1
    same(shifted_left(x, k), x << k)
    same(shifted_right(x, k), x >> k)
    for n in (0, 1, 3, 7):
        same(left_by_number(x, n), x << n)
        same(right_by_number(x, n), x >> n)
    if dtype != torch.uint8:
        out = torch.tensor([-1, info.bits, info.bits + 3, 100], dtype=dtype)
        same(shifted_left(x[:4], out), x[:4] << out)
        same(shifted_right(x[:4], out), x[:4] >> out)
    low = 0 if dtype == torch.uint8 else -50
    a, b = torch.randint(low, 50, (60,), generator=g).to(dtype), torch.randint(low, 50, (60,), generator=g).to(dtype)
    same(BIT_DECOMPOSITIONS["aten.gcd.default"](a, b), torch.gcd(a, b))
    same(BIT_DECOMPOSITIONS["aten.lcm.default"](a, b), torch.lcm(a, b))


def test_float32_read_as_int32_and_back():
    expected = torch.where(F.isnan(), torch.tensor(0x7FC00000, dtype=torch.int32), F.view(torch.int32))
    same(view_dtype(F, torch.int32), expected)
    bits = torch.cat([F.view(torch.int32), torch.randint(-(2**31), 2**31 - 1, (100,), generator=torch.Generator().manual_seed(3)).to(torch.int32)])
    same(view_dtype(bits, torch.float32), bits.view(torch.float32))
    assert view_dtype(F, torch.int64) is NotImplemented
    assert int(float_bits(torch.tensor(1.0))) == 0x3F800000
