"""Whole powers, diagonals and divisions by PyTorch's own answers; input sets that reveal what they are for."""

import itertools
import math
from pathlib import Path

import pytest
import torch

from autofix.case import CaseSpec
from autofix.isolate import CaseProcess
from autofix.shake import Shake
from autofix.surgery.ops_moves import MOVE_DECOMPOSITIONS
from autofix.surgery.ops_numerics import NUMERIC_DECOMPOSITIONS
from autofix.surgery.ops_pool import adaptive_mean
from autofix.target import Target


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_powers_of_whole_numbers_wrap_as_in_pytorch(dtype):
    """Every base with every exponent, negative and far too large ones among them."""
    info = torch.iinfo(dtype)
    numbers = [n for n in (-3, -2, -1, 0, 1, 2, 3, 7, 31, 32, 62, 63, 64, 100, info.max, info.min) if info.min <= n <= info.max]
    base, exponent = (torch.tensor(list(v), dtype=dtype) for v in zip(*itertools.product(numbers, numbers), strict=True))
    got = NUMERIC_DECOMPOSITIONS["aten.pow.Tensor_Tensor"](base, exponent)
    assert torch.equal(got, torch.pow(base, exponent)) and got.dtype == dtype
    for number in (0, 1, 2, 3, 5, 13):
        assert torch.equal(NUMERIC_DECOMPOSITIONS["aten.pow.Tensor_Scalar"](base, number), torch.pow(base, number))
    assert torch.equal(NUMERIC_DECOMPOSITIONS["aten.pow.Scalar"](3, exponent), torch.pow(3, exponent))


def test_powers_of_reals_are_left_alone():
    assert NUMERIC_DECOMPOSITIONS["aten.pow.Tensor_Tensor"](torch.ones(2), torch.ones(2)) is NotImplemented
    assert NUMERIC_DECOMPOSITIONS["aten.pow.Tensor_Scalar"](torch.ones(2), 2) is NotImplemented


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (0, 3), (2, 3, 4)])
@pytest.mark.parametrize("offset", [-7, -2, -1, 0, 1, 3, 9])
def test_diagonals_keep_what_is_beside_them_out(shape, offset):
    x = torch.full(shape, math.nan)
    x.view(-1)[::2] = torch.arange(len(x.reshape(-1)[::2])).float()
    for dims in itertools.permutations(range(len(shape)), 2):
        got = MOVE_DECOMPOSITIONS["aten.diagonal.default"](x, offset, *dims)
        assert torch.equal(got.nan_to_num(-1), torch.diagonal(x, offset, *dims).nan_to_num(-1))


def test_trace_and_logit():
    x = torch.tensor([[1.0, math.inf], [math.nan, 2.0]])
    assert MOVE_DECOMPOSITIONS["aten.trace.default"](x) == 3.0
    z = torch.tensor([math.nan, -1.0, 0.0, 0.2, 0.9995, 1.0, 7.0])
    for eps in (None, 1e-3):
        want = torch.logit(z, eps)
        assert torch.allclose(MOVE_DECOMPOSITIONS["aten.logit.default"](z, eps), want, equal_nan=True)


def test_divisions_of_whole_numbers_round_as_asked():
    a, b = torch.tensor([-7, 7, -7, 7, 2**40 + 1, 123456789]), torch.tensor([3, -3, -3, 3, 7, 1])
    for mode in ("floor", "trunc"):
        assert torch.equal(NUMERIC_DECOMPOSITIONS["aten.div.Tensor_mode"](a, b, rounding_mode=mode), torch.div(a, b, rounding_mode=mode))


def test_means_over_no_window_at_all():
    assert adaptive_mean(torch.ones(1, 2, 3, 4), [2, 0]).shape == (1, 2, 2, 0)


MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        return {result}


def get_inputs():
    torch.manual_seed(0)
    return [torch.rand(3, 4, 4) + 0.5]


{more}
"""


def facts_of(folder: Path, result: str, init: str = "pass", more: str = "") -> dict:
    """The reference's facts of a small model."""
    file = folder / "model.py"
    file.write_text(MODEL.format(result=result, init=init, more=more))
    with CaseProcess(CaseSpec(str(file)), Target(), fork=True) as process:
        return process.reference()


def sets_of(facts: dict) -> dict[str, bool]:
    """{set name: whether it is advisory}."""
    return {s["name"]: s["advisory"] for s in facts["input_sets"]}


def test_jumps_at_multiples_of_the_divisor_are_tried(tmp_path):
    """A float64 run divides by another 0.3 there; all operators have one right float32 result, so the set counts."""
    found = sets_of(facts_of(tmp_path, "x // 0.3"))
    assert found["multiples in x"] is False and found["large multiples in x"] is True


@pytest.mark.parametrize(("function", "rounds"), [(lambda x: (x // 0.3).t()[0] * 2, False), (torch.exp, True), (lambda x: x.sum(-1), True)])
def test_shaking_tells_what_can_round_otherwise(function, rounds):
    x = torch.rand(3, 4)
    with Shake() as shake:
        function(x)
    assert shake.rounds is rounds


@pytest.mark.parametrize(
    ("result", "advisory"), [("x.diagonal(0, 1, 2) * 2", False), ("x @ x.transpose(1, 2)", True), ("torch.nn.functional.gelu(x)", True)]
)
def test_nan_counts_where_it_has_its_place(tmp_path, result, advisory):
    assert sets_of(facts_of(tmp_path, result))["NaN and infinity"] is advisory


def test_recurrent_layers_meet_an_empty_batch(tmp_path):
    """ONNX Runtime's LSTM ends the process there, whatever the axis is called."""
    more = 'dynamic_shapes = {"x": {0: "batch", 1: "time"}}'
    found = sets_of(facts_of(tmp_path, "self.r(x)[0]", "self.r = nn.LSTM(4, 5, batch_first=True)", more))
    assert found["batch=0"] is False and "time=0" not in found
