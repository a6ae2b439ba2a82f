"""Strategy: TorchScript modules as plain calls."""

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


LOADED = """
import io
from typing import List

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x: torch.Tensor, limit: float = 0.5):
        h = torch.zeros(x.size(0), 4)
        rows: List[torch.Tensor] = []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            rows.append(h)
        while float(h.abs().max()) > limit:
            h = h * 0.8
        last = [h]
        if h.mean() > 0:
            last.append(h * 2)
        else:
            last.append(h - 1)
        return torch.stack(rows[::-1], 1), torch.cat(last, 1)


def build_model():
    data = io.BytesIO()
    torch.jit.save(torch.jit.freeze(torch.jit.script(Net().eval())), data)
    data.seek(0)
    return torch.jit.load(data)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 4, 3)]


dynamic_shapes = {"x": {0: "batch", 1: "time"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(3, 7, 3) * 3], [torch.randn(1, 1, 3)]]
"""


class UnscriptModules(ModuleStrategy):
    """Run TorchScript modules node by node as plain PyTorch calls.

    When it helps: the model is, or holds, a traced, scripted, frozen or loaded module; torch.export and torch.jit.trace can't look into it.
    Why it is safe: the interpreter calls the same operators in the same order with the same weights; branches and loops that depend on
    a tensor's value or on a size become torch.cond and while_loop, with both sides and any number of turns.
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

        plain, changed = unscript(model)
        if not changed:
            raise NothingToDo("the model holds no TorchScript")
        return plain

    REPAIRS = (Example(BACKBONE, symptom="unsupported-operator"), Example(LOADED, symptom="data-dependent-branch"))
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT),)
