"""Compute a convolution whose number of groups is a dynamic size as one product a group."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

KERNEL_PER_SAMPLE = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, kernels):
        b, c, n = x.shape
        out = F.conv1d(x.reshape(1, b * c, n), kernels.reshape(b * 3, c, 3), padding=1, stride=2, groups=b)
        return out.reshape(b, 3, -1)


def get_inputs():
    return [torch.randn(2, 2, 7), torch.randn(2, 3, 2, 3)]


def get_more_inputs():
    return [[torch.randn(5, 2, 8), torch.randn(5, 3, 2, 3)], [torch.randn(1, 2, 9), torch.randn(1, 3, 2, 3)]]


dynamic_shapes = {"x": {0: "batch", 2: "n"}, "kernels": {0: "batch"}}
"""


TRANSPOSED = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, kernels):
        b, c, n = x.shape
        out = F.conv_transpose1d(x.reshape(1, b * c, n), kernels.reshape(b * c, 3, 3), padding=1, stride=2, output_padding=1, groups=b)
        return out.reshape(b, 3, -1)


def get_inputs():
    return [torch.randn(2, 2, 7), torch.randn(2, 2, 3, 3)]


def get_more_inputs():
    return [[torch.randn(5, 2, 8), torch.randn(5, 2, 3, 3)], [torch.randn(1, 2, 9), torch.randn(1, 2, 3, 3)]]


dynamic_shapes = {"x": {0: "batch", 2: "n"}, "kernels": {0: "batch"}}
"""


class GroupBySize(ProgramStrategy):
    """Write convolutions and transposed ones with `groups` taken from a size as a batched matrix product.

    When it helps: a kernel of its own for each sample (dynamic convolution, cross-correlation trackers, modulated convolution), written as one
    convolution with as many groups as the batch has samples: ONNX's Conv takes the number of groups as a constant.

    Why it is safe: it is the definition of a grouped convolution, the same products and sums; a plain number of groups is left alone.
    """

    treats = (
        "unsupported-operator",
        "axis-specialized",
        "axis-fixed",
        "capture-error",
        "convert-error",
        "run-error-at-other-sizes",
        "mismatch-at-other-sizes",
    )
    prior = 0.6

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        failing = evidence.fact("operator")
        written = "\n".join(evidence.facts.get("sources", {}).values())
        if (not failing or "conv" in failing) and re.search(r"groups\s*=\s*(?!\d)|conv(_transpose)?[123]d\(", written):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.ops_groups import grouped_overrides

        plan.overrides.update(grouped_overrides())
        return plan

    REPAIRS = (Example(KERNEL_PER_SAMPLE, "unsupported-operator"), Example(TRANSPOSED, "unsupported-operator"))
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default"}),)
