"""Strategy: write cubic and volume interpolation with kernels that are fast."""

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
    "Resize": ("upsample",),
}
"""ONNX operators that have a faster form, each with parts of the aten names that become it."""

ZOOM = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, v):
        up = F.interpolate(x, scale_factor=2, mode="bicubic"), F.interpolate(x, size=(7, 4), mode="bicubic", align_corners=True)
        return *up, F.interpolate(v, scale_factor=(2, 3, 1.5)), F.interpolate(v, size=(3, 9, 5))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 5, 6), torch.randn(1, 2, 4, 5, 6)]


dynamic_shapes = {"x": {0: "batch"}, "v": {0: "n"}}


def get_more_inputs():
    torch.manual_seed(1)
    x = torch.randn(1, 3, 5, 6)
    x[0, 0, 2, 2], x[0, 1, 1, 4] = float("inf"), float("nan")
    return [[x, torch.randn(3, 2, 4, 5, 6)]]
"""


class FastResize(OnnxStrategy):
    """Write cubic and volume interpolation with kernels that are fast.

    When it helps: bicubic upsampling or downsampling, nearest interpolation of volumes: ONNX Runtime's Resize takes 8 to 10 times as long as PyTorch.

    Why it is safe: cubic interpolation is linear along each axis, so it is a product with a matrix of the same weights, made in the graph from
    the sizes; where NaN or infinity is involved the node itself runs. Nearest interpolation takes the same places axis by axis.
    """

    treats = ("too-slow",)
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("fast_resize"):
            return
        found = slow_types(evidence, HINTS)
        if found:
            yield self.fix(operators=found)

    @staticmethod
    def apply(model: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.onnx_fast_nodes import replace_fast
        from autofix.surgery.onnx_fast_resize import FAST_RESIZE

        if not replace_fast(model, {op: form for op, form in FAST_RESIZE.items() if op in operators}):
            raise NothingToDo("no node has a faster form")
        return model

    REPAIRS = (Example(ZOOM, symptom="too-slow"),)
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MatMul,Add"}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "Resize"}), recipe=Recipe((Fix("fast_resize", OnnxStrategy.level),))),
    )
