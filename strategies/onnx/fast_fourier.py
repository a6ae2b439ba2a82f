"""Strategy: write short Fourier transforms as products with matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.surgery.fast_proposal import slow_types
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

HINTS = {"STFT": ("stft", "_fft_r2c"), "DFT": ("fft",)}
"""ONNX operators that have a faster form, each with parts of the aten names that become it."""

SPECTRA = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x):
        short = torch.stft(torch.tanh(x), 16, 4, window=self.window, return_complex=True)
        return short.abs()


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 60)]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(2, 60) * 3]]
"""


class FastFourier(OnnxStrategy):
    """Write STFT as a convolution and DFT as a matrix product.

    When it helps: transforms of up to about a thousand points: ONNX Runtime's kernels do not vectorise them.

    Why it is safe: the definition of the transform, with waves worked out in double precision.
    """

    treats = ("too-slow",)
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("fast_fourier"):
            return
        found = slow_types(evidence, HINTS)
        if found:
            yield self.fix(operators=found)

    @staticmethod
    def apply(model: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.onnx_fast_fourier import FAST_FOURIER
        from autofix.surgery.onnx_fast_nodes import replace_fast

        if not replace_fast(model, {op: form for op, form in FAST_FOURIER.items() if op in operators}):
            raise NothingToDo("no node has a faster form")
        return model

    REPAIRS = (Example(SPECTRA, symptom="too-slow"),)
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MatMul,Add"}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "STFT"}), recipe=Recipe((Fix("fast_fourier", OnnxStrategy.level),))),
    )
