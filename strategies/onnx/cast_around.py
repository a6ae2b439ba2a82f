"""Strategy: another form for every node that ONNX Runtime has no kernel for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

BOOLEAN_SUM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, pad, noise):
        drop = pad + noise
        return drop, drop.sum(1)


def get_inputs():
    return [torch.tensor([[False, False, True, True]]), torch.tensor([[True, False, False, True]])]


dynamic_shapes = {"pad": {0: "batch"}, "noise": {0: "batch"}}


def get_more_inputs():
    return [[torch.zeros(3, 4, dtype=torch.bool), torch.tensor([[True, False, False, True]] * 3)]]
"""

DOUBLE_CONV = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, stride=2, groups=2).double()

    def forward(self, x):
        return F.gelu(self.conv(x))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(1, 2, 7, 6, dtype=torch.float64)]


dynamic_shapes = {"x": {0: "batch", 2: "h", 3: "w"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(2, 2, 8, 5, dtype=torch.float64) * 3]]
"""

PCM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, pcm):
        x = pcm.clamp(-20000, 20000)
        return torch.where(x.abs() < 30, torch.zeros_like(x), x), (x * 3).amax(-1)


def get_inputs():
    return [torch.tensor([[-32768, 5, 100, 20000]], dtype=torch.int16)]


def get_more_inputs():
    return [[torch.tensor([[1, -29, 30, -31]], dtype=torch.int16)]]
"""


TURNED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 6).half()

    def forward(self, x):
        return self.fc(x.half().transpose(0, 1)).float()


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 5, 8)]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(3, 5, 8)]]
"""


def half_precision(evidence: Evidence) -> bool:
    """Whether a model works in half precision, by its inputs, outputs and source."""
    facts = evidence.facts
    kinds = {str(leaf.get("dtype")) for leaf in (*facts.get("inputs", ()), *facts.get("outputs", ()))}
    written = "\n".join(facts.get("sources", {}).values())
    return bool(kinds & {"float16", "bfloat16"}) or re.search(r"\.half\(|\.bfloat16\(|\bfloat16\b|\bbfloat16\b", written) is not None


class CastAround(OnnxStrategy):
    """Give every node that ONNX Runtime has no kernel for a form that it runs.

    When it helps: float64, float16, bfloat16, int8, int16, uint8, uint16 or boolean operators that the runtime does not
    implement, or that ONNX does not define (Add of booleans); products of transposed half precision, on which its optimiser takes the
    process down. All such nodes of the file are changed at once.
    Why it is safe: integers and booleans are computed in a wider integer and cut back, which is exact for sums and products
    modulo 2^n, for choices and for order; half precision is computed in float32 and rounded after each operator, as
    PyTorch's CPU kernels do; double precision is never narrowed: convolutions become matrix products, LSTMs become
    scans, special functions are composed from double kernels (erf after W. J. Cody, Math. Comp. 23, 1969).
    """

    treats = ("no-kernel", "invalid-graph", "run-error", "crash")
    prior = 0.7

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("cast_around") or "ShapeInferenceError" in evidence.fact("message"):
            return  # a shape that does not fit is no matter of types
        if evidence.diagnosis.symptom != "crash":
            yield self.fix()
        elif evidence.diagnosis.stage >= Stage.RUN and half_precision(evidence):
            yield self.fix(wide_products=True)

    @staticmethod
    def apply(model: Any, *, wide_products: bool = False) -> Any:
        from autofix.surgery.onnx_casts import repair_kernels

        if not repair_kernels(model, wide_products):
            raise NothingToDo("ONNX Runtime has a kernel for every node")
        return model

    REPAIRS = (
        Example(BOOLEAN_SUM, symptom="invalid-graph"),
        Example(DOUBLE_CONV, symptom="no-kernel"),
        Example(PCM, symptom="invalid-graph"),
        Example(TURNED, symptom="crash", fix={"wide_products": True}),
    )
    DECLINES = (Evidence(Diagnosis("no-kernel", Stage.CHECK), recipe=Recipe((Fix("cast_around", OnnxStrategy.level),))),)
