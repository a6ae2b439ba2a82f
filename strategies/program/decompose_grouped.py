"""Strategy: grouped matrix products as one product for each group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.surgery.ops_proposal import operators_to_replace
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

OPERATORS = ("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")

EXPERTS = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 3)
        self.up = nn.Parameter(torch.randn(3, 8, 16))

    def forward(self, x):
        expert = self.gate(x).argmax(-1)
        order = expert.argsort()
        ends = (expert.unsqueeze(-1) == torch.arange(3)).sum(0).cumsum(0).to(torch.int32)
        y = F.grouped_mm(x[order], self.up, offs=ends)
        return torch.zeros_like(y).index_copy(0, order, y)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(6, 8)]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(11, 8)], [torch.randn(1, 8)]]


dynamic_shapes = {"x": {0: "tokens"}}
"""


class DecomposeGrouped(ProgramStrategy):
    """Write grouped matrix products, by which mixtures of experts apply each expert to its own tokens, as one product for each group.

    When it helps: torch.nn.functional.grouped_mm, which is captured in bfloat16 only, and the operator that transformers puts in its place
    meanwhile have no ONNX form.
    Why it is safe: each row is multiplied by its own group's matrix and by no other that is kept. It costs as many products as there are groups.
    """

    treats = ("unsupported-operator", "convert-error", "decompose-error", "capture-error", "data-dependent-branch", "data-dependent-size")
    prior = 0.8

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        found = operators_to_replace(evidence, OPERATORS)
        if found and not evidence.recipe.has("decompose_grouped"):
            yield self.fix(operators=found)

    @staticmethod
    def apply(plan: Any, *, operators: list[str]) -> Any:
        import torch

        from autofix.surgery.ops_grouped import GROUPED_DECOMPOSITIONS, grouped_mm

        added = {name: GROUPED_DECOMPOSITIONS[name] for name in operators if name in GROUPED_DECOMPOSITIONS}
        if not added:
            raise NothingToDo("none of these operators is known")
        plan.decompositions.update(added)
        for name, owner in (("grouped_mm", torch.nn.functional), ("_grouped_mm", torch)):  # captured in bfloat16 only
            if hasattr(owner, name):
                plan.overrides[getattr(owner, name)] = grouped_mm
        return plan

    REPAIRS = (Example(EXPERTS, "capture-error", {"operators": list(OPERATORS)}),)
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default"}),)
