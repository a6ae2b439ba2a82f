"""The profile of a slow file: what belongs to which line, what PyTorch needs for the same, and why. Times are made up, one model is real."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autofix.eager_profile import EagerCall, with_eager
from autofix.profile import Graph, Row, node_place, rows_of, self_times, smallest
from autofix.slowness import name_causes, slow_lines

FILE = "/somewhere/model.py"


def event(name, start, length, kernel="Op", cat="Node"):
    return {"ph": "X", "cat": cat, "name": name if cat != "Node" else name + "_kernel_time", "ts": start, "dur": length, "args": {"op_name": kernel}}


def run(start, length):
    return event("model_run", start, length, cat="Session")


def test_a_loops_own_time_is_without_its_body():
    events = [run(0, 1000), event("loop", 10, 500, "Loop"), event("mul", 20, 100), event("mul", 200, 150), event("add", 600, 50)]
    times = self_times(events)
    assert times == [{"loop": (0.25, "Loop"), "mul": (0.25, "Op"), "add": (0.05, "Op")}]


def test_the_smallest_run_counts_without_the_first():
    events = [run(0, 100), event("a", 1, 10), run(200, 100), event("a", 201, 50), run(400, 100), event("a", 401, 40), event("b", 450, 5)]
    assert smallest(self_times(events)) == {"a": (0.04, "Op"), "b": (0.005, "Op")}
    assert smallest(self_times(events[:2])) == {"a": (0.01, "Op")}


def node(op_type, inputs, outputs, line=0, operator="", path="", name=None, **attributes):
    made = helper.make_node(op_type, inputs, outputs, name=name or f"node_{outputs[0]}", **attributes)
    if line:
        notes = {
            "pkg.torch.onnx.fx_node": f"%x : call_function[target=torch.ops.aten.{operator}](args = ())",
            "pkg.torch.onnx.name_scopes": repr(["", path, "x"] if path else ["", "x"]),
            "pkg.torch.onnx.stack_trace": f'File "{FILE}", line {line}, in forward\n  File "/lib/site-packages/torch/nn/functional.py", line 9, in f',
        }
        for key, value in notes.items():
            made.metadata_props.add(key=key, value=value)
    return made


def graph_of(*nodes, weights=None):
    constants = [numpy_helper.from_array(v if v.dtype.kind == "i" else np.asarray(v, np.float32), n) for n, v in (weights or {}).items()]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(list(nodes), "g", [value("x", TensorProto.FLOAT, None)], [value("y", TensorProto.FLOAT, None)], constants)
    return Graph(graph)


def test_the_exporters_notes_give_operator_module_and_line():
    made = node("Conv", ["x", "w"], ["c"], 7, "conv2d.default", "body.0")
    assert node_place(made, frozenset({FILE})) == ("aten.conv2d.default", ("body.0", FILE, 7))
    assert node_place(helper.make_node("Conv", ["x"], ["y"], name="/model/body/body.0/Conv"), frozenset()) == ("", ("body.0", "", 0))


def test_fused_and_blocked_kernels_are_told_by_their_outputs():
    graph = graph_of(node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["r"]), node("Mul", ["r", "r"], ["y"]))
    optimized = graph_of(
        helper.make_node("Conv", ["x", "w"], ["token"], name="r_nchwc"),
        helper.make_node("ReorderOutput", ["token"], ["r"], name="ReorderOutput"),
        node("Mul", ["r", "r"], ["y"]),
    )
    assert graph.original("r_nchwc", "Conv", optimized).op_type == "Conv"
    assert graph.original("ReorderOutput", "ReorderOutput", optimized).op_type == "Relu"
    assert graph.original("node_y", "Mul", optimized).name == "node_y"
    assert graph.original("other", "Cast", optimized) is None


def test_nodes_alike_on_one_line_are_one_row():
    graph = graph_of(*(node("Mul", [f"v{i}", "x"], [f"v{i + 1}"], 3, "mul.Tensor") for i in range(5)), node("Exp", ["x"], ["y"], 4, "exp.default"))
    times = {f"node_v{i + 1}": (1.0 + i, "Mul") for i in range(5)} | {"node_y": (5.0, "Exp")}
    rows = rows_of(times, graph, None, frozenset({FILE}))
    assert [(r.op_type, r.count, r.ms, r.node) for r in rows] == [("Mul", 5, 15.0, "node_v5"), ("Exp", 1, 5.0, "node_y")]
    assert rows[0].share == 0.75 and rows[0].to_json()["line"] == 3


def row(op_type, ms, operator="", line=3, path="", node="n", count=1):
    return Row(op_type, node, op_type, operator, (path, FILE, line), ms, count, share=0.5, nodes=[node])


def test_eager_time_is_the_operators_own_or_the_lines_shared_out():
    empty = graph_of(node("Exp", ["x"], ["y"]))
    rows = [row("MatMul", 4.0, "aten.linear.default"), row("Add", 2.0, "aten.add.Tensor")]
    calls = [EagerCall("addmm", ("", FILE, 3), 3.0), EagerCall("add", ("", FILE, 3), 1.0), EagerCall("add", ("other", FILE, 3), 9.0)]
    with_eager(rows, calls, empty)
    assert [r.eager_ms for r in rows] == [3.0, 1.0]
    parts = [row("Gather", 6.0, "aten.stft.default"), row("Mul", 2.0, "aten.stft.default")]
    with_eager(parts, [EagerCall("fft", ("", FILE, 3), 4.0)], empty)
    assert [r.eager_ms for r in parts] == [3.0, 1.0]
    unknown = [row("Gather", 6.0, "aten.index.Tensor", line=99)]
    with_eager(unknown, calls, empty)
    assert unknown[0].eager_ms is None


def test_nodes_without_notes_are_paired_in_order():
    graph = graph_of(*(helper.make_node("Conv", ["x", "w"], [f"c{i}"], name=f"/model/c{i}/Conv") for i in range(2)))
    rows = [Row("Conv", f"/model/c{i}/Conv", "Conv", "", (f"c{i}", "", 0), 1.0, nodes=[f"/model/c{i}/Conv"]) for i in range(2)]
    with_eager(rows, [EagerCall("convolution", (f"c{i}", FILE, 5 + i), 7.0 + i) for i in range(2)], graph)
    assert [(r.operator, r.key[2], r.eager_ms) for r in rows] == [("aten.convolution.default", 5, 7.0), ("aten.convolution.default", 6, 8.0)]


W = {"w": np.zeros((8, 8, 3, 3)), "dw": np.zeros((8, 1, 3, 3)), "w3": np.zeros((8, 8, 3, 3, 3)), "wt": np.zeros((8, 8)), "s": np.zeros(8)}
W |= {"places": np.arange(8), "sizes": np.arange(1, 9)}


@pytest.mark.parametrize(
    ("nodes", "eager", "why"),
    [
        ([node("Conv", ["x", "w"], ["y"])], 1.0, "not-nchwc"),
        ([node("Conv", ["x", "dw"], ["y"], group=8)], 1.0, "depthwise-conv"),
        ([node("Conv", ["x", "dw"], ["y"], group=8)], 9.9, ""),  # PyTorch is no faster
        ([node("Conv", ["x", "w3"], ["y"])], 1.0, "conv-3d"),
        ([node("ConvTranspose", ["x", "w"], ["y"])], 1.0, "transposed-conv"),
        ([node("MaxPool", ["x"], ["y"], kernel_shape=[3])], 1.0, "pool-1d"),
        ([node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3])], 1.0, "slow-kernel"),
        ([node("Resize", ["x"], ["y"])], 1.0, "resize-kernel"),
        ([node("Einsum", ["x", "x"], ["y"], equation="ij,jk")], 1.0, "einsum"),
        ([node("Expand", ["x", "s"], ["y"])], 1.0, "expand-tile"),
        ([node("Gather", ["x", "x"], ["y"])], 1.0, "slow-kernel"),
        ([node("Gather", ["x", "x"], ["y"])], None, ""),
        ([node("Transpose", ["wt"], ["y"])], 99.0, "weight-transposed-each-run"),
        ([node("Cast", ["wt"], ["y"], to=1)], 99.0, "weight-cast-each-run"),
        ([node("GatherElements", ["wt", "x"], ["y"])], 99.0, "gather-elements-embedding"),
        ([node("OneHot", ["x", "s", "s"], ["h"]), node("Cast", ["h"], ["f"], to=1), node("MatMul", ["f", "wt"], ["y"])], 99.0, "one-hot-embedding"),
        ([node("Equal", ["x", "places"], ["h"]), node("Cast", ["h"], ["f"], to=1), node("MatMul", ["f", "wt"], ["y"])], 99.0, "one-hot-embedding"),
        ([node("Equal", ["x", "sizes"], ["h"]), node("Cast", ["h"], ["f"], to=1), node("MatMul", ["f", "wt"], ["y"])], 99.0, ""),
        ([node("Conv", ["x", "w"], ["c"]), node("BatchNormalization", ["c", "s", "s", "s", "s"], ["y"])], 99.0, "unfused-conv-bn"),
    ],
)
def test_causes_by_what_the_graph_shows(nodes, eager, why):
    graph = graph_of(*nodes, weights=W)
    last = nodes[-1]
    found = Row(last.op_type, last.name, last.op_type, "aten.op", ("", FILE, 3), 10.0, share=0.9, eager_ms=eager, nodes=[last.name])
    name_causes([found], graph, None)
    assert found.why == why


def test_loops_rolled_and_unrolled():
    body = helper.make_graph(
        [node("Mul", ["v", "v"], ["m"], name="inside")], "body", [], [helper.make_tensor_value_info("m", TensorProto.FLOAT, None)]
    )
    graph = graph_of(helper.make_node("Loop", ["x", ""], ["y"], name="loop", body=body))
    rows = [Row("Mul", "inside", "Mul", "", ("", FILE, 3), 10.0, share=0.4), Row("Loop", "loop", "Loop", "", ("", FILE, 3), 10.0, share=0.4)]
    rows.append(Row("Slice", "n", "Slice", "aten.slice.Tensor", ("", FILE, 4), 3.0, count=2000, share=0.01, eager_ms=1.0))
    name_causes(rows, graph, None)
    assert [r.why for r in rows] == ["loop-body", "loop-body", "unrolled"]
    assert graph.op_types == ["Loop", "Mul"]


def test_rows_for_a_log():
    shown = Row("Gather", "g", "Gather", "aten.unfold.default", ("", FILE, 3), 8.1, 2, 0.86, 0.016, why="slow-kernel")
    text = slow_lines(json.dumps([shown.to_json()]))
    assert text == ["2x Gather (g) for aten.unfold.default at model.py:3: 8.1 ms, 86% of the run, PyTorch 0.016 ms: slow-kernel"]
    assert slow_lines("") == []


MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU())

    def forward(self, x):
        y = self.body(x)
        return torch.cumsum(y, -1)


def get_inputs():
    torch.manual_seed(0)
    return [torch.randn(1, 3, 16, 16)]
"""


@pytest.mark.slow
def test_a_real_file_is_profiled_to_its_lines(tmp_path):
    from autofix.case import CaseSpec
    from autofix.isolate import CaseProcess
    from autofix.recipe import Recipe
    from autofix.target import Target

    file = tmp_path / "model.py"
    file.write_text(MODEL)
    with CaseProcess(CaseSpec(str(file)), Target(), fork=True) as process:
        process.reference()
        _, folder = process.attempt(Recipe())
        _, answer, _ = process.ask("profile", trial=str(folder))
        _, peak, _ = process.ask("peak")
    facts = answer["facts"]
    assert facts["op_types"] == "Conv,Relu,CumSum"
    rows = {r["op_type"]: r for r in json.loads(facts["slow"])}
    assert (rows["CumSum"]["operator"], rows["CumSum"]["line"], rows["CumSum"]["file"]) == ("aten.cumsum.default", 13, str(file))
    assert rows["Conv"]["module"] == "body.0" and rows["Conv"]["line"] == 12 and rows["Conv"]["eager_ms"] > 0
    assert sum(r["share"] for r in rows.values()) == pytest.approx(1, abs=0.01)
    assert peak["facts"]["gflop"] == pytest.approx(2 * 14 * 14 * 16 * 27 / 1e9, rel=1e-2) and peak["facts"]["peak_gflops"] > 0
