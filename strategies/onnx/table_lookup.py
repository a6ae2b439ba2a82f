"""Strategy: read tables by Gather where the file multiplies one-hot rows or gathers single numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

ONE_HOT = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(40, 8))
        self.layer = nn.Linear(40, 6)
        with torch.no_grad():
            self.table[3, 2] = -0.0

    def forward(self, ids, places):
        rows = F.one_hot(ids, 40).float()
        near = (places.unsqueeze(-1) == torch.arange(40)).float()  # a place outside has no 1
        marked = torch.zeros(*ids.shape, 40).scatter(-1, ids.unsqueeze(-1), 1.0)
        flat = rows.reshape(-1, 40) @ self.table
        return rows @ self.table, self.layer(near), torch.einsum("bsv,dv->bsd", marked, self.layer.weight), flat


def get_inputs():
    torch.manual_seed(0)
    return [torch.randint(0, 40, (2, 5)), torch.randint(0, 40, (2, 5))]


dynamic_shapes = {"ids": {0: "batch", 1: "time"}, "places": {0: "batch", 1: "time"}}


def get_more_inputs():
    return [[torch.tensor([[3, 39, 0]]), torch.tensor([[-1, 40, 39]])]]
"""

BLOCKS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(40, 8))

    def forward(self, ids, own, x, fixed):
        wide = ids.unsqueeze(-1).expand(-1, -1, 8)
        shared = self.table.unsqueeze(0).expand(ids.shape[0], -1, -1).gather(1, wide)
        flat = self.table.gather(0, ids.reshape(-1, 1).expand(-1, 8)) + self.table.expand(ids.shape[0], -1, -1).gather(1, wide)[0, 0]
        return shared, flat, x.gather(1, own.unsqueeze(-1).expand(-1, -1, 8)), torch.take_along_dim(self.table[None], fixed.unsqueeze(-1), 1)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randint(0, 40, (2, 5)), torch.randint(0, 3, (2, 2)), torch.randn(2, 3, 8), torch.randint(0, 40, (2, 4))]


dynamic_shapes = {"ids": {0: "batch", 1: "time"}, "own": {0: "rows"}, "x": {0: "rows"}}
"""

NEAR_MISS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(40, 8))

    def forward(self, ids, several):
        shifted = (ids.unsqueeze(-1) == torch.arange(1, 41)).float()
        many = (several.unsqueeze(1) == torch.arange(40).unsqueeze(-1)).any(-1).float()
        return shifted @ self.table, many @ self.table, self.table.gather(0, several)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randint(0, 40, (2, 5)), torch.randint(0, 40, (3, 8))]
"""


class TableLookup(OnnxStrategy):
    """Read tables by Gather where the file multiplies one-hot rows with them, or gathers their rows number by number.

    When it helps: an embedding written as one_hot(ids) @ table, as a comparison with arange, as ones scattered into zeros, or as torch.gather with
    expanded indices: tens to thousands of times slower than a look-up. Batches of rows (take_along_dim, x.gather(1, ids.expand)) become GatherND.
    Why it is safe: a product of a one-hot row with a table that is finite, constant and float is one of its rows, to the last bit; ids outside
    get a row of zeros, as they do in the product. Gathers are taken only where their indices repeat along all later axes.
    """

    treats = ("too-slow",)
    prior = 0.5

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has(self.name):
            return
        kinds = set(evidence.fact("op_types").split(",")) - {""}
        names = " ".join(evidence.operators)
        multiplies = bool(kinds & {"MatMul", "Gemm", "Einsum"}) and bool(kinds & {"OneHot", "Equal", "ScatterElements"})
        told = any(part in names for part in ("one_hot", "gather", "take_along_dim", "scatter"))
        if "GatherElements" in kinds or multiplies or (not kinds and told):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        from autofix.surgery.onnx_lookup import write_lookups

        if not write_lookups(model):
            raise NothingToDo("no table is read by products or by single numbers")
        return model

    REPAIRS = (Example(ONE_HOT, symptom="too-slow"), Example(BLOCKS, symptom="too-slow"))
    DECLINES = (
        Diagnosis("too-slow", Stage.LATENCY, {"op_types": "MatMul,Add"}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY, {"op_types": "GatherElements"}), recipe=Recipe((Fix("table_lookup", OnnxStrategy.level),))),
    )
