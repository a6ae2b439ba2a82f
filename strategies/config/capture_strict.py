"""Strategy: capture with torch.export's strict mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import ExportConfig, Target
from autofix.trial import Diagnosis, Stage

HALF = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, items):
        return items[: int(items.shape[0] * 0.5) + 1] * 2


def get_inputs():
    return [torch.tensor([[1.0, 2.0], [3.0, 5.0], [4.0, 4.0], [0.0, 1.0]])]


dynamic_shapes = {"items": {0: "n"}}


def get_more_inputs():
    return [[torch.ones(7, 2)], [torch.ones(2, 2)]]
"""


class CaptureStrict(ConfigStrategy):
    """Capture with torch.export's strict mode, which interprets the bytecode.

    When it helps: `int(0.5 * n)` and other Python built-ins made a size a plain number in the default, non-strict mode; in
    strict mode they stay symbolic.
    Why it is safe: strict mode checks more than the default one; every guard on a size becomes an error rather than a
    silent constant.
    """

    treats = (
        "axis-specialized",
        "axis-fixed",
        "mismatch-at-other-sizes",
        "run-error-at-other-sizes",
        "shape-mismatch",
        "data-dependent-size",
        "capture-error",
        "unsupported-input",
        "crash",
    )
    group = "capture"
    prior = 0.12

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.config.capture == "strict" or any(f.strategy.startswith("capture_") for f in evidence.recipe.fixes):
            return
        yield self.fix()

    @staticmethod
    def apply(config: ExportConfig) -> ExportConfig:
        if config.capture == "strict":
            raise NothingToDo("the model is captured strictly already")
        return replace(config, capture="strict")

    REPAIRS = (Example(HALF, symptom="mismatch-at-other-sizes"),)
    DECLINES = (
        Evidence(Diagnosis("axis-fixed", Stage.CHECK), config=ExportConfig(capture="strict")),
        Diagnosis("unsupported-operator", Stage.CONVERT),
    )
