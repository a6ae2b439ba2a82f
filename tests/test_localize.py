"""Localisation: the node that was tampered with is named, with its aten operator and the person's line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autofix.case import Case, CaseSpec, load_case
from autofix.localize import locate_fault
from autofix.reference import Reference, load_reference, make_reference
from autofix.target import Target

MODEL = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 3)
    def forward(self, x):
        h = self.a(x)
        h = torch.sin(h) + x
        h = torch.relu(h)
        return self.b(h)
def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(2, 4)]
"""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, Reference]:
    folder = tmp_path_factory.mktemp("locate")
    file = folder / "located.py"
    file.write_text(MODEL)
    case = load_case(CaseSpec(str(file)))
    make_reference(case, Target(), str(folder))
    return case, load_reference(str(folder))


def file_of(case: Case, path: Path, changes: dict[str, str] | None = None, weight: float = 1.0) -> str:
    """The model as an exporter writes it, with some operators replaced and the second layer's weights scaled."""
    model = case.build()
    ops = {"first": "Gemm", "bend": "Sin", "join": "Add", "cut": "Relu", "last": "Gemm"} | (changes or {})
    nodes = [
        helper.make_node(ops["first"], ["x", "aw", "ab"], ["h0"], "first", transB=1),
        helper.make_node(ops["bend"], ["h0"], ["h1"], "bend"),
        helper.make_node(ops["join"], ["h1", "x"], ["h2"], "join"),
        helper.make_node(ops["cut"], ["h2"], ["h3"], "cut"),
        helper.make_node(ops["last"], ["h3", "bw", "bb"], ["output"], "last", transB=1),
    ]
    arrays = {"aw": model.a.weight, "ab": model.a.bias, "bw": model.b.weight * weight, "bb": model.b.bias}
    weights = [numpy_helper.from_array(v.detach().numpy().astype(np.float32), k) for k, v in arrays.items()]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", k]) for n, k in (("x", 4), ("output", 3)))
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(path))
    return str(path)


@pytest.mark.parametrize(
    ("changes", "weight", "node", "operator", "line"),
    [
        ({"bend": "Cos"}, 1.0, "bend", "aten.sin", 11),
        ({"join": "Sub"}, 1.0, "join", "aten.add", 11),
        ({"cut": "Abs"}, 1.0, "cut", "aten.relu", 12),
        ({}, 1.003, "last", "aten.addmm", 13),
    ],
)
def test_the_tampered_node_is_named(known: Any, tmp_path: Path, changes: dict[str, str], weight: float, node: str, operator: str, line: int) -> None:
    case, reference = known
    found = locate_fault(case, file_of(case, tmp_path / "m.onnx", changes, weight), reference.sets[0], {"inputs": ["x"]})
    assert found is not None and found["node"] == node and found["operator"].startswith(operator)
    assert found["line"] == line and found["file"].endswith("located.py") and found["error_before"] < 1e-5 < found["error_after"]


def test_a_right_file_has_no_fault(known: Any, tmp_path: Path) -> None:
    case, reference = known
    assert locate_fault(case, file_of(case, tmp_path / "m.onnx"), reference.sets[0], {"inputs": ["x"]}) is None
