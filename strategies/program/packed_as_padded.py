"""Strategy: run recurrent layers over packed sequences on padded data with a mask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

PACKED = """
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 4, batch_first=True, bidirectional=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, (h, c) = self.rnn(packed)
        out, sizes = pad_packed_sequence(out, batch_first=True)
        return out, sizes, h, c


def get_inputs():
    return [torch.linspace(-1, 1, 36).reshape(2, 6, 3), torch.tensor([3, 5])]


dynamic_shapes = {"x": {0: "batch", 1: "time"}, "lengths": {0: "batch"}}


def get_more_inputs():
    return [[torch.linspace(-2, 1, 63).reshape(3, 7, 3), torch.tensor([7, 1, 4])]]
"""


class PackedAsPadded(ProgramStrategy):
    """Keep packed sequences padded and let recurrent layers skip the padding by a mask.

    When it helps: pack_padded_sequence with lengths that are a tensor: the number of steps is read from it, and the exporters bake it in or stop.

    Why it is safe: a step behind a sequence's end leaves the state and gives zeros, which is what a packed run means (documentation of
    pack_padded_sequence); both directions, several layers, projections and initial states included.
    """

    treats = (
        "data-dependent-size",
        "data-dependent-branch",
        "capture-error",
        "convert-error",
        "decompose-error",
        "unsupported-operator",
        "unsupported-python",
        "baked-value",
        "axis-specialized",
        "axis-fixed",
        "run-error",
        "run-error-at-other-values",
        "run-error-at-other-sizes",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "crash",
    )
    prior = 0.75

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        texts = [*evidence.operators, *dict(evidence.facts.get("sources", {})).values()]
        if any("pack_padded_sequence" in text or "pack_sequence" in text for text in texts):
            yield self.fix()

    @staticmethod
    def apply(plan: Any) -> Any:
        from autofix.surgery.custom_packed import packed_sequences
        from autofix.surgery.ops_loop import loops_without_asserts

        plan.contexts += [packed_sequences, loops_without_asserts]
        return plan

    REPAIRS = (Example(PACKED, symptom="capture-error"),)
    DECLINES = (Diagnosis("data-dependent-size", Stage.CAPTURE),)
