"""Write order statistics and scans (stable sort, median, mode, kthvalue, searchsorted, cummax, cumprod) with what ONNX has."""

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
    "aten.bucketize.Scalar",
    "aten.bucketize.Tensor",
    "aten.cummax.default",
    "aten.cummin.default",
    "aten.cumprod.default",
    "aten.cumsum.default",
    "aten.kthvalue.default",
    "aten.logcumsumexp.default",
    "aten.median.default",
    "aten.median.dim",
    "aten.mode.default",
    "aten.nanmedian.default",
    "aten.nanmedian.dim",
    "aten.searchsorted.Scalar",
    "aten.searchsorted.Tensor",
    "aten.sort.default",
    "aten.sort.stable",
)

RANKS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        top, place = torch.sort(x.round(), dim=-1, descending=True, stable=True)
        return top, place, x.median(-1).values, torch.cummax(x, -1)[1], torch.searchsorted(x.sort(-1)[0], x)


def get_inputs():
    return [torch.randn(2, 7)]


def get_more_inputs():
    return [[torch.randn(3, 12)], [torch.zeros(1, 4)]]


dynamic_shapes = {"x": {0: "batch", 1: "n"}}
"""

HALF = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.cumsum(-1)


def get_inputs():
    return [torch.arange(6).reshape(2, 3).half()]


dynamic_shapes = {"x": {0: "batch"}}
"""


class DecomposeOrder(ProgramStrategy):
    """Replace order statistics and scans by TopK, binary searches and scans by doubling.

    When it helps: stable sort and argsort, median, nanmedian, kthvalue, mode, searchsorted, bucketize, cummax, cummin, cumprod,
    logcumsumexp; cumsum of half
    precision and of small integers, whose dtype the exporter changes.

    Why it is safe: ONNX's TopK breaks ties by the lower index, so with k = n it is a stable sort; NaN is placed by a second stable pass;
    the binary search takes
    ATen's own steps; scans combine associatively (Hillis and Steele, 1986), sums and products in float64 as ATen's kernels do. Where
    ATen's choice among equal
    entries is an accident of quickselect (the index of kthvalue), the first is given.
    """

    treats = (
        "unsupported-operator",
        "convert-error",
        "decompose-error",
        "no-kernel",
        "invalid-graph",
        "run-error",
        "run-error-at-other-sizes",
        "dtype-mismatch",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
    )
    prior = 0.7

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        operators = operators_to_replace(evidence, OPERATORS)
        if operators:
            yield self.fix(operators=operators)

    @staticmethod
    def apply(plan: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.ops_loop import loops_without_asserts
        from autofix.surgery.ops_order import ORDER_DECOMPOSITIONS
        from autofix.surgery.ops_scan import SCAN_DECOMPOSITIONS

        known = {**ORDER_DECOMPOSITIONS, **SCAN_DECOMPOSITIONS}
        added = {name: known[name] for name in operators if name in known}
        if not added:
            raise NothingToDo("none of these operators is known")
        plan.decompositions.update(added)
        plan.contexts.append(loops_without_asserts)
        return plan

    REPAIRS = (
        Example(
            RANKS,
            "unsupported-operator",
            {
                "operators": [
                    "aten.cummax.default",
                    "aten.median.default",
                    "aten.median.dim",
                    "aten.searchsorted.Scalar",
                    "aten.searchsorted.Tensor",
                    "aten.sort.default",
                    "aten.sort.stable",
                ]
            },
        ),
        Example(HALF, "dtype-mismatch", {"operators": ["aten.cumsum.default"]}),
    )
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default"}),)
