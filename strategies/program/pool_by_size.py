"""Strategy: pooling whose windows are as large as a size or a value says, by gathered windows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

POOLS = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        h, w = x.shape[-2:]
        mean = F.avg_pool2d(x, (h // 2, w // 3), ceil_mode=True)
        return mean, F.max_pool2d(x, kernel_size=h // 2, stride=2, padding=h // 8)


def get_inputs():
    return [torch.linspace(-2, 2, 192).cos().reshape(2, 1, 8, 12)]


def get_more_inputs():
    return [[torch.linspace(-9, 4, 140).sin().reshape(1, 1, 10, 14)], [torch.linspace(-5, 4, 99).sin().reshape(1, 1, 9, 11)]]


dynamic_shapes = {"x": {0: "batch", 2: "h", 3: "w"}}
"""


class PoolBySize(ProgramStrategy):
    """Write average and maximum pooling with kernels, strides or paddings that depend on sizes as sums and maxima of gathered windows.

    When it helps: avg_pool2d(x, (h // 2, w // 2)), a pyramid of such poolings, max_pool1d of an axis that shrinks in a loop: torch takes plain
    integers only, which turns dynamic axes into constants. Why it is safe: the windows hold the same entries (Pool.h's number of windows, padding as
    zeros or as the lowest number) and the divisor counts them as AvgPoolKernel.cpp does; calls with plain integers are passed on.
    """

    treats = ("axis-specialized", "axis-fixed", "mismatch-at-other-sizes", "run-error-at-other-sizes", "data-dependent-size", "capture-error")
    prior = 0.6

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        text = "\n".join(evidence.facts.get("sources", {}).values())
        told = " ".join(str(evidence.diagnosis.facts.get(name, "")) for name in ("code", "own_code", "library_code", "pinned", "message"))
        if "_pool" in told and re.search(r"(?<!adaptive_)(avg|max)_pool[123]d\(|(Avg|Max)Pool[123]d\(", text) and not evidence.recipe.has(self.name):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.ops_pool_windows import pool_overrides

        for table in pool_overrides().values():
            plan.overrides.update(table)
        return plan

    REPAIRS = (Example(POOLS, "mismatch-at-other-sizes"),)
    DECLINES = (Diagnosis("axis-specialized", Stage.CAPTURE, {}),)
