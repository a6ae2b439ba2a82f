"""Strategy: transpose matrices and regroup blocks in turn."""

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
    "Transpose": ("permute", "transpose", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "movedim", "unfold", "im2col", "einsum", "t.default")
}
"""ONNX operators that have a faster form, each with parts of the aten names that become it."""

PERMUTED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        a, b = x.permute(0, 3, 1, 4, 2), x.permute(1, 0, 2, 4, 3)
        return a.contiguous() * 2, b + 1, y.permute(2, 1, 0) - 1, torch.pixel_unshuffle(x[0], 2) * 2, x.permute(4, 2, 0, 3, 1) * 2


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 5, 4, 6), torch.randn(7, 5, 3)]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(2, 3, 5, 4, 6) * 9, torch.randn(7, 5, 3)]]
"""


class FastTranspose(OnnxStrategy):
    """Write a permutation as a transpose of matrices and a regrouping of whole blocks.

    When it helps: permutations of four and more axes that change the last one and others at once: ONNX Runtime then moves single numbers.

    Why it is safe: the same numbers in the same order; only for shapes that are fixed in the file.
    """

    treats = ("too-slow",)
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("fast_transpose"):
            return
        found = slow_types(evidence, HINTS)
        if found:
            yield self.fix(operators=found)

    @staticmethod
    def apply(model: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.onnx_fast_nodes import replace_fast
        from autofix.surgery.onnx_fast_transpose import FAST_TRANSPOSE

        if not replace_fast(model, {op: form for op, form in FAST_TRANSPOSE.items() if op in operators}):
            raise NothingToDo("no node has a faster form")
        return model

    REPAIRS = (Example(PERMUTED, symptom="too-slow"),)
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MatMul,Add"}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "Transpose"}), recipe=Recipe((Fix("fast_transpose", OnnxStrategy.level),))),
    )
