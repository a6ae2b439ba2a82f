"""Write flex_attention out as a full score matrix with its score and mask functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

BIASED = """
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("slope", torch.tensor([0.5, 0.25]))
        self.mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 8, 8, device="cpu")

    def forward(self, q, k, v):
        def bias(score, b, h, qi, ki):
            return score + self.slope[h] * (ki - qi)

        return flex_attention(q, k, v, score_mod=bias, block_mask=self.mask)


def get_inputs():
    return [torch.randn(1, 2, 8, 16), torch.randn(1, 2, 8, 16), torch.randn(1, 2, 8, 16)]


def get_more_inputs():
    return [[torch.randn(3, 2, 8, 16), torch.randn(3, 2, 8, 16), torch.randn(3, 2, 8, 16)]]


dynamic_shapes = {"q": {0: "batch"}, "k": {0: "batch"}, "v": {0: "batch"}}
"""


class FlexAttentionDense(ProgramStrategy):
    """Capture flex_attention as matrix products around a softmax, with score_mod and mask_mod applied to all positions by broadcasting.

    When it helps: flex_attention and create_block_mask, also wrapped in torch.compile; ONNX has no such operator.

    Why it is safe: this is flex_attention's own reference (math_attention in torch/_higher_order_ops), where rows without visible keys give zeros; a
    function that does not broadcast is mapped with vmap as there. Block masks are taken to agree with their mask function.
    """

    treats = (
        "unsupported-operator",
        "capture-error",
        "convert-error",
        "decompose-error",
        "unsupported-python",
        "data-dependent-branch",
        "data-dependent-size",
        "axis-specialized",
    )
    prior = 0.7

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        texts = [evidence.fact("operator"), evidence.fact("message"), *evidence.operators, *dict(evidence.facts.get("sources", {})).values()]
        if any("flex_attention" in text for text in texts):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.attention_capture import flex_attention_capture

        plan.contexts.append(flex_attention_capture)
        return plan

    REPAIRS = (Example(BIASED, symptom="unsupported-operator", fix={}),)
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default", "message": "no translation"}),)
