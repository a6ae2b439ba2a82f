"""Strategy: another optimisation level of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Level
from autofix.session import SessionSettings
from autofix.strategy import Evidence, Example, RuntimeStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

BLOCK = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.n = nn.LayerNorm(8)

    def forward(self, x):
        return self.n(x + torch.nn.functional.gelu(self.a(x)))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 8)]
"""


class GraphLevel(RuntimeStrategy):
    """Open the file at another graph optimisation level.

    When it helps: ONNX Runtime's optimiser takes the process down, or changes values in a way that no single optimiser accounts for
    (those that do are switched off by name); or a fusion costs time
    (SkipLayerNormalization: 4 to 6 % on encoders whose normalisation comes last, measured on CPU).
    Why it is safe: the levels only say how the runtime rewrites the graph for itself; the file is the same. The level is stored
    in session.json beside the file, and has to be set by whoever opens it.
    """

    treats = (
        "too-slow",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
        "run-error",
        "run-error-at-other-sizes",
        "run-error-at-other-values",
        "crash",
    )
    group = "graph level"
    prior = 0.25

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("openvino_runtime"):
            return
        if evidence.recipe.has("graph_level"):
            if evidence.diagnosis.symptom == "too-slow" and self.fix(level="ALL").key() not in {f.key() for f in evidence.recipe.fixes}:
                yield self.fix(level="ALL")  # what a low level cost once more
            return
        if evidence.diagnosis.symptom == "too-slow":
            if not any("conv" in name for name in evidence.operators):  # the layouts for convolutions belong to level ALL alone
                yield self.fix(level="BASIC")
                yield self.fix(level="EXTENDED")
            return
        by_name = evidence.fact("optimizers")  # see disable_ort_optimizer
        if evidence.diagnosis.symptom == "crash" or (evidence.fact("cause") == "graph-optimization" and not by_name):
            yield self.fix(level="BASIC")
            yield self.fix(level="DISABLE_ALL")

    @staticmethod
    def apply(settings: SessionSettings, *, level: str) -> SessionSettings:
        if settings.level == level != "ALL":  # ALL leads a recipe back from another level
            raise NothingToDo(f"the level is {level} already")
        return replace(settings, level=level)

    REPAIRS = (
        Example(BLOCK, symptom="too-slow", fix={"level": "BASIC"}),
        Example(BLOCK, symptom="too-slow", fix={"level": "ALL"}, start=(Fix("graph_level", Level.RUNTIME, {"level": "DISABLE_ALL"}),)),
    )
    DECLINES = (Evidence(Diagnosis("too-slow", Stage.LATENCY), facts={"operators": {"aten.conv2d.default": ""}}),)
