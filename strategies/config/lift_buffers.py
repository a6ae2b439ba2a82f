"""Strategy: make the buffers that forward changes inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import ExportConfig, Target
from autofix.trial import Diagnosis, Stage

COUNTER = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total += x
        return self.total * 2


def get_inputs():
    return [torch.tensor([1.0, 2.0, 3.0])]


def get_more_inputs():
    return [[torch.tensor([4.0, 5.0, 6.0])], [torch.tensor([-1.0, 0.0, 1.0])]]
"""


class LiftBuffers(ConfigStrategy):
    """Make the buffers that forward changes further inputs and outputs of the file.

    When it helps: the model keeps state between calls (a key/value cache, a running sum, a step counter); a file has no
    memory, so the state has to be handed in and out.
    Why it is safe: each call computes what eager computes from the same state; the first call is fed the model's initial
    buffers, each later one what the call before it gave back.
    """

    treats = ("mutated-buffers",)
    prior = 0.8

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        names = sorted(str(n) for n in evidence.facts.get("mutated_buffers", ()))
        if names and tuple(names) != evidence.config.lift_buffers:
            yield self.fix(names=names)

    @staticmethod
    def apply(config: ExportConfig, *, names: list[str]) -> ExportConfig:
        if config.lift_buffers == tuple(names):
            raise NothingToDo("these buffers are inputs and outputs already")
        return replace(config, lift_buffers=tuple(names))

    REPAIRS = (Example(COUNTER, symptom="mutated-buffers", fix={"names": ["total"]}),)
    DECLINES = (Diagnosis("mutated-buffers", Stage.PARITY),)  # no buffer is known to change
