"""Gather and scatter by a single number in a tensor, where a capture asks for its value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

RING = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, at, ring):
        ring = ring.clone()
        ring[at] = x.mean(0)
        ring[:, at] += 1
        ring[at - 1, at] = 7.0
        return ring, x[..., at], x[None, at, 1:]


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(4, 4), torch.tensor(1), torch.zeros(4, 4)]


def get_more_inputs():
    return [[torch.randn(4, 4), torch.tensor(3), torch.ones(4, 4)], [torch.randn(4, 4), torch.tensor(-2), torch.ones(4, 4)]]
"""

SUBSCRIPT = re.compile(r"[\w)\]]\[[^\]\n]*[A-Za-z_]")
"""An index with a name in it."""


class TensorAsIndex(ProgramStrategy):
    """Index by a 0-d integer tensor with gather and index_copy instead of asking for the number that it holds.

    When it helps: a ring buffer's pointer, a position in a cache, a chosen layer or expert: `buffer[pointer] = x`, `table[:, step]`, where
    capture stops at a data-dependent size, or a trace keeps the number of the example.

    Why it is safe: such an index selects one entry, as a Python int does; negative ones count from the end. Index tensors with axes, and masks,
    are passed on.
    """

    treats = ("data-dependent-size", "data-dependent-branch", "mismatch-at-other-values", "mutated-buffers", "baked-value", "mismatch-at-example")
    prior = 0.5

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        text = "\n".join(evidence.facts.get("sources", {}).values())
        asked = evidence.config.capture in ("export", "draft") and evidence.diagnosis.symptom.startswith("data-dependent")
        if (asked or evidence.config.capture == "trace") and not evidence.recipe.has("tensor_as_index") and SUBSCRIPT.search(text):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.ops_index import index_overrides

        plan.overrides.update(index_overrides())
        return plan

    REPAIRS = (Example(RING, "data-dependent-size", {}),)
    DECLINES = (
        Diagnosis("data-dependent-size", Stage.CAPTURE),
        Evidence(Diagnosis("data-dependent-size", Stage.CAPTURE), recipe=Recipe((Fix("tensor_as_index", ProgramStrategy.level),))),
    )
