"""Strategy: capture with torch.jit.trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import ConfigStrategy, Evidence, Example
from autofix.target import ExportConfig, Target
from autofix.trial import Diagnosis, Stage

NIBBLES = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, packed):
        return torch.stack([packed >> 4, packed], -1)


def get_inputs():
    return [torch.tensor([[0x12, 0xF4], [0x56, 0x87]], dtype=torch.uint8)]


dynamic_shapes = {"packed": {0: "rows"}}


def get_more_inputs():
    return [[torch.tensor([[0xFF, 0x00]], dtype=torch.uint8)]]
"""


class CaptureTrace(ConfigStrategy):
    """Capture the model with torch.jit.trace and the TorchScript exporter.

    When it helps: the default route has no translation for an operator, types it wrongly, breaks in decomposition, can't
    reason about a data-dependent size, or can't write the opset; the TorchScript exporter has its own translations and
    writes opsets 7 to 20 itself. It also runs any Python that runs in eager, such as generators and NumPy-free library code. Where a latency target
    is missed its graph is sometimes the faster one: 4 to 5 % on a DeiT, more where a translation of the default route is slow.
    Why it is safe: the graph records what eager ran. What a trace may bake in (branches, Python numbers) is warned of by the
    tracer; the engine counts such a warning as narrowing, and the other sizes and values are verified.
    """

    treats = (
        "unsupported-operator",
        "unsupported-python",
        "unsupported-input",
        "unsupported-output",
        "data-dependent-size",
        "data-dependent-branch",
        "axis-specialized",
        "axis-fixed",
        "opset-too-low",
        "opset-not-reached",
        "capture-error",
        "convert-error",
        "decompose-error",
        "invalid-graph",
        "no-kernel",
        "run-error",
        "run-error-at-other-sizes",
        "run-error-at-other-values",
        "inputs-mismatch",
        "outputs-mismatch",
        "dtype-mismatch",
        "shape-mismatch",
        "mismatch-at-example",
        "mismatch-at-other-sizes",
        "mismatch-at-other-values",
        "mismatch-nonfinite",
        "crash",
        "timeout",
        "too-slow",
    )
    group = "capture"
    prior = 0.25

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.config.capture == "trace" or any(f.strategy.startswith("capture_") for f in evidence.recipe.fixes):
            return
        if target.min_opset > 20:  # the TorchScript exporter's last opset
            return
        yield self.fix()

    @staticmethod
    def apply(config: ExportConfig) -> ExportConfig:
        if config.capture == "trace":
            raise NothingToDo("the model is traced already")
        return replace(config, capture="trace")

    REPAIRS = (Example(NIBBLES, symptom="invalid-graph"),)
    DECLINES = (
        Evidence(Diagnosis("unsupported-operator", Stage.CONVERT), config=ExportConfig(capture="trace")),
        Evidence(Diagnosis("too-slow", Stage.LATENCY), config=ExportConfig(capture="trace")),
    )
