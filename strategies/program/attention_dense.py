"""Write scaled_dot_product_attention out as scores, mask, softmax and product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

MASKED_ROWS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, k, v, valid):
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=valid[:, None, :, None] & valid[:, None, None, :])


def get_inputs():
    return [torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4), torch.ones(2, 5, dtype=torch.bool)]


def get_more_inputs():
    valid = torch.ones(3, 4, dtype=torch.bool)
    valid[0, 2:] = False
    valid[2] = False
    return [[torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4, 4), valid]]


_axes = {0: "batch", 2: "n"}
dynamic_shapes = {"q": _axes, "k": _axes, "v": _axes, "valid": {0: "batch", 1: "n"}}
"""

ATTENTION_NAMES = ("scaled_dot_product", "_safe_softmax", "multi_head_attention", "Cannot view a tensor")


class AttentionDense(ProgramStrategy):
    """Capture attention as two matrix products around a softmax that gives zeros where every key is masked.

    When it helps: rows without any visible key (PyTorch gives zeros, exported attention an average or NaN), is_causal with unequal or
    dynamic lengths, grouped queries, a reshape behind attention that breaks while the program is decomposed.

    Why it is safe: this is PyTorch's own math kernel (documentation of scaled_dot_product_attention), for any sizes.
    """

    treats = (
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
        "unsupported-operator",
        "convert-error",
        "decompose-error",
        "capture-error",
        "axis-specialized",
        "axis-fixed",
        "run-error",
        "run-error-at-other-sizes",
        "run-error-at-other-values",
        "invalid-graph",
        "no-kernel",
        "data-dependent-branch",
        "data-dependent-size",
        "unsupported-python",
    )
    prior = 0.5

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        names = [*evidence.operators, evidence.fact("operator"), evidence.fact("message")]
        if any(sign in name for name in names for sign in ATTENTION_NAMES):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.attention_capture import attention_capture, attention_overrides
        from autofix.surgery.custom_views import views_as_reshapes

        plan.overrides.update(attention_overrides())
        plan.contexts.append(attention_capture)
        plan.passes.append(views_as_reshapes)
        return plan

    REPAIRS = (Example(MASKED_ROWS, symptom="mismatch-at-other-values", fix={}),)
    DECLINES = (Diagnosis("mismatch-at-example", Stage.PARITY, {"message": "wrong values", "operator": "aten.add.Tensor"}),)
