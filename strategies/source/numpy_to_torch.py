"""Strategy: compute on tensors what forward computes with NumPy."""

from __future__ import annotations

from collections.abc import Iterator

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, SourceStrategy
from autofix.surgery.source_control import rewrite_source
from autofix.surgery.source_evidence import EXPORT_CAPTURES, has_dynamic_axes, user_files, zero_d_names
from autofix.surgery.source_numpy import rewrite_numpy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

CURVE = """
import numpy as np
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        a = x.detach().cpu().numpy()
        grid = np.linspace(0, a.shape[1] - 1, 5)
        rows = [np.interp(grid, np.arange(a.shape[1]), row) for row in a]
        spread = (a - a.mean(axis=1, keepdims=True)) / a.std()
        return torch.from_numpy(np.stack(rows).astype(np.float32)), torch.tensor(np.clip(spread, -1, 1))


def get_inputs():
    return [torch.linspace(-1, 2, 12).reshape(3, 4)]


dynamic_shapes = {"x": {0: "batch"}}


def get_more_inputs():
    return [[torch.linspace(-4, 2, 20).reshape(5, 4)]]
"""


class NumpyToTorch(SourceStrategy):
    """Rewrite NumPy code in forward to tensors that stay in the graph.

    When it helps: forward leaves torch by .numpy(), computes with np.* and comes back by torch.from_numpy or torch.tensor: capture
    stops there, or a tracer takes the result for a constant.
    Why it is safe: each function computes what NumPy's documentation and source say (interp in float64, quantiles between ranks, std over n),
    in NumPy 2's types: float64 by default, Python numbers weak. What has no counterpart stays NumPy and stops the capture.
    """

    treats = (
        "unsupported-python",
        "capture-error",
        "convert-error",
        "baked-value",
        "data-dependent-size",
        "data-dependent-branch",
        "axis-specialized",
        "axis-fixed",
        "unsupported-operator",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "run-error-at-other-sizes",
        "crash",
    )
    prior = 0.7

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has(self.name) or evidence.config.capture not in EXPORT_CAPTURES:
            return
        facts = evidence.facts
        for file, text, functions, lines in user_files(facts):
            if "numpy" in text and rewrite_numpy(text, functions) != text:
                yield self.fix(file=file, functions=functions, lines=lines, sizes=has_dynamic_axes(facts), zero_d=zero_d_names(facts))

    @staticmethod
    def apply(text: str, *, functions: list[str], lines: list[int], sizes: bool, zero_d: list[str]) -> str:  # type: ignore[override]
        new = rewrite_numpy(text, functions)
        if new == text:
            raise NothingToDo("no NumPy code here")
        before, after = text.count("\n"), new.count("\n")
        moved = [line + after - before for line in lines]  # the functions that are pasted in front
        return rewrite_source(new, functions, moved, sizes=sizes, zero_d=zero_d)

    REPAIRS = (Example(CURVE, symptom="unsupported-python"),)
    DECLINES = (Diagnosis("capture-error", Stage.CAPTURE),)
