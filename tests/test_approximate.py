"""The error budget, the 8-bit forms, and which nodes go back to float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from autofix.calibration import calibrating, calibration_feeds
from autofix.error_budget import check_budget, output_error
from autofix.hardware import has_int8_products
from autofix.reference import Reference, ReferenceSet
from autofix.surgery.onnx_fold_weights import fold_weights
from autofix.surgery.onnx_int8 import to_int8
from autofix.surgery.onnx_switches import choose_kept
from autofix.target import Target
from autofix.verify import verify_sets

F32 = np.float32


def test_error_is_relative_to_the_whole_output() -> None:
    want = np.array([3.0, 4.0], F32)
    assert output_error(want, want) == 0
    assert output_error(want, want + np.array([0.0, 0.5], F32)) == pytest.approx(0.1)
    assert output_error(np.zeros(2, F32), np.zeros(2, F32)) == 0
    assert output_error(np.zeros(2, F32), want) == float("inf")
    assert output_error(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])) == 0.25
    assert output_error(np.zeros((0, 3), F32), np.zeros((0, 3), F32)) == 0


@pytest.mark.parametrize(
    ("got", "problem"),
    [
        (np.array([3.0, 4.04], F32), ""),
        (np.array([3.0, 4.5], F32), "error"),
        (np.array([3.0, 4.0]), "dtype"),
        (np.array([[3.0, 4.0]], F32), "shape"),
        (np.array([3.0, np.nan], F32), "nan"),
        (np.array([np.inf, 4.0], F32), "inf"),
    ],
)
def test_what_the_budget_lets_pass(got: Any, problem: str) -> None:
    found = check_budget(np.array([3.0, 4.0], F32), got, 0.01)
    assert found["problem"] == problem and found["ok"] == (problem == "") and found["message"]
    if problem in ("", "error"):
        assert found["ratio"] == pytest.approx(found["error"] / 0.01)


def one_set(name: str, x: Any, **more: Any) -> ReferenceSet:
    x = torch.as_tensor(x)
    return ReferenceSet(name, more.pop("origin", "generated"), [x], {}, [("x", x)], [("output", x * 2)], **more)


def sets() -> Reference:
    return Reference(
        [
            one_set("given", [1.0, 2.0], origin="given"),
            one_set("sample 1", [2.0, 2.0], origin="sample"),
            one_set("longer", [1.0, 2.0, 3.0], kind="sizes", resized=True, sizes={"n": 3}),
            one_set("odd", [float("nan"), 1.0], kind="nonfinite"),
        ],
        {},
    )


SIGNATURE = {"inputs": ["x"], "outputs": ["output"]}


@pytest.mark.parametrize(
    ("run", "symptom"),
    [
        (lambda f: [f["x"] * F32(2.01)], ""),
        (lambda f: [f["x"] * F32(2.05)], "over-error-budget"),
        (lambda f: [f["x"] * F32(2.01 if len(f["x"]) == 2 else 2.05)], ""),
        (lambda f: [f["x"] * F32(2.01 if len(f["x"]) == 2 else 2.2)], "over-error-budget"),
        (lambda f: [f["x"] * F32(2.01 if f["x"][0] != 2 else 2.05)], "over-error-budget"),
        (lambda f: [np.nan_to_num(f["x"]) * F32(2.0)], ""),
        (lambda f: [(f["x"] * F32(2.0)).astype(np.float64)], "dtype-mismatch"),
        (lambda f: [f["x"][:2] * F32(2.0)], "mismatch-at-other-sizes"),
    ],
)
def test_budget_in_the_gate(run: Any, symptom: str) -> None:
    parity = verify_sets(sets(), run, Target(), SIGNATURE, max_error=0.01)
    assert parity.symptom == symptom
    if symptom == "over-error-budget":
        assert float(parity.facts["error"]) > 0.01 and "budget" in parity.facts["message"]


def test_without_a_budget_tolerances_decide() -> None:
    assert verify_sets(sets(), lambda f: [f["x"] * F32(2.01)], Target(), SIGNATURE).symptom == "mismatch-at-example"


def initializer(name: str, value: Any) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(value, F32), name)


def two_layers(rng: Any) -> tuple[onnx.ModelProto, list[Any]]:
    """y = relu(x a) b' + c, the second weight transposed by Gemm; the first has a column of large values when asked for by its caller."""
    a, b, c = rng.normal(size=(32, 48)), rng.normal(size=(16, 48)), rng.normal(size=16)
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "a"], ["first"]),
        onnx.helper.make_node("Relu", ["first"], ["hidden"]),
        onnx.helper.make_node("Gemm", ["hidden", "b", "c"], ["y"], transB=1),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [value("x", 1, ["n", 32])],
        [value("y", 1, ["n", 16])],
        [initializer("a", a), initializer("b", b), initializer("c", c)],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), [a, b, c]


def run(model: onnx.ModelProto, feed: dict[str, Any]) -> Any:
    onnx.checker.check_model(model)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feed)[0]


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("reduce_range", [True, False])
def test_products_in_8_bits_are_near(per_channel: bool, reduce_range: bool) -> None:
    rng = np.random.default_rng(0)
    model, (a, b, c) = two_layers(rng)
    x = rng.normal(size=(5, 32)).astype(F32)
    want = np.maximum(x @ a, 0) @ b.T + c
    assert to_int8(model, [], per_channel, reduce_range) == 2
    assert not {"MatMul", "Gemm"} & {n.op_type for n in model.graph.node}
    assert not {"a", "b"} & {t.name for t in model.graph.initializer}
    saturates = not reduce_range and not has_int8_products()  # pairs of products in 16 bits: why the range is reduced
    assert 1e-4 < output_error(want.astype(F32), run(model, {"x": x})) < (0.5 if saturates else 0.03)
    assert run(model, {"x": np.zeros((1, 32), F32)}) == pytest.approx(c[None], abs=1e-3)


def test_named_nodes_stay_in_float32() -> None:
    model, _ = two_layers(np.random.default_rng(0))
    assert to_int8(model, ["y"], True, False) == 1
    assert [n.op_type for n in model.graph.node if n.output[0] == "y"] == ["Gemm"]


def test_an_lstm_in_8_bits() -> None:
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(8, 12, bidirectional=True)
    gates = torch.tensor([0, 3, 1, 2])  # torch: i f g o; ONNX: i o f g

    def reorder(w: Any) -> Any:
        return w.reshape(4, 12, -1)[gates].reshape(w.shape)

    def pair(name: str) -> Any:
        return torch.stack([reorder(getattr(lstm, name)), reorder(getattr(lstm, name + "_reverse"))]).detach().numpy()

    bias = np.concatenate([pair("bias_ih_l0"), pair("bias_hh_l0")], 1)
    node = onnx.helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=12, direction="bidirectional")
    value = onnx.helper.make_tensor_value_info
    weights = [initializer("w", pair("weight_ih_l0")), initializer("r", pair("weight_hh_l0")), initializer("b", bias)]
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, ["t", "n", 8])], [value("y", 1, ["t", 2, "n", 12])], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    x = torch.randn(6, 3, 8)
    want = lstm(x)[0].detach().reshape(6, 3, 2, 12).permute(0, 2, 1, 3)
    assert output_error(want, run(model, {"x": x.numpy()})) < 1e-5
    for per_channel in (True, False):
        small = onnx.ModelProto()
        small.CopyFrom(model)
        assert to_int8(small, [], per_channel, True) == 1
        assert small.graph.node[0].op_type == "DynamicQuantizeLSTM"
        assert output_error(want, run(small, {"x": x.numpy()})) < 0.03


def test_weights_computed_from_constants_are_stored() -> None:
    model, (a, _, _) = two_layers(np.random.default_rng(0))
    model.graph.node[0].input[1] = "a_twice"
    model.graph.node.insert(0, onnx.helper.make_node("Add", ["a", "a"], ["a_twice"]))
    assert fold_weights(model, ["a_twice", "hidden", "b"]) == 1
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    assert stored["a_twice"] == pytest.approx(2 * a, rel=1e-6)
    assert to_int8(model, [], True, False) == 2


def test_the_node_that_breaks_the_budget_is_kept() -> None:
    rng = np.random.default_rng(0)
    model, (a, b, c) = two_layers(rng)
    wide = a.copy()
    wide[0] *= 1000.0  # one input a thousand times heavier: 8 bits lose all the others
    model.graph.initializer[0].CopyFrom(initializer("a", wide))
    x = rng.normal(size=(5, 32)).astype(F32)
    x[:, 0] = 1e-4
    want = (np.maximum(x @ wide, 0) @ b.T + c).astype(F32)
    small = onnx.ModelProto()
    small.CopyFrom(model)
    to_int8(small, [], True, False)
    error = output_error(want, run(small, {"x": x}))
    assert error > 0.05
    runs = [({"x": x}, [want])]
    keep, share = choose_kept(model, runs, 0.05, error, [], per_channel=True, reduce_range=False)
    assert keep == ["first"] and share == pytest.approx(32 * 48 / (32 * 48 + 48 * 16))
    to_int8(model, keep, True, False)
    assert output_error(want, run(model, {"x": x})) < 0.05


def test_no_choice_where_only_float32_would_do() -> None:
    model, _ = two_layers(np.random.default_rng(0))
    x = np.random.default_rng(1).normal(size=(5, 32)).astype(F32)
    assert choose_kept(model, [({"x": x}, [run(model, {"x": x})])], 1e-7, 0.01, [], per_channel=True, reduce_range=False) == ([], 0.0)


def test_feeds_are_seen_only_inside() -> None:
    with calibrating([{"x": 1}]):
        assert calibration_feeds() == [{"x": 1}]
    assert calibration_feeds() == []
