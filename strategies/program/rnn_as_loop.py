"""Write recurrent layers as a loop of matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

PROJECTED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 6, proj_size=3, batch_first=True)

    def forward(self, x):
        y, (h, c) = self.rnn(x)
        return y, h, c


def get_inputs():
    return [torch.randn(2, 5, 4)]


def get_more_inputs():
    return [[torch.randn(3, 8, 4)], [torch.randn(1, 1, 4)]]


dynamic_shapes = {"x": {0: "batch", 1: "time"}}
"""


class RnnAsLoop(ProgramStrategy):
    """Compute LSTM, GRU and RNN layers step by step (ONNX Loop), the input's share of all gates in one product.

    When it helps: LSTM with proj_size, recurrent layers in float64, an empty batch (ONNX Runtime's LSTM aborts), forms that the exporter
    translates wrongly.

    Why it is safe: these are the layers' defining equations (documentation of nn.LSTM and nn.GRU), for any length and batch.
    Slower than a built-in LSTM.
    """

    treats = (
        "invalid-graph",
        "unsupported-operator",
        "convert-error",
        "capture-error",
        "decompose-error",
        "no-kernel",
        "run-error",
        "run-error-at-other-sizes",
        "run-error-at-other-values",
        "axis-specialized",
        "axis-fixed",
        "crash",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
        "dtype-mismatch",
    )
    prior = 0.55

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if any(kind in evidence.modules for kind in ("LSTM", "GRU", "RNN")) or any(
            n.startswith(("aten.lstm", "aten.gru", "aten.rnn_")) for n in evidence.operators
        ):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.custom_rnn import rnn_overrides
        from autofix.surgery.ops_loop import loops_without_asserts

        plan.overrides.update(rnn_overrides())
        plan.contexts.append(loops_without_asserts)
        return plan

    REPAIRS = (Example(PROJECTED, symptom="run-error", fix={}),)
    DECLINES = (Diagnosis("invalid-graph", Stage.CHECK, {"message": "something else"}),)
