"""Whole repairs at old opsets: activations and norms that later opsets made operators of their own."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch

from autofix.case import CaseSpec
from autofix.repair import Settings, repair
from autofix.target import Target
from autofix.testing import warm_up

MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.last = nn.LayerNorm(8)
        self.acts = nn.ModuleList([nn.SiLU(), nn.GELU(), nn.Hardswish(), nn.Mish(), nn.GELU(approximate="tanh")])

    def forward(self, x):
        y = self.norm(self.conv(x))
        for act in self.acts:
            y = act(y)
        return self.last(y.mean((2, 3)))


def get_inputs():
    return [torch.randn(2, 3, 8, 8)]


dynamic_shapes = {"x": {0: "batch"}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("opset", [11, 17])
def test_activations_come_out_at_old_opsets(opset: int, tmp_path: Path) -> None:
    warm_up()
    file = tmp_path / "acts.py"
    file.write_text(MODEL)
    target = Target(min_opset=opset, max_opset=opset)
    found = repair(CaseSpec(str(file)), target, Settings(output=tmp_path / "out", use_cache=False, latency_seconds=0.0), fork=True)
    assert found.ok, found.stopped
    model = onnx.load(tmp_path / "out" / "model.onnx")
    assert [o.version for o in model.opset_import if o.domain == ""] == [opset]
    assert not any(n.domain for n in model.graph.node)


def test_sums_over_named_axes_are_products():
    from autofix.surgery.ops_einsum import einsum_by_products

    x, y = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    for equation, tensors in (("btd,bsd->bts", [x, y]), ("bdd->b", [x[:, :3]]), ("...d,d->...", [x, y[0, 0]]), ("btd,bsd,b->ts", [x, y, x[:, 0, 0]])):
        torch.testing.assert_close(einsum_by_products(equation, tensors), torch.einsum(equation, *tensors))
