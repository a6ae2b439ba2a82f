"""The ONNX rewrites: each form against PyTorch, over special values and types."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from autofix.surgery.onnx_casts import repair_kernels
from autofix.surgery.onnx_repair_types import repair_types

pytestmark = pytest.mark.slow


def one_node(op, inputs, outputs, opset=18, domain="", **attributes):
    """A model of one node; `inputs` maps names to arrays, `outputs` names to element types."""
    node = helper.make_node(op, list(inputs), list(outputs), **attributes)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), None) for n, a in inputs.items()]
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(model, inputs):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, inputs)


UNARY = {
    "Erf": torch.erf, "Sinh": torch.sinh, "Cosh": torch.cosh, "Tan": torch.tan, "Asin": torch.asin, "Acos": torch.acos, "Atan": torch.atan,
    "Asinh": torch.asinh, "Acosh": torch.acosh, "Atanh": torch.atanh, "Celu": torch.celu,
}  # fmt: skip
SPECIAL = [
    0.0,
    -0.0,
    1e-300,
    -1e-12,
    1e-7,
    0.3,
    -0.46875,
    0.47,
    0.99,
    0.9999999999,
    1.0,
    -1.0,
    1.0 + 1e-9,
    2.5,
    -4.0,
    5.8,
    6.5,
    30.0,
    -30.0,
    700.0,
    -700.0,
    1e10,
    1e200,
    np.inf,
    -np.inf,
    np.nan,
]


@pytest.mark.parametrize("op", sorted(UNARY))
@pytest.mark.parametrize("opset", [12, 18])
def test_double_functions_are_accurate_to_the_last_digits(op, opset):
    rng = np.random.default_rng(0)
    x = np.concatenate([SPECIAL, rng.standard_normal(2000), rng.uniform(-1, 1, 2000), rng.standard_normal(500) * 20])
    model = one_node(op, {"x": x}, {"y": TensorProto.DOUBLE}, opset)
    assert repair_kernels(model)
    (got,) = run(model, {"x": x})
    want = UNARY[op](torch.from_numpy(x)).numpy()
    # the cosine kernel is right to 2e-16 absolutely, which the tangent magnifies beside its poles
    np.testing.assert_allclose(got, want, rtol=2e-13 if op == "Tan" else 4e-15, atol=1e-300)


CONVS = [
    (1, 1, 3, {}), (1, 2, 3, {"stride": 2, "padding": 1}), (2, 1, 3, {"padding": 1, "dilation": 2}), (2, 2, 2, {"stride": (2, 3), "padding": (0, 1)}),
    (3, 1, 2, {"stride": 1, "padding": 1}), (2, 4, 1, {}),
]  # fmt: skip


@pytest.mark.parametrize(("rank", "group", "kernel", "more"), CONVS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("opset", [11, 18])
def test_double_convolutions(rank, group, kernel, more, transposed, opset):
    torch.manual_seed(0)
    kind = {(1, False): torch.nn.Conv1d, (2, False): torch.nn.Conv2d, (3, False): torch.nn.Conv3d, (1, True): torch.nn.ConvTranspose1d,
            (2, True): torch.nn.ConvTranspose2d, (3, True): torch.nn.ConvTranspose3d}[rank, transposed]  # fmt: skip
    if transposed and more.get("stride", 1) != 1:
        more = {**more, "output_padding": 1}
    conv = kind(4, 8, kernel, groups=group, **more).double()
    x = torch.randn(2, 4, *(6, 7, 5)[:rank], dtype=torch.float64)

    def tuple_of(v):
        return list(v) if isinstance(v, tuple) else [v] * rank

    attributes = {
        "kernel_shape": [kernel] * rank,
        "group": group,
        "strides": tuple_of(conv.stride),
        "dilations": tuple_of(conv.dilation),
        "pads": tuple_of(conv.padding) * 2,
    }
    if transposed:
        attributes["output_padding"] = tuple_of(conv.output_padding)
    inputs = {"x": x.numpy(), "w": conv.weight.detach().numpy(), "b": conv.bias.detach().numpy()}
    model = one_node("ConvTranspose" if transposed else "Conv", inputs, {"y": TensorProto.DOUBLE}, opset, **attributes)
    assert repair_kernels(model)
    np.testing.assert_allclose(run(model, inputs)[0], conv(x).detach().numpy(), rtol=1e-12, atol=1e-13)
    empty = {**inputs, "x": inputs["x"][:0]}
    if opset >= 14:
        assert run(model, empty)[0].shape == tuple(conv(x[:0]).shape)


@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_double_average_pool(count_include_pad):
    x = torch.randn(2, 3, 7, 6, dtype=torch.float64)
    model = one_node(
        "AveragePool",
        {"x": x.numpy()},
        {"y": TensorProto.DOUBLE},
        kernel_shape=[3, 2],
        strides=[2, 1],
        pads=[1, 1, 1, 1],
        count_include_pad=count_include_pad,
    )
    assert repair_kernels(model)
    want = torch.nn.functional.avg_pool2d(x, (3, 2), (2, 1), 1, count_include_pad=bool(count_include_pad))
    np.testing.assert_allclose(run(model, {"x": x.numpy()})[0], want.numpy(), rtol=1e-12)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("linear", [0, 1])
def test_double_recurrent_layers_agree_with_the_float_kernels(kind, direction, lengths, linear):
    rng = np.random.default_rng(1)
    d, gates, hidden = (2 if direction == "bidirectional" else 1), {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 4
    inputs = {
        "x": rng.standard_normal((5, 3, 2)), "w": rng.standard_normal((d, gates * hidden, 2)), "r": rng.standard_normal((d, gates * hidden, hidden)),
        "b": rng.standard_normal((d, 2 * gates * hidden)),
    }  # fmt: skip
    if lengths:
        inputs["n"] = np.array([5, 2, 3], np.int32)
    else:
        inputs["h"] = rng.standard_normal((d, 3, hidden))
    outputs = ["y", "yh"] + (["yc"] if kind == "LSTM" else [])
    attributes = {"hidden_size": hidden, "direction": direction, **({"linear_before_reset": linear} if kind == "GRU" else {})}

    def build(code):
        names = ["x", "w", "r", "b", "n"] if lengths else ["x", "w", "r", "b", "", "h"]
        node = helper.make_node(kind, names, outputs, **attributes)
        infos = [helper.make_tensor_value_info(n, code if n != "n" else TensorProto.INT32, None) for n in names if n]
        graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info(n, code, None) for n in outputs])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)

    model = build(TensorProto.DOUBLE)
    assert repair_kernels(model)
    got = run(model, inputs)
    want = run(build(TensorProto.FLOAT), {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in inputs.items()})
    for g, w in zip(got, want, strict=True):
        assert g.dtype == np.float64
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)


BINARY = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Max": torch.maximum, "Min": torch.minimum, "Less": torch.lt,
    "GreaterOrEqual": torch.ge, "Equal": torch.eq, "MatMul": torch.matmul, "Mod": torch.remainder,
}  # fmt: skip
INTEGERS = (torch.bool, torch.int8, torch.int16, torch.uint8, torch.int32)


@pytest.mark.parametrize(
    ("op", "dtype"), [(o, d) for o, d in itertools.product(sorted(BINARY), INTEGERS) if d != torch.bool or o not in ("Sub", "Mod", "MatMul")]
)
def test_narrow_integers_wrap_as_in_pytorch(op, dtype):
    torch.manual_seed(0)
    if dtype == torch.bool:
        a, b = torch.rand(6, 6) < 0.5, torch.rand(6, 6) < 0.5
    else:
        info = torch.iinfo(dtype)
        a, b = (torch.randint(info.min, info.max, (6, 6), dtype=torch.int64).to(dtype) for _ in range(2))
        b = torch.where(b == 0, torch.ones_like(b), b)
        a[0, 0] = info.min
    want = BINARY[op](a, b).numpy()
    model = one_node(op, {"a": a.numpy(), "b": b.numpy()}, {"y": helper.np_dtype_to_tensor_dtype(want.dtype)})
    repair_kernels(model)
    np.testing.assert_array_equal(run(model, {"a": a.numpy(), "b": b.numpy()})[0], want)


def test_every_bad_node_is_repaired_at_once_and_good_ones_stay():
    nodes = [
        helper.make_node("Add", ["p", "q"], ["r"]),
        helper.make_node("Mul", ["r", "p"], ["s"]),
        helper.make_node("Abs", ["x"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(n, TensorProto.BOOL, ["n"]) for n in "pq"] + [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])]
    outs = [helper.make_tensor_value_info("s", TensorProto.BOOL, ["n"]), helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])]
    model = helper.make_model(helper.make_graph(nodes, "g", infos, outs), opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    assert len(repair_kernels(model)) == 2
    assert [n.op_type for n in model.graph.node].count("Cast") == 6
    assert repair_kernels(model) == []
    p, q = np.array([True, True, False]), np.array([True, False, False])
    s, _ = run(model, {"p": p, "q": q, "x": np.ones(3, np.float32)})
    np.testing.assert_array_equal(s, (p | q) & p)


def test_bad_nodes_inside_branches_are_repaired():
    branch = helper.make_graph(
        [helper.make_node("Add", ["p", "q"], ["then"])], "t", [], [helper.make_tensor_value_info("then", TensorProto.BOOL, None)]
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["q"], ["else"])], "e", [], [helper.make_tensor_value_info("else", TensorProto.BOOL, None)]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)
    infos = [helper.make_tensor_value_info("c", TensorProto.BOOL, []), *(helper.make_tensor_value_info(n, TensorProto.BOOL, ["n"]) for n in "pq")]
    model = helper.make_model(
        helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", TensorProto.BOOL, None)]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )
    assert repair_kernels(model)
    p, q = np.array([True, False]), np.array([False, False])
    np.testing.assert_array_equal(run(model, {"c": np.array(True), "p": p, "q": q})[0], p | q)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_small_powers_and_places_of_what_is_not_zero(dtype):
    x = torch.arange(-300, 300, 7).to(dtype)
    inputs = {"x": x.numpy()}
    model = one_node("Pow", {**inputs, "e": np.array(3, x.numpy().dtype)}, {"y": helper.np_dtype_to_tensor_dtype(x.numpy().dtype)})
    model.graph.initializer.append(numpy_helper.from_array(np.array(3, x.numpy().dtype), "e"))
    del model.graph.input[1]
    assert repair_kernels(model)
    np.testing.assert_array_equal(run(model, inputs)[0], (x**3).numpy())
    double = {"x": np.array([0.0, -0.0, np.nan, 1e-300, 2.0])}
    model = one_node("NonZero", double, {"y": TensorProto.INT64})
    assert repair_kernels(model)
    np.testing.assert_array_equal(run(model, double)[0], torch.from_numpy(double["x"]).nonzero().numpy().T)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int16, np.int8])
def test_whole_numbers_cut_off_at_zero(dtype):
    x = {"x": np.array([-5, 0, 7, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)}
    model = one_node("Relu", x, {"y": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}, 18)
    repair_kernels(model)
    np.testing.assert_array_equal(run(model, x)[0], np.maximum(x["x"], 0))


def test_indices_in_32_bits_are_widened_where_the_operator_takes_64_alone():
    inputs = {"x": np.zeros((3, 2), np.float32), "i": np.array([[2], [0]], np.int32), "u": np.ones((2, 2), np.float32)}
    model = one_node("ScatterND", inputs, {"y": TensorProto.FLOAT}, 18)
    assert repair_types(model, {}) == 1
    np.testing.assert_array_equal(run(model, inputs)[0], [[1, 1], [0, 0], [1, 1]])
    kept = one_node("Gather", {"x": inputs["x"], "i": inputs["i"]}, {"y": TensorProto.FLOAT}, 18)
    assert repair_types(kept, {}) == 0


def test_products_of_half_precision_are_widened_only_where_that_is_asked_for():
    inputs = {"a": np.ones((2, 3), np.float16), "b": np.full((3, 4), 0.5, np.float16)}
    model = one_node("MatMul", inputs, {"y": TensorProto.FLOAT16}, 18)
    assert repair_kernels(model, wide_products=True)
    assert [n.op_type for n in model.graph.node] == ["Cast", "Cast", "MatMul", "Cast"]
    np.testing.assert_array_equal(run(model, inputs)[0], np.full((2, 4), 1.5, np.float16))
    single = one_node("MatMul", {n: v.astype(np.float32) for n, v in inputs.items()}, {"y": TensorProto.FLOAT}, 18)
    assert repair_kernels(single, wide_products=True) == []
