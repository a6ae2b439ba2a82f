"""Strategy: sample grids by gathering pixels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.surgery.fast_proposal import slow_types
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

HINTS = {"GridSample": ("grid_sampler",)}
"""ONNX operators that have a faster form, each with parts of the aten names that become it."""

WARP = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.register_buffer("image", torch.randn(1, 3, 5, 6))

    def forward(self, grid):
        x, grid = self.image.expand(2, -1, -1, -1), 1.5 * torch.tanh(grid)
        return tuple(F.grid_sample(x, grid, "bilinear", p, align_corners=a) for p in ("border", "reflection") for a in (True, False))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 4, 7, 2)]


dynamic_shapes = {"grid": {1: "h", 2: "w"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(2, 3, 2, 2) * 9]]
"""


class FastGridSample(OnnxStrategy):
    """Sample grids by gathering whole pixels, with weights worked out once for all channels.

    When it helps: nearest sampling, reflection, and bilinear sampling other than into zeros: ONNX Runtime's kernel works channel by channel.

    Why it is safe: ATen's own formulas for places and weights; where the grid or the result holds NaN or infinity, the node itself runs.
    """

    treats = ("too-slow",)
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("fast_grid_sample"):
            return
        found = slow_types(evidence, HINTS)
        if found:
            yield self.fix(operators=found)

    @staticmethod
    def apply(model: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.onnx_fast_grid import FAST_GRID
        from autofix.surgery.onnx_fast_nodes import replace_fast

        if not replace_fast(model, {op: form for op, form in FAST_GRID.items() if op in operators}):
            raise NothingToDo("no node has a faster form")
        return model

    REPAIRS = (Example(WARP, symptom="too-slow"),)
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "Gemm,Add"}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "GridSample"}), recipe=Recipe((Fix("fast_grid_sample", OnnxStrategy.level),))),
    )
