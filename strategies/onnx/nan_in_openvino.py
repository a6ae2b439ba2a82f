"""Strategy: keep NaN in operators in which OpenVINO loses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.hardware import has_openvino
from autofix.recipe import Fix, Level, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

BOUNDED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return x.clamp(-2.0, 2.0), torch.relu(x), torch.exp(x), torch.maximum(x, y), torch.minimum(x, y)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(3, 20), torch.randn(3, 20)]


def get_more_inputs():
    torch.manual_seed(1)
    x, y = torch.randn(3, 20), torch.randn(3, 20)
    x[0, 0] = y[1, 1] = float("nan")
    x[0, 1] = y[0, 2] = float("inf")
    return [[x, y]]
"""


class NanInOpenvino(OnnxStrategy):
    """Keep NaN in operators in which OpenVINO loses it.

    When it helps: a file that is right in ONNX Runtime differs in OpenVINO where an input holds NaN: its Clip, Relu, Max, Min and Exp take the other
    operand, or infinity, in place of NaN.

    Why it is safe: each operator's own value is chosen unless its operand is NaN, and NaN then.
    """

    treats = ("mismatch-nonfinite",)
    prior = 0.6

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("openvino_runtime") and not evidence.recipe.has("nan_in_openvino"):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        from autofix.surgery.onnx_nan_openvino import OPENVINO_NAN_FORMS
        from autofix.surgery.onnx_nodes import replace_nodes

        if not replace_nodes(model, OPENVINO_NAN_FORMS):
            raise NothingToDo("no operator loses NaN")
        return model

    REPAIRS = (
        (Example(BOUNDED, symptom="mismatch-nonfinite", start=(Fix("openvino_runtime", Level.RUNTIME),)),)
        if has_openvino()
        else (Example(BOUNDED, symptom=""),)
    )
    DECLINES = (
        Diagnosis("mismatch-nonfinite", Stage.PARITY),
        Evidence(
            Diagnosis("mismatch-nonfinite", Stage.PARITY),
            recipe=Recipe((Fix("nan_in_openvino", OnnxStrategy.level), Fix("openvino_runtime", Level.RUNTIME))),
        ),
    )
