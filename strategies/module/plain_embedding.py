"""Strategy: embeddings with max_norm and embedding bags as look-ups."""

from __future__ import annotations

from collections.abc import Iterator

from autofix.program import CapturePlan
from autofix.recipe import Fix, Level
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

BAGS = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(12, 4, mode="mean", padding_idx=3)
        self.best = nn.EmbeddingBag(12, 4, mode="max")
        self.table = nn.Embedding(12, 4, max_norm=1.0)

    def forward(self, ids, offsets):
        return self.bag(ids, offsets), self.best(ids, offsets), self.table(ids) * 2


def get_inputs():
    return [torch.tensor([3, 4, 5, 3, 9, 9]), torch.tensor([0, 2, 2])]


dynamic_shapes = {"ids": {0: "n"}, "offsets": {0: "bags"}}


def get_more_inputs():
    return [[torch.tensor([1, 3, 3, 3, 9, 2, 7]), torch.tensor([0, 1, 3, 4])]]
"""


class PlainEmbedding(ProgramStrategy):
    """Write embeddings with max_norm, and embedding bags, as look-ups, masks and reductions.

    When it helps: the older routes read the rows as stored where max_norm should scale them, refuse embedding bags with
    offsets, padding or weights, or the bags of the example are frozen.
    Why it is safe: only the rows that are read are scaled, by max_norm / (norm + 1e-7) as torch.embedding_renorm_ does; bags follow the
    documentation of nn.EmbeddingBag (padding left out, empty bags zero). The table itself stays one Gather.
    """

    treats = (
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "unsupported-operator",
        "capture-error",
        "convert-error",
        "decompose-error",
        "axis-specialized",
        "axis-fixed",
        "shape-mismatch",
        "run-error",
        "run-error-at-other-sizes",
        "crash",
        "run-error-at-other-values",
        "mutated-buffers",
        "too-slow",
    )
    prior = 0.4

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        names = " ".join(evidence.operators)
        if ("embedding_bag" in names or "embedding_renorm" in names or "EmbeddingBag" in evidence.modules) and not evidence.recipe.has(
            "plain_embedding"
        ):
            yield self.fix()

    @staticmethod
    def apply(plan: CapturePlan) -> CapturePlan:
        import torch.nn.functional as F

        from autofix.surgery.modules_embedding import embedding_any, embedding_bag_any

        plan.overrides[F.embedding] = embedding_any
        plan.overrides[F.embedding_bag] = embedding_bag_any
        return plan

    REPAIRS = (Example(BAGS, symptom="capture-error", start=(Fix("capture_trace", Level.CONFIG),)),)
    DECLINES = (Diagnosis("mismatch-at-example", Stage.PARITY),)
