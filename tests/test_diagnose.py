"""What the messages of the exporters mean."""

from __future__ import annotations

import pytest

from autofix.diagnose import match_patterns
from autofix.trial import Stage


@pytest.mark.parametrize(
    ("message", "operator"),
    [
        ("ONNX export failed on an operator with unrecognized namespace acme::top_op. If you are trying to export", "acme.top_op.default"),
        ("Exporting the operator 'aten::lgamma' to ONNX opset version 17 is not supported", "aten.lgamma.default"),
        ("No ONNX function found for <OpOverload(op='aten.linalg_cholesky_ex', overload='default')>", "aten.linalg_cholesky_ex.default"),
    ],
)
def test_the_operator_that_has_no_translation_is_named(message: str, operator: str) -> None:
    symptom, facts = match_patterns(message, Stage.CONVERT)
    assert (symptom, facts["operator"]) == ("unsupported-operator", operator)
