"""Strategy: run the same file in OpenVINO."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.hardware import has_openvino
from autofix.recipe import Fix
from autofix.session import SessionSettings
from autofix.strategy import Evidence, Example, RuntimeStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

CONVOLUTION = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return torch.relu(self.a(x))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 8, 8)]


dynamic_shapes = {"x": {0: "batch"}}
"""


class OpenvinoRuntime(RuntimeStrategy):
    """Run the same file in OpenVINO instead of ONNX Runtime.

    When it helps: OpenVINO compiles chains of element-wise operators into one loop and has faster kernels for cubic sampling, permutations and
    some convolutions; the package must be installed (`pip install autofix-onnx[openvino]`), or nothing is proposed.
    Why it is safe: the file is the same, it computes in float32 (no bfloat16 hint), and the parity gate runs OpenVINO itself on every input set.
    The runtime is stored in session.json; `autofix.load` opens the file in it.
    """

    treats = ("too-slow",)
    group = "fused loops"
    prior = 0.08
    cost = 5.0

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if has_openvino() and not evidence.recipe.has("openvino_runtime") and not evidence.recipe.has("providers"):
            yield self.fix()

    @staticmethod
    def apply(settings: SessionSettings) -> SessionSettings:
        if settings.runtime == "openvino":
            raise NothingToDo("OpenVINO runs it already")
        return replace(SessionSettings(), runtime="openvino")  # the others are ONNX Runtime's

    REPAIRS = (Example(CONVOLUTION, symptom="too-slow"),) if has_openvino() else (Example(CONVOLUTION, symptom=""),)
    DECLINES = (Diagnosis("invalid-graph", Stage.CHECK),)
