"""Strategy: switch one of ONNX Runtime's optimisers off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix
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
RISKY_FUSIONS = (
    ("fake_quantize", "QDQSelectorActionTransformer"),
    ("quantize", "QDQSelectorActionTransformer"),
    ("clamp", "ClipQuantFusion"),
    ("hardtanh", "ClipQuantFusion"),
    ("relu", "ReluQuantFusion"),
    ("gelu", "GeluFusionL2"),
    ("layer_norm", "LayerNormFusionL2"),
    ("softmax", "AttentionFusion"),
    ("batch_norm", "ConvBNFusion"),
    ("conv", "ConvAddFusion"),
    ("_to_copy", "InsertCastTransformer"),
)
"""(part of an operator's name, optimiser): rewrites that touch it."""


class DisableOrtOptimizer(RuntimeStrategy):
    """Switch one optimiser of ONNX Runtime off by name and keep the others.

    When it helps: one fusion costs time or changes values, and the rest are worth keeping.
    Why it is safe: an optimiser only changes how the runtime computes the same graph. The name is stored in session.json beside
    the file, and has to be set by whoever opens it.
    """

    treats = ("too-slow", "mismatch-at-example", "mismatch-at-other-values", "mismatch-at-other-sizes", "run-error", "crash")
    prior = 0.03

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("graph_level"):
            return
        table = SLOW_FUSIONS if evidence.diagnosis.symptom == "too-slow" else RISKY_FUSIONS
        for optimizer in dict.fromkeys(o for part, o in table if any(part in name for name in evidence.operators)):
            fix = self.fix(optimizer=optimizer)
            if fix.key() not in {f.key() for f in evidence.recipe.fixes}:
                yield fix

    @staticmethod
    def apply(settings: SessionSettings, *, optimizer: str) -> SessionSettings:
        if optimizer in settings.disabled_optimizers:
            raise NothingToDo(f"{optimizer} is off already")
        return replace(settings, disabled_optimizers=(*settings.disabled_optimizers, optimizer))

    REPAIRS = (Example(RESIDUAL, symptom="too-slow", fix={"optimizer": "SkipLayerNormFusion"}),)
    DECLINES = (Diagnosis("too-slow", Stage.LATENCY),)
