"""Strategy: export with the exporter's own graph optimiser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Level, Recipe
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import ExportConfig, Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict

NORMALISED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.n = nn.BatchNorm2d(8)

    def forward(self, x):
        return torch.relu(self.n(self.a(x)))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 8, 8)]


dynamic_shapes = {"x": {0: "batch"}}
"""


OFF = Recipe((Fix("optimizer_off", Level.CONFIG),))


class OptimizerOn(ConfigStrategy):
    """Export with the exporter's own graph optimiser where a recipe begins without it.

    When it helps: raw exports keep Shape, Expand and CastLike on the parameters of normalisations, which keeps ONNX Runtime from folding those
    into convolutions and from its blocked layout: MobileNet-v2 ran at 0.43 of its speed, ResNet-50 at 0.78.
    Why it is safe: what comes out is verified like any other file; where a rewrite rule is wrong for the graph (see optimizer_off) the trial fails.
    """

    treats = ("too-slow",)
    prior = 0.5

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        needed_off = evidence.recipe.has("optimizer_off") and any(not t.recipe.has("optimizer_off") for t in evidence.trials)
        if not evidence.config.optimize and evidence.config.capture in ("export", "strict", "draft") and not needed_off:
            yield self.fix()

    @staticmethod
    def apply(config: ExportConfig) -> ExportConfig:
        if config.optimize:
            raise NothingToDo("the exporter's optimiser is on already")
        return replace(config, optimize=True)

    REPAIRS = (Example(NORMALISED, symptom="too-slow", start=OFF.fixes),)
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY),
        Evidence(Diagnosis("too-slow", Stage.LATENCY), config=ExportConfig(capture="trace", optimize=False)),
        Evidence(Diagnosis("too-slow", Stage.LATENCY), OFF, ExportConfig(optimize=False), trials=(Trial(Recipe(), Stage.PARITY, Verdict.MISMATCH),)),
    )
