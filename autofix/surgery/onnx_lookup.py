"""Table look-ups that a file spells out, as Gather: a product of one-hot rows with a constant table, and GatherElements of whole rows.

Both are exact. In a product of a one-hot row with a finite table all terms but one are 0 (the sum is w + 0, so -0 becomes +0, and the table is
stored so); GatherElements whose indices repeat along the later axes copies whole blocks. Measured with ONNX Runtime 1.32 on one core: the product
costs 2 N V D operations where Gather copies N D numbers; GatherElements takes about 2 ns a number, Gather of blocks 0.1 to 0.3.
"""

from __future__ import annotations

import re

import numpy as np
import onnx
from onnx import TensorProto

from autofix.surgery.onnx_fast_nodes import FastGraph, replace_fast
from autofix.surgery.onnx_int8 import drop_unused
from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter

LOOKUP_IDS = (TensorProto.INT64, TensorProto.INT32)
LOOKUP_PASSES = ("Cast", "Identity")


def whole_number(name: str, known: FastGraph, number: int) -> bool:
    """Whether a value is this number throughout: a constant, or one filled up to a size."""
    node, value = known.makers.get(name), known.value(name)
    if value is not None:
        return bool(value.size and (value == number).all())
    if node is not None and node.op_type == "ConstantOfShape":
        filling = onnx_attribute(node, "value", None)
        return number == 0 if filling is None else bool((onnx.numpy_helper.to_array(filling) == number).all())
    return node is not None and node.op_type in ("Expand", *LOOKUP_PASSES) and whole_number(node.input[0], known, number)


def guarded_ids(w: OnnxWriter, ids: str, known: FastGraph, size: int, wraps: bool) -> str:
    """Row numbers for a table with a row of zeros at `size`: what lies outside goes there, as no one-hot row has a 1 there. wraps: -1 is the last."""
    kind = np.int64 if known.types[ids] == TensorProto.INT64 else np.int32
    low, high = w.const(0, kind), w.const(size, kind)
    negative = w.op("Less", ids, low)
    if wraps:
        ids = w.op("Where", negative, w.op("Add", ids, high), ids)
        negative = w.op("Less", ids, low)
    return w.op("Where", w.op("Or", negative, w.op("Not", w.op("Less", ids, high))), high, ids)


def one_hot_ids(w: OnnxWriter, name: str, known: FastGraph, size: int) -> str:
    """Row numbers, guarded, of which a value is the one-hot form with `size` places along its last axis; an empty string where it is none.

    Forms: ids == arange, OneHot with values 0 and 1, zeros with 1 scattered to the ids; casts and reshapes that keep the last axis between.
    """
    node = known.makers.get(name)
    if node is None or known.size(name, -1) != size:
        return ""
    if node.op_type in LOOKUP_PASSES:
        return one_hot_ids(w, node.input[0], known, size)
    if node.op_type == "Reshape":
        inner = one_hot_ids(w, node.input[0], known, size) if known.size(node.input[0], -1) == size else ""
        zeros = {a.name: a.i for a in node.attribute}
        return w.op("Reshape", inner, w.slice(node.input[1], [0], [-1], [0]), **zeros) if inner and (known.rank(name) or 0) > 1 else ""
    if node.op_type == "Equal":
        for column, places in (tuple(node.input), tuple(node.input)[::-1]):
            value, rank = known.value(places), known.rank(column)
            if value is None or rank is None or value.ndim > rank or known.size(column, -1) != 1 or known.types.get(column) not in LOOKUP_IDS:
                continue
            if value.shape[-1:] == (size,) and value.size == size and np.array_equal(value.reshape(-1), np.arange(size)):
                return w.squeeze(guarded_ids(w, column, known, size, False), [rank - 1])
    if node.op_type == "OneHot":
        depth, values, rank = known.value(node.input[1]), known.value(node.input[2]), known.rank(name)
        last = onnx_attribute(node, "axis", -1) in (-1, (rank or 0) - 1)
        if last and depth is not None and values is not None and list(values) == [0, 1] and known.types.get(node.input[0]) in LOOKUP_IDS:
            return guarded_ids(w, node.input[0], known, size, True)
    if node.op_type == "ScatterElements" and onnx_attribute(node, "reduction", b"none") == b"none":
        base, column, ones = node.input
        rank, sizes = known.rank(column), known.shapes.get(column, ())
        last = rank is not None and onnx_attribute(node, "axis", 0) in (-1, rank - 1)
        alike = bool(sizes) and "" not in sizes and sizes[:-1] == known.shapes.get(base, ())[:-1] and sizes[-1] == 1
        marks = known.types.get(column) in LOOKUP_IDS and whole_number(base, known, 0) and whole_number(ones, known, 1)
        if rank is not None and last and alike and marks:
            return w.squeeze(guarded_ids(w, column, known, size, True), [rank - 1])
    return ""


def finite_table(name: str, known: FastGraph) -> np.ndarray | None:
    """The constant matrix behind a value, seen through a transpose of any size; None where it is none or holds NaN or infinity."""
    turned = known.maker(name, "Transpose")
    if turned is not None and list(onnx_attribute(turned, "perm", [1, 0])) == [1, 0] and known.rank(turned.input[0]) == 2:
        value = known.value(turned.input[0])
        value = None if value is None else value.T
    else:
        value = known.value(name)
    good = value is not None and value.ndim == 2 and value.dtype.kind == "f" and bool(np.isfinite(value).all())
    return value if good else None


class ProductLookups:
    """Forms of the products, and the tables that their Gathers read: one for each table, rows of zeros added."""

    def __init__(self) -> None:
        self.tables: dict[tuple[str, bool, str], onnx.TensorProto] = {}

    def table(self, name: str, rows: np.ndarray, turned: bool, bias: str, added: np.ndarray | None) -> str:
        """The name of a table with a row for ids outside; the bias is added to every row, as the product would do."""
        key = (name, turned, bias)
        if key not in self.tables:
            full = np.concatenate([rows, np.zeros_like(rows[:1])]) + np.zeros((), rows.dtype)  # -0 + 0 is +0
            full = full if added is None else full + added
            fresh = "_".join([name, "turned" if turned else "rows", bias])
            self.tables[key] = onnx.numpy_helper.from_array(np.ascontiguousarray(full), fresh)
        return self.tables[key].name

    def product(self, w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
        """MatMul, Gemm or a product as Einsum."""
        turned, bias, added = False, "", None
        if node.op_type == "Gemm":
            if onnx_attribute(node, "transA", 0) or onnx_attribute(node, "alpha", 1.0) != 1 or onnx_attribute(node, "beta", 1.0) != 1:
                return False
            turned, bias = bool(onnx_attribute(node, "transB", 0)), node.input[2] if len(node.input) > 2 else ""
            added = known.value(bias) if bias else None
            if bias and (added is None or added.ndim > 1):
                return False
        if node.op_type == "Einsum":
            equation = re.fullmatch(r"(\w+)(\w),(\w)(\w)->(\w+)(\w)", onnx_attribute(node, "equation", b"").decode().replace(" ", ""))
            if equation is None or len(node.input) != 2:
                return False
            lead, inner, first, second, kept, new = equation.groups()
            turned = inner == second
            if kept != lead or {first, second} != {inner, new} or inner == new or inner in lead or new in lead or len(set(lead)) < len(lead):
                return False
        rows = finite_table(node.input[1], known) if node.input[0] in known.makers and known.rank(node.input[1]) == 2 else None
        if rows is None or min(rows.shape) == 0 or (known.rank(node.input[0]) or 0) < 2:
            return False
        rows = rows.T if turned else rows
        if known.types.get(node.input[0]) != onnx.helper.np_dtype_to_tensor_dtype(rows.dtype):
            return False
        ids = one_hot_ids(w, node.input[0], known, len(rows))
        if not ids:
            return False
        w.op("Gather", self.table(node.input[1], rows, turned, bias, added), ids, axis=0, out=node.output[0])
        return True


def narrow_column(w: OnnxWriter, name: str, axis: int, known: FastGraph) -> str:
    """A value whose axes after `axis` have size 1, of which `name` is the same repeated along those; an empty string where it does not repeat."""
    shape, node = known.shapes.get(name, ()), known.makers.get(name)
    if shape and all(d == 1 for d in shape[axis + 1 :]):
        return name
    if node is None:
        return ""
    if node.op_type == "Expand":
        inner = known.shapes.get(node.input[0], ())
        same = len(inner) == len(shape) and inner[: axis + 1] == shape[: axis + 1] and "" not in inner
        return node.input[0] if same and all(d == 1 for d in inner[axis + 1 :]) else ""
    if node.op_type in ("Mod", "Add", "Sub", "Cast"):  # of indices, to wrap negative ones
        number = known.value(node.input[1]) if len(node.input) > 1 else None
        if node.op_type != "Cast" and (number is None or number.size != 1 or number.ndim > len(shape)):
            return ""
        inside = narrow_column(w, node.input[0], axis, known)
        if not inside:
            return ""
        twin = onnx.NodeProto()
        twin.CopyFrom(node)
        twin.input[0], twin.output[0] = inside, w.name()
        twin.name = f"{twin.output[0]}_node"
        w.nodes.append(twin)
        return str(twin.output[0])
    return ""


def repeated_source(name: str, axis: int, known: FastGraph) -> str:
    """The value that `name` repeats along all axes before `axis`: it has size 1 there, or lacks them. An empty string where there is none."""
    shape, node = known.shapes.get(name, ()), known.makers.get(name)
    if shape and all(d == 1 for d in shape[:axis]):
        return name
    if node is None or node.op_type != "Expand":
        return ""
    inner = known.shapes.get(node.input[0], ())
    own = len(inner) - (len(shape) - axis)
    same = own >= 0 and inner[own:] == shape[axis:] and "" not in inner
    return node.input[0] if same and all(d == 1 for d in inner[:own]) else ""


def gather_blocks(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """GatherElements that takes whole blocks: Gather where all rows share one table, GatherND where each has its own."""
    data, indices = node.input
    shape, wanted = known.shapes.get(data, ()), known.shapes.get(indices, ())
    rank = len(shape)
    axis = int(onnx_attribute(node, "axis", 0)) % rank if rank else 0
    after = list(range(axis + 1, rank))
    block = shape[axis + 1 :]
    if len(wanted) != rank or "" in block or block != wanted[axis + 1 :] or all(d == 1 for d in block):
        return False
    column = narrow_column(w, indices, axis, known)
    if not column:
        return False
    ids, source = w.squeeze(column, after), repeated_source(data, axis, known)
    constant = known.value(data) if axis and not source else None
    if constant is not None and (constant == constant[(0,) * axis]).all():
        w.op("Gather", w.const(constant[(0,) * axis], constant.dtype), ids, axis=0, out=node.output[0])
        return True
    if source:
        own = (known.rank(source) or 0) - (rank - axis)
        table = w.squeeze(source, list(range(own))) if own else source
        w.op("Gather", table, ids, axis=0, out=node.output[0])
        return True
    if "" in shape[:axis] or shape[:axis] != wanted[:axis] or w.opset < 12 or known.types.get(indices) != TensorProto.INT64:
        return False
    w.op("GatherND", data, w.unsqueeze(ids, [axis + 1]), batch_dims=axis, out=node.output[0])
    return True


def write_lookups(model: onnx.ModelProto) -> int:
    """Give products with one-hot rows and gathers of blocks their faster form, in place; returns how many changed."""
    products = ProductLookups()
    forms = {**dict.fromkeys(("MatMul", "Gemm", "Einsum"), products.product), "GatherElements": gather_blocks}
    count = replace_fast(model, forms)
    if count:
        model.graph.initializer.extend(products.tables.values())
        drop_unused(model)
    return count
