"""Strategy: float16 inside the file."""

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
        self.a = nn.Linear(16, 16)

    def forward(self, x):
        return torch.tanh(self.a(x))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 16)]
"""


class HalfPrecision(OnnxStrategy):
    """Compute in float16; inputs and outputs keep their types.

    When it helps: on hardware with float16 arithmetic. On a CPU without it nothing is gained but size.
    Why it is safe: it is not exact; the effect is APPROXIMATE (3 to 4 digits), the error is measured against float32 eager PyTorch on real inputs
    and must keep within `--max-error`.
    """

    treats = ("too-slow",)
    effect = Effect.APPROXIMATE
    group = "arithmetic"
    prior = 0.04
    cost = 2.0

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if target.allows(Effect.APPROXIMATE) and target.max_error is None:
            return
        if not any(evidence.recipe.has(name) for name in ("dynamic_int8", "static_qdq", "half_precision")):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        from onnxruntime.transformers.float16 import convert_float_to_float16
        from onnxruntime.transformers.onnx_model import OnnxModel

        if not any(t.data_type == 1 for t in model.graph.initializer):
            raise NothingToDo("no float32 weight")
        half = OnnxModel(convert_float_to_float16(model, keep_io_types=True))
        half.topological_sort()  # the conversion appends its casts at the end
        return half.model

    REPAIRS = (Example(LAYERS, symptom="too-slow", target={"allow": ["approximate"], "max_error": 0.01}),)
    DECLINES = (Diagnosis("invalid-graph", Stage.CHECK),)
