"""Strategy: static quantisation to 8 bits with calibrated ranges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from autofix.hardware import has_int8_products
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Effect, Target
from autofix.trial import Diagnosis, Stage

CONVOLUTIONS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.n = nn.BatchNorm2d(16)
        self.b = nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, x):
        return self.b(torch.relu(self.n(self.a(x))))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 16, 16)]


def get_more_inputs():
    return [[torch.randn(2, 3, 16, 16)] for _ in range(3)]
"""


class StaticQdq(OnnxStrategy):
    """Compute convolutions and what lies between them in 8 bits, with ranges from calibration data.

    When it helps: a convolutional network misses its latency target and an error of one or two per cent is acceptable: measured 1.9x on
    ResNet-50, 1.5x on MobileNet-v2. The ranges come from the person's own inputs (given, `--inputs`, `--calibration FILE`). Where the error
    budget breaks, the convolutions that bring most error for their arithmetic stay in float32 (`keep`).
    Why it is safe: it is not exact; the effect is APPROXIMATE, the error is measured against float32 eager PyTorch on real inputs and must
    keep within `--max-error`; values beyond the calibrated range saturate. Unsigned activations, signed weights per channel, reduced to 7 bits where
    8-bit products saturate (no VNNI).
    """

    treats = ("too-slow", "over-error-budget")
    effect = Effect.APPROXIMATE
    group = "arithmetic"
    prior = 0.3
    cost = 5.0

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if target.allows(Effect.APPROXIMATE) and target.max_error is None:
            return
        if evidence.diagnosis.symptom == "over-error-budget":
            for fix in evidence.recipe.fixes:
                if fix.strategy == self.name and evidence.fact("keep"):
                    yield self.fix(**{**fix.params, "keep": json.loads(evidence.fact("keep"))})
            return
        convolves = "Conv" in evidence.fact("op_types").split(",") or any("conv" in name for name in evidence.operators)
        if convolves and not any(evidence.recipe.has(name) for name in ("dynamic_int8", "static_qdq", "half_precision")):
            yield self.fix(reduce_range=not has_int8_products(), keep=[])

    @staticmethod
    def apply(model: Any, *, reduce_range: bool, keep: list[str]) -> Any:
        from autofix.surgery.onnx_qdq import to_qdq

        return to_qdq(model, keep, reduce_range)

    @staticmethod
    def nodes_to_keep(model: Any, runs: list[Any], budget: float, error: float, *, reduce_range: bool, keep: list[str]) -> tuple[list[str], float]:
        """See surgery/onnx_switches.py `choose_kept`."""
        from autofix.surgery.onnx_qdq import folded_for_qdq
        from autofix.surgery.onnx_switches import choose_kept

        return choose_kept(folded_for_qdq(model), runs, budget, error, keep, per_channel=True, reduce_range=reduce_range, convolutions=True)

    REPAIRS = (Example(CONVOLUTIONS, symptom="too-slow", target={"allow": ["approximate"], "max_error": 0.05}),)
    DECLINES = (
        Evidence(Diagnosis("too-slow", Stage.LATENCY), facts={"operators": {"aten.addmm.default": ""}}),
        Evidence(Diagnosis("over-error-budget", Stage.PARITY, {"error": "0.5"})),
    )
