"""Assignments by a boolean mask, x[mask] = value, as a choice between x and the value.

The exporter writes them as NonZero, Transpose and ScatterND, which take 15 ns a position where Where takes 1 to 8. The value may be one number, a row
that is repeated (x[mask] = row, with a mask over the leading axes), what stood at the same places (x[mask] = f(v[mask])), or arithmetic on these.
"""

from __future__ import annotations

import math

import onnx
from onnx import TensorProto

from autofix.surgery.onnx_fast_nodes import FastGraph, Shape
from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter

WHERE_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8)
ANYWHERE = frozenset(
    ("Abs", "Add", "Cast", "Ceil", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log")
    + ("Max", "Min", "Mul", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Tanh")
)
"""Operators that take each number by itself and are defined for all of them; Div and Pow for floats besides."""
MOST_NODES = 12
LEAST_ROW = 8
"""Numbers that the axes behind a mask must hold for rows to be written as such: ScatterND copies 0.2 ns a number then, Where takes 3."""


def mask_of_indices(name: str, known: FastGraph) -> str:
    """The mask M where a value is Transpose(NonZero(M)), or an empty string."""
    turned = known.maker(name, "Transpose")
    found = known.maker(turned.input[0], "NonZero") if turned is not None and list(onnx_attribute(turned, "perm", [1, 0])) == [1, 0] else None
    return found.input[0] if found is not None else ""


def sure_shape(name: str, known: FastGraph) -> Shape | None:
    """The shape where each size is a number or has a name."""
    shape = known.shapes.get(name)
    return None if shape is None or "" in shape else shape


def is_shape_of(name: str, x: str, known: FastGraph) -> bool:
    """Whether a value is the whole shape of `x`."""
    node = known.maker(name, "Shape")
    return node is not None and node.input[0] == x and not onnx_attribute(node, "start", 0) and not any(a.name == "end" for a in node.attribute)


def leading_mask(mask: str, x: str, known: FastGraph) -> tuple[str, int] | None:
    """(the mask over the leading axes of `x`, their number) that a mask is an expansion of, or that it is itself; None where the ranks do not fit."""
    depth, rank = known.rank(mask), known.rank(x)
    wide = known.maker(mask, "Expand")
    if wide is not None and known.rank(wide.input[0]) == rank and depth == rank and rank is not None:
        shape = sure_shape(mask, known)
        if is_shape_of(wide.input[1], x, known) or (shape is not None and shape == sure_shape(x, known)):
            mask = wide.input[0]
            narrow = known.maker(mask, "Unsqueeze")
            axes = sorted(a % rank for a in known.numbers(narrow.input[1]) or []) if narrow is not None and len(narrow.input) > 1 else []
            if narrow is not None and axes and axes == list(range(rank - len(axes), rank)):
                mask, depth = narrow.input[0], rank - len(axes)
    return None if depth is None or rank is None or depth > rank else (mask, depth)


class MaskedValue:
    """What is assigned at the places of a mask, written for every place of `x`: `write` gives a value that broadcasts to x, or ""."""

    def __init__(self, w: OnnxWriter, x: str, mask: tuple[str, int], known: FastGraph) -> None:
        self.w, self.x, self.mask, self.known = w, x, mask, known
        self.rest = len(known.shapes[x]) - mask[1]
        self.written: dict[str, str] = {}

    def write(self, name: str) -> str:
        """See the class."""
        if name not in self.written:
            self.written[name] = "" if len(self.written) > MOST_NODES else self.dense(name)
        return self.written[name]

    def dense(self, name: str) -> str:
        """`write` of a value that is met for the first time."""
        node, fixed = self.known.makers.get(name), self.known.fixed(name)
        if fixed == () or (fixed is not None and self.known.value(name) is not None):
            return self.one_or_row(name)
        if node is None or node.domain not in ("", "ai.onnx"):
            return ""
        if node.op_type in ("Reshape", "Expand"):
            return self.repeated(node.input[0])
        if node.op_type == "GatherND":
            return node.input[0] if self.is_pick(node) else ""
        floats = self.known.is_float(name) or self.known.types.get(name) == TensorProto.DOUBLE
        if node.op_type not in ANYWHERE and not (floats and node.op_type in ("Div", "Pow")):
            return ""
        given = {i: self.write(i) for i in dict.fromkeys(node.input) if i}
        if not all(given.values()):
            return ""
        twin = onnx.NodeProto()
        twin.CopyFrom(node)
        twin.name = f"{self.w.prefix}_{name}_masked"
        twin.input[:] = [given.get(i, i) for i in node.input]
        twin.output[:] = [f"{self.w.prefix}_{name}_dense"]
        self.w.nodes.append(twin)
        return str(twin.output[0])

    def one_or_row(self, name: str) -> str:
        """One number, or a row with the sizes of the axes that the mask leaves; else an empty string."""
        fixed, shape = self.known.fixed(name), self.known.shapes[self.x]
        if fixed is not None and math.prod(fixed) == 1:
            return self.w.op("Reshape", name, self.w.const([]))
        row = tuple(fixed or ())
        while row and row[0] == 1:
            row = row[1:]
        if not row or len(row) > self.rest or shape[len(shape) - len(row) :] != row:
            return ""
        return name if len(row) == len(fixed or ()) else self.w.op("Reshape", name, self.w.const(row))

    def repeated(self, name: str) -> str:
        """A value that is flattened or repeated over the places."""
        return self.one_or_row(name) or self.write(name)

    def is_pick(self, node: onnx.NodeProto) -> bool:
        """Whether a GatherND takes what stands at the places of the same mask in a value of the same shape as `x`."""
        other, source = mask_of_indices(node.input[1], self.known), node.input[0]
        shape = sure_shape(source, self.known)
        same = source == self.x or (shape is not None and shape == sure_shape(self.x, self.known))
        if not other or onnx_attribute(node, "batch_dims", 0) or not same:
            return False
        return leading_mask(other, source, self.known) == self.mask


def scatter_rows(w: OnnxWriter, node: onnx.NodeProto, flag: str, depth: int, known: FastGraph) -> bool:
    """The rows that a flag over the leading axes takes, written as rows in place of single numbers."""
    x, _, updates = node.input
    rest = known.shapes[x][depth:]
    if any(isinstance(d, str) for d in rest) or math.prod(int(d) for d in rest) < LEAST_ROW:
        return False
    places = w.op("Transpose", w.op("NonZero", flag), perm=[1, 0])
    shape = w.op("Concat", w.op("Slice", w.op("Shape", places), w.const([0]), w.const([1])), w.const([int(d) for d in rest]), axis=0)
    w.op("ScatterND", x, places, w.op("Reshape", updates, shape), out=node.output[0])
    return True


def scatter_by_mask(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """x[mask] = value as Where, or row by row. False where the node is no such thing, or the value depends on how many places there are."""
    x, indices, updates = node.input
    wide, rank = mask_of_indices(indices, known), known.rank(x)
    leading = leading_mask(wide, x, known) if wide else None
    if leading is None or rank is None or onnx_attribute(node, "reduction", b"none") != b"none":
        return False
    mask, depth = leading
    flag = mask if known.types.get(mask) == TensorProto.BOOL else w.cast(mask, TensorProto.BOOL)
    if depth < rank and known.rank(wide) == rank and scatter_rows(w, node, flag, depth, known):
        return True
    value = MaskedValue(w, x, leading, known).write(updates) if known.types.get(x) in WHERE_TYPES else ""
    if not value:
        return False
    if known.rank(mask) != rank:
        flag = w.unsqueeze(flag, list(range(depth, rank)))
    w.op("Where", flag, value, x, out=node.output[0])
    return True
