"""Strategy: treat NaN, infinity and empty sets as PyTorch does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

PEAKS = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return x.amax(-1), x.argmin(-1), x.clamp(min=-1.0), torch.sign(x), F.max_pool1d(x, 2)


def get_inputs():
    return [torch.tensor([[1.0, 2.0, 3.0, float("nan")], [0.5, float("inf"), -2.0, 0.0]])]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    nan = float("nan")
    return [[torch.tensor([[nan, 2.0, 3.0, nan]])], [torch.tensor([[1.0, nan, 3.0, 5.0], [4.0, 3.0, -float("inf"), 1.0], [nan, nan, nan, nan]])]]
"""


WARPS = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, grid):
        modes = [(m, p) for m in ("bilinear", "nearest", "bicubic") for p in ("zeros", "border", "reflection")]
        return tuple(F.grid_sample(x, grid, m, p, align_corners=a) for m, p in modes for a in (True, False))


def get_inputs():
    return [torch.randn(1, 2, 5, 6), torch.rand(1, 2, 4, 2) * 3 - 1.5]


def get_more_inputs():
    n, i = float("nan"), float("inf")
    return [[torch.randn(1, 2, 5, 6), torch.tensor([[[[n, 0.3], [0.2, n], [n, n], [i, 0.1]], [[0.1, -i], [5.0, -7.0], [i, -i], [n, i]]]])]]
"""


class NanAsTorch(OnnxStrategy):
    """Rewrite operators that pass over NaN, lose infinity or call the mean of nothing 0.

    When it helps: results differ where an input holds NaN or infinity, or where a reduced axis is empty: ONNX Runtime's
    ReduceMax, ReduceMin, ArgMax, ArgMin and MaxPool pass over NaN, Clip with one bound makes infinity the largest float,
    Sign keeps NaN, ReduceMean of nothing gives 0, GridSample takes coordinates that are NaN or infinite for 0.
    Why it is safe: for finite values and sets that are not empty each form has the operator's own value; the rest is
    what PyTorch documents and gives (NaN wins a maximum and its index is the first one's).
    """

    treats = ("mismatch-nonfinite", "mismatch-at-other-values", "mismatch-at-other-sizes", "mismatch-at-example")
    prior = 0.3

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("nan_as_torch"):
            return
        words = ("max", "min", "clamp", "sign", "mean", "pool", "hardtanh", "relu6", "var", "std", "norm", "grid_sampler")
        if evidence.diagnosis.symptom == "mismatch-nonfinite" or any(word in name for name in evidence.operators for word in words):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        from autofix.surgery.onnx_nan import NAN_FORMS
        from autofix.surgery.onnx_nodes import replace_nodes

        if not replace_nodes(model, NAN_FORMS):
            raise NothingToDo("no operator treats NaN differently")
        return model

    REPAIRS = (Example(PEAKS, symptom="mismatch-nonfinite"), Example(WARPS, symptom="mismatch-nonfinite"))
    DECLINES = (Evidence(Diagnosis("mismatch-nonfinite", Stage.PARITY), recipe=Recipe((Fix("nan_as_torch", OnnxStrategy.level),))),)
