"""Strategy: keep Python numbers among the arguments constant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import Effect, ExportConfig, Target
from autofix.trial import Diagnosis, Stage

POWER = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, depth: int):
        for _ in range(depth):
            x = x * 2
        return x


def get_inputs():
    return [torch.tensor([1.0, 2.0, 3.0]), 3]
"""


class BakeNumbers(ConfigStrategy):
    """Keep the Python numbers among forward's arguments as constants.

    When it helps: a Python number decides how often code runs or which layers exist, so that it can't become an input.
    Why it is safe: it is not, for other numbers, so the effect is NARROWING: the file is right for the numbers given.
    """

    treats = (
        "data-dependent-branch",
        "data-dependent-size",
        "unsupported-input",
        "unsupported-python",
        "capture-error",
        "convert-error",
        "inputs-mismatch",
        "axis-specialized",
        "mismatch-at-other-values",
    )
    effect = Effect.NARROWING
    prior = 0.3

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        leaves = evidence.facts.get("inputs", ())
        numbers = any(leaf.get("kind") in ("int", "float") for leaf in leaves)
        if numbers and evidence.config.numbers != "baked":
            yield self.fix()

    @staticmethod
    def apply(config: ExportConfig) -> ExportConfig:
        if config.numbers == "baked":
            raise NothingToDo("numbers are constants already")
        return replace(config, numbers="baked")

    REPAIRS = (Example(POWER, symptom="axis-specialized", target={"allow": ["narrowing"]}),)
    DECLINES = (Diagnosis("data-dependent-branch", Stage.CAPTURE),)
