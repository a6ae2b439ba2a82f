"""Write adaptive pooling, interpolation and sampling grids as gathers, for sizes that are known at run time only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.surgery.ops_proposal import operators_to_replace
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

POOLS = ("aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d") + tuple(
    f"aten.adaptive_{kind}_pool{d}d" for kind in ("avg", "max") for d in (1, 2, 3)
)
RESIZES = tuple(f"aten.{name}{d}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for d in (1, 2, 3)) + (
    "aten.upsample_linear1d",
    "aten.upsample_bilinear2d",
    "aten.upsample_trilinear3d",
    "aten.upsample_bicubic2d",
    "aten._upsample_bilinear2d_aa",
    "aten._upsample_bicubic2d_aa",
)
OPERATORS = (
    *(f"{name}.default" for name in POOLS),
    *(f"{name}.{overload}" for name in RESIZES for overload in ("default", "vec")),
    "aten.affine_grid_generator.default",
    "aten.fractional_max_pool2d.default",
    "aten.fractional_max_pool3d.default",
    "aten.grid_sampler_3d.default",
)
SAMPLERS = ("aten.grid_sampler.default", "aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
"""ONNX Runtime's own GridSample reflects places on a tie to another side."""

PYRAMID = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return F.adaptive_avg_pool2d(x, 3), F.interpolate(F.adaptive_max_pool2d(x, (2, 3)), size=x.shape[2:], mode="bilinear")


def get_inputs():
    return [torch.randn(1, 2, 7, 10)]


def get_more_inputs():
    return [[torch.randn(2, 2, 5, 8)]]


dynamic_shapes = {"x": {0: "batch", 2: "h", 3: "w"}}
"""

ANTIALIAS = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return F.interpolate(x, scale_factor=0.37, mode="bilinear", antialias=True)


def get_inputs():
    return [torch.randn(1, 3, 16, 20)]


def get_more_inputs():
    return [[torch.randn(1, 3, 31, 17)]]


dynamic_shapes = {"x": {2: "h", 3: "w"}}
"""

FRACTIONS = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, y, where):
        volumes, places = F.fractional_max_pool3d(y, 2, output_size=(2, 3, 2), return_indices=True, _random_samples=where)
        return F.fractional_max_pool2d(x, (3, 2), output_ratio=(0.5, 0.6), _random_samples=where[..., 1:]), volumes, places


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 8, 9), torch.randn(2, 3, 5, 6, 7), torch.rand(2, 3, 3)]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(4, 3, 8, 9), torch.randn(4, 3, 5, 6, 7), torch.rand(4, 3, 3)]]


dynamic_shapes = {"x": {0: "batch"}, "y": {0: "batch"}, "where": {0: "batch"}}
"""


class DecomposeResize(ProgramStrategy):
    """Gather the windows of adaptive pooling and the neighbours of interpolation by index arithmetic in the graph.

    When it helps: adaptive pooling where bins do not divide the size or the size is dynamic, with indices too; fractional pooling; nearest,
    nearest-exact, linear, cubic and area interpolation of any rank to run-time sizes or by scale factors, with or without antialiasing;
    affine_grid and 3-d grid_sample of dynamic size; where ONNX's Resize rounds source places otherwise than PyTorch.

    Why it is safe: windows and source places follow ATen's own integer and float32 formulas (AdaptiveAveragePooling.cpp, UpSample.h,
    UpSampleKernel.cpp, GridSampler.h);
    entries outside a window do not count, even if they are NaN.
    """

    treats = (
        "unsupported-operator",
        "capture-error",
        "convert-error",
        "decompose-error",
        "axis-specialized",
        "axis-fixed",
        "data-dependent-branch",
        "invalid-graph",
        "no-kernel",
        "run-error",
        "run-error-at-other-sizes",
        "shape-mismatch",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
    )
    prior = 0.65

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        operators = operators_to_replace(evidence, OPERATORS)
        sampled = any("grid_sampler" in name for name in evidence.operators) and "grid_sampler" in (evidence.fact("operator") or "grid_sampler")
        if sampled and evidence.diagnosis.symptom.startswith("mismatch-at"):  # NaN alone is cheaper to cure around the node
            operators = sorted({*operators, *SAMPLERS})
        if operators:
            yield self.fix(operators=operators)

    @staticmethod
    def apply(plan: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.ops_grid import GRID_DECOMPOSITIONS, GRID_OVERRIDES, GRID_SAMPLERS
        from autofix.surgery.ops_pool import POOL_DECOMPOSITIONS
        from autofix.surgery.ops_pool_fractional import FRACTIONAL_DECOMPOSITIONS, fractional_overrides
        from autofix.surgery.ops_resize_scaled import scaled_overrides
        from autofix.surgery.ops_resize_table import resize_table

        known = {**POOL_DECOMPOSITIONS, **resize_table(), **GRID_DECOMPOSITIONS, **GRID_SAMPLERS, **FRACTIONAL_DECOMPOSITIONS}
        added = {name: known[name] for name in operators if name in known}
        if not added:
            raise NothingToDo("none of these operators is known")
        plan.decompositions.update(added)
        if "aten.affine_grid_generator.default" in added:
            plan.overrides.update(GRID_OVERRIDES)
        if any("fractional" in name for name in added):
            plan.overrides.update(fractional_overrides())
        if any("upsample" in name for name in added):
            plan.overrides.update(scaled_overrides())
        return plan

    REPAIRS = (
        Example(
            PYRAMID,
            "unsupported-operator",
            {
                "operators": [
                    "aten._adaptive_avg_pool2d.default",
                    "aten.adaptive_avg_pool2d.default",
                    "aten.adaptive_max_pool2d.default",
                    "aten.upsample_bilinear2d.default",
                    "aten.upsample_bilinear2d.vec",
                ]
            },
        ),
        Example(FRACTIONS, "axis-specialized", {"operators": ["aten.fractional_max_pool2d.default", "aten.fractional_max_pool3d.default"]}),
        Example(ANTIALIAS, "mismatch-at-example", {"operators": ["aten._upsample_bilinear2d_aa.default", "aten._upsample_bilinear2d_aa.vec"]}),
    )
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default"}),)
