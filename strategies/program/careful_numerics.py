"""Write functions whose usual ONNX form loses digits, overflows or drops options in forms that agree with PyTorch everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autofix.errors import NothingToDo
from autofix.recipe import Fix
from autofix.strategy import Evidence, Example, ProgramStrategy
from autofix.surgery.ops_proposal import operator_key
from autofix.surgery.ops_suspects import DELICATE, ENTERED_BY, FAULTY, everyday_suspect
from autofix.target import Target
from autofix.trial import Diagnosis, Stage

RATES = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.expm1(x) / x, torch.logaddexp(100 * x, 100 * y), torch.atan2(x, y), torch.xlogy(x, y.abs())


def get_inputs():
    return [torch.rand(4) + 0.5, torch.rand(4) + 0.5]


def get_more_inputs():
    return [[torch.tensor([1e-7, 2e-7, 3.0]), torch.tensor([-1.0, 2.0, -9.0])]]


dynamic_shapes = {"x": {0: "n"}, "y": {0: "n"}}
"""

SMOOTHED = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, labels):
        return F.cross_entropy(x, labels, label_smoothing=0.1)


def get_inputs():
    return [torch.randn(4, 5), torch.tensor([0, 1, 4, 2])]


def get_more_inputs():
    return [[torch.randn(2, 5), torch.tensor([3, -100])]]


dynamic_shapes = {"x": {0: "n"}, "labels": {0: "n"}}
"""


DIVISORS = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x, a, b):
        pools = F.avg_pool2d(x, 2, divisor_override=3), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5)
        return *pools, torch.div(a, 4, rounding_mode="trunc"), torch.div(a, b, rounding_mode="trunc"), a.prod(), a.prod(0, keepdim=True)


def get_inputs():
    return [torch.randn(1, 2, 8, 7), torch.tensor([5, 9, 100]), torch.tensor([3, 8, 21])]


def get_more_inputs():
    return [[torch.randn(2, 2, 11, 10), torch.tensor([-5, -123456787, 2**40 + 3]), torch.tensor([3, -4, 2])]]


dynamic_shapes = {"x": {0: "n", 2: "h", 3: "w"}}
"""


SPREADS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x / (x.std(-1, keepdim=True) + 1e-6), *torch.var_mean(x, 1, correction=0)


def get_inputs():
    return [torch.randn(4, 16)]


dynamic_shapes = {"x": {0: "n"}}
"""


SPECTRUM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x):
        return torch.log1p(torch.stft(x, 16, 4, window=self.window, return_complex=True).abs())


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 64)]


def get_more_inputs():
    torch.manual_seed(1)
    return [[torch.randn(2, 64) * 1e19], [torch.randn(2, 64) * 1e-21]]


dynamic_shapes = {"x": {0: "n"}}
"""


class CarefulNumerics(ProgramStrategy):
    """Replace operators by forms that are right for tiny, huge, signed-zero, infinite, NaN and empty operands, and that keep every option.

    When it helps: expm1, log1p, logaddexp, logsigmoid, softplus, xlogy, binary cross entropy, atan2, heaviside, sign, remainder, fmod,
    floor division, truncating division and products of whole numbers, pow of integers, cross entropy with label smoothing, multilabel margins,
    average pooling with divisor_override, addmm and baddbmm with beta = 0, batch norm on batch statistics, group and instance norm of nearly
    equal values, attention rows with every key masked, means and any over nothing, variances whose squares overflow, sums of half precision,
    maxima of NaN, moduli of complex numbers.

    Why it is safe: each form is ATen's definition, evaluated in float64 where rounding matters (Goldberg 1991 for log1p; c10's
    div_floor_floating for floor division; safe softmax for attention).
    """

    treats = (
        "mismatch-at-example",
        "mismatch-at-other-values",
        "mismatch-at-other-sizes",
        "mismatch-nonfinite",
        "dtype-mismatch",
        "unsupported-operator",
        "convert-error",
        "decompose-error",
        "invalid-graph",
    )
    prior = 0.45

    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        symptom = evidence.diagnosis.symptom
        ran = {operator_key(name) for name in evidence.operators}
        located = operator_key(evidence.fact("operator")) if evidence.fact("operator") else ""
        written = "\n".join(evidence.facts.get("sources", {}).values())

        def used(names: tuple[str, ...]) -> list[str]:
            out = []
            for name in names:
                key = operator_key(name)
                entered = key in ran or ran.intersection(ENTERED_BY.get(name.split(".")[1], ()))
                if key == located or (entered and everyday_suspect(key, symptom, written, evidence.fact("message"), ran)):
                    out.append(name)
            return sorted(out)

        faulty, delicate = used(FAULTY), used(DELICATE)
        if not symptom.startswith(("mismatch", "dtype")):
            named = [n for n in FAULTY + DELICATE if operator_key(n) == located]
            if named:
                yield self.fix(operators=sorted(named))
            elif symptom == "invalid-graph" and faulty and not located:
                yield self.fix(operators=faulty)
            return
        if faulty and (symptom != "mismatch-nonfinite" or not delicate):
            yield self.fix(operators=faulty)
        if delicate:
            yield self.fix(operators=sorted([*faulty, *delicate]))

    @staticmethod
    def apply(plan: Any, *, operators: list[str]) -> Any:
        from autofix.surgery.ops_constants import EXACT_CONSTANTS
        from autofix.surgery.ops_losses import LOSS_DECOMPOSITIONS
        from autofix.surgery.ops_moves import MOVE_DECOMPOSITIONS
        from autofix.surgery.ops_nan import NAN_TRANSLATIONS
        from autofix.surgery.ops_norms import NORM_DECOMPOSITIONS
        from autofix.surgery.ops_numerics import NUMERIC_DECOMPOSITIONS
        from autofix.surgery.ops_pool import AVERAGE_DECOMPOSITIONS
        from autofix.surgery.ops_reductions import REDUCTION_DECOMPOSITIONS
        from autofix.surgery.ops_scan import PRODUCT_DECOMPOSITIONS

        known = {
            **NUMERIC_DECOMPOSITIONS,
            **REDUCTION_DECOMPOSITIONS,
            **AVERAGE_DECOMPOSITIONS,
            **PRODUCT_DECOMPOSITIONS,
            **MOVE_DECOMPOSITIONS,
            **LOSS_DECOMPOSITIONS,
            **NORM_DECOMPOSITIONS,
        }
        decomposed = {name: known[name] for name in operators if name in known}
        translated = {name: NAN_TRANSLATIONS[name] for name in operators if name in NAN_TRANSLATIONS}
        if not decomposed and not translated:
            raise NothingToDo("none of these operators is known")
        plan.decompositions.update(decomposed)
        plan.translations.update(translated)
        plan.translations.update(EXACT_CONSTANTS)
        return plan

    REPAIRS = (
        Example(
            RATES,
            "mismatch-nonfinite",
            {
                "operators": [
                    "aten.atan2.default",
                    "aten.expm1.default",
                    "aten.logaddexp.default",
                    "aten.xlogy.Scalar_Other",
                    "aten.xlogy.Scalar_Self",
                    "aten.xlogy.Tensor",
                ]
            },
        ),
        Example(
            DIVISORS,
            "mismatch-at-example",
            {"operators": ["aten.avg_pool2d.default", "aten.div.Tensor_mode", "aten.prod.default", "aten.prod.dim_int"]},
        ),
        Example(SPREADS, "mismatch-nonfinite", {"operators": ["aten.std.correction", "aten.var_mean.correction"]}),
        Example(SPECTRUM, "mismatch-nonfinite", {"operators": ["aten.abs.default", "aten.log1p.default"]}),
        Example(SMOOTHED, "mismatch-at-example", {"operators": ["aten.cross_entropy_loss.default"]}),
    )
    DECLINES = (Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default"}),)
