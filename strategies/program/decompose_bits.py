"""Write operators on the parts and bits of numbers (frexp, copysign, gcd, shifts, view of float32 as int32) as arithmetic."""

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
    "aten.__lshift__.Scalar",
    "aten.__lshift__.Tensor",
    "aten.__rshift__.Scalar",
    "aten.__rshift__.Tensor",
    "aten.bitwise_left_shift.Scalar_Tensor",
    "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_left_shift.Tensor_Scalar",
    "aten.bitwise_right_shift.Scalar_Tensor",
    "aten.bitwise_right_shift.Tensor",
    "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.copysign.Scalar",
    "aten.copysign.Tensor",
    "aten.frexp.Tensor",
    "aten.gcd.default",
    "aten.hypot.default",
    "aten.lcm.default",
    "aten.nextafter.default",
    "aten.signbit.default",
    "aten.view.dtype",
)

PARTS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, a):
        mantissa, exponent = torch.frexp(x)
        return mantissa, exponent, torch.copysign(x, -x), torch.gcd(a, a + 6), x.view(torch.int32)


def get_inputs():
    return [torch.randn(5), torch.tensor([12, 18, 0, 4])]


def get_more_inputs():
    return [[torch.randn(3) * 1e6, torch.tensor([100, 35])]]


dynamic_shapes = {"x": {0: "n"}, "a": {0: "m"}}
"""

NIBBLES = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, packed):
        return packed >> 4, packed << 1


def get_inputs():
    return [torch.tensor([0x12, 0x34], dtype=torch.uint8)]


def get_more_inputs():
    return [[torch.tensor([0xF1, 0x9A, 0x80], dtype=torch.uint8)]]


dynamic_shapes = {"packed": {0: "n"}}
"""


class DecomposeBits(ProgramStrategy):
    """Replace operators on sign, mantissa, exponent and bits by exact arithmetic in float64 and int64.

    When it helps: frexp, copysign, signbit, hypot, nextafter, gcd, lcm, shifts of any integer dtype (negative numbers and uint8 included),
    view(dtype) between
    float32 and int32.

    Why it is safe: powers of two, comparisons and whole quotients are exact in float64 and int64; the greatest common divisor is Euclid's;
    shifts are products and
    floor quotients modulo the width, as ATen defines them.
    """

    treats = (
        "unsupported-operator",
        "convert-error",
        "decompose-error",
        "no-kernel",
        "invalid-graph",
        "run-error",
        "dtype-mismatch",
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-nonfinite",
    )
    prior = 0.7

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        operators = operators_to_replace(evidence, OPERATORS)
        if operators:
            yield self.fix(operators=operators)

    @staticmethod
    def apply(plan: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.ops_bits import BIT_DECOMPOSITIONS
        from autofix.surgery.ops_constants import EXACT_CONSTANTS
        from autofix.surgery.ops_loop import loops_without_asserts

        added = {name: BIT_DECOMPOSITIONS[name] for name in operators if name in BIT_DECOMPOSITIONS}
        if not added:
            raise NothingToDo("none of these operators is known")
        plan.decompositions.update(added)
        plan.translations.update(EXACT_CONSTANTS)
        plan.contexts.append(loops_without_asserts)
        return plan

    REPAIRS = (
        Example(
            PARTS,
            "unsupported-operator",
            {"operators": ["aten.copysign.Scalar", "aten.copysign.Tensor", "aten.frexp.Tensor", "aten.gcd.default", "aten.view.dtype"]},
        ),
        Example(
            NIBBLES,
            "dtype-mismatch",
            {"operators": ["aten.__lshift__.Scalar", "aten.__lshift__.Tensor", "aten.__rshift__.Scalar", "aten.__rshift__.Tensor"]},
        ),
    )
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default"}),)
