"""Strategy: run the Python that TorchScript was compiled from."""

from __future__ import annotations

from collections.abc import Iterator

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, SourceStrategy
from autofix.surgery.source_control import rewrite_source
from autofix.surgery.source_evidence import EXPORT_CAPTURES, has_dynamic_axes, number_arguments, user_files
from autofix.surgery.source_unscript import lines_of_tests, unscript_text
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

SCRIPTED = """
from typing import List, Optional

import torch
from torch import nn


@torch.jit.script
def shrink(x: torch.Tensor, limit: float = 1.0) -> torch.Tensor:
    n = x.norm()
    if n > limit:
        x = x * (limit / n)
    return x


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, xs: torch.Tensor, h: Optional[torch.Tensor] = None) -> torch.Tensor:
        if h is None:
            h = torch.zeros(xs.size(0), 3)
        outs: List[torch.Tensor] = []
        for t in range(xs.size(1)):
            h = torch.tanh(self.fc(torch.cat([xs[:, t], h], 1)))
            outs.append(h)
        return torch.stack(outs, 1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.jit.script(Cell())

    def forward(self, x):
        return shrink(self.cell(x))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 4, 2)]


dynamic_shapes = {"x": {0: "batch", 1: "time"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(3, 2, 2)], [torch.randn(1, 7, 2) * 0.01]]
"""


class UnscriptSource(SourceStrategy):
    """Leave out torch.jit.script, so that capture sees the Python code itself; rewrite that code's control flow.

    When it helps: functions or submodules of the model are compiled by torch.jit.script: torch.export can't look into them, and a tracer freezes
    the loops in them.
    Why it is safe: TorchScript is a subset of Python that computes what the Python code computes (torch's own switch PYTORCH_JIT=0 does the same).
    """

    treats = (
        "unsupported-python",
        "unsupported-operator",
        "capture-error",
        "convert-error",
        "decompose-error",
        "data-dependent-branch",
        "data-dependent-size",
        "axis-specialized",
        "axis-fixed",
        "baked-value",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "run-error-at-other-sizes",
        "crash",
    )
    prior = 0.75

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has(self.name) or evidence.recipe.has("control_flow") or evidence.config.capture not in EXPORT_CAPTURES:
            return
        facts = evidence.facts
        for file, text, functions, lines in user_files(facts):
            if unscript_text(text) != text:
                marked = sorted({*lines, *lines_of_tests(text, functions)})
                yield self.fix(file=file, functions=functions, lines=marked, sizes=has_dynamic_axes(facts), arguments=number_arguments(facts))

    @staticmethod
    def apply(text: str, *, functions: list[str], lines: list[int], sizes: bool, arguments: list[str]) -> str:  # type: ignore[override]
        plain = unscript_text(text)
        if plain == text:
            raise NothingToDo("nothing here is compiled by torch.jit.script")
        return rewrite_source(plain, functions, lines, sizes=sizes, arguments=arguments)

    REPAIRS = (Example(SCRIPTED, symptom="unsupported-python"),)
    DECLINES = (Diagnosis("capture-error", Stage.CAPTURE),)
