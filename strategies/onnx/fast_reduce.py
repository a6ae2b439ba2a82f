"""Strategy: write pooling and reductions along slow axes in forms that are vectorised."""

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
    "MaxPool": ("max_pool",),
    "AveragePool": ("avg_pool",),
    "ReduceMax": ("amax", "max.dim"),
    "ReduceMin": ("amin", "min.dim"),
    "ReduceProd": ("prod",),
    "ReduceSum": ("sum",),
    "ReduceMean": ("mean",),
    "ReduceL2": ("norm", "pairwise_distance", "cosine_similarity", "normalize"),
    "ReduceLogSumExp": ("logsumexp",),
    "Softmax": ("softmax",),
    "LogSoftmax": ("log_softmax", "cross_entropy"),
    "CumSum": ("cumsum",),
}
"""ONNX operators that have a faster form, each with parts of the aten names that become it."""

POOLS = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, v):
        short = F.max_pool1d(x, 3, 2, padding=1, dilation=2), F.avg_pool1d(x, 5, 3, 2, ceil_mode=True, count_include_pad=False)
        return *short, F.avg_pool3d(v, 3, 2, 1), F.avg_pool3d(v, (1, 2, 3), (2, 1, 1), (0, 1, 1), count_include_pad=False)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 20), torch.randn(2, 3, 5, 6, 7)]


dynamic_shapes = {"x": {0: "batch"}, "v": {0: "m", 3: "h"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(1, 3, 20) - 5, torch.randn(1, 3, 5, 9, 7)]]
"""

SUMS = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        sizes = x.sum(0), x.mean(0, keepdim=True), x[:1].sum(1), x.prod(0), x.prod(1), x.logsumexp(1), torch.linalg.vector_norm(x, dim=-1)
        return *sizes, x.softmax(1), x.log_softmax(0), x[:, 0].cumsum(-1), x.flip(-1).cumsum(-1)


def get_inputs():
    torch.manual_seed(0)
    return [torch.rand(3, 5, 80)]


def get_more_inputs():
    torch.manual_seed(1)
    x = torch.rand(3, 5, 80)
    x[0, :, 4] = -float("inf")
    x[1, 2, 3] = float("inf")
    return [[x], [torch.rand(3, 5, 80) - 0.5]]
"""


class FastReduce(OnnxStrategy):
    """Write pooling and reductions along slow axes in forms that are vectorised.

    When it helps: one-dimensional (above all dilated) maximum pooling, average pooling of volumes, norms, logsumexp, products, maxima over the first
    axis, cumulative sums along the last one, softmax along channels.

    Why it is safe: the same sums, maxima and products in another order of exact or rounded operations; where blocks of zeros and ones meet infinity
    or NaN, or a maximum does, the node itself runs in the other branch of an If.
    """

    treats = ("too-slow",)
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("fast_reduce"):
            return
        found = slow_types(evidence, HINTS)
        if found:
            yield self.fix(operators=found)

    @staticmethod
    def apply(model: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.onnx_fast_nodes import replace_fast
        from autofix.surgery.onnx_fast_reduce import FAST_REDUCE

        if not replace_fast(model, {op: form for op, form in FAST_REDUCE.items() if op in operators}):
            raise NothingToDo("no node has a faster form")
        return model

    REPAIRS = (
        Example(POOLS, symptom="too-slow"),
        Example(SUMS, symptom="too-slow"),
    )
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MatMul,Add"}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MaxPool"}), recipe=Recipe((Fix("fast_reduce", OnnxStrategy.level),))),
    )
