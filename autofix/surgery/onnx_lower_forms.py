"""Older forms of operators that opsets 12 to 18 brought or widened: whole numbers in Max, Min, Clip and Pow, GreaterOrEqual, Celu, Trilu, softmax
over any axis, and scatters that reduce. Each is the operator's definition in the ONNX specification, in operators of opset 11."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter, write_softmax

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
LAST = 2**31


def lower_extremes(lowering: Any, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """Max and Min of whole numbers by comparison."""
    if lowering.types.get(node.input[0], TensorProto.FLOAT) in FLOATS:
        return False
    chosen = node.input[0]
    for other in node.input[1:]:
        keep = w.op("Greater" if node.op_type == "Max" else "Less", chosen, other)
        chosen = w.op("Where", keep, chosen, other)
    w.op("Identity", chosen, out=node.output[0])
    return True


def lower_clip(lowering: Any, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """Clip of whole numbers by comparison, the lower bound first."""
    if lowering.types.get(node.input[0], TensorProto.FLOAT) in FLOATS:
        return False
    value = node.input[0]
    for bound, beyond in zip(node.input[1:], ("Less", "Greater"), strict=False):
        if bound:
            value = w.op("Where", w.op(beyond, value, bound), bound, value)
    w.op("Identity", value, out=node.output[0])
    return True


def lower_pow(lowering: Any, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """Pow with equal float types; small whole powers of whole numbers by products, others in float64."""
    base, power = node.input
    code, other = lowering.types.get(base, TensorProto.FLOAT), lowering.types.get(power, TensorProto.FLOAT)
    if code in FLOATS:
        if other == code:
            return False
        w.op("Pow", base, w.cast(power, code), out=node.output[0])
        return True
    known = lowering.constants.get(power)
    if known is not None and known.size == 1 and known.ndim == 0 and 1 <= float(known) <= 8 and float(known).is_integer():
        product = base
        for _ in range(int(known) - 1):
            product = w.op("Mul", product, base)
        w.op("Identity", product, out=node.output[0])
        return True
    w.cast(w.op("Pow", w.cast(base, TensorProto.DOUBLE), w.cast(power, TensorProto.DOUBLE)), code, out=node.output[0])
    return True


def lower_or_equal(lowering: Any, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """GreaterOrEqual and LessOrEqual: false for NaN, so not the negated opposite."""
    a, b = node.input
    w.op("Or", w.op(node.op_type.removesuffix("OrEqual"), a, b), w.op("Equal", a, b), out=node.output[0])
    return True


def lower_celu(lowering: Any, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    x, dtype = node.input[0], onnx.helper.tensor_dtype_to_np_dtype(lowering.types.get(node.input[0], TensorProto.FLOAT))
    alpha, zero = w.const(float(onnx_attribute(node, "alpha", 1.0)), dtype), w.const(0.0, dtype)
    grown = w.op("Mul", alpha, w.op("Sub", w.op("Exp", w.op("Div", x, alpha)), w.const(1.0, dtype)))
    w.op("Add", w.op("Max", x, zero), w.op("Min", grown, zero), out=node.output[0])
    return True


def lower_softmax(lowering: Any, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """Before opset 13 softmax flattened what is behind its axis: the same for the last axis alone; others by exp and sum."""
    axis = int(onnx_attribute(node, "axis", -1))
    if axis == -1:
        del node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("axis", -1))
        return False
    write_softmax(w, node, axis)
    return True


def lower_bitwise(lowering: Any, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """Bits of whole numbers as 0 and 1: their product, sum and so on, put together again in 64 bits (which wrap as the narrower types do)."""
    code = lowering.types.get(node.input[0])
    if code is None:
        return False
    if node.op_type == "BitwiseNot":
        wide = w.cast(node.input[0], TensorProto.INT64)
        w.cast(w.op("Sub", w.const(-1), wide), code, out=node.output[0])
        return True

    def bits(x: str) -> str:
        whole = w.unsqueeze(w.cast(x, TensorProto.UINT64), [-1])
        # by shifts alone: a Mod of numbers that large would have to be exact
        high = w.op("BitShift", whole, w.const(63 - np.arange(64), np.uint64), direction="LEFT")
        return w.cast(w.op("BitShift", high, w.const(63, np.uint64), direction="RIGHT"), TensorProto.INT64)

    a, b = bits(node.input[0]), bits(node.input[1])
    both = w.op("Mul", a, b)
    if node.op_type == "BitwiseAnd":
        chosen = both
    else:  # a + b - ab, and once more - ab for those that differ
        chosen = w.op("Sub", w.op("Add", a, b), both)
        chosen = chosen if node.op_type == "BitwiseOr" else w.op("Sub", chosen, both)
    # ONNX Runtime adds int64 in float64, which is exact below 2^53: each half for itself
    halves = np.concatenate([np.eye(2, dtype=np.int64)[k][:, None] << np.arange(32) for k in range(2)], 1)
    low, high = (w.reduce("ReduceSum", w.op("Mul", chosen, w.const(half)), [-1], False) for half in halves)
    w.cast(w.op("Add", w.op("Mul", high, w.const(2**32)), low), code, out=node.output[0])
    return True


def positions(w: OnnxWriter, size: str) -> str:
    """0, 1, ... below a size of shape []."""
    return w.op("Range", w.const(0), size, w.const(1))


def lower_trilu(lowering: Any, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """What lies on the wrong side of diagonal k becomes 0."""
    x, code = node.input[0], lowering.types.get(node.input[0], TensorProto.FLOAT)
    shape = w.op("Shape", x)
    rows, columns = (positions(w, w.op("Gather", shape, w.const(axis), axis=0)) for axis in (-2, -1))
    apart = w.op("Sub", w.unsqueeze(columns, [0]), w.unsqueeze(rows, [1]))
    diagonal = node.input[1] if len(node.input) > 1 and node.input[1] else w.const(0)
    keep = w.op("Not", w.op("Less" if onnx_attribute(node, "upper", 1) else "Greater", apart, diagonal))
    if code == TensorProto.BOOL:
        w.op("And", x, keep, out=node.output[0])
    else:
        w.op("Where", keep, x, w.cast(w.const(0.0, np.float32), code), out=node.output[0])
    return True


def gathered(lowering: Any, w: OnnxWriter, kind: str, data: str, hits: str, updates: str, axis: int, code: int, out: str) -> None:
    """data with all updates that hit an entry reduced into it; hits and updates have one more axis, `axis`, than data."""
    neutral = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf}[kind]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(code)
    if np.issubdtype(dtype, np.integer) and not np.isfinite(neutral):
        neutral = np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max
    chosen = w.op("Where", hits, updates, w.const(neutral, dtype))
    reduction = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}[kind]
    found = w.reduce(reduction, chosen, [axis], False)
    if kind in ("max", "min") and np.issubdtype(dtype, np.integer):
        w.op("Where", w.op("Greater" if kind == "max" else "Less", data, found), data, found, out=out)
    else:
        w.op({"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}[kind], data, found, out=out)


def from_front(w: OnnxWriter, indices: str, size: str) -> str:
    """Indices counted from the front."""
    return w.op("Where", w.op("Less", indices, w.const(0)), w.op("Add", indices, size), indices)


def lower_scatter_elements(lowering: Any, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """Each entry with the updates whose index names it: memory and time are the axis's size times the updates'."""
    kind = (onnx_attribute(node, "reduction", b"none") or b"none").decode()
    if kind == "none" or (kind in ("add", "mul") and w.opset >= 16):
        return False
    data, indices, updates = node.input
    axis, code = int(onnx_attribute(node, "axis", 0)), lowering.types.get(data, TensorProto.FLOAT)
    shape = w.op("Shape", data)
    size = w.op("Gather", shape, w.const(axis), axis=0)
    indices = from_front(w, w.cast(indices, TensorProto.INT64), size)
    if axis >= 0:  # the new axis stands behind the one that is indexed: [.., size, updates, ..]
        behind, more, new = w.op("Sub", w.op("Shape", shape), w.const([axis])), axis, axis + 1
    else:
        behind, more, new = w.const([-axis]), axis - 1, axis
    ones = w.op("ConstantOfShape", behind, value=onnx.numpy_helper.from_array(np.ones(1, np.int64)))
    place = w.op("Reshape", positions(w, size), w.op("Concat", w.const([-1]), ones, axis=0))
    hits = w.op("Equal", place, w.unsqueeze(indices, [more]))
    gathered(lowering, w, kind, data, hits, w.unsqueeze(updates, [more]), new, code, node.output[0])
    return True


def lower_scatter_nd(lowering: Any, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """As for ScatterElements, with the indexed axes joined into one and the others into another."""
    kind = (onnx_attribute(node, "reduction", b"none") or b"none").decode()
    if kind == "none" or (kind in ("add", "mul") and w.opset >= 16):
        return False
    data, indices, updates = node.input
    code, shape = lowering.types.get(data, TensorProto.FLOAT), w.op("Shape", data)
    places = w.op("Gather", w.op("Shape", indices), w.const([-1]), axis=0)
    first, rest = w.op("Slice", shape, w.const([0]), places), w.op("Slice", shape, places, w.const([LAST]))
    indices = from_front(w, indices, first)
    # Row-major numbers: each place counts as many entries as the sizes behind it make.
    whole, width = w.reduce("ReduceProd", first, [0], True), w.reduce("ReduceProd", rest, [0], True)
    place = positions(w, w.squeeze(places, [0]))
    behind = w.op("Greater", w.unsqueeze(place, [0]), w.unsqueeze(place, [1]))
    steps = w.reduce("ReduceProd", w.op("Where", behind, w.unsqueeze(first, [0]), w.const([[1]])), [1], False)
    number = w.op("Reshape", w.reduce("ReduceSum", w.op("Mul", indices, steps), [-1], False), w.const([-1]))
    flat = w.op("Reshape", data, w.op("Concat", whole, width, axis=0))
    rows = w.op("Reshape", updates, w.op("Concat", w.const([-1]), width, axis=0))
    entries = positions(w, w.squeeze(whole, [0]))
    hits = w.unsqueeze(w.op("Equal", w.unsqueeze(entries, [1]), w.unsqueeze(number, [0])), [2])
    made = w.name()
    gathered(lowering, w, kind, flat, hits, w.unsqueeze(rows, [0]), 1, code, made)
    w.op("Reshape", made, shape, out=node.output[0])
    return True
