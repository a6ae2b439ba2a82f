"""Assignments to evenly spaced rows, y[first::step] = rows, which the exporter writes as ScatterND between two transposes, as slices and joins.

Rows may be spaced along any axis: the transposes around a ScatterND are dropped, and the rows are put in along the axis where they end up. Where
the assignments together fill the whole axis, what was there before is not read. Sizes may be dynamic where the step is known to divide them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from autofix.surgery.onnx_fast_nodes import FastGraph
from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter

MOST_COLUMNS = 64
NO_END = 2**31 - 1


@dataclass(frozen=True)
class RowScatter:
    """Rows first, first + step, ... of `size` are replaced by `count` others. A size or count that is dynamic is the name of its symbol."""

    size: int | str
    first: int
    step: int
    count: int | str

    @property
    def even(self) -> bool:
        """Whether each group of `step` rows has just one of them."""
        if isinstance(self.size, int) and isinstance(self.count, int):
            return self.size == self.step * self.count and self.first < self.step
        return self.first < self.step and self.size in (f"{self.step}*{self.count}", f"{self.count}*{self.step}")


@dataclass(frozen=True)
class RowSlice:
    """A Slice x[start::step] along `axis` of an x whose rows of this step were assigned: `value`, with its axes in `order`, is those rows (`put`), or
    what x was before the rows beside them were put in."""

    start: int
    step: int
    axis: int
    value: str
    order: list[int]
    put: bool


def progression(values: np.ndarray) -> tuple[int, int] | None:
    """(first, step) of whole numbers that rise evenly, the step at least 1 (1 for a single number), or None."""
    if values.size == 0 or int(values[0]) < 0:
        return None
    steps = np.diff(values)
    if values.size == 1:
        return int(values[0]), 1
    return (int(values[0]), int(steps[0])) if steps[0] >= 1 and (steps == steps[0]).all() else None


def spaced_range(name: str, size: int | str, known: FastGraph) -> tuple[int, int, bool] | None:
    """(first, step, whether it goes on to the end) where a value is range(size)[first:end:step] as a column, as the exporter writes the places
    of a slice; or None. A negative first counts from the end."""
    column = known.maker(name, "Unsqueeze")
    cut = known.maker(column.input[0], "Slice") if column is not None else None
    counted = known.maker(cut.input[0], "Range") if cut is not None else None
    if cut is None or counted is None or [known.numbers(counted.input[k]) for k in (0, 2)] != [[0], [1]]:
        return None
    first, end, step = (known.numbers(cut.input[k]) if len(cut.input) > k else [1] for k in (1, 2, 4))
    limit = known.maker(counted.input[1], "Gather")
    measured = known.maker(limit.input[0], "Shape") if limit is not None else None
    axis = known.numbers(limit.input[1]) if limit is not None else None
    shape = known.shapes.get(measured.input[0]) if measured is not None and not onnx_attribute(measured, "start", 0) else None
    if shape is None or axis is None or not -len(shape) <= axis[0] < len(shape) or shape[axis[0]] != size or size == "":
        return None
    if not first or not step or step[0] < 1:
        return None
    return first[0], step[0], end is not None and end[0] >= NO_END


def row_scatter(node: onnx.NodeProto, known: FastGraph) -> RowScatter | None:
    """What a ScatterND that replaces evenly spaced rows does, or None."""
    data, places, updates = node.input
    shape, new = known.shapes.get(data), known.shapes.get(updates)
    if not shape or onnx_attribute(node, "reduction", b"none") != b"none":
        return None
    size, indices = shape[0], known.value(places)
    if indices is None:
        spaced = spaced_range(places, size, known)
        if spaced is None or not new:
            return None
        first, step, on = spaced
        if isinstance(size, str):
            found = RowScatter(size, first, step, new[0])
            fits = first >= 0 or on if step == 1 else on and first >= 0 and found.even
            return found if fits else None
        if not on:
            return None
        indices = np.arange(size)[first::step, None]
    if indices.ndim != 2 or indices.shape[1] != 1 or not isinstance(size, int):
        return None
    rows = progression(indices[:, 0])
    if rows is None or int(indices[-1, 0]) >= size:
        return None
    return RowScatter(size, *rows, len(indices))


def put_rows(w: OnnxWriter, data: str, updates: str, axis: int, rows: RowScatter, out: str | None) -> str:
    """`data` with its rows along an axis replaced by `updates`."""
    first, step = rows.first, rows.step
    if step == 1:
        before = [w.slice(data, [0], [first], [axis])] if first else []
        if isinstance(rows.size, int) and isinstance(rows.count, int) and first + rows.count == rows.size or first < 0:
            return w.op("Concat", *before, updates, axis=axis, out=out)
        done = w.op("Add", w.op("Shape", updates, start=axis, end=axis + 1), w.const([first]))
        behind = w.op("Slice", data, done, w.const([NO_END]), w.const([axis]))
        return w.op("Concat", *before, updates, behind, axis=axis, out=out)
    if rows.even:
        cut = w.op("Concat", w.op("Shape", updates, start=0, end=axis + 1), w.const([step]), w.op("Shape", updates, start=axis + 1), axis=0)
        groups = w.op("Reshape", data, cut, **w.keep_zeros())
        before = [w.slice(groups, [0], [first], [axis + 1])] if first else []
        after = [w.slice(groups, [first + 1], [step], [axis + 1])] if first + 1 < step else []
        joined = w.op("Concat", *before, w.unsqueeze(updates, [axis + 1]), *after, axis=axis + 1)
        return w.op("Reshape", joined, w.op("Shape", data), out=out, **w.keep_zeros())
    assert isinstance(rows.size, int) and isinstance(rows.count, int)  # a dynamic one is even
    size, count = rows.size, rows.count
    parts = [w.slice(data, [0], [first], [axis])] if first else []
    whole = count if first + count * step <= size else count - 1
    if whole:
        groups = w.slice(data, [first], [first + whole * step], [axis])
        # a 0 in the shape keeps the size of that axis
        cut = w.op("Concat", w.op("Shape", groups, start=0, end=axis), w.const([whole, step]), w.op("Shape", groups, start=axis + 1), axis=0)
        kept = w.slice(w.op("Reshape", groups, cut), [1], [step], [axis + 1])
        new = updates if whole == count else w.slice(updates, [0], [whole], [axis])
        joined = w.op("Concat", w.unsqueeze(new, [axis + 1]), kept, axis=axis + 1)
        parts.append(w.op("Reshape", joined, w.op("Shape", groups)))
    if whole < count:
        parts.append(w.slice(updates, [count - 1], [count], [axis]))
    end = first + whole * step + (whole < count)
    if end < size:
        parts.append(w.slice(data, [end], [size], [axis]))
    return w.op("Concat", *parts, axis=axis, out=out) if len(parts) > 1 else w.op("Identity", parts[0], out=out)


def woven_rows(w: OnnxWriter, name: str, perm: list[int], rows: RowScatter, known: FastGraph, out: str | None) -> str:
    """Row scatters that follow one another with one step that divides the size: their updates, stacked. An empty string where they are not so."""
    step = rows.step
    if step == 1 or step > MOST_COLUMNS or not rows.even:
        return ""
    axis = perm.index(0)
    columns: dict[int, str] = {}
    name, total = followed(name, list(range(len(perm))), known)
    while name in known.makers and known.makers[name].op_type == "ScatterND" and total == list(range(len(perm))):
        node = known.makers[name]
        found = row_scatter(node, known)
        if found is None or not found.even or (found.size, found.step, found.count) != (rows.size, step, rows.count):
            break
        columns.setdefault(found.first, node.input[2])
        name, total = followed(node.input[0], total, known)
    if len(columns) < 2 and len(columns) < step:
        return ""
    base = turned_value(w, name, [total[p] for p in perm], known) if len(columns) < step else ""
    parts = []
    for k in range(step):
        part = turned_value(w, columns[k], perm, known) if k in columns else w.slice(base, [k], [NO_END], [axis], [step])
        parts.append(w.unsqueeze(part, [axis + 1]))
    joined = w.op("Concat", *parts, axis=axis + 1)
    size = w.op("Mul", w.op("Shape", joined, start=axis, end=axis + 1), w.const([step]))
    whole = w.op("Concat", w.op("Shape", joined, start=0, end=axis), size, w.op("Shape", joined, start=axis + 2), axis=0)
    return w.op("Reshape", joined, whole, out=out, **w.keep_zeros())


def followed(name: str, total: list[int], known: FastGraph) -> tuple[str, list[int]]:
    """(the value that is left, the order of its axes) where a value is that one behind transposes, identities and slices that take out rows which
    were just put in."""
    while name in known.makers and known.makers[name].op_type in ("Identity", "Transpose", "Slice"):
        node = known.makers[name]
        order = list(range(len(total)))
        if node.op_type == "Transpose":
            order = list(onnx_attribute(node, "perm", order[::-1]))
        if node.op_type == "Slice":
            behind = rows_behind(node, len(total), known)
            if behind is None or not behind.put:
                break
            name, order = behind.value, behind.order
        else:
            name = node.input[0]
        total = [order[t] for t in total]
    return name, total


def rows_behind(node: onnx.NodeProto, rank: int, known: FastGraph) -> RowSlice | None:
    """The rows that a Slice takes out, where they or their neighbours were just put in."""
    given = [known.numbers(node.input[k]) if len(node.input) > k else None for k in (1, 2, 3, 4)]
    if any(v is None or len(v) != 1 for v in given):
        return None
    (start,), (end,), (axis,), (step,) = (v or [0] for v in given)
    axis %= rank
    if start < 0 or end < NO_END or step < 2 or start >= step:
        return None
    name, total = followed(node.input[0], list(range(rank)), known)
    passed = 0
    while name in known.makers and known.makers[name].op_type == "ScatterND":
        scatter = known.makers[name]
        rows = row_scatter(scatter, known)
        if rows is None or not rows.even or rows.step != step or total[axis] != 0:
            break
        if rows.first == start:
            return RowSlice(start, step, axis, scatter.input[2], total, True)
        passed += 1
        name, total = followed(scatter.input[0], total, known)
    return RowSlice(start, step, axis, name, total, False) if passed else None


def turned_value(w: OnnxWriter, name: str, perm: list[int], known: FastGraph, out: str | None = None) -> str:
    """Transpose(name, perm); transposes before it are merged, and row scatters before it are written along the axis where their rows end up."""
    name, perm_before = followed(name, list(range(len(perm))), known)
    perm = [perm_before[p] for p in perm]
    node = known.makers.get(name)
    behind = rows_behind(node, len(perm), known) if node is not None and node.op_type == "Slice" else None
    if behind is not None:
        before = turned_value(w, behind.value, [behind.order[p] for p in perm], known)
        at = perm.index(behind.axis)
        return w.op("Slice", before, w.const([behind.start]), w.const([NO_END]), w.const([at]), w.const([behind.step]), out=out)
    rows = row_scatter(node, known) if node is not None and node.op_type == "ScatterND" else None
    if node is not None and rows is not None:
        woven = woven_rows(w, name, perm, rows, known, out)
        if woven:
            return woven
        data, updates = (turned_value(w, node.input[k], perm, known) for k in (0, 2))
        return put_rows(w, data, updates, perm.index(0), rows, out)
    if perm == list(range(len(perm))):
        return w.op("Identity", name, out=out) if out else name
    return w.op("Transpose", name, perm=perm, out=out)
