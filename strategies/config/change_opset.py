"""Strategy: export at another opset."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Level
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import ExportConfig, Target
from autofix.trial import Diagnosis, Stage

GRID = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, theta):
        return F.affine_grid(theta, (1, 1, 3, 3), align_corners=False)


def get_inputs():
    return [torch.tensor([[[1.0, 0.0, 0.5], [0.0, 2.0, 0.0]]])]
"""


class ChangeOpset(ConfigStrategy):
    """Export at an opset that has the operator.

    When it helps: the exporter says that an operator or one of its forms needs a later opset than the one in use, or an
    opset that it can't write was asked for, and the target accepts another.
    Why it is safe: the opset says which operators the file may use; the values are the same, and the target's range is kept.
    """

    treats = ("opset-too-low", "unsupported-operator", "opset-not-reached", "capture-error", "convert-error", "invalid-graph", "no-kernel")
    prior = 0.5

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        now = evidence.config.opset
        if sum(f.strategy == "change_opset" for f in evidence.recipe.fixes) > 1:
            return
        reached = evidence.diagnosis.symptom == "opset-not-reached"
        told = re.search(r"added in version (\d+)|opset version >= ?(\d+)|requires opset (\d+)", evidence.fact("message"))
        needs = "" if reached else evidence.fact("needs") or (next(g for g in told.groups() if g) if told else "")
        if needs.isdigit():
            if max(int(needs), target.min_opset) <= target.max_opset and now != int(needs):
                yield self.fix(opset=max(int(needs), target.min_opset))
            return
        if (
            reached
            or evidence.diagnosis.symptom == "opset-too-low"
            or (evidence.diagnosis.symptom in ("no-kernel", "invalid-graph") and evidence.fact("op_type"))
        ):
            last = 20 if evidence.config.capture in ("trace", "script", "mixed") else 24
            for opset in (18, min(last, target.max_opset)):  # 18 is what torch.export's translations are written for
                if target.min_opset <= opset <= target.max_opset and opset != now:
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
            fix={"opset": 20},
            start=(Fix("capture_trace", Level.CONFIG), Fix("change_opset", Level.CONFIG, {"opset": 13})),
        ),
    )
    DECLINES = (Diagnosis("opset-too-low", Stage.CONVERT, {"needs": "99"}), Diagnosis("no-kernel", Stage.CHECK))
