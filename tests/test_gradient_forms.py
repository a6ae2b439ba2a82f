"""Gradients in forward operators against torch's own kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autofix.surgery.capture_below_autograd import capture_below_autograd
from autofix.surgery.gradient_forms import GRADIENT_FORMS
from autofix.surgery.gradient_forms_places import PLACE_GRADIENTS

aten = torch.ops.aten


def check(name: str, *args: Any) -> None:
    """Our form of aten.<name>.default gives what the kernel gives."""
    expected = getattr(aten, name)(*args)
    given = {**GRADIENT_FORMS, **PLACE_GRADIENTS}[f"aten.{name}.default"](*args)
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("stride", "padding", "dilation", "groups", "kernel"), [(1, 0, 1, 1, 3), (2, 1, 1, 1, 3), (3, 1, 2, 2, 3), (2, 2, 2, 1, 4)])
def test_convolution(transposed: bool, stride: int, padding: int, dilation: int, groups: int, kernel: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 13, 12)
    weight = torch.randn(*((4, 6 // groups) if transposed else (6, 4 // groups)), kernel, kernel)
    more = [1 if transposed and stride > 1 else 0] * 2
    how = ([stride] * 2, [padding] * 2, [dilation] * 2, transposed, more, groups)
    grad = torch.randn_like(aten.convolution(x, weight, None, *how))
    check("convolution_backward", grad, x, weight, [6], *how, [True, True, True])


@pytest.mark.parametrize(
    "how",
    [
        ([3, 2], [2, 2], [1, 0], False, True, None),
        ([3, 3], [2, 2], [1, 1], True, False, None),
        ([3], [], [0], False, True, None),
        ([3, 3], [2, 2], [1, 1], True, True, None),
        ([2, 2], [2, 2], [0, 0], False, False, 3),
    ],
)
def test_average_pooling(how: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 8)
    check("avg_pool2d_backward", torch.randn_like(aten.avg_pool2d(x, *how)), x, *how)
    check("_adaptive_avg_pool2d_backward", torch.randn(2, 3, 4, 5), x)


def test_resizing() -> None:
    torch.manual_seed(0)
    wide, line = torch.randn(2, 3, 18, 16), torch.randn(2, 3, 18)
    for align in (True, False):
        check("upsample_bilinear2d_backward", torch.randn(2, 3, 13, 5), [13, 5], [2, 3, 9, 8], align, None, None)
        check("upsample_linear1d_backward", line, [18], [2, 3, 9], align, None)
    check("upsample_bilinear2d_backward", wide, [18, 16], [2, 3, 9, 8], False, 2.0, 2.0)
    check("upsample_nearest2d_backward", wide, [18, 16], [2, 3, 9, 8], 2.0, 2.0)
    check("upsample_nearest1d_backward", line, [18], [2, 3, 7], None)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_distances_with_two_equal_points(p: float) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    b[:, 0] = a[:, 1]
    distances = aten._cdist_forward(a, b, p, None)
    check("_cdist_backward", torch.randn_like(distances), a, b, p, distances)


def test_activations() -> None:
    x = torch.linspace(-6, 6, 49)
    grad = torch.linspace(1, 2, 49)
    check("silu_backward", grad, x)
    check("mish_backward", grad, x)
    check("hardshrink_backward", grad, x, 0.5)
    check("softshrink_backward", grad, x, 0.5)


class Slope(torch.nn.Module):
    """The gradient of a recurrent layer for its input."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            return torch.autograd.grad(self.layer(x)[0].pow(2).sum(), x)[0]


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_gradients_of_recurrent_layers_are_recorded_step_by_step(kind: Any) -> None:
    from torch.export._patches import register_gru_while_loop_decomposition, register_lstm_while_loop_decomposition

    torch.manual_seed(0)
    model = Slope(kind(4, 3, batch_first=True)).eval()
    with register_lstm_while_loop_decomposition(), register_gru_while_loop_decomposition(), capture_below_autograd(), torch.no_grad():
        program = torch.export.export(model, (torch.randn(3, 5, 4),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    assert "while_loop" not in str(program.graph)
    x = torch.randn(2, 5, 4)
    torch.testing.assert_close(program.module()(x), model(x))
