"""Strategy: capture with torch.jit.script."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Level
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import ExportConfig, Target
from autofix.trial import Diagnosis, Stage

BRANCH = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1
        return y


def get_inputs():
    return [torch.tensor([[1.0, 2.0], [3.0, 4.0]])]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    return [[-torch.ones(3, 2)], [torch.ones(1, 2)]]
"""


class CaptureScript(ConfigStrategy):
    """Capture the model with torch.jit.script, which keeps if, while and for.

    When it helps: control flow depends on a tensor's value or on a size, a loop runs once per item, a number is computed
    from a size, or a submodule already is TorchScript.
    Why it is safe: the compiler reads the source of forward and translates both branches and loops to If and Loop; nothing
    is recorded from the example. Outputs whose rank differs between branches are caught by verification.
    """

    treats = (
        "data-dependent-branch",
        "data-dependent-size",
        "axis-specialized",
        "axis-fixed",
        "unsupported-operator",
        "unsupported-python",
        "capture-error",
        "convert-error",
        "opset-not-reached",
        "baked-value",
        "run-error-at-other-sizes",
        "run-error-at-other-values",
        "shape-mismatch",
        "outputs-mismatch",
        "mismatch-at-other-sizes",
        "mismatch-at-other-values",
        "crash",
    )
    group = "capture"
    prior = 0.3

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.config.capture == "script" or any(f.strategy.startswith("capture_") for f in evidence.recipe.fixes):
            # a trace that turned out to be baked is scripted from its parent, where this was proposed as well
            return
        if evidence.recipe.at(Level.PROGRAM):  # replaced functions and decompositions do not reach the script compiler
            return
        if target.min_opset > 20:  # the TorchScript exporter's last opset
            return
        yield self.fix()

    @staticmethod
    def apply(config: ExportConfig) -> ExportConfig:
        if config.capture == "script":
            raise NothingToDo("the model is scripted already")
        return replace(config, capture="script")

    REPAIRS = (Example(BRANCH, symptom="data-dependent-branch"),)
    DECLINES = (
        Evidence(Diagnosis("data-dependent-branch", Stage.CAPTURE), config=ExportConfig(capture="script")),
        Diagnosis("no-kernel", Stage.CHECK),
    )
