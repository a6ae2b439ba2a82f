"""Strategy: take each call of the file for the first call of a new model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import Effect, ExportConfig, Target
from autofix.trial import Diagnosis, Stage

RECURRENT = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(6, 3)
        self.hidden = torch.zeros(2, 3)

    def forward(self, x):
        self.hidden = torch.tanh(self.cell(torch.cat([x, self.hidden], 1)))
        return self.hidden * 2


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3)]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(2, 3)]]
"""


class FirstCall(ConfigStrategy):
    """Take each call of the file for the first call of a new model, though forward keeps state in plain attributes.

    When it helps: the state is reset before each use, or only the first step is wanted. Where it is needed, make it a buffer
    (`self.register_buffer("hidden", ...)`): lift_buffers then hands it in and out.
    Why it is safe: it is not where calls follow one another, so the effect is NARROWING: the file has no memory.
    """

    treats = ("carried-state",)
    effect = Effect.NARROWING
    prior = 0.9

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.diagnosis.symptom == "carried-state" and not evidence.config.first_call:
            yield self.fix()

    @staticmethod
    def apply(config: ExportConfig) -> ExportConfig:
        if config.first_call:
            raise NothingToDo("each call is the first one already")
        return replace(config, first_call=True)

    REPAIRS = (Example(RECURRENT, symptom="carried-state", target={"allow": ["narrowing"]}),)
    DECLINES = (Diagnosis("mutated-buffers", Stage.PARITY),)
