"""Strategy: write Einsum as a product of matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.surgery.fast_proposal import slow_types
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

HINTS = {"Einsum": ("einsum", "bilinear", "bmm")}
"""ONNX operators that have a faster form, each with parts of the aten names that become it."""

ATTENTION = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v):
        scores = torch.einsum("bihd,bjhd->bhij", q, k).softmax(-1)
        mixed = torch.einsum("bhij,bjhd->bihd", scores, v)
        return mixed, torch.einsum("bihd,bihd->bi", q, mixed)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 2, 4), torch.randn(2, 5, 2, 4), torch.randn(2, 5, 2, 4)]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(2, 3, 2, 4), torch.randn(2, 5, 2, 4) * 9, torch.randn(2, 5, 2, 4)]]
"""


class FastEinsum(OnnxStrategy):
    """Write Einsum as a product of matrices.

    When it helps: sums of products of two operands, say attention scores: ONNX Runtime's Einsum moves its operands number by number first.

    Why it is safe: the same products are added up; axes are only put in order and regrouped. Equations with a letter twice in a term, with an
    ellipsis or without a sum are left as they are.
    """

    treats = ("too-slow",)
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if slow_types(evidence, HINTS) and not evidence.recipe.has("fast_einsum"):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        from autofix.surgery.onnx_fast_einsum import FAST_EINSUM
        from autofix.surgery.onnx_fast_nodes import replace_fast

        if not replace_fast(model, FAST_EINSUM):
            raise NothingToDo("no Einsum is a product of matrices")
        return model

    REPAIRS = (Example(ATTENTION, symptom="too-slow"),)
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MatMul,Add"}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "Einsum"}), recipe=Recipe((Fix("fast_einsum", OnnxStrategy.level),))),
    )
