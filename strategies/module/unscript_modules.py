"""Strategy: TorchScript submodules as plain calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ModuleStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

BACKBONE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        net = nn.Sequential(nn.Conv1d(1, 3, 3, padding=1), nn.BatchNorm1d(3), nn.ReLU()).eval()
        self.body = torch.jit.trace(net, torch.randn(1, 1, 6))

    def forward(self, x, **kwargs):
        return self.body(x).mean(2)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 1, 6)]


dynamic_shapes = {"x": {0: "batch", 2: "time"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(3, 1, 8)]]
"""


class UnscriptModules(ModuleStrategy):
    """Run TorchScript submodules node by node as plain PyTorch calls.

    When it helps: a traced or scripted backbone is part of the model; torch.export and torch.jit.trace can't look into it.
    Why it is safe: the interpreter calls the same operators in the same order with the same weights; branches and loops run as
    Python, so that capture sees (and refuses) those that depend on a tensor's value.
    """

    treats = (
        "unsupported-operator",
        "capture-error",
        "convert-error",
        "decompose-error",
        "unsupported-python",
        "data-dependent-branch",
        "axis-specialized",
        "axis-fixed",
        "crash",
    )
    prior = 0.7

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        scripted = {"TopLevelTracedModule", "TracedModule", "RecursiveScriptModule", "ScriptModule"} & set(evidence.modules)
        if scripted and not evidence.recipe.has("unscript_modules"):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        from autofix.surgery.modules_unscript import unscript

        if not unscript(model):
            raise NothingToDo("the model holds no TorchScript")
        return model

    REPAIRS = (Example(BACKBONE, symptom="unsupported-operator"),)
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT),)
