"""Strategy: ONNX Runtime's fusions for transformers, written into the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

BLOCK = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 8)
        self.n = nn.LayerNorm(8)

    def forward(self, x):
        return self.n(x + self.b(torch.nn.functional.gelu(self.a(x))))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 8)]


dynamic_shapes = {"x": {0: "batch"}}
"""
FUSIONS = ("attention", "gelu", "layer_norm", "embed_layer_norm", "skip_layer_norm", "bias_gelu", "bias_skip_layer_norm")


class FuseTransformer(OnnxStrategy):
    """Write fused operators (Attention, BiasGelu, LayerNormalization, ...) into the file.

    When it helps: a transformer misses the latency target; each fusion can be switched on alone, since some cost time
    (SkipLayerNormalization: 4 to 6 % on BERT on CPU).
    Why it is safe: onnxruntime.transformers only replaces subgraphs that compute the same; approximations of GELU stay off.
    The file then needs ONNX Runtime's own operators (domain com.microsoft).
    """

    treats = ("too-slow",)
    prior = 0.08
    cost = 2.0

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("fuse_transformer"):
            return
        names = " ".join(evidence.operators)
        attends = "scaled_dot_product" in names or "softmax" in names
        if "layer_norm" in names and (attends or "gelu" in names):
            if attends:
                yield self.fix(fusions=["attention", "gelu", "layer_norm", "bias_gelu"])
            if "gelu" in names:
                yield self.fix(fusions=["gelu", "bias_gelu"])
            yield self.fix(fusions=["gelu", "layer_norm", "bias_gelu", "skip_layer_norm", "bias_skip_layer_norm"])

    @staticmethod
    def apply(model: Any, *, fusions: list[str]) -> Any:
        from onnx.helper import make_opsetid
        from onnxruntime.transformers.fusion_options import FusionOptions
        from onnxruntime.transformers.optimizer import optimize_by_fusion

        options = FusionOptions("bert")
        for name in FUSIONS:
            setattr(options, f"enable_{name}", name in fusions)
        options.enable_gelu_approximation = False
        before = [n.op_type for n in model.graph.node]
        names = [o.name for o in model.graph.output], [i.name for i in model.graph.input]
        fused = optimize_by_fusion(model, "bert", 0, 0, options).model
        if [n.op_type for n in fused.graph.node] == before:
            raise NothingToDo("no subgraph matches")
        if ([o.name for o in fused.graph.output], [i.name for i in fused.graph.input]) != names:
            raise NothingToDo("the fusion would change the file's inputs or outputs")
        if not any(o.domain == "com.microsoft" for o in fused.opset_import):
            fused.opset_import.append(make_opsetid("com.microsoft", 1))
        return fused

    REPAIRS = (Example(BLOCK, symptom="too-slow", fix={"fusions": ["gelu", "bias_gelu"]}, start=(Fix("capture_trace", OnnxStrategy.level.CONFIG),)),)
    DECLINES = (Diagnosis("too-slow", Stage.LATENCY),)
