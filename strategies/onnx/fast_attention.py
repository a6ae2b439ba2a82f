"""Strategy: compute causal attention in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.surgery.fast_proposal import slow_types
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

HINTS = {"MatMul": ("scaled_dot_product", "_safe_softmax", "softmax")}
"""ONNX operators that have a faster form, each with parts of the aten names that become it."""

DECODER = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 19, 8)]


dynamic_shapes = {"x": {0: "batch", 1: "n"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(1, 64, 8)], [torch.randn(1, 3, 8)]]
"""


class FastAttention(OnnxStrategy):
    """Compute causal attention in blocks of rows, each with the keys that it can see.

    When it helps: long sequences under a causal mask: the exported graph works out all scores and masks half of them, where PyTorch's kernel
    leaves most of that half out.

    Why it is safe: the mask is proved to be causal (constant, or made by Trilu from ones); what is left out has weight 0.
    """

    treats = ("too-slow",)
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("fast_attention"):
            return
        found = slow_types(evidence, HINTS)
        if found:
            yield self.fix(operators=found)

    @staticmethod
    def apply(model: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.onnx_fast_attention import FAST_ATTENTION
        from autofix.surgery.onnx_fast_nodes import replace_fast

        if not replace_fast(model, {op: form for op, form in FAST_ATTENTION.items() if op in operators}):
            raise NothingToDo("no node has a faster form")
        return model

    REPAIRS = (Example(DECODER, symptom="too-slow"),)
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "Gemm,Add"}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MatMul"}), recipe=Recipe((Fix("fast_attention", OnnxStrategy.level),))),
    )
