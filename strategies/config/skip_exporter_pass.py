"""Strategy: leave one step out of the exporter's own graph optimiser."""

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
        self.a = nn.Conv2d(3, 4, 3, bias=False)
        self.n = nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.n(self.a(x)).clamp(-3.0, -1.0)) + 1.0


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 8, 8)]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[3 * torch.randn(3, 3, 8, 8)]]
"""


class SkipExporterPass(ConfigStrategy):
    """Leave rewrite rules or passes out of the exporter's own graph optimiser, by name, and keep the others.

    When it helps: one rule is wrong for this graph (relu after a clamp to negative bounds, two clamps whose ranges do not meet), and the
    trial found out which by leaving them out in halves (see exporter_passes.py).
    Why it is safe: the optimiser is only there for speed; what the other steps do (folding constants, normalisations into convolutions) stays.
    """

    treats = (
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
        "dtype-mismatch",
        "shape-mismatch",
        "invalid-graph",
        "no-kernel",
        "run-error",
        "run-error-at-other-values",
        "run-error-at-other-sizes",
    )
    prior = 0.85

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.fact("exporter_passes") and evidence.config.optimize:
            yield self.fix(names=evidence.fact("exporter_passes").split(","))

    @staticmethod
    def apply(config: ExportConfig, *, names: list[str]) -> ExportConfig:
        more = [n for n in names if n not in config.without_passes]
        if not more or not config.optimize:
            raise NothingToDo(f"{', '.join(names)}: left out already")
        return replace(config, without_passes=(*config.without_passes, *more))

    REPAIRS = (Example(CLAMPED, symptom="mismatch-at-example", fix={"names": ["FuseSuccessiveReluClip"]}),)
    DECLINES = (
        Diagnosis("mismatch-at-example", Stage.PARITY),
        Evidence(Diagnosis("mismatch-at-example", Stage.PARITY, {"exporter_passes": "CastCast"}), config=ExportConfig(optimize=False)),
    )
