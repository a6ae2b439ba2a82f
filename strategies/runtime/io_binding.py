"""Strategy: buffers for inputs and outputs that stay from call to call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.session import SessionSettings
from autofix.strategy import Evidence, Example, RuntimeStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict

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
SHORT_MS = 0.3
"""Milliseconds of a call of the file below which it may count; handing values over takes some 5 microseconds."""
SHORT_SECONDS = 1e-3
"""The same for eager, where the file was not measured: ONNX Runtime then needs some tenths of a millisecond at most."""


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
        measured = (evidence.trials[-1].latency or {}).get("ort_ms") if evidence.trials else None
        if measured is not None:  # processor time: on a busy machine the others are too long
            short = float(measured) < SHORT_MS
        else:
            short = 0 < float(evidence.facts.get("eager_seconds", 0)) < SHORT_SECONDS
        if short:
            yield self.fix()

    @staticmethod
    def apply(settings: SessionSettings) -> SessionSettings:
        if settings.io_binding:
            raise NothingToDo("buffers are bound already")
        return replace(settings, io_binding=True)

    REPAIRS = (Example(TINY, symptom="too-slow"),)
    DECLINES = (
        Evidence(Diagnosis("too-slow", Stage.LATENCY), facts={"eager_seconds": 0.5}),
        Evidence(
            Diagnosis("too-slow", Stage.LATENCY),
            facts={"eager_seconds": 1e-4},
            trials=(Trial(Recipe(), Stage.LATENCY, Verdict.SLOW, latency={"ort_ms": 3.0}),),
        ),
    )
