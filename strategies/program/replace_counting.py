"""Swap bincount, histogram, one_hot, quantile, cov and corrcoef for forms that can be captured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

FUNCTIONS = ("bincount", "corrcoef", "cov", "histogram", "nanquantile", "one_hot", "quantile")

MOMENTS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cov(x), torch.quantile(x, 0.3, dim=1), torch.bincount((x[0] > 0).long(), minlength=3)


def get_inputs():
    return [torch.randn(3, 8)]


def get_more_inputs():
    return [[torch.randn(3, 11)]]


dynamic_shapes = {"x": {1: "n"}}
"""


class ReplaceCounting(ProgramStrategy):
    """Replace functions that read values while they run by compositions that do not.

    When it helps: torch.bincount, histogram and one_hot (sized or binned by values), quantile and nanquantile (they test q), cov and corrcoef (they
    test the number of observations).

    Why it is safe: the same formulas as in ATen (bins closed on the right for the last only, linear interpolation between ranks, covariance over
    the corrected count, weights included); what is left out are tests that raise errors.
    """

    treats = (
        "unsupported-operator",
        "capture-error",
        "convert-error",
        "decompose-error",
        "data-dependent-branch",
        "data-dependent-size",
        "axis-specialized",
        "axis-fixed",
    )
    prior = 0.75

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        text = "\n".join([*evidence.facts.get("sources", {}).values(), *evidence.operators, evidence.fact("operator"), evidence.fact("message")])
        used = [name for name in FUNCTIONS if re.search(rf"(?<![A-Za-z_]){name}(?![A-Za-z_])", text)]
        if used:
            yield self.fix(functions=used)

    @staticmethod
    def apply(plan: Any, *, functions: list[str]) -> Any:
        from autofix.errors import NothingToDo
        from autofix.surgery.ops_loop import loops_without_asserts
        from autofix.surgery.ops_order import QUANTILE_OVERRIDES
        from autofix.surgery.ops_order_counts import COUNT_OVERRIDES

        added = {f: new for f, new in {**COUNT_OVERRIDES, **QUANTILE_OVERRIDES}.items() if getattr(f, "__name__", "") in functions}
        if not added:
            raise NothingToDo("none of these functions is known")
        plan.overrides.update(added)
        plan.contexts.append(loops_without_asserts)
        return plan

    REPAIRS = (Example(MOMENTS, "data-dependent-size", {"functions": ["bincount", "cov", "quantile"]}),)
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default"}),)
