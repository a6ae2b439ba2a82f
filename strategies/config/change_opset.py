"""Strategy: export at another opset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import ExportConfig, Target
from autofix.trial import Diagnosis, Stage

GRID = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, grid):
        return F.grid_sample(x, grid, align_corners=False)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(1, 2, 4, 4), torch.rand(1, 3, 3, 2) * 2 - 1]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(1, 2, 4, 4), torch.rand(1, 3, 3, 2) * 2 - 1]]
"""


class ChangeOpset(ConfigStrategy):
    """Export at an opset that has the operator.

    When it helps: the exporter says that an operator or one of its forms needs a later opset than the one in use, or an
    opset that it can't write was asked for, and the target accepts another.
    Why it is safe: the opset says which operators the file may use; the values are the same, and the target's range is kept.
    """

    treats = ("opset-too-low", "unsupported-operator", "opset-not-reached", "convert-error", "invalid-graph", "no-kernel")
    prior = 0.5

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("change_opset"):
            return
        now = evidence.config.opset
        needs = evidence.fact("needs")
        if needs.isdigit():
            if max(int(needs), target.min_opset) <= target.max_opset and now != int(needs):
                yield self.fix(opset=max(int(needs), target.min_opset))
            return
        if evidence.diagnosis.symptom in ("opset-too-low", "opset-not-reached") or (
            evidence.diagnosis.symptom in ("no-kernel", "invalid-graph") and evidence.fact("op_type")
        ):
            last = 20 if evidence.config.capture in ("trace", "script", "mixed") else 24
            for opset in (18, min(last, target.max_opset)):  # 18 is what torch.export's translations are written for
                if target.min_opset <= opset <= target.max_opset and opset != (now or 18):
                    yield self.fix(opset=opset)

    @staticmethod
    def apply(config: ExportConfig, *, opset: int) -> ExportConfig:
        if config.opset == opset:
            raise NothingToDo(f"opset {opset} is in use already")
        return replace(config, opset=opset)

    REPAIRS = (
        Example(
            GRID,
            symptom="opset-too-low",
            fix={"opset": 16},
            start=(Fix("capture_trace", ConfigStrategy.level), Fix("change_opset", ConfigStrategy.level, {"opset": 14})),
        ),
    )
    DECLINES = (Diagnosis("opset-too-low", Stage.CONVERT, {"needs": "99"}), Diagnosis("no-kernel", Stage.CHECK))
