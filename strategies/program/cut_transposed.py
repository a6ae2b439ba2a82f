"""Cut a transposed convolution to an output_size that is known at run time only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

DECODER = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv1d(2, 3, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose1d(3, 2, 3, stride=2, padding=1)

    def forward(self, x):
        return self.up(self.down(x), output_size=x.shape[-1:])


def get_inputs():
    return [torch.randn(1, 2, 8)]


def get_more_inputs():
    return [[torch.randn(2, 2, 11)]]


dynamic_shapes = {"x": {0: "batch", 2: "n"}}
"""


class CutTransposed(ProgramStrategy):
    """Compute a transposed convolution with the greatest output padding and cut it to size.

    When it helps: ConvTranspose with output_size taken from another tensor's dynamic shape: ONNX's ConvTranspose takes its output padding
    as a constant.

    Why it is safe: output padding only extends the result at its far end, so that every shorter result is a beginning of the longest.
    """

    treats = (
        "unsupported-operator",
        "axis-specialized",
        "axis-fixed",
        "capture-error",
        "convert-error",
        "decompose-error",
        "data-dependent-branch",
        "run-error-at-other-sizes",
        "mismatch-at-other-sizes",
    )
    prior = 0.6

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        failing = evidence.fact("operator")
        if failing and "conv" not in failing:
            return
        transposed = any(name.startswith("ConvTranspose") for name in evidence.modules) or any(
            "conv_transpose" in name for name in evidence.operators
        )
        written = "\n".join(evidence.facts.get("sources", {}).values())
        if transposed or re.search(r"conv_transpose[123]d|ConvTranspose[123]d", written):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.ops_grid import transposed_overrides

        plan.overrides.update(transposed_overrides())
        return plan

    REPAIRS = (Example(DECODER, "unsupported-operator"),)
    DECLINES = (
        Diagnosis("axis-specialized", Stage.CAPTURE, {}),
        Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default"}),
    )
