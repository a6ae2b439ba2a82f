"""Factors of complex matrices as pairs of reals, against LAPACK's."""

from __future__ import annotations

import pytest
import torch

from autofix.surgery.complex_factors import complex_det, complex_pinv, complex_qr, complex_slogdet
from autofix.surgery.complex_tensor import RealPair


def matrix(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))


def pair(z: torch.Tensor) -> RealPair:
    return RealPair(z.real.clone(), z.imag.clone())


def whole(p: RealPair) -> torch.Tensor:
    return torch.complex(p.re, p.im)


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_determinants(n: int) -> None:
    z = matrix(5, n, n)
    z[1], z[2, :, 0] = 0, 0
    same(whole(complex_det(None, pair(z))), torch.linalg.det(z))
    sign, size = complex_slogdet(None, pair(z))[:2]
    expected = torch.linalg.slogdet(z)
    same(whole(sign), expected[0])
    same(size, expected[1])


@pytest.mark.parametrize("size", [(4, 3), (3, 3), (3, 5), (1, 2), (2, 1), (7, 6)], ids=str)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr_has_lapacks_signs(size: tuple[int, int], mode: str) -> None:
    z = matrix(2, *size)
    q, r = complex_qr(None, pair(z), mode)
    expected = torch.linalg.qr(z, mode)
    same(whole(r), expected[1])
    if mode != "r":
        same(whole(q), expected[0])


def test_pseudo_inverses() -> None:
    z = matrix(4, 2)
    deficient = torch.cat([z, z[:, :1]], 1)
    same(whole(complex_pinv(None, pair(deficient))), torch.linalg.pinv(deficient))
    same(whole(complex_pinv(None, pair(z), rtol=torch.tensor(0.9))), torch.linalg.pinv(z, rtol=0.9))
    same(whole(complex_pinv(None, pair(matrix(2, 3, 5)))), torch.linalg.pinv(matrix(2, 3, 5)))


def test_a_size_that_is_known_at_run_time_only_is_refused() -> None:
    with pytest.raises(NotImplementedError):
        complex_det(None, pair(matrix(65, 65)))
