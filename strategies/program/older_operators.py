"""Write operators that an old opset lacks in operators that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Level
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

WRITTEN_AS = {
    "GridSample": ["aten.grid_sampler.default", "aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default"],
    "Einsum": ["aten.einsum.default"],
}
"""ONNX operator -> the PyTorch operators that are exported as it."""

WARP = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, grid):
        smooth = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
        return smooth, F.grid_sample(x, grid, mode="nearest", align_corners=True)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(1, 2, 5, 6), torch.rand(1, 3, 4, 2) * 2 - 1]


dynamic_shapes = {"x": {0: "batch"}, "grid": {0: "batch"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(3, 2, 5, 6), torch.rand(3, 3, 4, 2) * 2.4 - 1.2]]
"""

SIMILAR = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.einsum("btd,bsd->bts", x, y), torch.einsum("bii->b", x @ y.mT), torch.einsum("...d,d->...", x, y[0, 0])


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 4, 3), torch.randn(2, 4, 3)]


dynamic_shapes = {"x": {0: "batch", 1: "time"}, "y": {0: "batch", 1: "time"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(3, 5, 3), torch.randn(3, 5, 3)]]
"""


class OlderOperators(ProgramStrategy):
    """Compute grid_sample by gathers and weights where the opset is older than GridSample (16), einsum by matrix products where it is older
    than Einsum (12).

    When it helps: an opset was asked for that has no form of an operator, and no rewriting of the finished graph makes one.
    Why it is safe: einsum is carried out as PyTorch's own body does. Places, weights and paddings follow ATen's GridSampler.h; the cubic
    mode is the decomposition that torch ships (torch._decomp.decompositions.grid_sampler_2d).
    """

    treats = ("convert-error",)
    prior = 0.85

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        missing = re.search(r"CantLower: (\w+) (?:does not exist|has no attribute)", evidence.fact("message"))
        if missing and missing.group(1) in WRITTEN_AS and not evidence.recipe.has(self.name):
            yield self.fix(operators=WRITTEN_AS[missing.group(1)])

    @staticmethod
    def apply(plan: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.ops_einsum import EINSUM_DECOMPOSITIONS
        from autofix.surgery.ops_grid import GRID_SAMPLERS

        known = {**GRID_SAMPLERS, **EINSUM_DECOMPOSITIONS}
        added = {name: known[name] for name in operators if name in known}
        if not added:
            raise NothingToDo("none of these operators is known")
        plan.decompositions.update(added)
        return plan

    REPAIRS = (
        Example(
            WARP, symptom="convert-error", fix={"operators": WRITTEN_AS["GridSample"]}, start=(Fix("lower_opset_late", Level.ONNX, {"opset": 13}),)
        ),
        Example(
            SIMILAR, symptom="convert-error", fix={"operators": WRITTEN_AS["Einsum"]}, start=(Fix("lower_opset_late", Level.ONNX, {"opset": 11}),)
        ),
    )
    DECLINES = (Diagnosis("convert-error", Stage.CONVERT, {"message": "CantLower: Det does not exist at opset 10"}),)
