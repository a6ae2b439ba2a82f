"""Sums over overlapping windows of a signal as convolutions, so that the windows themselves are never written.

What is done to each number alone may as well be done to the signal before it is cut; a window function w then comes out of squares and
absolute values: sum_k (x[h t + k] w[k])^2 = sum_k x[h t + k]^2 w[k]^2, a convolution of x^2 with w^2 at every h-th place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx

from autofix.surgery.onnx_fast_nodes import FastGraph, fast_guarded
from autofix.surgery.onnx_fast_reduce import reduce_axes
from autofix.surgery.onnx_fast_rows import progression
from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter

FRAME_WISE = frozenset(("Abs", "Neg", "Sqrt", "Exp", "Log", "Relu", "Sigmoid", "Tanh", "Erf", "Reciprocal", "Sin", "Cos", "Clip", "LeakyRelu"))
"""Operators that may be taken before the cut as they are."""


@dataclass(frozen=True)
class Framed:
    """Windows [..., count, width] of `source` [..., length] at hop i + step j, times weight [width] where that is given; `chain`: the nodes that
    make them, in order."""

    source: str
    hop: int
    step: int
    count: int
    width: int
    chain: tuple[onnx.NodeProto, ...]
    weight: np.ndarray | None = None

    def then(self, node: onnx.NodeProto, source: str = "", weight: np.ndarray | None = None) -> Framed:
        """After one more node."""
        return replace(self, source=source or self.source, weight=self.weight if weight is None else weight, chain=(*self.chain, node))


def framed_gather(node: onnx.NodeProto, known: FastGraph) -> Framed | None:
    """A Gather of overlapping windows along the last axis."""
    x, places = node.input[0], known.value(node.input[1])
    rank, size = known.rank(x), known.size(x, -1)
    if rank is None or size is None or places is None or places.ndim != 2 or not known.is_float(x):
        return None
    count, width = places.shape
    if int(onnx_attribute(node, "axis", 0)) % rank != rank - 1 or count < 2 or width < 2:
        return None
    down, across = progression(places[:, 0]), progression(places[0])
    if down is None or across is None or down[0] != 0 or int(places.max()) >= size:
        return None
    if not np.array_equal(places, down[1] * np.arange(count)[:, None] + across[1] * np.arange(width)):
        return None
    return Framed(x, down[1], across[1], count, width, (node,))


def frame_constant(name: str, width: int, known: FastGraph) -> np.ndarray | None:
    """A constant that is one number or one a place of the window, as float64 of shape () or [width]; None for any other value."""
    value = known.value(name)
    if value is None or value.dtype != np.float32 or not np.isfinite(value).all():
        return None
    if value.size == 1:
        return value.reshape(()).astype(np.float64)
    return value.reshape(-1).astype(np.float64) if value.size == width == value.shape[-1] else None


def framed(w: OnnxWriter, name: str, known: FastGraph) -> Framed | None:
    """A value as windows of something; writes what is taken before the cut."""
    node = known.makers.get(name)
    if node is None or node.domain not in ("", "ai.onnx") or not node.input or len(node.output) != 1:
        return None
    if node.op_type == "Gather":
        return framed_gather(node, known)
    if node.op_type in ("Mul", "Div", "Add", "Sub", "Pow"):
        return framed_pair(w, node, known)
    before = framed(w, node.input[0], known) if node.op_type in FRAME_WISE else None
    if before is None or (len(node.input) > 1 and any(n and known.value(n) is None for n in node.input[1:])):
        return None
    if before.weight is None:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        return before.then(node, w.op(node.op_type, before.source, *node.input[1:], **attributes))
    if node.op_type == "Abs":
        return before.then(node, w.op("Abs", before.source), np.abs(before.weight))
    return before.then(node, weight=-before.weight) if node.op_type == "Neg" else None


def framed_pair(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> Framed | None:
    """Squares, and windows with a constant."""
    first, second = node.input
    if node.op_type == "Mul" and known.value(first) is not None:
        first, second = second, first
    before = framed(w, first, known)
    if before is None:
        return None
    constant = frame_constant(second, before.width, known)
    square = (node.op_type == "Mul" and first == second) or (node.op_type == "Pow" and constant is not None and constant.size == 1 and constant == 2)
    if square:
        return before.then(node, w.op("Mul", before.source, before.source), None if before.weight is None else before.weight**2)
    if constant is None or (node.op_type == "Div" and not constant.all()):
        return None
    if node.op_type in ("Mul", "Div"):
        weight = np.ones(before.width) if before.weight is None else before.weight
        return before.then(node, weight=weight * constant if node.op_type == "Mul" else weight / constant)
    if before.weight is not None or constant.ndim or node.op_type == "Pow":
        return None
    return before.then(node, w.op(node.op_type, before.source, w.const(constant, np.float32)))


def frames_convolved(w: OnnxWriter, found: Framed, kernel: np.ndarray, known: FastGraph) -> tuple[str, str]:
    """(windows times kernel [m, width], as [batch, m, count]; the sizes before the last axis)."""
    x = found.chain[0].input[0]
    span = found.hop * (found.count - 1) + found.step * (found.width - 1) + 1
    rank = known.rank(x) or 1
    kept = found.source if known.size(x, -1) == span else w.slice(found.source, [0], [span], [rank - 1])
    signal = w.op("Reshape", kept, w.const([-1, 1, span]))
    weights = w.const(kernel[:, None, :], np.float32)
    made = w.op("Conv", signal, weights, kernel_shape=[found.width], strides=[found.hop], dilations=[found.step])
    return made, w.op("Shape", x, start=0, end=rank - 1)


def fast_frame_sum(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """ReduceSum and ReduceMean over the windows' own axis; where the result is not finite the nodes themselves run."""
    rank = known.rank(node.input[0])
    if rank is None or reduce_axes(node, known) != [rank - 1] or w.opset < 15:
        return False
    found = framed(w, node.input[0], known)
    if found is None:
        return False
    kernel = np.ones(found.width) if found.weight is None else found.weight
    made, lead = frames_convolved(w, found, kernel[None] / (found.width if node.op_type == "ReduceMean" else 1), known)
    last = [w.const([1])] if onnx_attribute(node, "keepdims", 1) else []
    result = w.op("Reshape", made, w.op("Concat", lead, w.const([found.count]), *last, axis=0))
    return fast_guarded(w, [*found.chain, node], result, node.output[0], finite=result)


def fast_frame_product(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """Windows times a constant matrix [width, m]; where the result is not finite the nodes themselves run."""
    matrix = known.value(node.input[1])
    if matrix is None or matrix.ndim != 2 or matrix.dtype != np.float32 or w.opset < 15:
        return False
    found = framed(w, node.input[0], known)
    if found is None or matrix.shape[0] != found.width:
        return False
    kernel = matrix.T.astype(np.float64) * (1.0 if found.weight is None else found.weight)
    made, lead = frames_convolved(w, found, kernel, known)
    goal = w.op("Concat", lead, w.const([found.count, matrix.shape[1]]), axis=0)
    result = w.op("Reshape", w.op("Transpose", made, perm=[0, 2, 1]), goal)
    return fast_guarded(w, [*found.chain, node], result, node.output[0], finite=result)


FAST_FRAMES = {"ReduceSum": fast_frame_sum, "ReduceMean": fast_frame_sum, "MatMul": fast_frame_product}
