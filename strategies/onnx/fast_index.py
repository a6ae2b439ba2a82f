"""Strategy: write gathers and scatters of regular places as slices, blocks and choices."""

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
    "ScatterND": ("index_put", "slice_scatter", "copy_", "masked_scatter"),
    "ScatterElements": ("scatter", "select_scatter", "copy_"),
    "GatherElements": ("gather",),
    "Gather": ("unfold", "im2col"),
    "Transpose": ("slice_scatter", "copy_", "_unsafe_index"),
}
"""ONNX operators that have a faster form, each with parts of the aten names that become it."""

ASSIGN = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, v, keep, rows, add):
        y, z, m = torch.zeros(2, 12, 5), x.clone(), x.clone()
        y[:, ::2], y[:, 1::2] = x, v
        z[:, 1::3] = v[:, :2]
        z[..., 1:5:2] = 3.0
        m[keep] = -1.0
        total = torch.zeros(4, 3).scatter_add(0, rows.unsqueeze(1).expand(-1, 3), add)
        return y, z, m, total, add.gather(0, rows.unsqueeze(1).expand(-1, 3))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 6, 5), torch.randn(2, 6, 5), torch.rand(2, 6, 5) > 0.5, torch.tensor([0, 3, 3, 1, 0]), torch.randn(5, 3)]


def get_more_inputs():
    torch.manual_seed(1)
    x = torch.randn(2, 6, 5)
    x[0, 0, 0], x[1, 2, 3] = float("nan"), float("inf")
    return [[x, -x, torch.rand(2, 6, 5) > 0.9, torch.tensor([2, 2, 2, 2, 2]), torch.randn(5, 3)]]
"""

WINDOWS = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        tiles = x.unfold(2, 3, 3).unfold(3, 4, 4)
        framed = x[:, 0, 0].unfold(1, 16, 8) * 2, x[:, 0, 1].unfold(1, 5, 1) * 2
        return F.unfold(x, 3, padding=1, stride=2), F.unfold(x, 2, dilation=2), tiles * 2, *framed


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 6, 40)]


def get_more_inputs():
    torch.manual_seed(1)
    x = torch.randn(2, 3, 6, 40)
    x[0, 0, 0, 0], x[1, 2, 3, 9] = float("nan"), float("inf")
    return [[x]]
"""


class FastIndex(OnnxStrategy):
    """Write gathers and scatters of regular places as slices, copies of blocks and choices.

    When it helps: assignment by a boolean mask or to every n-th row, scatter_add and gather of whole rows, framing of a signal, unfold and
    im2col: ONNX Runtime moves single numbers by index where PyTorch moves blocks.

    Why it is safe: the same numbers go to the same places; places are only taken for regular where they are constants that are.
    """

    treats = ("too-slow",)
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("fast_index"):
            return
        found = slow_types(evidence, HINTS)
        if found:
            yield self.fix(operators=found)

    @staticmethod
    def apply(model: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.onnx_fast_index import FAST_INDEX
        from autofix.surgery.onnx_fast_nodes import replace_fast

        if not replace_fast(model, {op: form for op, form in FAST_INDEX.items() if op in operators}):
            raise NothingToDo("no node has a faster form")
        return model

    REPAIRS = (Example(ASSIGN, symptom="too-slow"), Example(WINDOWS, symptom="too-slow"))
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MatMul,Add"}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "ScatterND"}), recipe=Recipe((Fix("fast_index", OnnxStrategy.level),))),
    )
