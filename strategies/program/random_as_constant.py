"""Draw the random numbers of a model that seeds its own generator once, and keep them as constants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

SEEDED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.generator = torch.Generator()

    def forward(self, x):
        self.generator.manual_seed(3)
        noise = torch.randn(1, 6, generator=self.generator)
        torch.manual_seed(5)
        return nn.functional.dropout(self.fc(x), 0.25, training=True) + noise


def get_inputs():
    return [torch.randn(4, 6)]


def get_more_inputs():
    return [[torch.randn(4, 6)]]
"""


class RandomAsConstant(ProgramStrategy):
    """Draw the numbers while the model is captured, with PyTorch's own generator, and store what was drawn.

    When it helps: forward seeds a generator (torch.manual_seed, a Generator attribute) before it draws noise, dropout masks or
    samples, so that every call computes with the same numbers; ONNX's own random operators draw others.

    Why it is safe: the constants are the numbers that eager PyTorch draws at the declared shapes. A draw whose shape depends on
    a dynamic axis is refused, since PyTorch's larger draws do not begin with its smaller ones.
    """

    treats = (
        "random-operator",
        "capture-error",
        "convert-error",
        "unsupported-operator",
        "unsupported-python",
        "decompose-error",
        "invalid-graph",
        "no-kernel",
        "run-error",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-nonfinite",
        "data-dependent-branch",
        "baked-value",
    )
    prior = 0.6

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        names = [*evidence.operators, evidence.fact("operator"), *map(str, evidence.facts.get("random_operators", ()))]
        signs = ("rand", "normal", "uniform", "bernoulli", "dropout", "exponential", "multinomial", "rrelu", "Generator")
        if any(sign in name for name in names for sign in signs) or "enerator" in evidence.fact("message"):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.random_ops import random_overrides

        plan.overrides.update(random_overrides())
        return plan

    REPAIRS = (Example(SEEDED, symptom="decompose-error", fix={}),)
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default", "message": "no translation"}),)
