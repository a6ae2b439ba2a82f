"""Write reductions by index and distances (scatter_reduce, index_reduce, scatter with reduce, cdist) with ScatterElements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.surgery.ops_proposal import operators_to_replace
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

OPERATORS = (
    "aten._cdist_forward.default",
    "aten._pdist_forward.default",
    "aten.cdist.default",
    "aten.diagonal_scatter.default",
    "aten.index_add.default",
    "aten.index_reduce.default",
    "aten.masked_select.default",
    "aten.pdist.default",
    "aten.put.default",
    "aten.scatter.reduce",
    "aten.scatter.value_reduce",
    "aten.scatter_add.default",
    "aten.scatter_reduce.two",
    "aten.segment_reduce.default",
)

MEANS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, index):
        base = torch.zeros(4, 3)
        wide = index[:, None].expand(-1, 3)
        return base.scatter_reduce(0, wide, x, "mean", include_self=False), base.scatter_reduce(0, wide, x, "amax")


def get_inputs():
    return [torch.randn(5, 3), torch.tensor([0, 1, 1, 3, 3])]


def get_more_inputs():
    return [[torch.randn(3, 3), torch.tensor([2, 2, 2])]]


dynamic_shapes = {"x": {0: "n"}, "index": {0: "n"}}
"""

PRODUCTS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, index):
        return torch.ones(4, 3).index_reduce(0, index, x, "prod"), torch.cdist(x, x, p=1)


def get_inputs():
    return [torch.randn(5, 3), torch.tensor([0, 1, 1, 3, 3])]


def get_more_inputs():
    return [[torch.randn(3, 3), torch.tensor([2, 2, 2])]]


dynamic_shapes = {"x": {0: "n"}, "index": {0: "n"}}
"""


class DecomposeScatter(ProgramStrategy):
    """Build reductions by index, and distances between rows, from what ScatterElements and elementwise operators do.

    When it helps: scatter_reduce with mean (exported as "the last one wins"), scatter with reduce="multiply", index_reduce, index_add,
    put, masked_select, segment_reduce, writes to a diagonal, cdist and pdist of any p.

    Why it is safe: a mean is a sum over a count, exclusion of what was there starts from the reduction's identity, NaN spreads through extremes by a
    second scatter of flags; cdist is the definition, for p = 2 through float64 so that cancellation stays below float32's rounding.
    """

    treats = (
        "unsupported-operator",
        "convert-error",
        "decompose-error",
        "no-kernel",
        "invalid-graph",
        "run-error",
        "run-error-at-other-sizes",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
    )
    prior = 0.7

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        operators = operators_to_replace(evidence, OPERATORS)
        if "prims.copy_to" in evidence.fact("message"):  # torch's own form of a write to a diagonal
            operators = sorted({*operators, "aten.diagonal_scatter.default"})
        if operators:
            yield self.fix(operators=operators)

    @staticmethod
    def apply(plan: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.ops_loop import loops_without_asserts
        from autofix.surgery.ops_scatter import SCATTER_DECOMPOSITIONS

        added = {name: SCATTER_DECOMPOSITIONS[name] for name in operators if name in SCATTER_DECOMPOSITIONS}
        if not added:
            raise NothingToDo("none of these operators is known")
        plan.decompositions.update(added)
        plan.contexts.append(loops_without_asserts)
        return plan

    REPAIRS = (
        Example(MEANS, "mismatch-at-example", {"operators": ["aten.scatter_reduce.two"]}),
        Example(PRODUCTS, "unsupported-operator", {"operators": ["aten._cdist_forward.default", "aten.cdist.default", "aten.index_reduce.default"]}),
    )
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default"}),)
