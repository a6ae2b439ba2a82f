"""Strategy: run chains of element-wise operators block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

LEAST_SECONDS = 1e-3
"""Eager seconds of a call below which no tensor is large enough."""

CHAIN = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(-1, 1, 64).view(64, 1, 1))
        self.gain = nn.Parameter(torch.linspace(1, 2, 60))

    def forward(self, x, y):
        angle = torch.where(torch.isnan(x / y), y * 3, x / y)
        wave = torch.exp(-torch.abs(x + self.bias)) * self.gain + torch.atan(angle)
        near = (wave > 0.5) & (y < 1)
        return wave, torch.where(near, wave, y) - wave.mean(-1, keepdim=True), (wave * wave).sum((-1, -2))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 64, 50, 60), torch.randn(2, 64, 50, 60)]


def get_more_inputs():
    torch.manual_seed(1)
    x, y = torch.randn(2, 64, 50, 60), torch.randn(2, 64, 50, 60)
    x[0, 3, 4, 5] = y[0, 3, 4, 5] = 0.0
    x[1, 2, 2, 2] = float("nan")
    return [[x, y]]
"""

ROWS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(-x) * torch.abs(x) + 1.0


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(160, 80, 100)]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(1, 80, 100)], [torch.randn(7, 80, 100)]]
"""


class RunInBlocks(OnnxStrategy):
    """Run chains of element-wise operators block by block, so that what they hand on stays in the processor's cache.

    When it helps: three and more element-wise operators, and sums along inner axes, one after the other on tensors of several hundred thousand
    numbers: ONNX Runtime runs each over the whole tensor, which goes through memory each time.

    Why it is safe: the same nodes on the same numbers, cut along axes that none of them joins; a number that is chosen only in place of NaN is worked
    out only for blocks that hold NaN. It comes last in a recipe, because other fixes do not look into the Scan that it writes.
    """

    treats = ("too-slow",)
    group = "fused loops"
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        short = 0 < float(evidence.facts.get("eager_seconds", 0)) < LEAST_SECONDS
        if not short and not any(evidence.recipe.has(name) for name in ("run_in_blocks", "openvino_runtime")):
            yield self.fix(last=True)

    @staticmethod
    def apply(model: Any, *, last: bool = True) -> Any:
        from autofix.surgery.onnx_blocks import run_in_blocks

        if not run_in_blocks(model):
            raise NothingToDo("no chain of element-wise operators is long and large enough")
        return model

    REPAIRS = (Example(CHAIN, symptom="too-slow"), Example(ROWS, symptom="too-slow"))
    DECLINES = (
        Evidence(Diagnosis("too-slow", Stage.LATENCY), facts={"eager_seconds": 1e-4}),
        Evidence(Diagnosis("too-slow", Stage.LATENCY), recipe=Recipe((Fix("run_in_blocks", OnnxStrategy.level, {"last": True}),))),
    )
