"""Strategy: dynamic quantisation to 8 bits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.hardware import has_int8_products
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Effect, Target
from autofix.trial import Diagnosis, Stage

LAYERS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(64, 64)
        self.b = nn.Linear(64, 16)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(4, 64)]
"""
RECURRENT = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.LSTM(32, 48, bidirectional=True, batch_first=True)

    def forward(self, x):
        return self.l(x)[0]


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 6, 32)]

"""
BUDGET = {"allow": ["approximate"], "max_error": 0.05}


class DynamicInt8(OnnxStrategy):
    """Store weights of matrix products and LSTMs in 8 bits and quantise their inputs as they come.

    When it helps: a latency target is missed by a wide margin and an error of one or two per cent is acceptable: measured 1.8x to 2x
    on BERT, 3.2x on LSTMs. Convolutions are left out: their dynamic 8-bit form is slower. Where the error budget breaks, the nodes that
    bring most error for their arithmetic stay in float32 (`keep`, by the name of their output).
    Why it is safe: it is not exact; the effect is APPROXIMATE, the error is measured against float32 eager PyTorch on real inputs and must
    keep within `--max-error`. The range is reduced to 7 bits on processors whose 8-bit products saturate (no VNNI): an LSTM's error fell
    from 12.7 % to 0.7 %.
    """

    treats = ("too-slow", "over-error-budget")
    effect = Effect.APPROXIMATE
    group = "arithmetic"
    prior = 0.3
    cost = 3.0

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if target.allows(Effect.APPROXIMATE) and target.max_error is None:
            return
        if evidence.diagnosis.symptom == "over-error-budget":
            for fix in evidence.recipe.fixes:
                if fix.strategy == self.name and evidence.fact("keep"):
                    yield self.fix(**{**fix.params, "keep": json.loads(evidence.fact("keep"))})
            return
        kinds = set(evidence.fact("op_types").split(","))
        names = " ".join(evidence.operators)
        recurrent = "LSTM" in kinds or "LSTM" in evidence.modules or "lstm" in names
        products = bool(kinds & {"MatMul", "Gemm"}) or any(word in names for word in ("addmm", "linear", "matmul", ".mm.", "bmm"))
        if (recurrent or products) and not any(evidence.recipe.has(name) for name in ("dynamic_int8", "static_qdq", "half_precision")):
            yield self.fix(per_channel=not recurrent, reduce_range=not has_int8_products(), keep=[])

    @staticmethod
    def apply(model: Any, *, per_channel: bool, reduce_range: bool, keep: list[str]) -> Any:
        from autofix.surgery.onnx_int8 import to_int8

        if not to_int8(model, keep, per_channel, reduce_range):
            raise NothingToDo("no product with constant weights is left to quantise")
        return model

    @staticmethod
    def nodes_to_keep(
        model: Any, runs: list[Any], budget: float, error: float, *, per_channel: bool, reduce_range: bool, keep: list[str]
    ) -> tuple[list[str], float]:
        """See surgery/onnx_switches.py `choose_kept`."""
        from autofix.surgery.onnx_switches import choose_kept

        return choose_kept(model, runs, budget, error, keep, per_channel=per_channel, reduce_range=reduce_range)

    REPAIRS = (
        Example(LAYERS, symptom="too-slow", target=BUDGET),
        Example(RECURRENT, symptom="too-slow", target=BUDGET),
    )
    DECLINES = (
        Evidence(Diagnosis("too-slow", Stage.LATENCY), facts={"operators": {"aten.conv2d.default": ""}}),
        Evidence(Diagnosis("over-error-budget", Stage.PARITY, {"error": "0.5"})),
    )
