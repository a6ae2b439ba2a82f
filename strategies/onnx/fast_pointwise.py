"""Strategy: write element-wise operators with scalar or branching kernels as ones that are vectorised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.surgery.fast_proposal import slow_types
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

HINTS = {
    "Where": ("where", "huber", "smooth_l1", "shrink", "threshold", "masked_fill", "softplus"),
    "Softplus": ("softplus",),
    "Mish": ("mish",),
    "Sinh": ("sinh",),
    "Cosh": ("cosh",),
    "PRelu": ("prelu",),
    "Elu": ("elu.", "celu"),
    "Selu": ("selu",),
    "Pow": ("pow", "square"),
    "Sign": ("sign", "sgn"),
}
"""ONNX operators that have a faster form, each with parts of the aten names that become it."""

STEPS = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.PReLU(3)

    def forward(self, x):
        return F.softplus(x), F.mish(x), torch.sinh(x), torch.cosh(x), x.pow(3), self.slope(x), F.elu(x), F.elu(x, 0.3), F.selu(x)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 20) * 3]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    inf = float("inf")
    edges = [0.0, -0.0, 1e-45, -1e-38, 1e-8, -1e-8, 0.5, -3e-3, 19.9, 20.1, -20.0, 87.0, 88.5, -100.0, -104.0, 200.0, 1e10, -1e10, inf, -inf]
    return [[torch.tensor(edges).expand(1, 3, 20)], [torch.randn(5, 3, 20) * 30]]
"""

CHOICE = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, y, keep):
        return torch.where(keep, x, y), x.masked_fill(keep, 2.0)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(4, 5), torch.randn(4, 5), torch.rand(4, 5) > 0.5]


def get_more_inputs():
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[nan, inf, -inf, 1.0, nan]] * 4)
    y = torch.tensor([[1.0, -inf, inf, nan, nan]] * 4)
    keep = torch.tensor([[True] * 5, [False] * 5, [True, False, True, False, True], [False, True, False, True, False]])
    return [[x, y, keep], [x[:, [1, 1, 2, 2, 3]], y[:, [1, 2, 1, 2, 0]], keep]]
"""


class FastPointwise(OnnxStrategy):
    """Write element-wise operators with scalar or branching kernels as ones that are vectorised.

    When it helps: softplus, mish, sinh, cosh, sign, PReLU, squares and cubes by Pow, and choices by Where on large maps, where ONNX Runtime calls
    libm or branches at each element.

    Why it is safe: each form is an identity that keeps all digits of float32; infinities and signs come out the same, and a choice whose operands
    hold NaN is left to Where itself in the other branch of an If.
    """

    treats = ("too-slow",)
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("fast_pointwise"):
            return
        found = slow_types(evidence, HINTS)
        if found:
            yield self.fix(operators=found)
        if "Where" in found and len(found) > 1:
            yield self.fix(operators=[op for op in found if op != "Where"])

    @staticmethod
    def apply(model: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.onnx_fast_nodes import replace_fast
        from autofix.surgery.onnx_fast_pointwise import FAST_POINTWISE

        if not replace_fast(model, {op: form for op, form in FAST_POINTWISE.items() if op in operators}):
            raise NothingToDo("no node has a faster form")
        return model

    REPAIRS = (
        Example(STEPS, symptom="too-slow"),
        Example(CHOICE, symptom="too-slow"),
    )
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MatMul,Add"}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "Where"}), recipe=Recipe((Fix("fast_pointwise", OnnxStrategy.level),))),
    )
