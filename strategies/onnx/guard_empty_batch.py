"""Strategy: guard operators that fail on an empty batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Example, OnnxStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

NO_REGIONS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, rois):
        return torch.relu(self.norm(rois))


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(3, 4, 5)]


dynamic_shapes = {"rois": {0: "n"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(1, 4, 5)], [torch.randn(0, 4, 5)]]
"""

NO_TRACKS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 4, batch_first=True)

    def forward(self, tracks):
        y, h = self.rnn(tracks)
        return y[:, -1], h


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(3, 5, 3)]


dynamic_shapes = {"tracks": {0: "n"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(2, 5, 3)], [torch.randn(0, 5, 3)]]
"""

NO_TOKENS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, q, k):
        return torch.einsum("bid,bjd->bij", q, k).softmax(-1)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 3, 4), torch.randn(2, 5, 4)]


dynamic_shapes = {"q": {0: "n"}, "k": {0: "n", 1: "m"}}


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(1, 3, 4), torch.randn(1, 2, 4)], [torch.randn(0, 3, 4), torch.randn(0, 2, 4)], [torch.randn(2, 3, 4), torch.randn(2, 0, 4)]]
"""


class GuardEmptyBatch(OnnxStrategy):
    """Guard the operators that fail, or end the process, on an empty batch.

    When it helps: no item was found (no region, no track), PyTorch returns an empty result, and ONNX Runtime's LSTM, GRU or Einsum
    aborts, or a Reshape, GroupNormalization or Attention refuses.
    Why it is safe: for a batch that is not empty the operator runs as before, in the other branch of an If; for an empty
    one the result has no values, only a shape, which is worked out.
    """

    treats = ("crash", "run-error-at-other-sizes", "run-error", "run-error-at-other-values", "shape-mismatch", "timeout")
    prior = 0.35

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        if evidence.recipe.has("guard_empty_batch"):
            return
        failing = evidence.fact("input_set")
        for entry in evidence.facts.get("input_sets", ()):
            named = str(entry.get("name", ""))
            holds_none = any(0 in shape for shape in dict(entry.get("shapes") or {}).values())
            if holds_none and (named == failing or not failing):
                yield self.fix()
                return
        if {"LSTM", "GRU"} & set(evidence.modules) and evidence.diagnosis.symptom == "crash" or "requested shape:{0," in evidence.fact("message"):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        from autofix.surgery.onnx_empty import EMPTY_FORMS
        from autofix.surgery.onnx_nodes import replace_nodes

        if not replace_nodes(model, EMPTY_FORMS):
            raise NothingToDo("no operator here fails on an empty batch")
        return model

    REPAIRS = (Example(NO_REGIONS, symptom="run-error-at-other-sizes"), Example(NO_TRACKS, symptom="crash"), Example(NO_TOKENS, symptom="crash"))
    DECLINES = (
        Diagnosis("run-error-at-other-sizes", Stage.RUN),
        Evidence(Diagnosis("crash", Stage.RUN), facts={"modules": {"LSTM": ["rnn"]}}, recipe=Recipe((Fix("guard_empty_batch", OnnxStrategy.level),))),
    )
