"""The fast forms of ONNX nodes against ONNX Runtime's own kernels, on values and sizes of all kinds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from autofix.surgery.onnx_fast_conv import FAST_CONV
from autofix.surgery.onnx_fast_einsum import FAST_EINSUM, read_product
from autofix.surgery.onnx_fast_grid import FAST_GRID
from autofix.surgery.onnx_fast_index import FAST_INDEX
from autofix.surgery.onnx_fast_nodes import replace_fast
from autofix.surgery.onnx_fast_pointwise import FAST_POINTWISE
from autofix.surgery.onnx_fast_reduce import FAST_REDUCE
from autofix.surgery.onnx_fast_resize import FAST_RESIZE
from autofix.surgery.onnx_fast_rows import progression
from autofix.surgery.onnx_fast_transpose import FAST_TRANSPOSE, merged_axes
from autofix.surgery.ops_angles import atan2_single
from autofix.surgery.ops_fast import search_fast

CODES = {np.dtype("float32"): onnx.TensorProto.FLOAT, np.dtype("int64"): onnx.TensorProto.INT64, np.dtype("bool"): onnx.TensorProto.BOOL}
EDGES = np.array([0, -0.0, 1e-45, -1e-38, 1e-8, -1e-8, 1e-3, 0.5, -0.5, 1, -20, 19.9, 20.1, 87, 88.5, -104, 1e10, -1e10, np.inf, -np.inf], np.float32)


def results(op_type: str, inputs: list[np.ndarray], forms: Any, constants: tuple[int, ...] = (), **attributes: Any) -> tuple[np.ndarray, np.ndarray]:
    """(the node's own result, its fast form's); the inputs at `constants` are initializers."""
    names = [f"x{i}" for i in range(len(inputs))]
    node = onnx.helper.make_node(op_type, [n if inputs[i].size or op_type != "Resize" else "" for i, n in enumerate(names)], ["y"], **attributes)
    fed = {n: v for i, (n, v) in enumerate(zip(names, inputs, strict=True)) if i not in constants and n in node.input}
    values = [onnx.helper.make_tensor_value_info(n, CODES[v.dtype], v.shape) for n, v in fed.items()]
    kept = [onnx.numpy_helper.from_array(inputs[i], names[i]) for i in constants]
    result = onnx.helper.make_empty_tensor_value_info("y")
    graph = onnx.helper.make_graph([node], "g", values, [result], kept)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    plain = model.SerializeToString()
    assert replace_fast(model, forms) == 1
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    first, second = (
        ort.InferenceSession(m, options, providers=["CPUExecutionProvider"]).run(None, fed)[0] for m in (plain, model.SerializeToString())
    )
    return first, second


def assert_same(pair: tuple[np.ndarray, np.ndarray]) -> None:
    np.testing.assert_allclose(pair[1], pair[0], rtol=2e-5, atol=2e-6, equal_nan=True)
    assert pair[0].dtype == pair[1].dtype


@pytest.mark.parametrize("op_type", ["Softplus", "Mish", "Sinh", "Cosh", "Sign"])
def test_pointwise(op_type: str) -> None:
    assert_same(results(op_type, [EDGES], FAST_POINTWISE))


@pytest.mark.parametrize(
    ("op_type", "settings"), [("Elu", {}), ("Elu", {"alpha": 0.25}), ("Elu", {"alpha": 0.0}), ("Selu", {}), ("Selu", {"gamma": 2.0})]
)
def test_exponential_units(op_type: str, settings: dict[str, float]) -> None:
    assert_same(results(op_type, [np.append(EDGES, np.float32(np.nan))], FAST_POINTWISE, **settings))


def test_where_with_nan_and_infinity() -> None:
    a, b = np.tile(EDGES, 2), np.repeat(EDGES, 2)
    pick = np.arange(40) % 3 == 0
    assert_same(results("Where", [pick, a, b], FAST_POINTWISE))
    a[4] = b[3] = np.nan
    assert_same(results("Where", [pick, a, b], FAST_POINTWISE))


def test_choice_of_what_is_not_a_number() -> None:
    h, value = onnx.helper, onnx.helper.make_tensor_value_info
    nodes = [h.make_node("Div", ["a", "b"], ["r"]), h.make_node("IsNaN", ["r"], ["c"]), h.make_node("Mul", ["a", "b"], ["m"])]
    nodes.append(h.make_node("Where", ["c", "m", "r"], ["y"]))
    graph = h.make_graph(nodes, "g", [value("a", 1, [20]), value("b", 1, [20])], [value("y", 1, [20])])
    plain = h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=10)
    fast = onnx.ModelProto.FromString(plain.SerializeToString())
    assert replace_fast(fast, {"Where": FAST_POINTWISE["Where"]}) == 1
    assert "Mul" not in [n.op_type for n in fast.graph.node]  # only in the branch for NaN
    for b in (EDGES, EDGES[::-1], np.full_like(EDGES, 3.0)):
        first, second = (ort.InferenceSession(m.SerializeToString()).run(None, {"a": EDGES, "b": b})[0] for m in (plain, fast))
        assert_same((first, second))


@pytest.mark.parametrize("width", [5, 20])
def test_transpose_of_every_order(width: int) -> None:
    """Rows of 20 numbers are gathered, shorter ones joined."""
    x = np.arange(2 * 3 * 4 * width, dtype=np.float32).reshape(2, 3, 4, width)
    done = 0
    for perm in itertools.permutations(range(4)):
        try:
            first, second = results("Transpose", [x], FAST_TRANSPOSE, perm=list(perm))
        except AssertionError:  # left as it is
            continue
        np.testing.assert_array_equal(first, second)
        done += 1
    assert done >= 5


def test_merged_axes() -> None:
    assert merged_axes((2, 1, 3, 4), [0, 1, 2, 3]) == ([24], [0])
    assert merged_axes((2, 3, 4, 5), [0, 2, 3, 1]) == ([2, 3, 20], [0, 2, 1])
    assert merged_axes((7, 5, 3, 1), [2, 0, 1, 3]) == ([35, 3], [1, 0])


@pytest.mark.parametrize(("size", "rows"), [(11, [1, 4, 7]), (9, [1, 4, 7]), (8, [1, 4, 7]), (6, [2, 3, 4]), (6, [0, 2, 4]), (5, [4])])
def test_rows_put(size: int, rows: list[int]) -> None:
    data, new = np.random.default_rng(0).random((size, 3), np.float32), np.ones((len(rows), 3), np.float32)
    assert_same(results("ScatterND", [data, np.array(rows)[:, None], new], FAST_INDEX, constants=(1,)))


def test_progression() -> None:
    assert progression(np.array([3, 5, 7])) == (3, 2)
    assert progression(np.array([3, 5, 8])) is None
    assert progression(np.array([3, 3])) is None
    assert progression(np.array([-1, 0])) is None


@pytest.mark.parametrize(
    ("windows", "width", "hop", "step"), [(5, 16, 8, 1), (4, 24, 16, 1), (6, 3, 1, 1), (3, 7, 1, 3), (100, 3, 2, 1), (4, 5, 5, 1)]
)
def test_windows(windows: int, width: int, hop: int, step: int) -> None:
    places = hop * np.arange(windows)[:, None] + step * np.arange(width)
    x = np.random.default_rng(0).random((2, int(places.max()) + 3), np.float32)
    assert_same(results("Gather", [x, places], FAST_INDEX, constants=(1,), axis=1))


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_grid_sample(mode: str, padding: str, aligned: int) -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((2, 3, 5, 6), np.float32)
    for reach in (1.3, 30.0):
        grid = ((random.random((2, 4, 7, 2), np.float32) - 0.5) * 2 * reach).astype(np.float32)
        for _ in range(2):
            assert_same(results("GridSample", [x, grid], FAST_GRID, mode=mode, padding_mode=padding, align_corners=aligned))
            grid[0, 0, 0], grid[1, 2, 3, 1] = np.nan, np.inf


@pytest.mark.parametrize("places", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
def test_resize_cubic(places: str) -> None:
    random, none = np.random.default_rng(2), np.zeros(0, np.float32)
    for shape, scale in (((1, 2, 5, 7), (2.0, 1.5)), ((2, 1, 9, 4), (0.5, 3.0)), ((1, 1, 1, 6), (1.0, 0.3))):
        x = random.standard_normal(shape, np.float32)
        for _ in range(2):
            scales = np.array([1, 1, *scale], np.float32)
            assert_same(results("Resize", [x, none, scales], FAST_RESIZE, constants=(2,), mode="cubic", coordinate_transformation_mode=places))
            x[0, 0, 0, 0] = np.inf


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("size", [96, 32 * 25 * 20])
def test_cumulated(reverse: int, exclusive: int, size: int) -> None:
    x = np.random.default_rng(3).random((3, size), np.float32)
    for _ in range(2):
        assert_same(results("CumSum", [x, np.array(1)], FAST_REDUCE, constants=(1,), reverse=reverse, exclusive=exclusive))
        x[1, 40] = np.inf


@pytest.mark.parametrize("op_type", ["ReduceProd", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean", "ReduceL2", "ReduceLogSumExp"])
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions(op_type: str, keep: int) -> None:
    x = np.random.default_rng(4).random((7, 4, 5), np.float32)
    x[2, 1, 3] = np.inf
    assert_same(results(op_type, [x, np.array([0])], FAST_REDUCE, constants=(1,), keepdims=keep))


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 64, 500])
@pytest.mark.parametrize("right", [False, True])
def test_search(count: int, right: bool) -> None:
    torch.manual_seed(count)
    for dtype in (torch.float32, torch.int64):
        edges = torch.randint(-50, 50, (count,)).to(dtype).sort().values
        ends = [float("nan"), float("inf"), -float("inf")] if dtype.is_floating_point else [2**63 - 1, -(2**63)]
        if count > 9 and dtype.is_floating_point:
            edges[0], edges[-1] = ends[2], ends[1]
        x = torch.cat([torch.randint(-60, 60, (100,)).to(dtype), edges, torch.tensor(ends, dtype=dtype)])
        assert torch.equal(search_fast(edges, x, right=right), torch.bucketize(x, edges, right=right))
    assert search_fast(edges, x[:0], out_int32=True).dtype == torch.int32


def test_angle_keeps_the_signs_of_zeros() -> None:
    y, x = (t.flatten() for t in torch.meshgrid(torch.from_numpy(EDGES), torch.from_numpy(EDGES), indexing="ij"))
    ours, theirs = atan2_single(y, x), torch.atan2(y, x)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
    assert torch.equal(torch.signbit(ours), torch.signbit(theirs))


WINDOWS = {
    "volume": ("Conv", (4, 3, 3, 2, 5), [2, 3, 6, 9, 9], {"strides": [2, 3, 1], "pads": [1, 2, 0, 0, 1, 3], "dilations": [1, 2, 1]}),
    "volume of one slice": ("Conv", (2, 2, 1, 3, 3), [1, 2, 4, 5, 6], {"pads": [2, 1, 1, 0, 1, 1]}),
    "dilated depth": ("Conv", (2, 2, 3, 1, 1), [1, 2, 8, 3, 2], {"dilations": [3, 1, 1]}),
    "signal": ("ConvTranspose", (4, 2, 5), [2, 4, 7], {"pads": [1, 6], "dilations": [2], "group": 2}),
    "image": ("ConvTranspose", (4, 3, 3, 5), [2, 4, 6, 8], {"pads": [3, 0, 1, 6], "group": 2}),
    "stride 1 volume": ("ConvTranspose", (2, 3, 2, 3, 4), [2, 2, 4, 5, 6], {"pads": [0, 1, 2, 2, 1, 0]}),
    "grown volume": (
        "ConvTranspose",
        (2, 3, 4, 3, 5),
        [2, 2, 3, 5, 4],
        {"strides": [2, 2, 3], "pads": [1, 0, 2, 3, 1, 0], "output_padding": [1, 1, 2]},
    ),
    "deep steps, flat rows": ("ConvTranspose", (2, 2, 6, 3, 3), [1, 2, 5, 4, 4], {"strides": [3, 1, 1], "pads": [7, 1, 3, 4, 0, 1]}),
    "few rows": ("ConvTranspose", (2, 2, 2, 1, 2), [1, 2, 3, 4, 4], {"strides": [2, 3, 1], "output_padding": [0, 2, 0]}),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_convolutions(kind: str) -> None:
    op_type, weight, shape, settings = WINDOWS[kind]
    rng = np.random.default_rng(0)
    outputs = weight[0] if op_type == "Conv" else weight[1] * settings.get("group", 1)
    inputs = [rng.standard_normal(s).astype(np.float32) for s in (shape, weight, (outputs,))]
    assert_same(results(op_type, inputs, FAST_CONV, (1, 2), kernel_shape=list(weight[2:]), **settings))


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_stays_where_the_windows_of_a_volume_see_it(value: float) -> None:
    rng = np.random.default_rng(0)
    for op_type, settings in (("Conv", {"pads": [1, 1, 1, 1, 1, 1]}), ("ConvTranspose", {"strides": [2, 2, 2]})):
        x, weight = rng.standard_normal((1, 2, 4, 5, 6)).astype(np.float32), rng.standard_normal((2, 2, 2, 3, 3)).astype(np.float32)
        x[0, 1, 2, 4, 0] = x[0, 0, 1, 0, 5] = value
        plain, fast = results(op_type, [x, weight], FAST_CONV, (1,), kernel_shape=[2, 3, 3], **settings)
        np.testing.assert_array_equal(np.isfinite(fast), np.isfinite(plain))
        assert 0 < np.isfinite(plain).sum() < plain.size


def test_convolutions_that_are_left_alone() -> None:
    rng = np.random.default_rng(0)
    for op_type, weight, settings in (
        ("ConvTranspose", (2, 2, 3, 3, 3), {"strides": [2, 2, 2]}),  # taps of zero weight would be added
        ("ConvTranspose", (2, 2, 3, 3), {"strides": [2, 2]}),
        ("Conv", (2, 2, 3, 3), {}),
        ("Conv", (2, 1, 3, 3, 3), {"group": 2}),
    ):
        x = rng.standard_normal((1, 2, 6, 6, 6)[: len(weight)]).astype(np.float32)
        with pytest.raises(AssertionError):
            results(op_type, [x, rng.standard_normal(weight).astype(np.float32)], FAST_CONV, (1,), kernel_shape=list(weight[2:]), **settings)


@pytest.mark.parametrize("value", [1.0, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("settings", [{"dilations": [3, 1, 2]}, {"strides": [2, 1, 3], "pads": [1, 1, 0, 1, 0, 1]}])
def test_largest_of_boxes(value: float, settings: dict[str, list[int]]) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 8, 10)).astype(np.float32)
    x[1, 2, 3:5, 4, 5] = value
    assert_same(results("MaxPool", [x], FAST_REDUCE, kernel_shape=[3, 2, 3], **settings))


@pytest.mark.parametrize(
    "equation",
    [
        "bhid,bhjd->bhij",
        "bhij,bjhd->bihd",
        "ij,jk->ki",
        "abc,bc->a",
        "ab,ab->",
        "bcij,dc->bdij",
        "abcd,efcd->efab",
        "a i j, a j k",
        "ij,jk",
    ],
)
def test_products_as_einsum(equation: str) -> None:
    terms = equation.partition("->")[0].replace(" ", "").split(",")
    rng = np.random.default_rng(0)
    assert_same(
        results(
            "Einsum",
            [rng.standard_normal(["abcdefhijk".index(c) % 4 + 2 for c in t]).astype(np.float32) for t in terms],
            FAST_EINSUM,
            equation=equation,
        )
    )


@pytest.mark.parametrize("equation", ["ii,ij->j", "ij,kl->ijkl", "bi,bj->bij", "...ij,jk->...ik", "ijk,jl->jl", "bij,b->bi"])
def test_sums_that_are_no_products_of_matrices(equation: str) -> None:
    assert read_product(equation) is None
