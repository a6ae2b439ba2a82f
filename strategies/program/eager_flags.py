"""Export the path that eager PyTorch takes where a model asks whether it is being exported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

FLAG_NAMES = (
    "is_in_onnx_export",
    "is_tracing",
    "is_compiling",
    "is_exporting",
    "is_dynamo_compiling",
    "is_scripting",
    "is_torchdynamo_compiling",
    "is_torchdynamo_exporting",
)

FLAG_BRANCH = """
import torch
from torch import nn
from torch.onnx import is_in_onnx_export


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        y = self.fc(x)
        if is_in_onnx_export() or torch.compiler.is_exporting():
            return y
        return y.softmax(-1)


def get_inputs():
    return [torch.randn(2, 4)]


def get_more_inputs():
    return [[torch.randn(5, 4)]]


dynamic_shapes = {"x": {0: "batch"}}
"""


class EagerFlags(ProgramStrategy):
    """Answer no, while the model is captured, when its own code asks is_in_onnx_export, is_tracing, is_compiling or is_exporting.

    When it helps: the model returns something else, or takes a shortcut, on its export path, and what is wanted is what eager PyTorch gives.

    Why it is safe: these flags say no in eager PyTorch, which is the reference; PyTorch's own code still hears the truth.
    """

    treats = (
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
        "shape-mismatch",
        "dtype-mismatch",
        "outputs-mismatch",
        "inputs-mismatch",
        "axis-fixed",
        "axis-specialized",
        "capture-error",
        "unsupported-python",
        "unsupported-operator",
        "unsupported-output",
        "run-error",
        "run-error-at-other-sizes",
        "data-dependent-branch",
        "data-dependent-size",
    )
    prior = 0.5

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        texts = dict(evidence.facts.get("sources", {})).values()
        if any(name in text for text in texts for name in FLAG_NAMES):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.capture_swap import eager_flags

        plan.contexts.append(eager_flags)
        return plan

    REPAIRS = (Example(FLAG_BRANCH, symptom="mismatch-at-example", fix={}),)
    DECLINES = (Diagnosis("mismatch-at-example", Stage.PARITY, {"message": "wrong values"}),)
