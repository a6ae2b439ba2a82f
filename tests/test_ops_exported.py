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
from autofix.surgery.ops_reductions import REDUCTION_DECOMPOSITIONS
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
            ours = torch.as_tensor(np.asarray(ours))
            if theirs.dtype.is_floating_point:
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, equal_nan=True)
            else:
                assert torch.equal(ours, theirs)


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


@pytest.mark.slow
def test_sums_of_whole_numbers_keep_every_digit_and_wrap():
    def function(x):
        return x.sum(1), x.sum(), x.sum(-1, keepdim=True), x.to(torch.int32).sum(0)

    high, least = 2**63 - 1, -(2**63)
    table = {n: f for n, f in REDUCTION_DECOMPOSITIONS.items() if n.startswith("aten.sum.")}
    inputs = [
        torch.tensor([[2**53 + 1, 2], [2**60 + 1, 3], [high, high], [least, -1], [-5, 7]]),
        torch.tensor([[1, -(2**53) - 1, 2**62, 2**62, 5]]),
        torch.full((3, 1000), high),
        torch.zeros(2, 0, dtype=torch.int64),
    ]
    compare(function, table, inputs)


@pytest.mark.slow
def test_spreads_whose_squares_overflow():
    def function(x):
        return x.std(-1), x.var(1), *torch.var_mean(x), *torch.std_mean(x, 1, correction=0), x.std()

    table = {n: f for n, f in REDUCTION_DECOMPOSITIONS.items() if n.startswith(("aten.std", "aten.var"))}
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    compare(function, table, [x, 1e19 * x, 1e20 * x, 3 + 1e-6 * x, x[:, :1], x[:1].repeat(2, 90)])
    assert bool(torch.isfinite((1e20 * x).std()))  # PyTorch's own answer
