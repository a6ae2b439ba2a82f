"""Gathers and scatters whose indices are masks, rows or arithmetic progressions, as choices, slices and copies of blocks.

Measured with ONNX Runtime 1.32 on one core: Gather of single numbers 2 ns each, of blocks 0.1 to 0.3 ns a number; ScatterElements 8 ns a number,
ScatterND of rows 0.2; NonZero with ScatterND 15 ns a position, Where 1 to 8.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from autofix.surgery.onnx_fast_nodes import FastGraph
from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter

WHERE_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8)
MOST_SLICES = 64
LEAST_BLOCK = 8


def progression(values: np.ndarray) -> tuple[int, int] | None:
    """(first, step) of whole numbers that rise evenly, the step at least 1 (1 for a single number), or None."""
    if values.size == 0 or int(values[0]) < 0:
        return None
    steps = np.diff(values)
    if values.size == 1:
        return int(values[0]), 1
    return (int(values[0]), int(steps[0])) if steps[0] >= 1 and (steps == steps[0]).all() else None


def mask_of_indices(name: str, known: FastGraph) -> str:
    """The mask M where a value is Transpose(NonZero(M)), or an empty string."""
    turned = known.maker(name, "Transpose")
    found = known.maker(turned.input[0], "NonZero") if turned is not None and list(onnx_attribute(turned, "perm", [1, 0])) == [1, 0] else None
    return found.input[0] if found is not None else ""


def source_through(name: str, known: FastGraph, kinds: tuple[str, ...]) -> str:
    """The value that a chain of nodes of these kinds starts from, by their first inputs."""
    while name in known.makers and known.makers[name].op_type in kinds:
        name = known.makers[name].input[0]
    return name


def scatter_by_mask(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """x[mask] = one number, or = v[mask], as Where."""
    x, indices, updates = node.input
    mask, rank = mask_of_indices(indices, known), known.rank(x)
    if not mask or rank is None or known.types.get(x) not in WHERE_TYPES or onnx_attribute(node, "reduction", b"none") != b"none":
        return False
    depth = known.rank(mask)
    value = source_through(updates, known, ("Reshape", "Expand", "Identity"))
    one = known.fixed(value)
    picked = known.maker(value, "GatherND")
    if one is not None and math.prod(one) == 1 and value != updates:
        value = w.op("Reshape", value, w.const([], np.int64))
    elif picked is not None and not onnx_attribute(picked, "batch_dims", 0) and picked.input[1] == indices:
        value = picked.input[0]
        if known.shapes.get(value) != known.shapes.get(x) or "" in (known.shapes.get(x) or ("",)):
            return False
    else:
        return False
    wide = known.maker(mask, "Expand")
    if wide is not None and known.rank(wide.input[0]) == rank and known.fixed(mask) is not None and known.fixed(mask) == known.fixed(x):
        mask = wide.input[0]
    if depth is None or depth > rank:
        return False
    flag = mask if known.types.get(mask) == TensorProto.BOOL else w.cast(mask, TensorProto.BOOL)
    if depth < rank:
        flag = w.unsqueeze(flag, list(range(depth, rank)))
    w.op("Where", flag, value, x, out=node.output[0])
    return True


def put_rows(w: OnnxWriter, data: str, updates: str, axis: int, size: int, first: int, step: int, count: int, out: str | None) -> str:
    """data with its entries first, first + step, ... along an axis (of `size`) replaced by `updates`, of which there are `count`."""
    parts = [w.slice(data, [0], [first], [axis])] if first else []
    whole = count if first + count * step <= size else count - 1
    if step == 1:
        parts.append(updates)
    elif whole:
        groups = w.slice(data, [first], [first + whole * step], [axis])
        # a 0 in the shape keeps the size of that axis
        cut = w.op("Concat", w.op("Shape", groups, start=0, end=axis), w.const([whole, step]), w.op("Shape", groups, start=axis + 1), axis=0)
        kept = w.slice(w.op("Reshape", groups, cut), [1], [step], [axis + 1])
        new = updates if whole == count else w.slice(updates, [0], [whole], [axis])
        joined = w.op("Concat", w.unsqueeze(new, [axis + 1]), kept, axis=axis + 1)
        parts.append(w.op("Reshape", joined, w.op("Shape", groups)))
    if step > 1 and whole < count:
        parts.append(w.slice(updates, [count - 1], [count], [axis]))
    done = first + whole * step + (1 if step > 1 and whole < count else 0) if step > 1 else first + count
    if done < size:
        parts.append(w.slice(data, [done], [size], [axis]))
    return w.op("Concat", *parts, axis=axis, out=out) if len(parts) > 1 else w.op("Identity", parts[0], out=out)


def row_scatter(node: onnx.NodeProto, known: FastGraph) -> tuple[int, int, int, int] | None:
    """(size, first, step, count) of a ScatterND that replaces evenly spaced rows, or None."""
    indices, size = known.value(node.input[1]), known.size(node.input[0], 0)
    if indices is None or indices.ndim != 2 or indices.shape[1] != 1 or size is None:
        return None
    rows = progression(indices[:, 0])
    if rows is None or onnx_attribute(node, "reduction", b"none") != b"none" or int(indices[-1, 0]) >= size:
        return None
    return size, *rows, len(indices)


def woven_rows(w: OnnxWriter, name: str, perm: list[int], rows: tuple[int, int, int, int], known: FastGraph, out: str | None) -> str:
    """Row scatters that follow one another with one step that divides the size: their updates, stacked. An empty string where they are not so."""
    size, _, step, count = rows
    if step == 1 or step > MOST_SLICES or step * count != size:
        return ""
    axis = perm.index(0)
    columns: dict[int, str] = {}
    while True:
        node = known.makers.get(name)
        if node is not None and node.op_type == "Identity":
            name = node.input[0]
            continue
        found = row_scatter(node, known) if node is not None and node.op_type == "ScatterND" else None
        if node is None or found is None or (found[0], *found[2:]) != (size, step, count) or found[1] >= step:
            break
        columns.setdefault(found[1], node.input[2])
        name = node.input[0]
    if len(columns) < 2 and len(columns) < step:
        return ""
    base = turned_value(w, name, perm, known) if len(columns) < step else ""
    parts = []
    for k in range(step):
        part = turned_value(w, columns[k], perm, known) if k in columns else w.slice(base, [k], [size], [axis], [step])
        parts.append(w.unsqueeze(part, [axis + 1]))
    joined = w.op("Concat", *parts, axis=axis + 1)
    whole = w.op("Concat", w.op("Shape", joined, start=0, end=axis), w.const([size]), w.op("Shape", joined, start=axis + 2), axis=0)
    return w.op("Reshape", joined, whole, out=out)


def turned_value(w: OnnxWriter, name: str, perm: list[int], known: FastGraph, out: str | None = None) -> str:
    """Transpose(name, perm); transposes before it are merged, and row scatters before it are written along the axis where their rows end up."""
    node = known.makers.get(name)
    if node is not None and node.op_type == "Identity":
        return turned_value(w, node.input[0], perm, known, out)
    if node is not None and node.op_type == "Transpose":
        before = list(onnx_attribute(node, "perm", list(range(len(perm)))[::-1]))
        return turned_value(w, node.input[0], [before[p] for p in perm], known, out)
    rows = row_scatter(node, known) if node is not None and node.op_type == "ScatterND" else None
    if node is not None and rows is not None:
        woven = woven_rows(w, name, perm, rows, known, out)
        if woven:
            return woven
        data, updates = (turned_value(w, node.input[k], perm, known) for k in (0, 2))
        return put_rows(w, data, updates, perm.index(0), *rows, out)
    if perm == list(range(len(perm))):
        return w.op("Identity", name, out=out) if out else name
    return w.op("Transpose", name, perm=perm, out=out)


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
    put_rows(w, node.input[0], node.input[2], 0, *rows, node.output[0])
    return True


def rows_of_expanded(indices: str, axis: int, like: str, known: FastGraph) -> str:
    """The row numbers [n] where `indices` repeats them over all axes but the first, which have the sizes of `like`; or an empty string."""
    wide = known.maker(indices, "Expand")
    source = known.fixed(wide.input[0]) if wide is not None else None
    column = known.shapes.get(wide.input[0]) if wide is not None else None
    shape, other = known.fixed(indices), known.fixed(like)
    if wide is None or axis or column is None or shape is None or other is None or len(shape) != len(other) or len(shape) < 2:
        return ""
    if source is not None and (any(d != 1 for d in source[1:]) or source[0] != shape[0]) or len(column) != len(shape):
        return ""
    return wide.input[0] if source is not None and shape[1:] == other[1:] else ""


def fast_scatter_elements(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """Whole rows as ScatterND; one constant position along an axis as a join of slices."""
    x, indices, updates = node.input
    rank = known.rank(x)
    if rank is None:
        return False
    axis, kind = int(onnx_attribute(node, "axis", 0)) % rank, onnx_attribute(node, "reduction", b"none")
    column = rows_of_expanded(indices, axis, x, known)
    if column and kind in (b"add", b"none") and known.fixed(updates) == known.fixed(indices):
        rows = w.op("Reshape", column, w.const([-1, 1]))
        w.op("ScatterND", x, rows, updates, reduction=kind.decode(), out=node.output[0])
        return True
    constant, shape, size = known.value(indices), known.fixed(x), known.size(x, axis)
    if constant is None or shape is None or size is None or constant.size == 0 or kind != b"none" or known.fixed(updates) != constant.shape:
        return False
    if axis == rank - 1 or constant.min() != constant.max() or constant.shape[axis] != 1 or constant.shape != (*shape[:axis], 1, *shape[axis + 1 :]):
        return False
    put_rows(w, x, updates, axis, size, int(constant.reshape(-1)[0]) % size, 1, 1, node.output[0])
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
