"""Strategy: switch one of ONNX Runtime's optimisers off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Level
from autofix.session import SessionSettings
from autofix.strategy import Evidence, Example, RuntimeStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

RESIDUAL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.n = nn.LayerNorm(8)

    def forward(self, x):
        return self.n(x + self.a(x))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 8)]
"""
SLOW_FUSIONS = (("layer_norm", "SkipLayerNormFusion"),)
"""(part of an operator's name, optimiser): fusions that were measured to cost time on CPU."""
QUANTIZED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        q = torch.fake_quantize_per_tensor_affine(x, 0.05, 3, 0, 255)
        return torch.fake_quantize_per_tensor_affine(q.softmax(-1), 1 / 255, 0, 0, 255)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(16, 5)]
"""


class DisableOrtOptimizer(RuntimeStrategy):
    """Switch one optimiser of ONNX Runtime off by name and keep the others.

    When it helps: one fusion changes values or makes a graph that does not run, and the trial found out which (see optimizers.py); or one
    costs time. The rest are worth keeping.
    Why it is safe: an optimiser only changes how the runtime computes the same graph. The name is stored in session.json beside
    the file, and has to be set by whoever opens it.
    """

    treats = (
        "too-slow",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
        "dtype-mismatch",
        "shape-mismatch",
        "run-error",
        "run-error-at-other-values",
        "run-error-at-other-sizes",
        "invalid-graph",
        "no-kernel",
    )
    prior = 0.8

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("graph_level"):
            return
        if evidence.diagnosis.symptom == "too-slow":
            names = [o for part, o in SLOW_FUSIONS if any(part in name for name in evidence.operators)]
        else:
            names = [evidence.fact("optimizers")] if evidence.fact("optimizers") else []
        for optimizer in dict.fromkeys(names):
            fix = self.fix(optimizer=optimizer)
            if fix.key() not in {f.key() for f in evidence.recipe.fixes}:
                yield fix

    @staticmethod
    def apply(settings: SessionSettings, *, optimizer: str) -> SessionSettings:
        names = [n for n in optimizer.split(",") if n not in settings.disabled_optimizers]
        if not names:
            raise NothingToDo(f"{optimizer} is off already")
        return replace(settings, disabled_optimizers=(*settings.disabled_optimizers, *names))

    REPAIRS = (
        Example(RESIDUAL, symptom="too-slow", fix={"optimizer": "SkipLayerNormFusion"}),
        Example(
            QUANTIZED, symptom="mismatch-at-example", fix={"optimizer": "QDQSelectorActionTransformer"}, start=(Fix("capture_trace", Level.CONFIG),)
        ),
    )
    DECLINES = (Diagnosis("too-slow", Stage.LATENCY), Diagnosis("mismatch-at-example", Stage.PARITY))
