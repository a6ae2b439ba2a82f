"""torch.allclose and torch.equal as comparisons in the graph, where a capture asks for their answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

CONVERGED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return x * torch.allclose(x, y, atol=1e-3) - y * torch.equal(x, y.clone())


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(3, 4), torch.randn(3, 4)]


def get_more_inputs():
    return [[torch.ones(2, 4), torch.ones(2, 4) + 1e-4], [torch.ones(2, 4), torch.ones(2, 4)]]


dynamic_shapes = {"x": {0: "n"}, "y": {0: "n"}}
"""

ASKED = re.compile(r"\b(allclose|equal)\s*\(")


def all_close(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    """torch.allclose as a boolean tensor (ATen: isclose(...).all())."""
    import torch

    return torch.isclose(a, b, rtol, atol, equal_nan).all()


def all_equal(a: Any, b: Any) -> Any:
    """torch.equal as a boolean tensor; tensors of other shapes are unequal."""
    import torch

    return (a == b).all() if a.dim() == b.dim() and a.shape == b.shape else torch.zeros((), dtype=torch.bool)


class CompareInGraph(ProgramStrategy):
    """Write torch.allclose and torch.equal, which give Python bools, as comparisons that give boolean tensors.

    When it helps: `if torch.allclose(a, b):`, `while not torch.equal(old, new):`; capture can't tell the answer, or a trace keeps the
    example's. What branches on the answer then is a matter for control_flow.

    Why it is safe: ATen computes them as isclose(...).all() and as (a == b).all() on equal shapes.
    """

    treats = ("data-dependent-size", "data-dependent-branch", "baked-value", "mismatch-at-other-values", "unsupported-operator")
    prior = 0.7

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        text = "\n".join(evidence.facts.get("sources", {}).values())
        if ASKED.search(text) and not evidence.recipe.has(self.name) and evidence.config.capture != "script":
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        import torch

        plan.overrides.update({torch.allclose: all_close, torch.Tensor.allclose: all_close, torch.equal: all_equal, torch.Tensor.equal: all_equal})
        return plan

    REPAIRS = (Example(CONVERGED, "data-dependent-size", {}),)
    DECLINES = (Diagnosis("data-dependent-size", Stage.CAPTURE),)
