"""Strategy: dynamic quantisation to 8 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
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

    def forward(self, x):
        return self.a(x)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 64)]
"""


class DynamicInt8(OnnxStrategy):
    """Store weights of matrix products and LSTMs in 8 bits and quantise their inputs as they come.

    When it helps: a latency target is missed by a wide margin, and an error of one or two per cent is acceptable: measured 1.8x to 2x
    on BERT, 3.2x on LSTMs. Convolutions are left out: their 8-bit form is slower.
    Why it is safe: it is not exact; the effect is APPROXIMATE, and what error it makes stands in the log. The range is
    reduced to 7 bits, because products of 8-bit numbers saturate on processors without VNNI (12.7 % error on an LSTM, 0.7 % so).
    """

    treats = ("too-slow",)
    effect = Effect.APPROXIMATE
    prior = 0.3
    cost = 3.0

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        names = " ".join(evidence.operators)
        products = any(word in names for word in ("addmm", "linear", "matmul", ".mm.", "bmm", "lstm"))
        if products and not evidence.recipe.has("dynamic_int8") and not evidence.recipe.has("half_precision"):
            yield self.fix(per_channel="lstm" not in names)

    @staticmethod
    def apply(model: Any, *, per_channel: bool) -> Any:
        import tempfile
        from pathlib import Path

        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        kinds = ["MatMul", "Gemm", "LSTM", "Attention"]
        if not any(n.op_type in kinds for n in model.graph.node):
            raise NothingToDo("nothing to quantise")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "int8.onnx"
            quantize_dynamic(model, path, op_types_to_quantize=kinds, per_channel=per_channel, reduce_range=True, weight_type=QuantType.QInt8)
            quantized = onnx.load(str(path))
        if len(quantized.graph.node) == len(model.graph.node):
            raise NothingToDo("no weight is constant")
        return quantized

    REPAIRS = (Example(LAYERS, symptom="too-slow", target={"allow": ["approximate"], "rtol": 1.0, "atol": 20.0}),)
    DECLINES = (Evidence(Diagnosis("too-slow", Stage.LATENCY), facts={"operators": {"aten.conv2d.default": ""}}),)
