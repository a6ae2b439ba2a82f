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
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(410_000, 64)

    def forward(self, x, ids):
        return torch.relu(x.clamp(-3.0, -1.0)) + x * self.table(ids)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 64), torch.tensor([7, 300_000])]


dynamic_shapes = {"x": {0: "batch"}, "ids": {0: "batch"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(3, 64), torch.tensor([0, 1, 409_999])]]
"""


class OptimizerOff(ConfigStrategy):
    """Export without the exporter's own graph optimiser.

    When it helps: the optimiser folds something too large, dies, or is wrong for this graph, and no step of it was found to blame (see
    skip_exporter_pass): say the weights are too large to write the file several times.
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
        if evidence.fact("exporter_passes"):  # one step is to blame
            return
        if evidence.config.optimize and evidence.config.capture in ("export", "strict", "draft"):
            yield self.fix()

    @staticmethod
    def apply(config: ExportConfig) -> ExportConfig:
        if not config.optimize:
            raise NothingToDo("the exporter's optimiser is off already")
        return replace(config, optimize=False)

    REPAIRS = (Example(CLAMPED, symptom="mismatch-at-example"),)
    DECLINES = (
        Evidence(Diagnosis("mismatch-at-example", Stage.PARITY), config=ExportConfig(capture="trace")),
        Diagnosis("mismatch-at-example", Stage.PARITY, {"exporter_passes": "CastCast"}),
    )
