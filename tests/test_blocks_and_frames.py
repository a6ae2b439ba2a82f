"""Chains run block by block, and sums over windows as convolutions: right values, and what is left alone."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from autofix.recipe import Fix, Level, Recipe
from autofix.surgery.onnx_blocks import run_in_blocks
from autofix.surgery.onnx_fast_frames import FAST_FRAMES
from autofix.surgery.onnx_fast_nodes import replace_fast
from autofix.surgery.onnx_fast_pointwise import FAST_POINTWISE

F32 = np.float32


def model_of(nodes: list[onnx.NodeProto], x: tuple, outputs: list[str], constants: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """A model of float32 values with the input x."""
    value = helper.make_tensor_value_info
    tensors = [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    ends = [value(o, TensorProto.FLOAT, None) for o in outputs]
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, x)], ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def outputs_of(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    """What ONNX Runtime gives."""
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})


def chain() -> list[onnx.NodeProto]:
    """exp(|x + b|) and its distance from the mean over the last axis."""
    steps = [("Add", ["x", "b"], "a"), ("Abs", ["a"], "c"), ("Neg", ["c"], "n"), ("Exp", ["n"], "e")]
    nodes = [helper.make_node(op, given, [out]) for op, given, out in steps]
    nodes.append(helper.make_node("ReduceMean", ["e", "axes"], ["m"], keepdims=1))
    return [*nodes, helper.make_node("Sub", ["e", "m"], ["y"])]


@pytest.mark.parametrize("shape", [(4, 50, 40, 30), (1, 64, 50, 80), (200, 1200), ("n", 50, 100)])
def test_a_chain_in_blocks_gives_the_same_numbers(shape):
    bias = np.linspace(-1, 1, shape[-2], dtype=F32)[:, None] if len(shape) > 2 else np.linspace(-1, 1, shape[-1], dtype=F32)
    model = model_of(chain(), shape, ["y", "e", "m"], {"b": bias, "axes": np.array([-1])})
    x = np.random.default_rng(0).standard_normal([d if isinstance(d, int) else 5 for d in shape]).astype(F32)
    x.reshape(-1)[:3] = np.nan, np.inf, -np.inf
    expected = outputs_of(model, x)
    assert run_in_blocks(model) == 1
    assert [n.op_type for n in model.graph.node if n.op_type in ("Exp", "Scan", "ReduceMean")] == ["Scan"]
    for got, wanted in zip(outputs_of(model, x), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)


def test_short_small_and_crossing_chains_stay():
    constants = {"b": np.array([1.0], F32), "axes": np.array([0])}
    assert run_in_blocks(model_of(chain(), (20, 30), ["y"], constants)) == 0
    assert run_in_blocks(model_of([helper.make_node("Neg", ["x"], ["y"])], (4, 500, 500), ["y"])) == 0
    across = model_of(chain(), (500, 800), ["y"], constants)  # the mean joins what the blocks would part
    x = np.random.default_rng(0).standard_normal((500, 800)).astype(F32)
    expected = outputs_of(across, x)
    run_in_blocks(across)
    np.testing.assert_allclose(outputs_of(across, x)[0], expected[0], rtol=1e-5, atol=1e-6)


def test_what_lies_between_two_parts_of_a_chain_keeps_its_place():
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["b"]), helper.make_node("Exp", ["a"], ["c"])]
    nodes += [helper.make_node("CumSum", ["b", "axis"], ["d"]), helper.make_node("Add", ["d", "c"], ["e"])]
    nodes += [helper.make_node("Tanh", ["e"], ["f"]), helper.make_node("Mul", ["f", "c"], ["y"])]
    model = model_of(nodes, (40, 8000), ["y"], {"axis": np.array(1)})
    x = np.random.default_rng(0).standard_normal((40, 8000)).astype(F32)
    expected = outputs_of(model, x)
    assert run_in_blocks(model) == 2
    np.testing.assert_allclose(outputs_of(model, x)[0], expected[0], rtol=1e-6)


def test_what_replaces_nan_is_worked_out_where_nan_is():
    nodes = [helper.make_node("Div", ["x", "x"], ["q"]), helper.make_node("IsNaN", ["q"], ["t"]), helper.make_node("Sin", ["x"], ["s"])]
    nodes += [helper.make_node("Where", ["t", "s", "q"], ["r"]), helper.make_node("Atan", ["r"], ["y"])]
    model = model_of(nodes, (50, 8000), ["y"])
    x = np.random.default_rng(0).standard_normal((50, 8000)).astype(F32)
    x[3, 7], x[20, 1] = 0.0, np.nan
    assert run_in_blocks(model) == 1
    got = outputs_of(model, x)[0]
    assert got[3, 7] == 0.0 and np.isnan(got[20, 1])
    np.testing.assert_allclose(np.delete(got.reshape(-1), [3 * 8000 + 7, 20 * 8000 + 1]), np.arctan(1.0), rtol=1e-6)


def test_the_last_fix_of_a_level_stays_last():
    last, other = Fix("cut", Level.ONNX, {"last": True}), Fix("form", Level.ONNX)
    assert Recipe().plus([last]).plus([other, Fix("level", Level.RUNTIME)]).fixes == (other, last, Fix("level", Level.RUNTIME))


def windows(count: int, width: int, hop: int, step: int = 1) -> np.ndarray:
    return hop * np.arange(count)[:, None] + step * np.arange(width)


@pytest.mark.parametrize(("hop", "step"), [(3, 1), (2, 2), (7, 1)])
def test_energies_of_windows_are_convolutions(hop, step):
    weight = np.linspace(-0.5, 1.0, 5, dtype=F32)
    nodes = [helper.make_node("Gather", ["x", "places"], ["f"], axis=2), helper.make_node("Mul", ["w", "f"], ["g"])]
    nodes += [helper.make_node("Mul", ["g", "g"], ["s"]), helper.make_node("ReduceSum", ["s", "axes"], ["y"], keepdims=0)]
    places = windows(6, 5, hop, step)
    model = model_of(nodes, (2, 3, 60), ["y"], {"places": places, "w": weight, "axes": np.array([-1])})
    assert replace_fast(model, FAST_FRAMES) == 1
    x = np.random.default_rng(0).standard_normal((2, 3, 60)).astype(F32)
    np.testing.assert_allclose(outputs_of(model, x)[0], ((x[:, :, places] * weight) ** 2).sum(-1), rtol=1e-5)
    x[0, 0, 0], x[1, 1, 2] = 1e25, np.inf
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(np.isinf(outputs_of(model, x)[0]), np.isinf(((x[:, :, places] * weight) ** 2).sum(-1)))


def test_frames_times_a_matrix_are_convolutions_and_others_stay():
    bank = np.random.default_rng(1).standard_normal((5, 4)).astype(F32)
    gather = helper.make_node("Gather", ["x", "places"], ["f"], axis=1)
    nodes = [gather, helper.make_node("Sub", ["f", "half"], ["g"]), helper.make_node("MatMul", ["g", "bank"], ["y"])]
    places, half = windows(6, 5, 4), np.array(0.5, F32)
    model = model_of(nodes, (3, 40), ["y"], {"places": places, "half": half, "bank": bank})
    assert replace_fast(model, FAST_FRAMES) == 1
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(F32)
    np.testing.assert_allclose(outputs_of(model, x)[0], (x[:, places] - half) @ bank, rtol=1e-4, atol=1e-5)
    uneven = model_of(nodes, (3, 40), ["y"], {"places": places**2 // 30, "half": half, "bank": bank})
    moved = [gather, helper.make_node("Mul", ["f", "w"], ["h"]), helper.make_node("Sub", ["h", "half"], ["g"]), nodes[-1]]
    after = model_of(moved, (3, 40), ["y"], {"places": places, "half": half, "bank": bank, "w": np.arange(5, dtype=F32)})
    assert replace_fast(uneven, FAST_FRAMES) == replace_fast(after, FAST_FRAMES) == 0


def test_angles_in_blocks_know_the_signs_of_zeros_and_infinities():
    """The nodes that torch.onnx writes for atan2, in their faster form, in blocks."""
    steps = [("Div", ["y", "x"], "q"), ("Atan", ["q"], "a"), ("Less", ["x", "zero"], "left"), ("Greater", ["y", "zero"], "above")]
    steps += [("Add", ["a", "pi"], "more"), ("Sub", ["a", "pi"], "less"), ("Where", ["above", "more", "less"], "moved")]
    steps += [("Where", ["left", "moved", "a"], "turned"), ("IsNaN", ["turned"], "lost"), ("Where", ["lost", "zero", "turned"], "angle")]
    nodes = [helper.make_node("Split", ["both"], ["x", "y"], axis=0, num_outputs=2)] + [helper.make_node(op, i, [o]) for op, i, o in steps]
    nodes = [helper.make_node("Identity", ["x_in"], ["both"]), *nodes]
    value = helper.make_tensor_value_info
    constants = [numpy_helper.from_array(np.array(v, F32), k) for k, v in (("zero", 0.0), ("pi", np.pi))]
    ends = [value("angle", TensorProto.FLOAT, [1, 80, 100, 81])]
    graph = helper.make_graph(nodes, "g", [value("x_in", TensorProto.FLOAT, [2, 80, 100, 81])], ends, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    odd = np.array([0.0, -0.0, np.inf, -np.inf, 1.0, -2.0, 3e38, -1e-45, np.nan], F32)
    x, y = (np.random.default_rng(k).standard_normal((80, 100, 81)).astype(F32) for k in (0, 1))
    x[7, 3], y[7, 3] = np.repeat(odd, 9), np.tile(odd, 9)
    assert replace_fast(model, FAST_POINTWISE) == 3  # each Where; the last one makes the others needless
    plain = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x_in": np.stack([x, y])})[0][0]
    assert run_in_blocks(model) == 1
    assert "If" not in [n.op_type for n in model.graph.node]
    got = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x_in": np.stack([x, y])})[0][0]
    for found in (plain, got):
        np.testing.assert_allclose(found, np.arctan2(y, x), rtol=2e-6, atol=1e-37)
