"""Write complex numbers, and the Fourier transforms that make them, as pairs of real numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

COMPLEX_SIGNS = ("complex", "polar", "_fft_", "stft", "_conj", "view_as_real", "angle", "imag", "window", "linalg_vander")

ROTARY = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        angle = torch.outer(torch.arange(x.shape[1]).float(), torch.tensor([1.0, 0.1]))
        turn = torch.polar(torch.ones_like(angle), angle)
        z = torch.view_as_complex(self.fc(x).reshape(x.shape[0], x.shape[1], 2, 2, 2))
        return torch.view_as_real(z * turn[None, :, None]).flatten(2), z.abs() + z.angle().cos()


def get_inputs():
    return [torch.randn(2, 5, 8)]


def get_more_inputs():
    return [[torch.randn(3, 9, 8)], [torch.randn(1, 1, 8)]]


dynamic_shapes = {"x": {0: "batch", 1: "seq"}}
"""

FILTER = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 6, dtype=torch.cfloat))

    def forward(self, x):
        f = torch.fft.rfft(x, norm="ortho")
        out = torch.zeros_like(f)
        out[..., :6] = f[..., :6] * self.w
        return torch.fft.irfft(out, n=x.shape[-1], norm="ortho")


def get_inputs():
    return [torch.randn(2, 3, 20)]


def get_more_inputs():
    return [[torch.randn(1, 3, 20)], [torch.randn(4, 3, 20)]]


dynamic_shapes = {"x": {0: "batch"}}
"""

ARCS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        z = torch.complex(x, y)
        return torch.view_as_real(torch.asin(z)), torch.acosh(z).imag, torch.view_as_real(z.mean(0)), z.mean(dim=(0, 1)).imag


def get_inputs():
    return [torch.randn(2, 3), torch.randn(2, 3)]


def get_more_inputs():
    return [[torch.randn(5, 3) * 4, torch.randn(5, 3)]]


dynamic_shapes = {"x": {0: "batch"}, "y": {0: "batch"}}
"""


class ComplexAsPairs(ProgramStrategy):
    """Compute with real and imaginary parts: ONNX Runtime has no complex type.

    When it helps: complex parameters, view_as_complex, polar, complex products and functions, fft, rfft, irfft, stft, istft. Cholesky
    factors, triangular solves, matrix exponentials, Hermitian eigenvalues and singular values of complex matrices become those of real
    ones, which ONNX lacks as well: decompose_linalg has to follow. ONNX Runtime's DFT and STFT also lose up to four digits at lengths
    that are no power of two; here each transform is a product with roots of unity rounded once from float64. Complex outputs
    become float with a last axis of 2, as torch.view_as_real.

    Why it is safe: complex arithmetic is defined by these formulas on the parts (Abramowitz and Stegun, chapters 3 and 4), division and
    absolute value are scaled as in ATen, and shapes and dtypes of every rewritten value are compared with those of the captured program.
    """

    treats = (
        "unsupported-operator",
        "unsupported-output",
        "unsupported-input",
        "convert-error",
        "decompose-error",
        "capture-error",
        "axis-specialized",
        "axis-fixed",
        "invalid-graph",
        "no-kernel",
        "run-error",
        "run-error-at-other-sizes",
        "shape-mismatch",
        "dtype-mismatch",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
        "data-dependent-branch",
        "data-dependent-size",
    )
    prior = 0.7

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        names = [*evidence.operators, evidence.fact("operator")]
        if any(sign in name for name in names for sign in COMPLEX_SIGNS) or "omplex" in evidence.fact("message"):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.complex_capture import complex_capture, complex_mean_overrides
        from autofix.surgery.complex_pass import complex_to_pairs
        from autofix.surgery.fft_overrides import fft_function_overrides
        from autofix.surgery.fft_windows import fft_window_overrides
        from autofix.surgery.ops_scatter import diagonal_scatter

        plan.overrides.update(fft_window_overrides())
        plan.overrides.update(fft_function_overrides())
        plan.overrides.update(complex_mean_overrides())
        plan.contexts.append(complex_capture)
        plan.passes.append(complex_to_pairs)
        plan.decompositions.setdefault("aten.diagonal_scatter.default", diagonal_scatter)
        return plan

    REPAIRS = (
        Example(ROTARY, symptom="unsupported-operator", fix={}),
        Example(FILTER, symptom="unsupported-operator", fix={}),
        Example(ARCS, symptom="axis-specialized", fix={}),
    )
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default", "message": "no translation"}),)
