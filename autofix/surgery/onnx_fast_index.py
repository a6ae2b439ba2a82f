"""Gathers and scatters whose indices are masks, rows or arithmetic progressions, as choices, slices and copies of blocks.

Measured with ONNX Runtime 1.32 on one core: Gather of single numbers 2 ns each, of blocks 0.1 to 0.3 ns a number; ScatterElements 8 ns a number,
ScatterND of rows 0.2; NonZero with ScatterND 15 ns a position, Where 1 to 8.
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from autofix.surgery.onnx_fast_masks import scatter_by_mask, sure_shape
from autofix.surgery.onnx_fast_nodes import FastGraph
from autofix.surgery.onnx_fast_rows import RowScatter, progression, put_rows, row_scatter, turned_value
from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter

MOST_SLICES = 64
LEAST_BLOCK = 8


def fast_transpose_of_rows(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """Transposes around row scatters, dropped; a transposed row gather as a gather along the axis."""
    inner, rank = known.makers.get(node.input[0]), known.rank(node.input[0])
    if inner is None or rank is None:
        return False
    perm = list(onnx_attribute(node, "perm", list(range(rank))[::-1]))
    if inner.op_type == "ScatterND" and row_scatter(inner, known) is not None:
        turned_value(w, node.input[0], perm, known, node.output[0])
        return True
    before = known.maker(inner.input[0], "Transpose") if inner.op_type == "GatherND" else None
    indices = known.value(inner.input[1]) if before is not None else None
    if before is None or indices is None or indices.ndim != 2 or indices.shape[1] != 1 or onnx_attribute(inner, "batch_dims", 0):
        return False
    first = list(onnx_attribute(before, "perm", []))
    if len(first) != rank or [first[p] for p in perm] != list(range(rank)):
        return False
    if first[0] == rank - 1:
        return False  # single numbers are slower to gather than rows of the transposed
    w.op("Gather", before.input[0], w.const(indices[:, 0]), axis=first[0], out=node.output[0])
    return True


def fast_scatter_nd(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """Assignments by mask, and to evenly spaced rows."""
    if scatter_by_mask(w, node, known):
        return True
    rows = row_scatter(node, known)
    if rows is None:
        return False
    put_rows(w, node.input[0], node.input[2], 0, rows, node.output[0])
    return True


def rows_of_expanded(indices: str, axis: int, like: str, known: FastGraph) -> str:
    """The row numbers [n] where `indices` repeats them over all axes but the first, which have the sizes of `like`; or an empty string."""
    wide = known.maker(indices, "Expand")
    column = known.shapes.get(wide.input[0]) if wide is not None else None
    shape, other = sure_shape(indices, known), sure_shape(like, known)
    if wide is None or axis or column is None or shape is None or other is None or len(shape) < 2 or shape[1:] != other[1:]:
        return ""
    return wide.input[0] if column == (shape[0], *[1] * (len(shape) - 1)) else ""


def fast_scatter_elements(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """Whole rows as ScatterND; one constant position along an axis as a join of slices."""
    x, indices, updates = node.input
    rank = known.rank(x)
    if rank is None:
        return False
    axis, kind = int(onnx_attribute(node, "axis", 0)) % rank, onnx_attribute(node, "reduction", b"none")
    column = rows_of_expanded(indices, axis, x, known)
    if column and kind in (b"add", b"none") and sure_shape(updates, known) == sure_shape(indices, known):
        rows = w.op("Reshape", column, w.const([-1, 1]))
        w.op("ScatterND", x, rows, updates, reduction=kind.decode(), out=node.output[0])
        return True
    constant, shape, size = known.value(indices), known.fixed(x), known.size(x, axis)
    if constant is None or shape is None or size is None or constant.size == 0 or kind != b"none" or known.fixed(updates) != constant.shape:
        return False
    if axis == rank - 1 or constant.min() != constant.max() or constant.shape[axis] != 1 or constant.shape != (*shape[:axis], 1, *shape[axis + 1 :]):
        return False
    put_rows(w, x, updates, axis, RowScatter(size, int(constant.reshape(-1)[0]) % size, 1, 1), node.output[0])
    return True


def fast_gather_elements(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """Whole rows as Gather."""
    rank = known.rank(node.input[0])
    axis = int(onnx_attribute(node, "axis", 0)) % rank if rank else 1
    column = rows_of_expanded(node.input[1], axis, node.input[0], known)
    if not column:
        return False
    w.op("Gather", node.input[0], w.op("Reshape", column, w.const([-1])), axis=0, out=node.output[0])
    return True


def fast_windows(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """Gather with a constant matrix of places: windows that tile an axis, as Reshape; along the last axis windows at r i + s j, as blocks or
    slices."""
    x, rank, places = node.input[0], known.rank(node.input[0]), known.value(node.input[1])
    if rank is None or places is None or places.ndim != 2:
        return False
    axis = int(onnx_attribute(node, "axis", 0)) % rank
    size, (windows, width) = known.size(x, axis), places.shape
    if size is not None and np.array_equal(places.reshape(-1), np.arange(places.size)) and places.size <= size:
        kept = x if places.size == size else w.slice(x, [0], [places.size], [axis])
        shape = w.op("Shape", x)
        parts = [w.slice(shape, [0], [axis], [0]), w.const(places.shape), w.slice(shape, [axis + 1], [rank], [0])]
        w.op("Reshape", kept, w.op("Concat", *parts, axis=0), out=node.output[0])
        return True
    if axis != rank - 1 or size is None:
        return False
    down, across = progression(places[:, 0]), progression(places[0])
    if down is None or across is None or windows < 2 or width < 2 or down[0] != 0 or int(places.max()) >= size:
        return False
    hop, step = down[1], across[1]
    if not np.array_equal(places, hop * np.arange(windows)[:, None] + step * np.arange(width)):
        return False
    out, block = node.output[0], math.gcd(hop, width)
    if step == 1 and block >= LEAST_BLOCK:
        needed = (windows - 1) * hop + width
        kept = w.slice(x, [0], [needed], [rank - 1])
        lead = [w.op("Shape", x, start=0, end=rank - 1)] if rank > 1 else []
        cut = w.op("Reshape", kept, w.shape_of(*lead, needed // block, block))
        if hop == block and width // block <= MOST_SLICES:  # a window is a block and those after it
            runs = [w.slice(cut, [k], [k + windows], [rank - 1]) for k in range(width // block)]
            w.op("Concat", *runs, axis=rank, out=out)
            return True
        pieces = w.op("Gather", cut, w.const(places[:, ::block] // block), axis=rank - 1)
        w.op("Reshape", pieces, w.shape_of(*lead, windows, width), out=out)
        return True
    if windows <= MOST_SLICES:
        slices = [w.slice(x, [hop * i], [hop * i + step * (width - 1) + 1], [rank - 1], [step]) for i in range(windows)]
        w.op("Concat", *[w.unsqueeze(s, [rank - 1]) for s in slices], axis=rank - 1, out=out)
        return True
    if width <= MOST_SLICES:
        slices = [w.slice(x, [step * j], [step * j + hop * (windows - 1) + 1], [rank - 1], [hop]) for j in range(width)]
        rows = w.op("Concat", *[w.unsqueeze(s, [rank - 1]) for s in slices], axis=rank - 1)
        w.op("Transpose", rows, perm=[*range(rank - 1), rank, rank - 1], out=out)
        return True
    return False


FAST_INDEX = {
    "ScatterND": fast_scatter_nd,
    "ScatterElements": fast_scatter_elements,
    "GatherElements": fast_gather_elements,
    "Gather": fast_windows,
    "Transpose": fast_transpose_of_rows,
}
