"""Strategy: sum over overlapping windows by convolution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.surgery.fast_proposal import slow_types
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

HINTS = {"Gather": ("unfold", "as_strided", "index.Tensor")}
"""ONNX operators that have a faster form, each with parts of the aten names that become it."""

WINDOWS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(16) - 0.25)
        self.register_buffer("bank", torch.linspace(-1, 1, 16 * 5).view(16, 5))

    def forward(self, x):
        frames = x.unfold(-1, 16, 6)
        energy = torch.log((frames * self.window).square().sum(-1) + 1e-3)
        return energy, (frames * self.window).abs().mean(-1, keepdim=True), (frames * self.window) @ self.bank, (frames.abs() + 0.5).sum(-1)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 100)]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    torch.manual_seed(1)
    x = torch.randn(2, 3, 100)
    x[0, 0, 20], x[1, 0, 3], x[1, 1, 17] = float("inf"), float("nan"), 1e25
    return [[x], [torch.randn(1, 3, 100)]]
"""


class FastFrames(OnnxStrategy):
    """Sum over overlapping windows of a signal by convolution.

    When it helps: energies, means, filter banks and transforms of frames (Tensor.unfold, indices in steps): the exported file writes every number
    as often as windows overlap, then goes over all of them again and again.

    Why it is safe: what concerns each number alone is the same before the cut; sums with constant weights are convolutions, in another order of
    summation. Where the result is not finite the nodes themselves run.
    """

    treats = ("too-slow",)
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if not evidence.recipe.has("fast_frames") and slow_types(evidence, HINTS):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        from autofix.surgery.onnx_fast_frames import FAST_FRAMES
        from autofix.surgery.onnx_fast_nodes import replace_fast

        if not replace_fast(model, FAST_FRAMES):
            raise NothingToDo("nothing sums over overlapping windows")
        return model

    REPAIRS = (Example(WINDOWS, symptom="too-slow"),)
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MatMul,Add"}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "Gather"}), recipe=Recipe((Fix("fast_frames", OnnxStrategy.level),))),
    )
