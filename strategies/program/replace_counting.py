"""Swap bincount, histogram, one_hot, quantile, cov, corrcoef and ctc_loss for forms that can be captured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

FUNCTIONS = ("bincount", "corrcoef", "cov", "ctc_loss", "histc", "histogram", "nanquantile", "one_hot", "quantile")

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

ALIGNED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.loss = nn.CTCLoss(reduction="none", zero_infinity=True)

    def forward(self, scores, targets, heard, meant):
        return self.loss(scores.log_softmax(-1), targets, heard, meant)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(7, 2, 5), torch.tensor([[1, 1, 3], [2, 4, 0]]), torch.tensor([7, 5]), torch.tensor([3, 2])]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(9, 3, 5), torch.randint(1, 5, (3, 4)), torch.tensor([9, 3, 6]), torch.tensor([4, 4, 0])]]


dynamic_shapes = {"scores": {0: "time", 1: "batch"}, "targets": {0: "batch", 1: "places"}, "heard": {0: "batch"}, "meant": {0: "batch"}}
"""


class ReplaceCounting(ProgramStrategy):
    """Replace functions that read values while they run by compositions that do not.

    When it helps: torch.bincount, histc, histogram and one_hot (sized or binned by values), quantile and nanquantile (they test q), cov and
    corrcoef (they test the number of observations), ctc_loss (it reads the lengths).

    Why it is safe: the same formulas as in ATen (bins closed on the right for the last only, linear interpolation between ranks, covariance over
    the corrected count, weights included; the forward recursion of Graves et al. 2006 for ctc_loss, in float64); what is left out are
    tests that raise errors.
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
        used = [name for name in FUNCTIONS if re.search(rf"(?<![A-Za-z_])_?{name}(?![A-Za-z_])", text)]
        if used:
            yield self.fix(functions=used)

    @staticmethod
    def apply(plan: Any, *, functions: list[str]) -> Any:
        from autofix.errors import NothingToDo
        from autofix.surgery.ops_loop import loops_without_asserts
        from autofix.surgery.ops_losses import LOSS_OVERRIDES
        from autofix.surgery.ops_order import QUANTILE_OVERRIDES
        from autofix.surgery.ops_order_counts import COUNT_OVERRIDES

        added = {f: new for f, new in {**COUNT_OVERRIDES, **QUANTILE_OVERRIDES, **LOSS_OVERRIDES}.items() if getattr(f, "__name__", "") in functions}
        if not added:
            raise NothingToDo("none of these functions is known")
        plan.overrides.update(added)
        plan.contexts.append(loops_without_asserts)
        return plan

    REPAIRS = (
        Example(MOMENTS, "data-dependent-size", {"functions": ["bincount", "cov", "quantile"]}),
        Example(ALIGNED, "data-dependent-size", {"functions": ["ctc_loss"]}),
    )
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default"}),)
