"""Operators at older opsets: ONNX Runtime gives the same values from the lowered file."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from autofix.surgery.onnx_lower import lower_opset
from autofix.surgery.onnx_types import onnx_opset_of

F = np.array([[1.5, -2.0, 0.0, np.nan], [3.0, -0.25, 7.0, -1.0], [0.0, 2.0, -3.0, 4.0]], np.float32)
I = np.array([[3, -2, 0, 9], [7, 7, -5, 1], [-1, 4, 2, 0]], np.int64)  # noqa: E741
ROWS = np.array([[0, 2, 0, 1], [2, 2, 0, 1]], np.int64)
PLACES = np.array([[0, 3], [2, -1], [0, 3], [1, 0]], np.int64)


def model_of(op: str, arrays: list[Any], constants: tuple[int, ...] = (), opset: int = 18, **attributes: Any) -> onnx.ModelProto:
    """One node; the inputs named by `constants` are initialisers, the others have dynamic axes."""
    names = [f"i{k}" for k in range(len(arrays))]
    code = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    inputs = [helper.make_tensor_value_info(n, c, [f"{n}_{k}" for k in range(a.ndim)]) for n, c, a in zip(names, code, arrays, strict=True)]
    out = onnx.ValueInfoProto(name="out")
    kept = [onnx.numpy_helper.from_array(arrays[k], names[k]) for k in constants]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["out"], **attributes)], "g", [v for k, v in enumerate(inputs) if k not in constants], [out], kept
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


CASES: list[tuple[str, list[Any], tuple[int, ...], dict[str, Any]]] = [
    ("Max", [I, I[:, ::-1].copy(), I[:1]], (), {}),
    ("Min", [I, I[:1]], (), {}),
    ("Max", [F, F[:1]], (), {}),
    ("Clip", [I, np.array(-1), np.array(5)], (), {}),
    ("Clip", [I, np.array(4), np.array(2)], (), {}),
    ("Pow", [I, np.array(3)], (1,), {}),
    ("Pow", [np.abs(I), np.array([[2], [0], [5]])], (), {}),
    ("Pow", [F, np.array(2)], (), {}),
    ("GreaterOrEqual", [F, F[1:2]], (), {}),
    ("LessOrEqual", [I, I[1:2]], (), {}),
    ("Celu", [F], (), {"alpha": 0.7}),
    ("Softmax", [F[1:]], (), {"axis": 0}),
    ("LogSoftmax", [F[1:]], (), {"axis": -2}),
    ("Softmax", [F[1:]], (), {"axis": -1}),
    ("Trilu", [F, np.array(1)], (), {"upper": 0}),
    ("Trilu", [I], (), {"upper": 1}),
    ("Trilu", [F > 0, np.array(-1)], (), {}),
    *[(f"Bitwise{n}", [I * 2**59 - 5, I[:1] - 3], (), {}) for n in ("And", "Or", "Xor")],
    *[(f"Bitwise{n}", [I.astype(np.int32) * 1000, I[:1].astype(np.int32)], (), {}) for n in ("And", "Or", "Xor")],
    *[(f"Bitwise{n}", [I.astype(np.uint8), I[:1].astype(np.uint8)], (), {}) for n in ("And", "Or", "Xor")],
    *[("BitwiseNot", [I.astype(t)], (), {}) for t in (np.int64, np.int32, np.uint8)],
    ("Shape", [F], (), {}),
    ("Shape", [F], (), {"start": -1}),
    *[("ScatterElements", [F, ROWS, F[1:] * 2], (), {"axis": a, "reduction": r}) for a in (0, -2) for r in ("add", "mul", "max", "min")],
    ("ScatterElements", [I, ROWS[:, [0, 0, 0]].repeat(2, 0)[:3] % 4, I[:, :3]], (), {"axis": 1, "reduction": "max"}),
    *[("ScatterND", [np.nan_to_num(F), PLACES, np.arange(4, dtype=np.float32)], (), {"reduction": r}) for r in ("add", "mul", "min")],
    ("ScatterND", [I, PLACES[:, :1] % 3, np.arange(16).reshape(4, 4)], (), {"reduction": "add"}),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{c[0]}-{k}" for k, c in enumerate(CASES)])
def test_opset_11_gives_the_same_values(case: Any) -> None:
    op, arrays, constants, attributes = case
    feed = {f"i{k}": a for k, a in enumerate(arrays) if k not in constants}
    expected = ort.InferenceSession(model_of(op, arrays, constants, **attributes).SerializeToString()).run(None, feed)[0]
    model = model_of(op, arrays, constants, **attributes)
    assert lower_opset(model, 11) and onnx_opset_of(model) == 11
    onnx.checker.check_model(model)
    given = ort.InferenceSession(model.SerializeToString()).run(None, feed)[0]
    assert given.dtype == expected.dtype
    np.testing.assert_allclose(given, expected, rtol=1e-6)


def test_a_scatter_that_adds_stays_where_the_opset_has_it() -> None:
    model = model_of("ScatterElements", [F, ROWS, F[1:]], axis=0, reduction="add")
    assert lower_opset(model, 16)
    assert [n.op_type for n in model.graph.node] == ["ScatterElements"]
