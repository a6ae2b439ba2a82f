"""Strategy: fake quantisation in plain arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ModuleStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

TRAINED = """
import torch
from torch import nn
from torch.ao.quantization import FakeQuantize, MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.act = FakeQuantize(MovingAverageMinMaxObserver, quant_min=0, quant_max=127, dtype=torch.quint8)
        by_channel = {"quant_min": -127, "quant_max": 127, "dtype": torch.qint8, "qscheme": torch.per_channel_symmetric}
        self.w = FakeQuantize(MovingAveragePerChannelMinMaxObserver, **by_channel)
        self.act(torch.linspace(-1, 2, 50))
        self.w(self.fc.weight.detach())
        for q in (self.act, self.w):
            q.disable_observer()

    def forward(self, x):
        return self.act(nn.functional.linear(self.act(x), self.w(self.fc.weight), self.fc.bias))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 4)]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(5, 4) * 3]]
"""


class PlainFakeQuantizeStrategy(ModuleStrategy):
    """Replace FakeQuantize modules by the arithmetic they do.

    When it helps: a model trained with quantisation in mind still holds FakeQuantize modules; capture stumbles over
    their switches, which are tensors, or the exporter knows only the full ranges of 8 bits.
    Why it is safe: with the observers off, the modules compute (clamp(round(x / scale) + zero_point) - zero_point) * scale; modules whose
    observers are on change from call to call and are left alone.
    """

    treats = (
        "data-dependent-branch",
        "data-dependent-size",
        "capture-error",
        "convert-error",
        "unsupported-operator",
        "unsupported-python",
        "decompose-error",
        "invalid-graph",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "baked-value",
        "mutated-buffers",
    )
    prior = 0.7

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        names = " ".join([*evidence.modules, *evidence.operators]).lower().replace("_", "")
        if ("fakequant" in names or "fusedmovingavgobs" in names) and not evidence.recipe.has("plain_fake_quantize"):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        from autofix.surgery.modules_fake_quantize import plain_fake_quantize

        if not plain_fake_quantize(model):
            raise NothingToDo("no FakeQuantize module with its observer off")
        return model

    REPAIRS = (Example(TRAINED, symptom="data-dependent-branch"),)
    DECLINES = (Diagnosis("data-dependent-branch", Stage.CAPTURE),)
