"""Strategy: adaptive pooling to any size."""

from __future__ import annotations

from collections.abc import Iterator

from autofix.program import CapturePlan
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

PYRAMID = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AdaptiveMaxPool2d((3, 2))

    def forward(self, x):
        area = F.interpolate(x, size=(3, 4), mode="area"), F.interpolate(x, scale_factor=0.7, mode="area")
        return self.pool(x), F.adaptive_avg_pool2d(x, (None, 3)), F.adaptive_avg_pool1d(x.flatten(2), 4), *area


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(1, 2, 10, 7)]


dynamic_shapes = {"x": {0: "batch", 2: "h", 3: "w"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(2, 2, 5, 11)], [torch.randn(1, 2, 4, 3)]]
"""

TO_SIZES = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, guide):
        small, where = F.adaptive_max_pool2d(x, guide.shape[-2:], return_indices=True)
        return small * guide, where, F.adaptive_avg_pool1d(x.flatten(2), x.shape[-1] // 2)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(1, 2, 10, 7), torch.randn(1, 2, 4, 3)]


dynamic_shapes = {"x": {3: "w"}, "guide": {2: "rows"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(1, 2, 10, 11), torch.randn(1, 2, 5, 3)], [torch.randn(1, 2, 10, 6), torch.randn(1, 2, 3, 3)]]
"""


class AdaptivePool(ProgramStrategy):
    """Write adaptive pooling as windows whose bounds are computed from the size.

    When it helps: the output size does not divide the input size, or one of both is dynamic; exporters refuse that,
    freeze the windows of the example, or gather them number by number.
    Why it is safe: window i runs from floor(i n / m) to ceil((i + 1) n / m), which is what PyTorch's kernels do
    (aten/src/ATen/native/AdaptivePooling.h), computed in the graph for every size.
    """

    treats = (
        "unsupported-operator",
        "axis-specialized",
        "axis-fixed",
        "capture-error",
        "convert-error",
        "decompose-error",
        "data-dependent-size",
        "data-dependent-branch",
        "baked-value",
        "shape-mismatch",
        "run-error",
        "run-error-at-other-sizes",
        "mismatch-at-example",
        "mismatch-at-other-sizes",
        "too-slow",
    )
    prior = 0.7

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if any("adaptive" in name for name in [*evidence.operators, *(m.lower() for m in evidence.modules)]) and not evidence.recipe.has(
            "adaptive_pool"
        ):
            yield self.fix()

    @staticmethod
    def apply(plan: CapturePlan) -> CapturePlan:
        import torch
        import torch.nn.functional as F

        from autofix.surgery.modules_pool import (
            adaptive_avg_pool1d_any,
            adaptive_avg_pool2d_any,
            adaptive_avg_pool3d_any,
            adaptive_max_pool1d_any,
            adaptive_max_pool1d_both,
            adaptive_max_pool2d_any,
            adaptive_max_pool2d_both,
            adaptive_max_pool3d_any,
            adaptive_max_pool3d_both,
            interpolate_area,
        )

        # functional wrappers are swapped as wholes; the operators below them are for direct calls
        plan.overrides |= {
            F.interpolate: interpolate_area(plan.overrides.get(F.interpolate, F.interpolate)),
            torch.adaptive_avg_pool1d: adaptive_avg_pool1d_any,
            F.adaptive_avg_pool2d: adaptive_avg_pool2d_any,
            F.adaptive_avg_pool3d: adaptive_avg_pool3d_any,
            torch._C._nn.adaptive_avg_pool2d: adaptive_avg_pool2d_any,
            torch._C._nn.adaptive_avg_pool3d: adaptive_avg_pool3d_any,
            F.adaptive_max_pool1d: adaptive_max_pool1d_any,
            F.adaptive_max_pool2d: adaptive_max_pool2d_any,
            F.adaptive_max_pool3d: adaptive_max_pool3d_any,
            F.adaptive_max_pool1d_with_indices: adaptive_max_pool1d_both,
            F.adaptive_max_pool2d_with_indices: adaptive_max_pool2d_both,
            F.adaptive_max_pool3d_with_indices: adaptive_max_pool3d_both,
            torch.adaptive_max_pool1d: adaptive_max_pool1d_both,
            torch._C._nn.adaptive_max_pool2d: adaptive_max_pool2d_both,
            torch._C._nn.adaptive_max_pool3d: adaptive_max_pool3d_both,
        }
        return plan

    REPAIRS = (Example(PYRAMID, symptom="unsupported-operator"), Example(TO_SIZES, symptom="axis-specialized"))
    DECLINES = (
        Diagnosis("unsupported-operator", Stage.CONVERT),
        Evidence(
            Diagnosis("unsupported-operator", Stage.CONVERT),
            facts={"operators": {"aten.adaptive_max_pool2d.default": ""}},
            recipe=Recipe((Fix("adaptive_pool", ProgramStrategy.level),)),
        ),
    )
