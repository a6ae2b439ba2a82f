"""Write linear algebra as loops of elementary operators, since ONNX has none of it but Det."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.surgery.ops_proposal import operators_to_replace
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

OPERATORS = (
    "aten._linalg_det.default",
    "aten._linalg_eigh.default",
    "aten._linalg_slogdet.default",
    "aten._linalg_solve_ex.default",
    "aten._linalg_svd.default",
    "aten.cholesky.default",
    "aten.cholesky_inverse.default",
    "aten.cholesky_solve.default",
    "aten.geqrf.default",
    "aten.inverse.default",
    "aten.linalg_cholesky.default",
    "aten.linalg_cholesky_ex.default",
    "aten.linalg_det.default",
    "aten.linalg_householder_product.default",
    "aten.linalg_inv.default",
    "aten.linalg_inv_ex.default",
    "aten.linalg_lstsq.default",
    "aten.linalg_lu.default",
    "aten.linalg_lu_factor.default",
    "aten.linalg_lu_factor_ex.default",
    "aten.linalg_lu_solve.default",
    "aten.linalg_matrix_exp.default",
    "aten.linalg_pinv.atol_rtol_tensor",
    "aten.linalg_qr.default",
    "aten.linalg_solve.default",
    "aten.linalg_solve_ex.default",
    "aten.linalg_solve_triangular.default",
    "aten.linalg_tensorinv.default",
    "aten.logdet.default",
    "aten.lu_unpack.default",
    "aten.ormqr.default",
    "aten.qr.default",
    "aten.triangular_solve.default",
)

INVERSES = ["aten.inverse.default", "aten.linalg_inv.default", "aten.linalg_inv_ex.default", "aten.linalg_tensorinv.default"]

SOLVERS = ("aten._linalg_solve_ex.default", "aten.linalg_inv_ex.default", "aten.linalg_solve_ex.default")
"""What complex factors and systems are solved by, as systems of real numbers."""

SYSTEM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        a = a + 4 * torch.eye(3)
        return torch.linalg.solve(a, b), torch.linalg.inv(a), torch.linalg.slogdet(a)[1]


def get_inputs():
    return [torch.randn(2, 3, 3), torch.randn(2, 3, 2)]


def get_more_inputs():
    return [[torch.randn(5, 3, 3), torch.randn(5, 3, 2)]]


dynamic_shapes = {"a": {0: "batch"}, "b": {0: "batch"}}
"""

SPECTRUM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        gram = x @ x.mT
        w, v = torch.linalg.eigh(gram)
        return w, (v * w.clamp(min=1e-3).rsqrt().unsqueeze(-2)) @ v.mT, torch.linalg.svdvals(x)


def get_inputs():
    return [torch.randn(2, 3, 5)]


def get_more_inputs():
    return [[torch.randn(4, 3, 5)]]


dynamic_shapes = {"x": {0: "batch"}}
"""


class DecomposeLinalg(ProgramStrategy):
    """Replace linear algebra operators by loops of products, masks and rotations, computed in float64.

    When it helps: solve, inv, det of float64, slogdet, logdet, lu, triangular solves, cholesky, qr, eigh, svd, pinv, lstsq, matrix_exp and what
    torch builds on them (matrix_rank, cond, matrix_norm, tensorsolve, matrix_power with negative powers), at any batch and matrix size.

    Why it is safe: elimination pivots as LAPACK does, QR keeps LAPACK's signs, and float64 throughout makes the results at least as near to the truth
    as PyTorch's (Golub and Van Loan, Matrix Computations, 4th edition, 3.4, 4.2, 5.2, 8.5, 8.6; Higham, Functions of Matrices, 10.3).
    Eigenvectors and
    singular vectors are unique only up to sign; a model whose outputs depend on that sign fails verification.
    """

    treats = (
        "unsupported-operator",
        "convert-error",
        "decompose-error",
        "capture-error",
        "data-dependent-size",
        "invalid-graph",
        "no-kernel",
        "run-error",
        "run-error-at-other-sizes",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-nonfinite",
    )
    prior = 0.8

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        operators = operators_to_replace(evidence, OPERATORS)
        if operators and any("complex" in name or "polar" in name for name in evidence.operators):
            operators = sorted({*operators, *SOLVERS})
        if operators:
            yield self.fix(operators=operators)

    @staticmethod
    def apply(plan: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.ops_constants import EXACT_CONSTANTS
        from autofix.surgery.ops_linalg import LINALG_DECOMPOSITIONS, LINALG_OVERRIDES
        from autofix.surgery.ops_loop import loops_without_asserts

        added = {name: LINALG_DECOMPOSITIONS[name] for name in operators if name in LINALG_DECOMPOSITIONS}
        if not added:
            raise NothingToDo("none of these operators is known")
        plan.decompositions.update(added)
        plan.translations.update(EXACT_CONSTANTS)
        if "aten.linalg_lstsq.default" in added:
            plan.overrides.update(LINALG_OVERRIDES)
        plan.contexts.append(loops_without_asserts)
        return plan

    REPAIRS = (
        Example(
            SYSTEM,
            "unsupported-operator",
            {
                "operators": sorted(
                    INVERSES
                    + ["aten._linalg_slogdet.default", "aten._linalg_solve_ex.default", "aten.linalg_solve.default", "aten.linalg_solve_ex.default"]
                    + ["aten.logdet.default"]
                )
            },
        ),
        Example(SPECTRUM, "unsupported-operator", {"operators": ["aten._linalg_eigh.default", "aten._linalg_svd.default"]}),
    )
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default"}),)
