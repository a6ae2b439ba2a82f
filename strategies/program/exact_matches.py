"""Strategy: let the exporter's rewrite rules match constants exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

GUARDED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return x / (y + 1e-9), torch.log(y + 1e-10), x * 1.000008


def get_inputs():
    torch.manual_seed(0)
    return [torch.rand(3, 4), torch.zeros(3, 4)]


def get_more_inputs():
    return [[torch.zeros(5, 4), torch.full((5, 4), 1e-9)], [torch.full((1, 4), 1e3), torch.rand(1, 4) * 1e-8]]


dynamic_shapes = {"x": {0: "batch"}, "y": {0: "batch"}}
"""


class ExactMatches(ProgramStrategy):
    """Let the exporter's rewrite rules match constants exactly.

    When it helps: `y + 1e-9`, `log(p + 1e-10)` or a factor within 1e-5 of 1: a rule for adding 0 or multiplying by 1 compares with a tolerance, and
    what guards against a division by zero is gone from the graph.

    Why it is safe: the rules remain, for the constants that they are right for.
    """

    treats = (
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
        "run-error",
        "run-error-at-other-values",
        "run-error-at-other-sizes",
    )
    prior = 0.9

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.diagnosis.facts.get("near_constants") and not evidence.recipe.has("exact_matches"):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.capture_exact_matches import exact_matches

        plan.contexts.append(exact_matches)
        return plan

    REPAIRS = (Example(GUARDED, symptom="mismatch-nonfinite"),)
    DECLINES = (Diagnosis("mismatch-at-example", Stage.PARITY),)
