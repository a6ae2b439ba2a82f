"""Activations in double precision that ONNX Runtime has no kernels for."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper

from autofix.surgery.onnx_casts import repair_kernels

VALUES = [0.0, -0.0, 1e-300, -1e-300, 1e-9, -1e-9, 1e-4, -1e-4, -0.3, 0.7, -2.5, 3.5, -40.0, 40.0, 800.0, -800.0, *map(float, ("inf", "-inf", "nan"))]
FORMS = {
    "Elu": ({"alpha": 0.7}, lambda x: F.elu(x, 0.7)),
    "Celu": ({"alpha": 1.5}, lambda x: F.celu(x, 1.5)),
    "Selu": ({}, F.selu),
    "Softplus": ({}, lambda x: torch.logaddexp(x, torch.zeros_like(x))),
    "Mish": ({}, F.mish),
    "LeakyRelu": ({"alpha": 0.01}, F.leaky_relu),
    "HardSigmoid": ({"alpha": 1 / 6, "beta": 0.5}, F.hardsigmoid),
    "HardSwish": ({}, F.hardswish),
    "Softsign": ({}, F.softsign),
}


@pytest.mark.parametrize("op", FORMS)
def test_double_activation_agrees_with_torch(op: str) -> None:
    attributes, reference = FORMS[op]
    x = torch.tensor(VALUES, dtype=torch.float64)
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    values = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, ["n"]) for n in "xy"]
    model = helper.make_model(helper.make_graph([node], "g", values[:1], values[1:]), opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    assert repair_kernels(model)
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for given in (x, x[:0]):
        got = session.run(None, {"x": given.numpy()})[0]
        np.testing.assert_allclose(got, reference(given).numpy(), rtol=1e-13, atol=0)


def test_double_prelu_has_a_slope_for_each_channel() -> None:
    x, slope = torch.linspace(-2, 2, 12, dtype=torch.float64).reshape(2, 3, 2), torch.tensor([0.1, 0.25, 2.0], dtype=torch.float64)
    node = helper.make_node("PRelu", ["x", "s"], ["y"])
    values = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in "xsy"]
    model = helper.make_model(helper.make_graph([node], "g", values[:2], values[2:]), opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    assert repair_kernels(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    got = session.run(None, {"x": x.numpy(), "s": slope.reshape(3, 1).numpy()})[0]
    np.testing.assert_allclose(got, F.prelu(x, slope).numpy(), rtol=1e-15)
