"""Replacements reach the bodies of loops; numbers that a comprehension takes from a tensor count as values."""

from __future__ import annotations

import libcst as cst
import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop, while_loop_op

from autofix.export import FunctionOverrides
from autofix.surgery.source_sizes import tainted_names


@pytest.mark.parametrize("compiled", [False, True], ids=["operator", "torch.while_loop"])
def test_a_replacement_reaches_the_body_of_a_loop(compiled: bool) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def go(i: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                return i < 3

            def turn(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                return i + 1, torch.nn.functional.softplus(y)

            start = (torch.zeros((), dtype=torch.int64), x.clone())
            return (while_loop if compiled else while_loop_op)(go, turn, start, *(() if compiled else ((),)))[1]

    with FunctionOverrides({torch.nn.functional.softplus: lambda y: y * 2}):
        program = torch.export.export(Model(), (torch.ones(2),))
    targets = [str(n.target) for m in program.graph_module.modules() for n in getattr(m, "graph", torch.fx.Graph()).nodes]
    assert "while_loop" in targets
    if not compiled:  # what torch.compile traces is out of reach, and must stay whole
        assert "aten.mul.Tensor" in targets and "aten.softplus.default" not in targets
        assert torch.equal(program.module()(torch.ones(2)), torch.full((2,), 8.0))


def test_names_of_a_comprehension_hold_values() -> None:
    text = "def f(self, img, boxes):\n    for box in boxes.tolist():\n        x0, x1 = [int(v) for v in box]\n        n = [k for k in (1, 2)]\n"
    function = cst.parse_module(text).body[0]
    assert isinstance(function, cst.FunctionDef)
    assert tainted_names(function)[1] == {"box", "v", "x0", "x1"}
