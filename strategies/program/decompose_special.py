"""Write special functions (gamma, error and Bessel functions and their inverses) as series."""

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
    "aten.digamma.default",
    "aten.erfc.default",
    "aten.erfinv.default",
    "aten.i0.default",
    "aten.igamma.default",
    "aten.igammac.default",
    "aten.lgamma.default",
    "aten.polygamma.default",
    "aten.special_bessel_j0.default",
    "aten.special_bessel_j1.default",
    "aten.special_bessel_y0.default",
    "aten.special_bessel_y1.default",
    "aten.special_erfcx.default",
    "aten.special_i0e.default",
    "aten.special_i1.default",
    "aten.special_i1e.default",
    "aten.special_log_ndtr.default",
    "aten.special_modified_bessel_i0.default",
    "aten.special_modified_bessel_i1.default",
    "aten.special_modified_bessel_k0.default",
    "aten.special_modified_bessel_k1.default",
    "aten.special_ndtri.default",
    "aten.special_scaled_modified_bessel_k0.default",
    "aten.special_scaled_modified_bessel_k1.default",
    "aten.special_spherical_bessel_j0.default",
    "aten.special_zeta.default",
    "aten.special_zeta.other_scalar",
    "aten.special_zeta.self_scalar",
    *(
        f"aten.special_{name}.{overload}"
        for name in (
            *(f"{prefix}chebyshev_polynomial_{letter}" for prefix in ("", "shifted_") for letter in "tuvw"),
            *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
        )
        for overload in ("default", "n_scalar", "x_scalar")
    ),
)

COUNTS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.lgamma(x) + torch.digamma(x + 1), torch.special.i0e(x), torch.erfinv(torch.tanh(x))


def get_inputs():
    return [torch.rand(2, 3) + 0.5]


def get_more_inputs():
    return [[torch.rand(4, 3) * 9 + 0.1], [torch.tensor([[1.0, 2.0, 0.5]])]]


dynamic_shapes = {"x": {0: "batch"}}
"""

FEATURES = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, degree):
        x = torch.nan_to_num(x, 0.0, 1.0, -1.0)  # PyTorch gives what happens to lie in memory for NaN
        known = torch.special.hermite_polynomial_he(x, 5), torch.special.shifted_chebyshev_polynomial_t(x, 8)
        return *known, torch.special.legendre_polynomial_p(x[:, :1], degree)


def get_inputs():
    torch.manual_seed(0)
    return [torch.rand(2, 3) * 0.9, torch.tensor([0.0, 1.0, 4.0])]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.rand(4, 3) * 3 - 1.5, torch.tensor([2.0, 3.0])]]


dynamic_shapes = {"x": {0: "batch"}, "degree": {0: "degrees"}}
"""


class DecomposeSpecial(ProgramStrategy):
    """Replace special functions by series and iterations in float64, cast back at the end.

    When it helps: lgamma, digamma, polygamma, zeta, igamma(c), erfinv, erfcx, ndtri, log_ndtr, the Bessel functions i0 to k1 with their
    scaled forms, the orthogonal polynomials of Chebyshev, Hermite, Laguerre and Legendre. ONNX has Erf alone of these.

    Why it is safe: convergent or asymptotic series with a remainder below 1e-15 of the value (Abramowitz and Stegun, chapters 6, 7 and 9;
    NIST DLMF 25.11), so a float32 result is within one unit in the last place, nearer than PyTorch's own; poles, infinities and NaN come
    out as in ATen. Polynomials follow ATen's own recurrences (NIST DLMF 18.9).
    """

    treats = (
        "unsupported-operator",
        "convert-error",
        "decompose-error",
        "no-kernel",
        "invalid-graph",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-nonfinite",
    )
    prior = 0.85

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        operators = operators_to_replace(evidence, OPERATORS)
        if operators:
            yield self.fix(operators=operators)

    @staticmethod
    def apply(plan: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.ops_constants import EXACT_CONSTANTS
        from autofix.surgery.ops_loop import loops_without_asserts
        from autofix.surgery.ops_special import ERROR_FUNCTIONS
        from autofix.surgery.ops_special_bessel import BESSEL_FUNCTIONS
        from autofix.surgery.ops_special_gamma import GAMMA_FUNCTIONS
        from autofix.surgery.ops_special_polynomials import POLYNOMIALS

        known = {**ERROR_FUNCTIONS, **GAMMA_FUNCTIONS, **BESSEL_FUNCTIONS, **POLYNOMIALS}
        added = {name: known[name] for name in operators if name in known}
        if not added:
            raise NothingToDo("none of these operators is known")
        plan.decompositions.update(added)
        plan.translations.update(EXACT_CONSTANTS)
        plan.contexts.append(loops_without_asserts)
        return plan

    REPAIRS = (
        Example(
            COUNTS,
            "unsupported-operator",
            {"operators": ["aten.digamma.default", "aten.erfinv.default", "aten.lgamma.default", "aten.special_i0e.default"]},
        ),
        Example(FEATURES, "unsupported-operator"),
    )
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.linalg_qr.default"}),)
