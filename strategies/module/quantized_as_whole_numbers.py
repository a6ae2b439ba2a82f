"""Compute a statically quantized network on whole numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ModuleStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

STATIC_INT8 = """
import torch
from torch import nn
import torch.ao.quantization as tq


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.backends.quantized.engine = "fbgemm"
        net = nn.Sequential(tq.QuantStub(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), tq.DeQuantStub()).eval()
        net.qconfig = tq.get_default_qconfig("fbgemm")
        prepared = tq.prepare(net)
        prepared(torch.randn(64, 4))
        self.net = tq.convert(prepared)

    def forward(self, x):
        return self.net(x)


def get_inputs():
    return [torch.randn(3, 4)]


def get_more_inputs():
    return [[torch.randn(50, 4) * 2]]


dynamic_shapes = {"x": {0: "batch"}}
"""


class QuantizedAsWholeNumbers(ModuleStrategy):
    """Replace quantized Linear, Conv, Quantize and DeQuantize modules by float ones that compute exactly the same whole numbers.

    When it helps: eager-mode static int8 networks, which torch.export refuses and whose traced QDQ form rounds differently.

    Why it is safe: sums of products of 8-bit numbers are exact here, and scaling and rounding follow PyTorch's FBGEMM
    kernels step by step in float32.
    """

    treats = (
        "capture-error",
        "unsupported-operator",
        "unsupported-python",
        "convert-error",
        "data-dependent-size",
        "data-dependent-branch",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
    )
    prior = 0.6

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if any(name in evidence.modules for name in ("Quantize", "DeQuantize")) or any("quantize" in n for n in evidence.operators):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        from autofix.surgery.custom_quantized import quantized_replaced

        if not quantized_replaced(model):
            raise NothingToDo("no quantized module")
        return model

    REPAIRS = (Example(STATIC_INT8, symptom="capture-error", fix={}),)
    DECLINES = (Diagnosis("capture-error", Stage.CAPTURE, {"message": "something else"}),)
