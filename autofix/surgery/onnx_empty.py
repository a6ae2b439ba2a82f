"""Guards for operators that fail or abort in ONNX Runtime on an empty batch."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter


def empty_branch(w: OnnxWriter, node: onnx.NodeProto, empty: str, shapes: list[str], codes: list[int]) -> None:
    """Write If(empty) zeros of the given shapes, else the node itself. Values from outside are seen by both branches."""
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    del inner.output[:]
    kept = [o for o in node.output if o]
    inner.output.extend(f"{w.prefix}_full_{o}" if o else "" for o in node.output)
    info = [onnx.helper.make_tensor_value_info(f"{w.prefix}_full_{o}", c, None) for o, c in zip(kept, codes, strict=True)]
    full = onnx.helper.make_graph([inner], f"{w.prefix}_full", [], info)
    e = OnnxWriter(f"{w.prefix}_none", w.opset)
    results = [
        e.op("ConstantOfShape", shape, value=onnx.helper.make_tensor("value", code, [1], [0])) for shape, code in zip(shapes, codes, strict=True)
    ]
    none = onnx.helper.make_graph(
        e.nodes, f"{w.prefix}_none", [], [onnx.helper.make_tensor_value_info(r, c, None) for r, c in zip(results, codes, strict=True)]
    )
    w.nodes.append(onnx.helper.make_node("If", [empty], kept, name=f"{w.prefix}_if", then_branch=none, else_branch=full))


def empty_recurrent(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """LSTM and GRU, which end the process on a batch of none."""
    code = types.get(node.input[0], TensorProto.FLOAT)
    x, r = node.input[0], node.input[2]
    late = bool(onnx_attribute(node, "layout", 0))
    batch, steps = w.size(x, 0 if late else 1), w.size(x, 1 if late else 0)
    directions, hidden = w.size(r, 0), w.size(r, 2)
    y = w.shape_of(batch, steps, directions, hidden) if late else w.shape_of(steps, directions, batch, hidden)
    state = w.shape_of(batch, directions, hidden) if late else w.shape_of(directions, batch, hidden)
    shapes = [s for s, o in zip([y, state, state], node.output, strict=False) if o]
    empty_branch(w, node, w.squeeze(w.op("Equal", batch, w.const([0])), [0]), shapes, [code] * len(shapes))
    return True


def empty_same_shape(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """Normalisations, whose output has the input's shape."""
    code = types.get(node.input[0])
    if code is None or sum(bool(o) for o in node.output) != 1:
        return False
    empty_branch(w, node, w.op("Equal", w.op("Size", node.input[0]), w.const(0)), [w.op("Shape", node.input[0])], [code])
    return True


def empty_attention(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """The Attention operator on [batch, heads, length, width]; its output is [batch, heads, queries, width of v]."""
    code = types.get(node.input[0])
    if code is None or sum(bool(o) for o in node.output) != 1 or onnx_attribute(node, "q_num_heads") is not None:
        return False
    q, v = node.input[0], node.input[2]
    shape = w.shape_of(w.size(q, 0), w.size(q, 1), w.size(q, 2), w.size(v, 3))
    empty_branch(w, node, w.op("Equal", w.op("Size", q), w.const(0)), [shape], [code])
    return True


def empty_einsum(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """Einsum, which ends the process on an axis of none; a sum of none is 0."""
    code = types.get(node.input[0])
    equation = onnx_attribute(node, "equation", b"")
    text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
    if code is None or "." in text or "->" not in text:
        return False
    left, right = text.split("->")
    sizes: dict[str, str] = {}
    for x, letters in zip(node.input, left.split(","), strict=True):
        for axis, letter in enumerate(letters):
            if letter in right:
                size, known = w.size(x, axis), sizes.get(letter)
                sizes[letter] = size if known is None else w.op("Where", w.op("Equal", known, w.const([1])), size, known)
    shape = w.shape_of(*[sizes[letter] for letter in right]) if right else w.const(np.zeros(0))
    count = w.op("Size", node.input[0])
    for x in node.input[1:]:
        count = w.op("Mul", count, w.op("Size", x))
    empty_branch(w, node, w.op("Equal", count, w.const(0)), [shape], [code])
    return True


def empty_reshape(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """Reshape to a shape with -1: where the tensor is empty, -1 is what the axes that are not empty leave for it.

    PyTorch itself refuses such a -1; exporters write it in the forms of GroupNorm and the like, where the empty axis
    stands on both sides.
    """
    if onnx_attribute(node, "allowzero", 0) or w.opset < 14:
        return False
    x, shape = node.input
    one, zero, minus = w.const([1]), w.const([0]), w.const([-1])
    sizes = w.op("Shape", x)
    count = w.op("Shape", shape)
    # a 0 in the shape copies the input's size at the same place; shorter inputs are filled with ones
    filled = w.op("Slice", w.op("Concat", sizes, w.op("Expand", one, count), axis=0), zero, count, zero)
    copied = w.op("Where", w.op("Equal", shape, zero), filled, shape)
    unknown = w.op("Equal", copied, minus)
    known = w.op("Where", unknown, one, w.op("Max", copied, one))
    every = w.op("ReduceProd", w.op("Max", sizes, one), keepdims=1)
    rest = w.op("Div", every, w.op("ReduceProd", known, keepdims=1))
    missing = w.op("Where", unknown, rest, copied)
    empty = w.op("Equal", w.op("ReduceProd", sizes, keepdims=1), zero)
    w.op("Reshape", x, w.op("Where", empty, missing, copied), out=node.output[0], allowzero=1)
    return True


EMPTY_FORMS = {
    "LSTM": empty_recurrent,
    "GRU": empty_recurrent,
    "GroupNormalization": empty_same_shape,
    "Attention": empty_attention,
    "Einsum": empty_einsum,
    "Reshape": empty_reshape,
}
