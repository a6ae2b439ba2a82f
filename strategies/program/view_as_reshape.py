"""Decompose views as reshapes where the layout that capture saw does not come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

AFTER_ATTENTION = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(1, 1, n, n))
        return y.transpose(1, 2).reshape(b, n, d)


def get_inputs():
    return [torch.randn(2, 5, 8)]


def get_more_inputs():
    return [[torch.randn(1, 7, 8)]]


dynamic_shapes = {"x": {0: "batch", 1: "n"}}
"""


class ViewAsReshape(ProgramStrategy):
    """Turn each view of the captured program into a reshape before it is decomposed.

    When it helps: "Cannot view a tensor with shape ... and strides ..." in decomposition: eager PyTorch gave a result in another memory layout
    (attention does) than the decomposed operators will.

    Why it is safe: reshape gives the values of view, whatever the layout; ONNX knows no layouts.
    """

    treats = ("decompose-error", "convert-error", "capture-error")
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        message = evidence.fact("message")
        if "view" in message.lower() and ("stride" in message or "contiguous" in message):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.custom_views import views_as_reshapes

        plan.passes.append(views_as_reshapes)
        return plan

    REPAIRS = (Example(AFTER_ATTENTION, symptom="decompose-error", fix={}),)
    DECLINES = (Diagnosis("decompose-error", Stage.CONVERT, {"message": "something else"}),)
