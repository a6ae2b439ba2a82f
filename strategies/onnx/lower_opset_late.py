"""Strategy: lower the opset of the finished file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

CHUNKS = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        a, b = self.norm(x).chunk(2, -1)
        return F.gelu(a).softmax(-1), b.mean(-1), x.sum(0)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 4)]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(3, 4)]]
"""


class LowerOpsetLate(OnnxStrategy):
    """Rewrite the finished file for a lower opset.

    When it helps: the target asks for an opset that the exporter does not write (torch.export routes: none below 18), and
    the older routes, which do, can't take the model.
    Why it is safe: each operator gets the form that it had then, or is composed from others that compute the same; where an
    operator has no such form the fix fails. The values are verified as always.
    """

    treats = ("opset-not-reached",)
    prior = 0.5

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if not evidence.recipe.has("lower_opset_late") and target.max_opset < 20:
            yield self.fix(opset=target.max_opset)

    @staticmethod
    def apply(model: Any, *, opset: int) -> Any:
        from autofix.surgery.onnx_lower import lower_opset

        if not lower_opset(model, opset):
            raise NothingToDo(f"the opset is {opset} or lower already")
        return model

    REPAIRS = (
        Example(CHUNKS, symptom="opset-not-reached", fix={"opset": 13}, target={"max_opset": 13}),
        Example(CHUNKS, symptom="opset-not-reached", fix={"opset": 11}, target={"max_opset": 11}),
    )
    DECLINES = (Diagnosis("opset-not-reached", Stage.CHECK),)
