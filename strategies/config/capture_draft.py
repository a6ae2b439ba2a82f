"""Strategy: capture with torch.export.draft_export."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import Effect, ExportConfig, Target
from autofix.trial import Diagnosis, Stage

GUARD = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, n):
        k = n.item()
        if k < -100:  # never so
            return x
        return x * k


def get_inputs():
    return [torch.tensor([[1.0, 2.0]]), torch.tensor(3)]


def get_more_inputs():
    return [[torch.ones(1, 2), torch.tensor(5)]]
"""


class CaptureDraft(ConfigStrategy):
    """Capture with torch.export.draft_export, which assumes what it can't prove.

    When it helps: a guard on a tensor's value can't be decided during capture, and always holds in use.
    Why it is safe: it is not, for inputs that break the assumption, so the effect is NARROWING: the guard is decided as on
    the example, and the rest of the value stays symbolic.
    """

    treats = ("data-dependent-branch", "data-dependent-size", "capture-error")
    effect = Effect.NARROWING
    group = "capture"
    prior = 0.1
    cost = 2.0

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.config.capture != "export" or any(f.strategy.startswith("capture_") for f in evidence.recipe.fixes):
            return
        yield self.fix()

    @staticmethod
    def apply(config: ExportConfig) -> ExportConfig:
        if config.capture == "draft":
            raise NothingToDo("draft_export is used already")
        return replace(config, capture="draft")

    REPAIRS = (Example(GUARD, symptom="data-dependent-branch", target={"allow": ["narrowing"]}),)
    DECLINES = (Evidence(Diagnosis("data-dependent-branch", Stage.CAPTURE), config=ExportConfig(capture="trace")),)
