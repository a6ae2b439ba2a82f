"""Strategy: capture from another set of inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import ExportConfig, Target
from autofix.trial import Diagnosis, Stage

NOTHING_FOUND = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, boxes):
        if boxes.shape[0] == 0:
            return boxes.new_zeros(0, 2)
        return boxes.reshape(boxes.shape[0], 2, boxes.numel() // boxes.shape[0] // 2).sum(2)


def get_inputs():
    return [torch.zeros(0, 4)]


dynamic_shapes = {"boxes": {0: "n"}}


def get_more_inputs():
    return [[torch.ones(2, 4)], [torch.tensor([[1.0, 2.0, 3.0, 4.0]] * 3)]]
"""


class OtherExample(ConfigStrategy):
    """Capture from another input set, one whose dynamic sizes are neither 0 nor 1.

    When it helps: torch.export treats the sizes 0 and 1 as constants, an empty example skips code, or the example takes
    a short cut (a branch on a size) that other inputs do not take.
    Why it is safe: the example only shows shapes and types to the exporter; the file is verified on every input set, the
    given one included.
    """

    treats = (
        "axis-specialized",
        "axis-fixed",
        "mismatch-at-other-sizes",
        "mismatch-at-other-values",
        "run-error-at-other-sizes",
        "run-error-at-other-values",
        "shape-mismatch",
        "capture-error",
        "convert-error",
        "data-dependent-size",
        "mutated-buffers",
    )
    prior = 0.26

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.config.example != "given" or evidence.recipe.has("other_example"):
            return
        axes = {str(leaf.get("name")): [int(a) for a in (leaf.get("axes") or {})] for leaf in evidence.facts.get("inputs", ())}
        ranked: list[tuple[tuple[int, int, int], str]] = []
        for entry in evidence.facts.get("input_sets", ()):
            name, shapes = str(entry.get("name", "")), dict(entry.get("shapes") or {})
            if name in ("", "given"):
                continue
            sizes = [int(shape[a]) for leaf, shape in shapes.items() for a in axes.get(leaf, ()) if a < len(shape)]
            every = [int(n) for shape in shapes.values() if isinstance(shape, list) for n in shape]
            if (any(n < 2 for n in sizes) if sizes else 0 in every) or prod(every or [1]) > 1 << 24:
                continue
            failed_here = evidence.fact("input_set") == name
            distinct = len(set(sizes))  # equal sizes of different axes invite accidental equalities
            ranked.append(((0 if failed_here else 1, 0 if entry.get("origin") == "given" else 1, -distinct), name))
        for _, name in sorted(ranked)[:2]:
            yield self.fix(example=name)

    @staticmethod
    def apply(config: ExportConfig, *, example: str) -> ExportConfig:
        if config.example == example:
            raise NothingToDo(f"{example} is the example already")
        return replace(config, example=example)

    REPAIRS = (Example(NOTHING_FOUND, symptom="capture-error"),)
    DECLINES = (Diagnosis("axis-fixed", Stage.CHECK),)  # no other input set is known
