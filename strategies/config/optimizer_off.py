"""Strategy: leave out the exporter's own graph optimiser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import ExportConfig, Target
from autofix.trial import Diagnosis, Stage

CLAMPED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x.clamp(-3.0, -1.0)) + x


def get_inputs():
    return [torch.tensor([[1.0, -2.0], [0.5, -4.0]])]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    return [[torch.tensor([[-0.7, 0.0], [9.0, -9.0], [0.1, -0.1]])]]
"""


class OptimizerOff(ConfigStrategy):
    """Export without the exporter's own graph optimiser.

    When it helps: a rewrite rule of the optimiser is wrong for this graph (relu after a clamp to negative bounds, two
    clamps whose ranges do not meet), folds something too large, or dies.
    Why it is safe: the optimiser is only there for speed; ONNX Runtime folds and fuses for itself.
    """

    treats = (
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
        "dtype-mismatch",
        "shape-mismatch",
        "invalid-graph",
        "inputs-mismatch",
        "outputs-mismatch",
        "run-error",
        "run-error-at-other-sizes",
        "convert-error",
        "opset-not-reached",
        "crash",
        "timeout",
        "out-of-memory",
    )
    prior = 0.12

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.config.optimize and evidence.config.capture in ("export", "strict", "draft"):
            yield self.fix()

    @staticmethod
    def apply(config: ExportConfig) -> ExportConfig:
        if not config.optimize:
            raise NothingToDo("the exporter's optimiser is off already")
        return replace(config, optimize=False)

    REPAIRS = (Example(CLAMPED, symptom="mismatch-at-example"),)
    DECLINES = (Evidence(Diagnosis("mismatch-at-example", Stage.PARITY), config=ExportConfig(capture="trace")),)
