"""Strategy: buffers for inputs and outputs that stay from call to call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.session import SessionSettings
from autofix.strategy import Evidence, Example, RuntimeStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

TINY = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.a(x))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 8)]


dynamic_shapes = {"x": {0: "batch"}}
"""
SHORT_SECONDS = 1e-3
"""Eager seconds of a call below which handing values over may count: ONNX Runtime then needs some tenths of a millisecond at most."""


class IoBinding(RuntimeStrategy):
    """Pass inputs and outputs through buffers that stay (io_binding).

    When it helps: a call of the file takes less than 0.1 ms, of which a good part goes into making and handing over values.
    Why it is safe: the same graph runs on the same values; results are copied out of the buffers. Files whose output sizes depend on values are
    run as before. The setting is stored in session.json; `autofix.load` keeps to it.
    """

    treats = ("too-slow",)
    prior = 0.2

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("io_binding") or evidence.recipe.has("openvino_runtime"):
            return
        rows = json.loads(evidence.fact("slow", "[]"))
        short = sum(float(row.get("ms") or 0) for row in rows) < 0.1 if rows else True
        if short and 0 < float(evidence.facts.get("eager_seconds", 0)) < SHORT_SECONDS:
            yield self.fix()

    @staticmethod
    def apply(settings: SessionSettings) -> SessionSettings:
        if settings.io_binding:
            raise NothingToDo("buffers are bound already")
        return replace(settings, io_binding=True)

    REPAIRS = (Example(TINY, symptom="too-slow"),)
    DECLINES = (Evidence(Diagnosis("too-slow", Stage.LATENCY), facts={"eager_seconds": 0.5}),)
