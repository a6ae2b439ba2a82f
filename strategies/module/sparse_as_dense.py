"""Make sparse matrices dense."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ModuleStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

GRAPH_LAYER = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        where = torch.tensor([[0, 1, 2, 3, 3], [1, 2, 3, 0, 0]])
        self.register_buffer("adj", torch.sparse_coo_tensor(where, torch.full((5,), 0.5), (4, 4)).coalesce())
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return torch.sparse.mm(self.adj, self.fc(x)) + self.adj @ self.fc(x)


def get_inputs():
    return [torch.randn(4, 3)]


def get_more_inputs():
    return [[torch.randn(4, 3)]]
"""


class SparseAsDense(ModuleStrategy):
    """Replace sparse parameters, buffers and attributes by dense tensors, and functions on sparse tensors by those on dense ones.

    When it helps: graph networks with a sparse adjacency matrix, torch.sparse.mm, sparse_coo_tensor built in
    forward; ONNX has no sparse operators that ONNX Runtime runs.

    Why it is safe: a sparse tensor stands for the dense one with zeros elsewhere and equal coordinates added up
    (PyTorch's documentation of torch.sparse). Costs memory.
    """

    treats = (
        "capture-error",
        "unsupported-operator",
        "unsupported-input",
        "unsupported-python",
        "convert-error",
        "decompose-error",
        "invalid-graph",
        "data-dependent-size",
        "data-dependent-branch",
        "crash",
    )
    prior = 0.6

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        texts = [*evidence.operators, evidence.fact("operator"), evidence.fact("message")]
        sources = dict(evidence.facts.get("sources", {})).values()
        if any("sparse" in text.lower() for text in texts) or any(re.search(r"sparse[._(]|[._]sparse\b|\bSparse[A-Z]", text) for text in sources):
            yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        import functools

        from autofix.surgery.sparse_dense import SparseAsDenseMode, sparse_attributes_dense

        found = sparse_attributes_dense(model)
        import inspect

        if not found and "sparse" not in inspect.getsource(type(model)):
            raise NothingToDo("no sparse tensor")
        forward = model.forward

        @functools.wraps(forward)
        def dense_forward(*args: Any, **kwargs: Any) -> Any:
            with SparseAsDenseMode():
                return forward(*args, **kwargs)

        model.forward = dense_forward
        return model

    REPAIRS = (Example(GRAPH_LAYER, symptom="unsupported-operator", fix={}),)
    DECLINES = (Diagnosis("capture-error", Stage.CAPTURE, {"message": "something else"}),)
