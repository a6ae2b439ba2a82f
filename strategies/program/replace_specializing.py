"""Swap functions that read sizes as constants (kron, take_along_dim, vander, roll by a size, ...) for forms that keep axes dynamic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

FUNCTIONS = (
    *(
        "cartesian_prod",
        "combinations",
        "gradient",
        "kron",
        "linspace",
        "matrix_norm",
        "multi_dot",
        "roll",
        "take_along_dim",
        "tril_indices",
        "triu_indices",
    ),
    *("fill_diagonal_", "unique_consecutive", "unravel_index", "vander"),
)

WRITE = "__setitem__"

PRODUCTS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        order = x.argsort(1)
        return torch.kron(x, x[:, :1]), torch.take_along_dim(x, order, 1)


def get_inputs():
    return [torch.randn(2, 3)]


def get_more_inputs():
    return [[torch.randn(4, 5)]]


dynamic_shapes = {"x": {0: "n", 1: "m"}}
"""

PAIRS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        pairs = torch.combinations(torch.arange(x.shape[0]), 2)
        slopes = torch.gradient(x, spacing=0.5, dim=1)[0]
        return x[pairs[:, 0]] - x[pairs[:, 1]], slopes, torch.cartesian_prod(torch.arange(x.shape[0]), torch.arange(x.shape[1]))


def get_inputs():
    return [(torch.arange(12.0) * 0.1).reshape(3, 4) ** 2]


def get_more_inputs():
    return [[(torch.arange(30.0) * 0.05 - 1).reshape(5, 6) ** 3]]


dynamic_shapes = {"x": {0: "n", 1: "m"}}
"""

WRITTEN = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        whole = x.shape[1] // 2 * 2
        out = x.clone()
        out[:, :whole] = x[:, :whole].reshape(x.shape[0], whole // 2, 2).flip(-1).reshape(x.shape[0], whole)
        return out


def get_inputs():
    return [torch.arange(7.0).reshape(1, 7) ** 2]


def get_more_inputs():
    return [[torch.arange(24.0).reshape(3, 8) ** 2]]


dynamic_shapes = {"x": {0: "batch", 1: "n"}}
"""


class ReplaceSpecializing(ProgramStrategy):
    """Replace functions whose C++ bodies ask for plain sizes, which turns dynamic axes into constants.

    When it helps: kron, take_along_dim, vander, linalg.multi_dot, tril_indices, triu_indices, combinations, cartesian_prod and gradient of dynamic
    sizes, linspace whose number of steps may be 1, roll by a dynamic amount, spectral and nuclear matrix norms of a dynamic batch,
    unique_consecutive with inverse, unravel_index, fill_diagonal_, x[:, :n] = y where an axis is 1 in the example.

    Why it is safe: each form is the function's definition with the same elements in the same order; other uses of a function are passed on.
    """

    treats = (
        *("axis-specialized", "axis-fixed", "unsupported-operator", "capture-error", "convert-error", "decompose-error", "data-dependent-size"),
        *("mismatch-nonfinite", "mismatch-at-other-sizes", "mismatch-at-other-values", "run-error-at-other-sizes", "shape-mismatch"),
    )
    prior = 0.55

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        text = "\n".join(evidence.facts.get("sources", {}).values())
        used = [name for name in FUNCTIONS if re.search(rf"(?<![A-Za-z_]){name}\(", text)]
        if evidence.diagnosis.symptom.startswith("mismatch"):  # linspace divides by steps - 1, also where there is one step
            used = [name for name in used if name == "linspace"]
        elif re.search(r"\][ \t]*=(?!=)", text):
            used = [*used, WRITE]
        if evidence.diagnosis.symptom in ("run-error-at-other-sizes", "shape-mismatch"):
            used = [name for name in used if name == WRITE]
        if used:
            yield self.fix(functions=used)

    @staticmethod
    def apply(plan: Any, *, functions: list[str]) -> Any:
        from autofix.errors import NothingToDo
        from autofix.surgery.ops_shapes import shape_overrides

        known = shape_overrides()
        added = [known[name] for name in functions if name in known]
        if not added:
            raise NothingToDo("none of these functions is known")
        for table in added:
            plan.overrides.update(table)
        return plan

    REPAIRS = (
        Example(PRODUCTS, "axis-specialized", {"functions": ["kron", "take_along_dim"]}),
        Example(PAIRS, "capture-error", {"functions": ["cartesian_prod", "combinations", "gradient"]}),
        Example(WRITTEN, "run-error-at-other-sizes", {"functions": [WRITE]}),
    )
    DECLINES = (Diagnosis("axis-specialized", Stage.CAPTURE, {}),)
