"""Strategy: attention modules in plain operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, ModuleStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

PADDED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)

    def forward(self, x, pad):
        return self.encoder(x, src_key_padding_mask=pad)


def mask(length, *lengths):
    return torch.arange(length)[None] >= torch.tensor(lengths)[:, None]


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 4, 8), mask(4, 4, 2)]


dynamic_shapes = {"x": {0: "batch", 1: "time"}, "pad": {0: "batch", 1: "time"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(3, 5, 8), mask(5, 1, 5, 3)], [torch.randn(1, 3, 8), torch.tensor([[False, True, False]])]]
"""


class PlainAttention(ModuleStrategy):
    """Swap torch's attention modules for plain operators with the values of eager's fused path.

    When it helps: nn.TransformerEncoder, nn.TransformerEncoderLayer and nn.MultiheadAttention run fused kernels and nested
    tensors in inference: padded positions come out as zeros, masks count as booleans, a row with everything masked is NaN.
    Exporters follow the modules' Python code, or fail on the fused operators.
    Why it is safe: each form follows the conditions in torch/nn/modules/transformer.py and activation.py and was compared
    with eager over all kinds of masks; what depends on the mask's values (whether it is left-aligned) is decided in the graph.
    Subclasses of these modules are left alone.
    """

    treats = (
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
        "shape-mismatch",
        "unsupported-operator",
        "capture-error",
        "convert-error",
        "decompose-error",
        "data-dependent-branch",
        "axis-specialized",
        "baked-value",
        "crash",
    )
    prior = 0.6

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        known = {"MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder"} & set(evidence.modules)
        if known and not evidence.recipe.has("plain_attention"):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        from autofix.surgery.modules_attention import plain_attention

        if not plain_attention(model):
            raise NothingToDo("the model has no attention module of torch's own")
        return model

    REPAIRS = (Example(PADDED, symptom="mismatch-at-example"),)
    DECLINES = (
        Diagnosis("mismatch-at-example", Stage.PARITY),
        Evidence(
            Diagnosis("mismatch-at-example", Stage.PARITY),
            facts={"modules": {"TransformerEncoder": ["encoder"]}},
            recipe=Recipe((Fix("plain_attention", ModuleStrategy.level),)),
        ),
    )
