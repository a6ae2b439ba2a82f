"""Assignments by mask and to evenly spaced rows with dynamic sizes: no scatter is left, and the values stay the same."""

from __future__ import annotations

import logging
import warnings

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from torch import nn

from autofix.surgery.onnx_fast_index import FAST_INDEX
from autofix.surgery.onnx_fast_nodes import replace_fast

NAN, INF = float("nan"), float("inf")


def fast_file(model: nn.Module, inputs: list[torch.Tensor], axes: list[dict[int, object]]) -> tuple[onnx.ModelProto, int]:
    """The fast file, and how many scatters are left in it."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.onnx.export(model.eval(), tuple(inputs), dynamo=True, dynamic_shapes={"xs": tuple(axes)}, verbose=False)
    assert made is not None
    proto = onnx.ModelProto.FromString(made.model_proto.SerializeToString())
    assert replace_fast(proto, FAST_INDEX)
    return proto, sum(n.op_type in ("ScatterND", "ScatterElements") for n in proto.graph.node)


def check(proto: onnx.ModelProto, model: nn.Module, *sets: list[torch.Tensor]) -> None:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    for inputs in sets:
        with torch.no_grad():
            wanted = model(*[x.clone() for x in inputs])
        got = session.run(None, {n: x.numpy() for n, x in zip(names, inputs, strict=True)})
        for a, b in zip(wanted if isinstance(wanted, tuple) else (wanted,), got, strict=True):
            np.testing.assert_allclose(b, a.numpy(), rtol=1e-6, atol=1e-6)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.row, self.scale, self.block = (nn.Parameter(torch.randn(*s)) for s in ((7,), (7,), (5, 7)))

    def forward(self, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, v, rows, full = xs
        a, b, c, d, e = (x.clone() for _ in range(5))
        a[rows] = self.row
        b[rows] = v[rows] * self.scale + 1
        c[full] = (v[full].abs() + x[full]).sqrt()
        d[full] = x.mean()
        e[rows] = 0.0
        f = x.unsqueeze(2).repeat(1, 1, 5, 1)
        f[rows] = self.row
        return a, b, c, d, e, f


class RowByRow(nn.Module):
    """What is assigned depends on the other rows that the mask takes: this can't become a choice."""

    def forward(self, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, v, rows, full = xs
        a, b = x.clone(), x.clone()
        a[rows] = torch.softmax(v[rows], 0)
        b[full] = 2.0
        return a, b


def masked_inputs(b: int, t: int) -> list[torch.Tensor]:
    x, v = torch.randn(b, t, 7), torch.randn(b, t, 7)
    if x.numel():
        x[0, 0, 0], v[0, 0, 1], v[0, 0, 2] = NAN, INF, -INF
    return [x, v, torch.rand(b, t) > 0.5, torch.rand(b, t, 7) > 0.5]


D = torch.export.Dim.DYNAMIC


@pytest.mark.parametrize(("model", "left"), [(Masked, 0), (RowByRow, 1)])
def test_mask(model, left):
    torch.manual_seed(0)
    made = model()
    proto, scatters = fast_file(made, masked_inputs(2, 4), [{0: D, 1: D}] * 4)
    assert scatters == left
    check(proto, made, masked_inputs(2, 4), masked_inputs(3, 5), masked_inputs(1, 1), masked_inputs(2, 0))


class Woven(nn.Module):
    def forward(self, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = xs
        both = torch.empty(a.shape[0], a.shape[1], a.shape[2] * 2)
        both[..., 0::2], both[..., 1::2] = a, b
        one = torch.ones(a.shape[0], a.shape[1] * 3, a.shape[2])
        one[:, 1::3] = b
        n, c, h, w = a.shape[0], a.shape[1], a.shape[1], a.shape[2]
        grid = a.new_zeros(n, c * 2, w * 2)
        grid[:, 0::2, 0::2], grid[:, 0::2, 1::2], grid[:, 1::2, 1::2] = a, b, a + b
        return both, one, grid, grid[:, 0::2] * h


def test_rows_of_dynamic_axes():
    torch.manual_seed(0)
    model = Woven()
    inputs = [torch.randn(2, 5, 4), torch.randn(2, 5, 4)]
    proto, scatters = fast_file(model, inputs, [{0: D, 1: D, 2: D}] * 2)
    assert scatters == 0
    check(proto, model, inputs, *([torch.randn(*s), torch.randn(*s)] for s in ((1, 1, 1), (3, 2, 7), (2, 4, 0), (0, 3, 2))))


class Uneven(nn.Module):
    """The length need not be a multiple of the step, so these rows can't be stacked."""

    def forward(self, *xs: torch.Tensor) -> torch.Tensor:
        x, v = xs
        y = x.clone()
        y[:, 0::2] = 1.0
        y[:, 1:4] = v
        return y


def test_uneven_rows_stay_right():
    model = Uneven()
    inputs = [torch.randn(2, 7, 3), torch.randn(2, 3, 3)]
    proto, left = fast_file(model, inputs, [{0: D, 1: D}, {0: D}])
    assert left == 1
    check(proto, model, inputs, [torch.randn(3, 10, 3), torch.randn(3, 3, 3)])


class Runs(nn.Module):
    def forward(self, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, v = xs
        made = [x.clone() for _ in range(5)]
        made[0][:, 1:4] = v
        made[1][:, -3:] = v
        made[2][:, 2:] = x[:, 2:] * 2
        made[3][..., :-1] = x[..., 1:]
        made[4][:, : v.shape[1] - 1] = 5.0
        return tuple(made)


def test_runs_of_rows():
    model = Runs()
    inputs = [torch.randn(2, 7, 4), torch.randn(2, 3, 4)]
    proto, left = fast_file(model, inputs, [{0: D, 1: D, 2: D}, {0: D, 2: D}])
    assert left == 0
    check(proto, model, inputs, [torch.randn(3, 4, 2), torch.randn(3, 3, 2)], [torch.randn(1, 11, 9), torch.randn(1, 3, 9)])


class Messages(nn.Module):
    def forward(self, *xs: torch.Tensor) -> torch.Tensor:
        x, edges = xs
        rows = edges[1].unsqueeze(-1).expand(-1, x.shape[1])
        return torch.zeros_like(x).scatter_add(0, rows, x[edges[0]] * 2)


def test_rows_added_at_dynamic_places():
    torch.manual_seed(0)
    model = Messages()
    inputs = [torch.randn(5, 6), torch.randint(0, 5, (2, 9))]
    proto, left = fast_file(model, inputs, [{0: D}, {1: D}])
    assert left == 1 and "ScatterND" in [n.op_type for n in proto.graph.node]
    check(proto, model, inputs, [torch.randn(8, 6), torch.randint(0, 8, (2, 30))], [torch.randn(3, 6), torch.zeros(2, 0, dtype=torch.int64)])
