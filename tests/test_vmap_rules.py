"""torch.func.vmap under the rules that keep sizes: the values of its own rules, at other batch sizes than the captured one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import grad, hessian, jacrev, vmap

from autofix.surgery.capture_below_autograd import capture_below_autograd

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "cat": lambda x: torch.cat([x, x.sin()]).tanh().sum(),
    "constant": lambda x: torch.cat([x, torch.ones(2)], -1).tanh().sum(),
    "select": lambda x: (x[0] * x[1:]).tanh().sum(),
    "diagonal": lambda x: (x[:, None] * x).diagonal().tanh().sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("derivative", [grad, hessian, lambda f: jacrev(grad(f))])
def test_mapped_derivatives_keep_a_dynamic_batch(name: str, derivative: Any) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return vmap(derivative(FUNCTIONS[name]))(x)

    torch.manual_seed(0)
    other = torch.randn(7, 3)
    expected = Model()(other)
    with capture_below_autograd(), torch.no_grad():
        program = torch.export.export(Model(), (torch.randn(4, 3),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    torch.testing.assert_close(program.module()(other), expected)
    torch.testing.assert_close(Model()(other), expected)  # the rules are torch's own again
