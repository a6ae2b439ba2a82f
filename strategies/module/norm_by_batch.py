"""Strategy: batch statistics written out."""

from __future__ import annotations

from collections.abc import Iterator

from autofix.program import CapturePlan
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

ADAPTED = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(3, momentum=0.0)

    def forward(self, x):
        return F.batch_norm(x, self.bn.running_mean, self.bn.running_var, self.bn.weight, self.bn.bias, True, 0.0, self.bn.eps)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(4, 3) * 3 + 2]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.rand(6, 3) * 10]]
"""


class NormByBatch(ProgramStrategy):
    """Write batch and instance normalisation by the batch's own statistics as mean, variance and scale.

    When it helps: a normalisation layer runs on the statistics of its input (left in training mode on purpose, test-time
    adaptation, track_running_stats=False), and the exporter normalises with the stored ones or refuses.
    Why it is safe: the formula is the one in the documentation of nn.BatchNorm2d, with the biased variance; calls that use
    stored statistics are left alone.
    """

    treats = (
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
        "run-error-at-other-sizes",
        "unsupported-operator",
        "outputs-mismatch",
        "capture-error",
        "convert-error",
        "mutated-buffers",
    )
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("norm_by_batch"):
            return
        if any(word in name for name in evidence.operators for word in ("batch_norm", "instance_norm")):
            yield self.fix()

    @staticmethod
    def apply(plan: CapturePlan) -> CapturePlan:
        import torch.nn.functional as F

        from autofix.surgery.modules_norm import batch_norm_any, instance_norm_any

        plan.overrides[F.batch_norm] = batch_norm_any
        plan.overrides[F.instance_norm] = instance_norm_any
        return plan

    REPAIRS = (Example(ADAPTED, symptom="mismatch-at-example"),)
    DECLINES = (Diagnosis("mismatch-at-example", Stage.PARITY),)
