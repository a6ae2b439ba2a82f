"""Pooling and reductions whose ONNX Runtime kernels are slow along some axes, from forms that are vectorised.

Measured with ONNX Runtime 1.32 on one core against eager PyTorch: MaxPool of one axis 0.08 to 0.6 (dilated worst), of two 14 or more; AveragePool of
three axes 0.34; ReduceMax over the first axis 0.1; ReduceProd 0.1; ReduceL2 0.2; ReduceLogSumExp 0.3; CumSum along the last axis 0.3;
Softmax along channels 0.16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from autofix.surgery.onnx_fast_nodes import FastGraph, fast_guarded, fast_scalar
from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter, write_softmax

FLOAT32_LARGEST = 3.4028234663852886e38
LEAST_CUMULATED, MOST_BLOCKS = 64, 128
"""Numbers from which on a running sum is taken by blocks, and how many blocks' sums are added up by one product."""


def reduce_axes(node: onnx.NodeProto, known: FastGraph) -> list[int] | None:
    """The axes of a reduction, none of them negative; None where they are not constant or the rank is unknown."""
    rank = known.rank(node.input[0])
    axes = onnx_attribute(node, "axes")
    if axes is None and len(node.input) > 1 and node.input[1]:
        axes = known.numbers(node.input[1])
        if axes is None:
            return None
    if rank is None or (axes is None and onnx_attribute(node, "noop_with_empty_axes", 0)):
        return None
    return sorted(a % rank for a in axes) if axes else list(range(rank))


def pool_twin(w: OnnxWriter, node: onnx.NodeProto, x: str, kernel: list[int], pads: list[int], strides: list[int], dilations: list[int]) -> str:
    """The pooling node on x with other windows."""
    kept = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.name in ("ceil_mode", "count_include_pad")}
    more: dict[str, Any] = {"dilations": dilations} if dilations != [1] * len(kernel) else {}
    return w.op(node.op_type, x, kernel_shape=kernel, pads=pads, strides=strides, **more, **kept)


def fast_pool(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """Pooling of one axis as pooling of images one pixel high; the mean or largest over boxes as that over faces, then over depth.

    The count of values inside the padding is a product over the axes, so the mean holds with padding left out as well. The kernel
    for the largest of an image passes over NaN and infinity: where there are such, the node itself is kept.
    """
    x, rank = node.input[0], known.rank(node.input[0])
    kernel = list(onnx_attribute(node, "kernel_shape", []))
    auto = onnx_attribute(node, "auto_pad", b"NOTSET")
    if not known.is_float(x) or rank not in (3, 5) or sum(bool(o) for o in node.output) != 1 or auto != b"NOTSET" or len(kernel) != rank - 2:
        return False
    spatial = len(kernel)
    pads = list(onnx_attribute(node, "pads", [0] * 2 * spatial))
    strides, dilations = (list(onnx_attribute(node, key, [1] * spatial)) for key in ("strides", "dilations"))
    if rank == 3:
        image = w.unsqueeze(x, [2])
        pooled = pool_twin(w, node, image, [1, *kernel], [0, pads[0], 0, pads[1]], [1, *strides], [1, *dilations])
        if node.op_type == "MaxPool":
            return fast_guarded(w, [node], w.squeeze(pooled, [2]), node.output[0], finite=x)
        w.squeeze(pooled, [2], out=node.output[0])
        return True
    largest = node.op_type == "MaxPool"
    if not largest and dilations != [1, 1, 1] or onnx_attribute(node, "ceil_mode", 0) or onnx_attribute(node, "storage_order", 0):
        return False
    shape = w.op("Shape", x)
    n, c, d, h, wd = (w.op("Gather", shape, w.const([k]), axis=0) for k in range(5))
    image = w.op("Reshape", x, w.op("Concat", n, w.op("Mul", c, d), h, wd, axis=0))
    image = pool_twin(w, node, image, kernel[1:], [pads[1], pads[2], pads[4], pads[5]], strides[1:], dilations[1:])
    tall, broad = w.size(image, 2), w.size(image, 3)
    deep = w.op("Reshape", image, w.op("Concat", n, c, d, w.op("Mul", tall, broad), axis=0))
    deep = pool_twin(w, node, deep, [kernel[0], 1], [pads[0], 0, pads[3], 0], [strides[0], 1], [dilations[0], 1])
    goal = w.op("Concat", n, c, w.size(deep, 2), tall, broad, axis=0)
    if largest:
        return fast_guarded(w, [node], w.op("Reshape", deep, goal), node.output[0], finite=x)
    w.op("Reshape", deep, goal, out=node.output[0])
    return True


def fast_halves(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """ReduceProd over one axis, ReduceMax and ReduceMin over the first, where its size is fixed: halves joined until one is left."""
    x, axes, join = node.input[0], reduce_axes(node, known), {"ReduceProd": "Mul", "ReduceMax": "Max", "ReduceMin": "Min"}[node.op_type]
    size = known.size(x, axes[0]) if axes is not None and len(axes) == 1 else None
    if axes is None or not known.is_float(x) or size is None or size < 2 or (join != "Mul" and (axes != [0] or known.rank(x) == 1)):
        return False
    axis, value, odd = axes[0], x, ""
    while size > 1:
        half = size // 2
        if size % 2:
            rest = w.slice(value, [size - 1], [size], [axis])
            odd = w.op(join, odd, rest) if odd else rest
        value = w.op(join, w.slice(value, [0], [half], [axis]), w.slice(value, [half], [2 * half], [axis]))
        size = half
    value = w.op(join, value, odd) if odd else value
    if onnx_attribute(node, "keepdims", 1):
        w.op("Identity", value, out=node.output[0])
    else:
        w.squeeze(value, [axis], out=node.output[0])
    return True


def fast_norm(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """ReduceL2 as the root of a sum of squares."""
    axes = reduce_axes(node, known)
    if axes is None or not known.is_float(node.input[0]):
        return False
    squares = w.op("Mul", node.input[0], node.input[0])
    w.op("Sqrt", w.reduce("ReduceSum", squares, axes, bool(onnx_attribute(node, "keepdims", 1))), out=node.output[0])
    return True


def fast_sum(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """ReduceSum and ReduceMean over one axis with nothing but axes of size 1 before it, as a product with a row of equal numbers."""
    x, axes, shape = node.input[0], reduce_axes(node, known), known.shapes.get(node.input[0], ())
    if axes is None or len(axes) != 1 or not known.is_float(x) or axes[0] == len(shape) - 1 or any(d != 1 for d in shape[: axes[0]]):
        return False
    axis, size = axes[0], known.size(x, axes[0])
    if not size:
        return False
    number = 1.0 if node.op_type == "ReduceSum" else 1.0 / size
    total = w.op("MatMul", w.const(np.full((1, size), number), np.float32), w.op("Reshape", x, w.const([size, -1])))
    kept = [1] if onnx_attribute(node, "keepdims", 1) else []
    w.op("Reshape", total, w.op("Concat", w.const([1] * axis + kept), w.op("Shape", x, start=axis + 1), axis=0), out=node.output[0])
    return True


def fast_log_sum_exp(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """ReduceLogSumExp about the maximum, which is kept finite so that infinities come out as they are."""
    x, axes = node.input[0], reduce_axes(node, known)
    if axes is None or not known.is_float(x) or any(known.size(x, a) in (None, 0) for a in axes):
        return False
    peak = w.op("Clip", w.reduce("ReduceMax", x, axes, True), fast_scalar(w, -FLOAT32_LARGEST), fast_scalar(w, FLOAT32_LARGEST))
    total = w.reduce("ReduceSum", w.op("Exp", w.op("Sub", x, peak)), axes, True)
    value = w.op("Add", w.op("Log", total), peak)
    if onnx_attribute(node, "keepdims", 1):
        w.op("Identity", value, out=node.output[0])
    else:
        w.squeeze(value, axes, out=node.output[0])
    return True


def fast_softmax(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """Softmax and LogSoftmax along another axis than the last, written out, so that nothing is transposed."""
    x, rank = node.input[0], known.rank(node.input[0])
    if rank is None or not known.is_float(x) or w.opset < 13:
        return False
    axis = int(onnx_attribute(node, "axis", -1)) % rank
    if axis == rank - 1 or known.size(x, axis) in (None, 0):
        return False
    write_softmax(w, node, axis)
    return True


def fast_cumulate(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """CumSum along the last axis: blocks times a triangle of ones, plus what the blocks before add up to.

    Zeros times infinity give NaN, for which the node itself is kept.
    """
    x, axis = node.input[0], known.numbers(node.input[1])
    rank, size = known.rank(x), known.size(x, -1)
    if not known.is_float(x) or rank is None or axis is None or axis[0] % rank != rank - 1 or size is None or size < LEAST_CUMULATED:
        return False
    lead = [w.op("Shape", x, start=0, end=rank - 1)] if rank > 1 else []
    total = cumulated(w, x, lead, size, bool(onnx_attribute(node, "reverse", 0)), bool(onnx_attribute(node, "exclusive", 0)))
    if not total:
        return False
    return fast_guarded(w, [node], w.op("Reshape", total, w.op("Shape", x)), node.output[0])


def cumulated(w: OnnxWriter, x: str, lead: list[str], size: int, reverse: bool, exclusive: bool) -> str:
    """Sums up to each place of the last axis of x [*lead, size], as [*lead, blocks, width]; an empty string where no width divides the size."""
    width = next((b for b in (32, 25, 24, 20, 16, 40, 50) if size % b == 0), 0)
    if not width:
        return ""
    blocks, ones = size // width, np.ones((width, width), np.float32)
    cut = w.op("Reshape", x, w.shape_of(*lead, blocks, width), **w.keep_zeros())
    within = w.op("MatMul", cut, w.const(np.tril(ones, -exclusive) if reverse else np.triu(ones, exclusive), np.float32))
    sums = w.reduce("ReduceSum", cut, [-1], False)
    if blocks <= MOST_BLOCKS:
        across = np.ones((blocks, blocks), np.float32)
        before = w.op("MatMul", sums, w.const(np.tril(across, -1) if reverse else np.triu(across, 1), np.float32))
    else:
        inner = cumulated(w, sums, lead, blocks, reverse, True)
        if not inner:
            return ""
        before = w.op("Reshape", inner, w.shape_of(*lead, blocks), **w.keep_zeros())
    return w.op("Add", within, w.unsqueeze(before, [-1]))


FAST_REDUCE = {
    "MaxPool": fast_pool,
    "AveragePool": fast_pool,
    "ReduceMax": fast_halves,
    "ReduceMin": fast_halves,
    "ReduceProd": fast_halves,
    "ReduceSum": fast_sum,
    "ReduceMean": fast_sum,
    "ReduceL2": fast_norm,
    "ReduceLogSumExp": fast_log_sum_exp,
    "Softmax": fast_softmax,
    "LogSoftmax": fast_softmax,
    "CumSum": fast_cumulate,
}
