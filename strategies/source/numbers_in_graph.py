"""Strategy: keep Python numbers made from values and sizes in the graph."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, SourceStrategy
from autofix.surgery.source_control import rewrite_source
from autofix.surgery.source_evidence import EXPORT_CAPTURES, has_dynamic_axes, user_files, zero_d_names
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

LENGTH = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, tokens, lengths):
        longest = int(lengths.max())
        return tokens[:, :longest] * 2, torch.arange(longest) < lengths[:, None]


def get_inputs():
    return [torch.arange(18.0).reshape(2, 9), torch.tensor([4, 6])]


dynamic_shapes = {"tokens": {0: "batch", 1: "seq"}, "lengths": {0: "batch"}}


def get_more_inputs():
    return [[torch.ones(3, 7), torch.tensor([7, 1, 2])]]
"""
RATIO = """
import math
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        keep = int(x.shape[1] * 0.7)
        return x[:, :keep] * math.log(x.shape[1])


def get_inputs():
    return [torch.arange(20.0).reshape(2, 10)]


dynamic_shapes = {"x": {1: "n"}}


def get_more_inputs():
    return [[torch.ones(2, 17)], [torch.ones(2, 3)]]
"""


class NumbersInGraph(SourceStrategy):
    """Keep Python numbers that come from tensors and sizes in the graph: int(), round(), math.*, item(), tolist(), / and **.

    When it helps: capture freezes int(0.9 * h), math.log(n) or n ** 0.5 of a dynamic size, or can't turn a tensor's value
    into a size, an index, a list of lengths; a print or log call formats a value.
    Why it is safe: floats made from sizes are float64 scalars, so the arithmetic is the IEEE arithmetic that Python does (int truncates,
    round rounds halves to even); whole numbers stay symbolic sizes. Where they are sizes of tensors,
    torch's own code (never the model's) takes them for neither 0 nor 1, as it does with every dynamic axis; other sizes are verified.
    """

    treats = (
        "data-dependent-size",
        "data-dependent-branch",
        "axis-specialized",
        "axis-fixed",
        "mismatch-at-other-sizes",
        "mismatch-at-other-values",
        "run-error-at-other-sizes",
        "run-error-at-other-values",
        "baked-value",
        "capture-error",
        "decompose-error",
        "convert-error",
        "unsupported-operator",
    )
    prior = 0.45
    cost = 0.3

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        facts = evidence.facts
        if evidence.recipe.has(self.name) or evidence.recipe.has("control_flow") or evidence.config.capture not in EXPORT_CAPTURES:
            return
        if re.match(r"(if|elif|while|for|assert)\b", evidence.fact("code")):
            return
        if evidence.diagnosis.symptom == "unsupported-operator" and not evidence.fact("operator").startswith("torch._sym"):
            return
        for file, text, functions, lines in user_files(facts):
            params = {"functions": functions, "lines": lines, "sizes": has_dynamic_axes(facts), "zero_d": zero_d_names(facts)}
            if rewrite_source(text, **params, control=False) != text:
                yield self.fix(file=file, **params)

    @staticmethod
    def apply(  # type: ignore[override]
        text: str,
        *,
        functions: list[str] | None = None,
        lines: list[int] | None = None,
        sizes: bool = True,
        zero_d: list[str] | None = None,
    ) -> str:
        new = rewrite_source(text, functions or [], lines or [], sizes=sizes, zero_d=zero_d or [], control=False)
        if new == text:
            raise NothingToDo("no number here comes from a tensor or a size")
        return new

    REPAIRS = (Example(LENGTH, symptom="data-dependent-size"), Example(RATIO, symptom="axis-specialized"))
    DECLINES = (Diagnosis("data-dependent-size", Stage.CAPTURE),)
