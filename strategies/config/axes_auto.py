"""Strategy: let torch.export find out which axes can vary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import ExportConfig, Target
from autofix.trial import Diagnosis, Stage

SAME_AXIS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return x + y


def get_inputs():
    return [torch.ones(4, 3), torch.ones(4, 3)]


dynamic_shapes = {"x": {0: "rows"}, "y": {0: "lines"}}  # two names for what has to be one size


def get_more_inputs():
    return [[torch.ones(6, 3), torch.zeros(6, 3)]]
"""


class AxesAuto(ConfigStrategy):
    """Declare dynamic axes as Dim.AUTO, so that torch.export relates and bounds them itself.

    When it helps: capture refuses the named axes because two of them must be equal, one is a multiple or an offset of
    another, or one needs a lower bound.
    Why it is safe: what came out is checked in the file: every declared axis must still be symbolic there, and other
    sizes must give right values.
    """

    treats = ("axis-specialized", "capture-error", "data-dependent-size", "axis-fixed")
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.config.axes != "auto" and evidence.config.capture in ("export", "strict", "draft"):
            yield self.fix()

    @staticmethod
    def apply(config: ExportConfig) -> ExportConfig:
        if config.axes == "auto":
            raise NothingToDo("the axes are found automatically already")
        return replace(config, axes="auto")

    REPAIRS = (Example(SAME_AXIS, symptom="axis-specialized"),)
    DECLINES = (Evidence(Diagnosis("axis-specialized", Stage.CAPTURE), config=ExportConfig(capture="trace")),)
