"""Write operators whose export has lost what they mean in forms that run fast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

OPERATORS = (
    "aten.bucketize.Tensor",
    "aten.searchsorted.Tensor",
    "aten.huber_loss.default",
    "aten.smooth_l1_loss.default",
    "aten.softshrink.default",
    "aten.hardshrink.default",
)

LOOKUP = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.linspace(0, 1, 70))
        self.register_buffer("steps", torch.tensor([1, 3, 3, 7, 7, 7, 9, 20, 21, 22]))

    def forward(self, x, y):
        found = torch.bucketize(x, self.edges), torch.bucketize(x, self.edges[:5], right=True), torch.bucketize(x, self.edges[:17], out_int32=True)
        return *found, torch.bucketize(y, self.steps), torch.bucketize(y, self.steps, right=True)


def get_inputs():
    torch.manual_seed(0)
    return [torch.rand(3, 50), torch.randint(0, 25, (20,))]


dynamic_shapes = {"x": {0: "batch"}, "y": {0: "n"}}


def get_more_inputs():
    nan, inf = float("nan"), float("inf")
    x = torch.linspace(0, 1, 70)[:50].repeat(2, 1)
    x[1, :8] = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.0, 1.5, -1.0])
    return [[x, torch.tensor([-5, 1, 2, 3, 7, 8, 22, 23, 2**62])]]
"""

LOSSES = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        losses = F.huber_loss(x, y, delta=0.7), F.smooth_l1_loss(x, y, reduction="none", beta=0.3), F.smooth_l1_loss(x, y, beta=0.0)
        return *losses, F.softshrink(x, 0.3), F.hardshrink(x)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(4, 5), torch.randn(4, 5)]


def get_more_inputs():
    torch.manual_seed(1)
    x = torch.randn(4, 5)
    x[0, 0], x[1, 1] = float("inf"), float("nan")
    return [[x, torch.randn(4, 5)]]
"""


class FastOperators(ProgramStrategy):
    """Write searches, Huber losses and shrinkage in forms that run fast.

    When it helps: bucketize and searchsorted (exported as a hundred nodes, or a loop), huber_loss and smooth_l1_loss, softshrink and
    hardshrink, whose branches ONNX Runtime takes element by element.

    Why it is safe: a tree search finds the same place as a binary search in sorted edges, NaN behind all; the losses and shrinkage are
    identities with min and max. Edges must be sorted, as PyTorch asks for.
    """

    treats = ("too-slow",)
    prior = 0.5

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        found = [name for name in OPERATORS if name in evidence.operators]
        if found and not evidence.recipe.has("fast_operators"):
            yield self.fix(operators=found)

    @staticmethod
    def apply(plan: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.ops_fast import FAST_FUNCTIONS, FAST_OPERATORS

        if not any(name in FAST_OPERATORS or name in FAST_FUNCTIONS for name in operators):
            raise NothingToDo("none of these operators has a faster form")
        plan.decompositions.update({name: FAST_OPERATORS[name] for name in operators if name in FAST_OPERATORS})
        for name in operators:
            if name in FAST_FUNCTIONS:
                functions, faster = FAST_FUNCTIONS[name]
                plan.overrides.update(dict.fromkeys(functions, faster))
        return plan

    REPAIRS = (Example(LOOKUP, symptom="too-slow"), Example(LOSSES, symptom="too-slow"))
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MatMul"}),
        Evidence(
            Diagnosis("too-slow", Stage.LATENCY),
            facts={"operators": {"aten.bucketize.Tensor": "m.py:1"}},
            recipe=Recipe((Fix("fast_operators", ProgramStrategy.level),)),
        ),
    )
