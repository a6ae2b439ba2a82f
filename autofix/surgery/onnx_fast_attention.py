"""Causal attention in blocks of rows, each of which looks at the keys before its end only.

As exported, every score is computed and half of them are masked; PyTorch's own kernel leaves out most of that half.
"""

from __future__ import annotations

import numpy as np
import onnx

from autofix.surgery.onnx_fast_nodes import FastGraph
from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter

CAUSAL_BLOCKS = 8
LEAST_MASK = -1e30


def causal_mask(name: str, known: FastGraph) -> bool:
    """Whether a value is a square mask to be added that is 0 up to the diagonal and hugely negative above it."""
    value = known.value(name)
    if value is not None:
        if value.ndim < 2 or value.shape[-1] != value.shape[-2] or value.shape[-1] < 2:
            return False
        above = np.triu(np.ones(value.shape[-2:], bool), 1)
        return bool((value[..., ~above] == 0).all() and (value[..., above] <= LEAST_MASK).all())
    chosen = known.maker(name, "Where")
    test = known.maker(chosen.input[0], "Equal") if chosen is not None else None
    lower = known.maker(test.input[0], "Trilu") if test is not None else None
    if chosen is None or test is None or lower is None or onnx_attribute(lower, "upper", 1) or len(lower.input) > 1 and lower.input[1]:
        return False
    full, filled = lower.input[0], known.value(lower.input[0])
    wide = known.maker(full, "Expand")
    if filled is None and wide is not None:
        filled = known.value(wide.input[0])
    values = [known.value(n) for n in (chosen.input[1], chosen.input[2], test.input[1])]
    if filled is None or not (filled == 1).all() or any(v is None or v.size != 1 for v in values):
        return False
    masked, kept, zero = (float(v.reshape(-1)[0]) for v in values if v is not None)
    return masked <= LEAST_MASK and kept == 0.0 and zero == 0.0 and is_square(full, wide, known)


def is_square(full: str, wide: onnx.NodeProto | None, known: FastGraph) -> bool:
    """Whether the last two sizes of a value are the same, by its shape, or by the sizes that it is expanded to."""
    shape = known.shapes.get(full, ())
    if len(shape) >= 2 and shape[-1] == shape[-2] and shape[-1] != "":
        return True
    sizes = known.maker(wide.input[1], "Concat") if wide is not None else None
    return sizes is not None and len(sizes.input) == 2 and sizes.input[0] == sizes.input[1]


def triangle_mask(w: OnnxWriter, size: str, mask: str, known: FastGraph) -> str:
    """The mask that `mask` repeats, for the largest block of rows only; size [1]: how many rows there are."""
    most = w.op("Div", w.op("Add", size, w.const([CAUSAL_BLOCKS - 1])), w.const([CAUSAL_BLOCKS]))
    seen = w.op("Trilu", w.op("Expand", w.const(1.0, np.float32), w.op("Concat", most, most, axis=0)), upper=0)
    masked = known.makers[mask].input[1]
    value = known.value(masked)
    assert value is not None
    number = w.const(float(value.reshape(-1)[0]), np.float32)
    return w.op("Where", w.op("Equal", seen, w.const(0.0, np.float32)), number, w.const(0.0, np.float32))


def fast_causal(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """MatMul(Softmax(MatMul(q, k) + mask), v) with a causal mask, in blocks of rows; q [.., n, d], k [.., d, n], v [.., n, e]."""
    softmax = known.maker(node.input[0], "Softmax")
    total = known.maker(softmax.input[0], "Add") if softmax is not None else None
    scores = known.maker(total.input[0], "MatMul") if total is not None else None
    if softmax is None or total is None or scores is None or not known.is_float(node.input[1]):
        return False
    used = (softmax.output[0], total.output[0], scores.output[0])
    if any(known.readers.get(name, 0) != 1 for name in used) or not causal_mask(total.input[1], known):
        return False
    q, k, v, mask = scores.input[0], scores.input[1], node.input[1], total.input[1]
    ranks = {known.rank(name) for name in (q, k, v)}
    rank = known.rank(q)
    if len(ranks) != 1 or rank is None or rank < 3 or int(onnx_attribute(softmax, "axis", -1)) % rank != rank - 1:
        return False
    size = w.size(k, rank - 1)
    ends = [w.op("Div", w.op("Mul", size, w.const([i])), w.const([CAUSAL_BLOCKS])) for i in range(CAUSAL_BLOCKS + 1)]
    zero, rows, columns, blocks = w.const([0]), w.const([-2]), w.const([-1]), []
    constant = known.value(mask) is not None
    corner = "" if constant else triangle_mask(w, size, mask, known)
    for start, end in zip(ends, ends[1:], strict=False):
        seen = w.op("MatMul", w.op("Slice", q, start, end, rows), w.op("Slice", k, zero, end, columns))
        if constant:
            shade = w.op("Slice", w.op("Slice", mask, start, end, rows), zero, end, columns)
        else:  # all is seen before the block, and what the corner of the mask tells inside it
            count = w.op("Sub", end, start)
            own = w.op("Slice", w.op("Slice", corner, zero, count, rows), zero, count, columns)
            shade = w.op("Pad", own, w.op("Concat", zero, start, zero, zero, axis=0))
        shares = w.op("Softmax", w.op("Add", seen, shade), axis=-1)
        blocks.append(w.op("MatMul", shares, w.op("Slice", v, zero, end, rows)))
    w.op("Concat", *blocks, axis=-2, out=node.output[0])
    return True


FAST_ATTENTION = {"MatMul": fast_causal}
