"""A few real exports of decompositions with loops, compared in ONNX Runtime at other sizes."""

import numpy as np
import onnxruntime as ort
import pytest
import torch

from autofix.export import extra_decompositions
from autofix.program import CapturePlan
from autofix.surgery.ops_constants import EXACT_CONSTANTS
from autofix.surgery.ops_linalg import LINALG_DECOMPOSITIONS
from autofix.surgery.ops_loop import loops_without_asserts
from autofix.surgery.ops_order import ORDER_DECOMPOSITIONS
from autofix.surgery.ops_scan import SCAN_DECOMPOSITIONS
from autofix.surgery.ops_special_gamma import GAMMA_FUNCTIONS


class Calls(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def compare(function, table, inputs):
    """Export on the first input with every axis dynamic; the others must agree too."""
    axes = dict.fromkeys(range(inputs[0].ndim), torch.export.Dim.DYNAMIC)
    found = {getattr(getattr(torch.ops.aten, n.split(".")[1]), n.split(".")[2]): f for n, f in EXACT_CONSTANTS.items()}
    with loops_without_asserts(), extra_decompositions(CapturePlan(decompositions=dict(table), translations=dict(EXACT_CONSTANTS))):
        program = torch.onnx.export(
            Calls(function).eval(), (inputs[0],), dynamo=True, dynamic_shapes=(axes,), custom_translation_table=found, verbose=False
        )
    session = ort.InferenceSession(program.model_proto.SerializeToString())
    for x in inputs:
        expected = function(x)
        for ours, theirs in zip(session.run(None, {session.get_inputs()[0].name: x.numpy()}), expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(np.asarray(ours)), theirs, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.slow
def test_matrices_of_any_size():
    def function(a):
        spd = a @ a.mT + torch.eye(a.shape[-1])
        return torch.linalg.inv(spd), torch.linalg.eigvalsh(spd), torch.linalg.cholesky(spd)

    compare(function, LINALG_DECOMPOSITIONS, [torch.randn(2, 3, 3), torch.randn(3, 7, 7), torch.randn(1, 1, 1), torch.randn(0, 2, 2)])


@pytest.mark.slow
def test_orders_and_scans_of_any_length():
    def function(x):
        return (*torch.sort(x, dim=1, stable=True, descending=True), x.median(1)[0], *torch.cummax(x, 1), torch.logcumsumexp(x, 1))

    nan = torch.tensor([[1.0, float("nan"), 3.0, float("inf"), 1.0]])
    compare(function, {**ORDER_DECOMPOSITIONS, **SCAN_DECOMPOSITIONS}, [torch.randn(2, 6), torch.zeros(3, 9), nan])


@pytest.mark.slow
def test_special_functions_keep_their_constants():
    def function(x):
        return torch.lgamma(x), torch.digamma(x), torch.igamma(x, x + 1)

    compare(function, GAMMA_FUNCTIONS, [torch.rand(3, 4) * 5 + 0.1, torch.rand(2, 2) * 500])
