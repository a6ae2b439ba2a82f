"""Strategy: convolve volumes as tall images, and transposed convolutions without a stride as plain ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

VOLUMES = {"Conv": ("Conv3d", "LazyConv3d"), "ConvTranspose": ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")}
"""ONNX operators that have a faster form, each with the modules that become it."""

MIXED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.volume = nn.Conv3d(3, 4, (3, 2, 5), stride=(2, 3, 1), padding=(1, 2, 0), dilation=(1, 2, 1))
        self.grown = nn.ConvTranspose3d(4, 2, (4, 3, 2), stride=(2, 2, 1), padding=(1, 0, 1), output_padding=(0, 1, 0))
        self.plain = nn.ConvTranspose2d(4, 6, (3, 5), padding=(1, 5), groups=2)
        self.signal = nn.ConvTranspose1d(6, 2, 4, dilation=3, bias=False)

    def forward(self, x):
        y = self.volume(x)
        z = self.plain(y.mean(2))
        return self.grown(y), z, self.signal(z.mean(3))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 7, 8, 14)]


dynamic_shapes = {"x": {0: "batch", 2: "d", 3: "h", 4: "w"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(1, 3, 10, 13, 15)], [torch.randn(3, 3, 5, 9, 13) * 20]]
"""


class FastConv(OnnxStrategy):
    """Convolve volumes as tall images, and transposed convolutions without a stride as plain ones.

    When it helps: three-dimensional convolutions with wide kernels, for which ONNX Runtime writes out every window, and transposed
    convolutions, which it writes as a matrix product and a sum over windows.

    Why it is safe: the same products are added up, in another order; windows that would reach from one slice into the next are cut off. Only for
    constant weights, and volumes in one group.
    """

    treats = ("too-slow",)
    prior = 0.35

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("fast_conv"):
            return
        names = " ".join(evidence.operators)
        asked = {"Conv": "conv3d" in names, "ConvTranspose": "conv_transpose" in names}
        found = [op for op, modules in VOLUMES.items() if asked[op] or any(m in evidence.modules for m in modules)]
        listed = evidence.fact("op_types")
        found = [op for op in found if not listed or op in listed.split(",")]
        if found:
            yield self.fix(operators=found)

    @staticmethod
    def apply(model: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.onnx_fast_conv import FAST_CONV
        from autofix.surgery.onnx_fast_nodes import replace_fast

        if not replace_fast(model, {op: form for op, form in FAST_CONV.items() if op in operators}):
            raise NothingToDo("no convolution has a faster form")
        return model

    REPAIRS = (Example(MIXED, symptom="too-slow"),)
    DECLINES = (
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "Conv,Relu"}), facts={"modules": {"Conv2d": ["conv"]}}),
        Evidence(
            Diagnosis("too-slow", Stage.LATENCY, {"op_types": "Conv"}),
            facts={"modules": {"Conv3d": ["conv"]}},
            recipe=Recipe((Fix("fast_conv", OnnxStrategy.level),)),
        ),
    )
