"""Strategy: find the different numbers of a list by sorting it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.surgery.fast_proposal import slow_types
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

HINTS = {"Unique": ("unique",)}
"""ONNX operators that have a faster form, each with parts of the aten names that become it."""

VOXELS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, key):
        return torch.unique(key, return_inverse=True, return_counts=True)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randint(-9, 9, (40,))]


dynamic_shapes = {"key": {0: "n"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.tensor([5])], [torch.full((9,), 2**62)], [torch.randint(-(2**62), 2**62, (50,))]]
"""


class FastUnique(OnnxStrategy):
    """Find the different numbers of a list by sorting it.

    When it helps: unique of thousands of whole numbers: ONNX Runtime keeps them in a tree.

    Why it is safe: in sorted order equal numbers stand together, so each begins where it differs from the one before; only for whole numbers,
    and where the places of first occurrence are not asked for.
    """

    treats = ("too-slow",)
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("fast_unique"):
            return
        found = slow_types(evidence, HINTS)
        if found:
            yield self.fix(operators=found)

    @staticmethod
    def apply(model: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.onnx_fast_nodes import replace_fast
        from autofix.surgery.onnx_fast_order import FAST_ORDER

        if not replace_fast(model, {op: form for op, form in FAST_ORDER.items() if op in operators}):
            raise NothingToDo("no node has a faster form")
        return model

    REPAIRS = (Example(VOXELS, symptom="too-slow"),)
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MatMul,Add"}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "Unique"}), recipe=Recipe((Fix("fast_unique", OnnxStrategy.level),))),
    )
