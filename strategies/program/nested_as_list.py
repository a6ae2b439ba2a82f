"""Keep the items of a nested tensor in a list until they are padded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

PADDED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, a, b):
        nested = torch.nested.nested_tensor([self.fc(a), self.fc(b)])
        return torch.nested.to_padded_tensor(torch.relu(nested) * 2, 0.5)


def get_inputs():
    return [torch.randn(4, 3), torch.randn(2, 3)]


def get_more_inputs():
    return [[torch.randn(2, 3), torch.randn(6, 3)]]


dynamic_shapes = {"a": {0: "n"}, "b": {0: "m"}}
"""


class NestedAsList(ProgramStrategy):
    """Capture torch.nested tensors as lists of their items, functions item by item, and padding as concatenation.

    When it helps: torch.nested.nested_tensor, functions on it, to_padded_tensor; neither torch.export nor ONNX has ragged tensors.

    Why it is safe: a nested tensor is defined as its items; padding fills each axis up to the largest of its sizes.
    """

    treats = (
        "capture-error",
        "unsupported-operator",
        "unsupported-python",
        "convert-error",
        "decompose-error",
        "data-dependent-size",
        "axis-specialized",
        "crash",
    )
    prior = 0.6

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        texts = [*evidence.operators, evidence.fact("operator"), evidence.fact("message"), *dict(evidence.facts.get("sources", {})).values()]
        if any("nested" in text.lower() for text in texts):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.sparse_capture import nested_capture

        plan.contexts.append(nested_capture)
        return plan

    REPAIRS = (Example(PADDED, symptom="capture-error", fix={}),)
    DECLINES = (Diagnosis("capture-error", Stage.CAPTURE, {"message": "something else"}),)
