"""Fourier transforms as matrix products: against torch.fft in float64."""

from __future__ import annotations

import pytest
import torch

from autofix.surgery.complex_tensor import RealPair
from autofix.surgery.fft_matrix import fft_half_to_real, fft_last_axis
from autofix.surgery.fft_overrides import fft_irfft, fft_istft, fft_stft
from autofix.surgery.fft_rules import fft_complex_to_complex, fft_complex_to_real, fft_real_to_complex

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("n", [1, 2, 7, 20, 400, 512, 600, 1024, 1031, 4099])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_transform_keeps_float32_accuracy(n, sign):
    torch.manual_seed(0)
    re, im = torch.randn(3, n), torch.randn(3, n)
    z = torch.complex(re.double(), im.double())
    want = torch.fft.fft(z) if sign < 0 else torch.fft.ifft(z, norm="forward")
    got = torch.complex(*fft_last_axis(re, im, n, sign, n)).to(torch.complex128)
    assert (got - want).abs().max() < 2e-6 * want.abs().max()


@pytest.mark.parametrize("n", [1, 2, 9, 20, 3000, 3001])
def test_half_spectrum_back_to_real(n):
    torch.manual_seed(0)
    z = torch.randn(2, n // 2 + 1, dtype=torch.cfloat)
    want = torch.fft.irfft(z.to(torch.complex128), n=n, norm="forward")
    got = fft_half_to_real(z.real, z.imag, n)
    assert (got - want).abs().max() < 2e-6 * want.abs().max()


@pytest.mark.parametrize("n", [None, 6, 9, 14])
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_irfft_cuts_and_pads(n, norm):
    z = torch.randn(2, 6, dtype=torch.cfloat)
    torch.testing.assert_close(fft_irfft(z, n, -1, norm), torch.fft.irfft(z, n, -1, norm), rtol=1e-5, atol=1e-6)


STFT = [
    {"n_fft": 16, "hop_length": 4, "window": "hann"},
    {"n_fft": 16, "hop_length": 5, "win_length": 12, "window": "hann12", "center": False},
    {"n_fft": 15, "normalized": True, "pad_mode": "constant"},
    {"n_fft": 16, "onesided": False, "window": "hann"},
]


@pytest.mark.parametrize("options", STFT)
@pytest.mark.parametrize("shape", [(60,), (2, 61)])
def test_stft(options, shape):
    x = torch.randn(*shape)
    options = dict(options)
    if "window" in options:
        options["window"] = torch.hann_window(12 if options["window"] == "hann12" else 16)
    want = torch.stft(x, return_complex=True, **options)
    torch.testing.assert_close(fft_stft(x, return_complex=True, **options), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [None, 50, 61, 70])
@pytest.mark.parametrize("normalized", [False, True])
def test_istft(length, normalized):
    window = torch.hann_window(16)
    z = torch.stft(torch.randn(2, 64), 16, 4, window=window, normalized=normalized, return_complex=True)
    want = torch.istft(z, 16, 4, window=window, normalized=normalized, length=length)
    torch.testing.assert_close(fft_istft(z, 16, 4, window=window, normalized=normalized, length=length), want, rtol=1e-4, atol=1e-5)


class Framed(torch.nn.Module):
    def forward(self, x):
        n = x.shape[1]
        fixed = torch.hamming_window(7), torch.kaiser_window(6, False, 5.0), torch.bartlett_window(5), torch.blackman_window(8)
        moving = x * torch.hamming_window(n), x * torch.bartlett_window(n, False), x * torch.blackman_window(n)
        return *fixed, *moving, torch.fft.fftshift(x), torch.fft.ifftshift(x, dim=1), torch.fft.fftshift(x, dim=-1)


def test_windows_and_shifts_of_known_and_dynamic_length():
    from autofix.export import FunctionOverrides
    from autofix.surgery.fft_windows import fft_window_overrides

    with FunctionOverrides(fft_window_overrides()):
        program = torch.export.export(Framed(), (torch.randn(2, 9),), dynamic_shapes=({1: torch.export.Dim.DYNAMIC},))
    assert not any("_window" in str(node.target) or "roll" in str(node.target) for node in program.graph.nodes)
    for n in (6, 9, 4):
        x = torch.randn(2, n)
        for ours, theirs in zip(program.module()(x), Framed()(x), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_transforms_over_several_axes_are_as_near_to_the_truth_as_an_fft():
    x = 60 * torch.randn(2, 128, 128, generator=torch.Generator().manual_seed(0))
    for rule, theirs, given in (
        (lambda z: fft_real_to_complex(None, z, [1, 2], 0, False).re, lambda z: torch.fft.fft2(z).real, x),
        (lambda z: fft_complex_to_complex(None, RealPair(z, z), [1, 2], 0, True).im, lambda z: torch.fft.fft2(torch.complex(z, z)).imag, x),
        (lambda z: fft_complex_to_real(None, RealPair(z, z), [1, 2], 2, 254), lambda z: torch.fft.irfft2(torch.complex(z, z)), x),
    ):
        ours, want = rule(given), theirs(given.double())
        assert ours.dtype == torch.float32
        assert (ours - want).abs().max() < 2 * (theirs(given) - want).abs().max()
