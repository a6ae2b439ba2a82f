"""Strategy: simplify the file with onnxsim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Level
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

WIDE_POOL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        y = self.fc(x)
        return y.reshape(y.shape[0], -1) * (y.shape[1] * 2 + 1)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 4)]
"""


class Simplify(OnnxStrategy):
    """Fold constants and drop redundant nodes with onnxsim.

    When it helps: subgraphs of constants or shapes stand in the way of an optimisation, or use operators that only
    make trouble at run time; a shape that the runtime could not see becomes a constant.
    Why it is safe: onnxsim evaluates constant parts in ONNX Runtime itself; dynamic axes are kept.
    """

    treats = ("run-error", "no-kernel", "opset-not-reached", "too-slow")
    prior = 0.05
    cost = 1.0

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if not evidence.recipe.has("simplify"):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        import onnxsim

        before = len(model.graph.node)
        simplified, _ = onnxsim.simplify(model)
        if len(simplified.graph.node) == before:
            raise NothingToDo("onnxsim finds nothing to simplify")
        return simplified

    REPAIRS = (Example(WIDE_POOL, symptom="too-slow", start=(Fix("optimizer_off", Level.CONFIG),)),)
    DECLINES = (Diagnosis("invalid-graph", Stage.CHECK),)
