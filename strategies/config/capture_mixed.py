"""Strategy: script the submodules with control flow and trace the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import ExportConfig, Target
from autofix.trial import Diagnosis, Stage

GATE = """
import torch
from torch import nn


class Gate(nn.Module):
    def forward(self, x):
        if x.mean() > 0:
            return x * 2
        return x - 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate()

    def forward(self, x, **extra):  # the compiler refuses **kwargs
        return self.gate(x) + sum(extra.values())


def get_inputs():
    return [torch.tensor([[1.0, 2.0], [3.0, 4.0]])]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    return [[-torch.ones(3, 2)], [torch.ones(1, 2)]]
"""

SITE_KINDS_IGNORED = ("print",)


def mixed_paths_at(file: str, line: int, module_files: dict[str, list[Any]]) -> list[str]:
    """Paths of the submodules whose class text contains `line` of `file`; the root ("") is left out."""
    return [path for path, (name, first, last) in module_files.items() if path and name == file and int(first) <= line <= int(last)]


class CaptureMixed(ConfigStrategy):
    """Script the submodules that hold the control flow, trace the rest.

    When it helps: a branch or loop on a tensor's value or on a size sits in a submodule, and the model as a whole is beyond
    what torch.jit.script reads.
    Why it is safe: scripted parts keep their If and Loop; in the traced rest the tracer warns where a value is baked, which
    the engine counts as narrowing.
    """

    treats = (
        "data-dependent-branch",
        "data-dependent-size",
        "axis-specialized",
        "axis-fixed",
        "baked-value",
        "shape-mismatch",
        "run-error-at-other-sizes",
        "run-error-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-at-other-values",
        "unsupported-python",
        "capture-error",
    )
    group = "capture"
    prior = 0.25

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if any(f.strategy.startswith("capture_") for f in evidence.recipe.fixes) or target.min_opset > 20:
            return
        module_files = dict(evidence.facts.get("module_files", {}))
        lines = [(evidence.fact("file"), evidence.fact("line"))]
        lines += [
            (str(s.get("file", "")), str(s.get("line", ""))) for s in evidence.facts.get("sites", ()) if s.get("kind") not in SITE_KINDS_IGNORED
        ]
        at_fault: list[str] = []
        everywhere: list[str] = []
        for k, (file, line) in enumerate(lines):
            if line.isdigit():
                paths = mixed_paths_at(file, int(line), module_files)
                everywhere += [p for p in paths if p not in everywhere]
                at_fault += [p for p in paths if k == 0 and p not in at_fault]
        seen: list[list[str]] = []
        for chosen in (everywhere, at_fault):
            if chosen and sorted(chosen) not in seen:
                seen.append(sorted(chosen))
                yield self.fix(modules=sorted(chosen))

    @staticmethod
    def apply(config: ExportConfig, *, modules: list[str]) -> ExportConfig:
        if config.capture == "mixed" and config.script_modules == tuple(modules):
            raise NothingToDo("these submodules are scripted already")
        return replace(config, capture="mixed", script_modules=tuple(modules))

    REPAIRS = (Example(GATE, symptom="data-dependent-branch", fix={"modules": ["gate"]}),)
    DECLINES = (Diagnosis("data-dependent-branch", Stage.CAPTURE),)  # no submodule holds the line
