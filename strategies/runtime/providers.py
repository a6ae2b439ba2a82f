"""Strategy: an accelerator that the installed ONNX Runtime offers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.hardware import onnxruntime_providers
from autofix.recipe import Fix
from autofix.session import SessionSettings
from autofix.strategy import Evidence, Example, RuntimeStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

LAYER = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        return self.a(x)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 8)]
"""
ACCELERATORS = (
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "ROCMExecutionProvider",
    "MIGraphXExecutionProvider",
    "DmlExecutionProvider",
    "CoreMLExecutionProvider",
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "XnnpackExecutionProvider",
)
"""Execution providers other than the default one, those that usually gain most first; Azure's calls a service and is none."""


class Providers(RuntimeStrategy):
    """Run the file on another execution provider that the installed ONNX Runtime offers, with the CPU for what that lacks.

    When it helps: the machine has an accelerator and ONNX Runtime was built for it; others are never proposed.
    Why it is safe: the file is the same, and the parity gate runs it on that very provider, on every input set. The provider is stored in
    session.json.
    """

    treats = ("too-slow",)
    group = "providers"
    prior = 0.3
    cost = 5.0

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("providers") or evidence.recipe.has("openvino_runtime"):
            return
        offered = onnxruntime_providers()
        for name in ACCELERATORS:
            if name in offered:
                yield self.fix(provider=name)

    @staticmethod
    def apply(settings: SessionSettings, *, provider: str) -> SessionSettings:
        if provider in settings.providers:
            raise NothingToDo(f"{provider} is used already")
        return replace(settings, providers=(provider, "CPUExecutionProvider"))

    REPAIRS = (Example(LAYER, symptom=""),)
    DECLINES = (Diagnosis("invalid-graph", Stage.CHECK),)
