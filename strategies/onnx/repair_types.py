"""Strategy: make element types agree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

HALF_SUM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, votes):
        return (votes * 2).sum(1), votes.cumsum(0)


def get_inputs():
    return [torch.tensor([[1, 2, 0], [0, 1, 2]]).half()]


dynamic_shapes = {"votes": {0: "batch"}}


def get_more_inputs():
    return [[torch.tensor([[1, 2, 4]] * 3).half()]]
"""

NIBBLES = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, packed):
        return torch.stack([packed >> 4, packed & 15], -1)


def get_inputs():
    return [torch.tensor([[0x12, 0xF4], [0x56, 0x87]], dtype=torch.uint8)]


dynamic_shapes = {"packed": {0: "rows"}}


def get_more_inputs():
    return [[torch.tensor([[0xFF, 0x00], [0x80, 0x7F]], dtype=torch.uint8)]]
"""


class RepairTypes(OnnxStrategy):
    """Cast operands of one operator to their promoted type, and outputs to PyTorch's element type.

    When it helps: the exporter gave a value another element type than PyTorch (a sum of float16 in float32, a shifted
    uint8 as int8, indices in 32 bits), so that the file does not load or an output has the wrong type.
    Why it is safe: operands are promoted as PyTorch promotes them; an output is cast to the type that eager gave, which
    rounds once. Values are verified as always.
    """

    treats = ("dtype-mismatch", "invalid-graph", "no-kernel")
    prior = 0.5

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        message = evidence.fact("message")
        if evidence.recipe.has("repair_types"):
            return
        whole = re.search(r"Type 'tensor\(u?int(8|16|32)\)' of input parameter .* is invalid", message)
        told = whole or "bound to different types" in message or "does not match expected type" in message
        if evidence.diagnosis.symptom == "dtype-mismatch" or told:
            expected = {str(o.get("name")): str(o.get("dtype")) for o in evidence.facts.get("outputs", ())}
            yield self.fix(outputs=expected)

    @staticmethod
    def apply(model: Any, *, outputs: dict[str, str]) -> Any:
        from onnx import TensorProto

        from autofix.surgery.onnx_repair_types import repair_types

        codes = {
            "float32": TensorProto.FLOAT,
            "float64": TensorProto.DOUBLE,
            "float16": TensorProto.FLOAT16,
            "bfloat16": TensorProto.BFLOAT16,
            **{
                name: getattr(TensorProto, name.upper())
                for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
            },
        }
        if not repair_types(model, {name: codes[dtype] for name, dtype in outputs.items() if dtype in codes}):
            raise NothingToDo("all element types agree")
        return model

    REPAIRS = (Example(HALF_SUM, symptom="dtype-mismatch"), Example(NIBBLES, symptom="invalid-graph"))
    DECLINES = (
        Diagnosis("invalid-graph", Stage.CHECK, {"message": "Nodes in a graph must be topologically sorted"}),
        Evidence(Diagnosis("dtype-mismatch", Stage.PARITY), recipe=Recipe((Fix("repair_types", OnnxStrategy.level),))),
    )
