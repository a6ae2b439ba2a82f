"""Faults of structure: axes, pads, layout, edges, branches, sizes."""

from __future__ import annotations

import numpy as np
from mutant_changes import Found, Site, bypass, insert, set_attribute, set_constant, set_operator, swap_inputs
from onnx import GraphProto, NodeProto


def axes_of(site: Site) -> Found:
    """axis attributes, constant axes."""
    axis, rank = site.attribute("axis"), site.rank
    if isinstance(axis, int) and rank > 1:
        for other in {(axis + 1) % rank, (axis - 1) % rank} - {axis % rank}:
            yield f"axis {axis} -> {other}", set_attribute("axis", other)
    slot = {"Squeeze": 1, "Unsqueeze": 1, "CumSum": 1, "Slice": 3}.get(site.node.op_type, 1 if site.node.op_type.startswith("Reduce") else 0)
    axes = site.constant(slot) if slot else None
    if axes is not None and axes.size and rank > (0 if site.node.op_type == "Unsqueeze" else 1):
        room = rank + (axes.size if site.node.op_type == "Unsqueeze" else 0)
        other = (np.atleast_1d(axes) + 1) % room
        if len(set(other.tolist())) == other.size and set(other.tolist()) != {int(a) % room for a in np.atleast_1d(axes)}:
            yield f"axes {axes.tolist()} -> {other.tolist()}", set_constant(slot, other.reshape(axes.shape).astype(axes.dtype))


def pads_of(site: Site) -> Found:
    """Padding moved from one side to the other, strides and dilations swapped or changed."""
    pads = site.attribute("pads")
    if pads and any(pads):
        half = len(pads) // 2
        moved = list(pads)
        side = next(i for i in range(half) if pads[i] or pads[half + i])
        step = 1 if pads[half + side] == 0 or pads[side] > 0 else -1
        moved[side], moved[half + side] = pads[side] - step, pads[half + side] + step
        if min(moved) >= 0:
            yield f"pads {list(pads)} -> {moved}", set_attribute("pads", moved)
    if site.node.op_type == "Pad" and site.constant(1) is not None:
        constant = site.constant(1)
        half = constant.size // 2
        for i in range(half):
            if constant[i] or constant[half + i]:
                other = constant.copy()
                step = 1 if constant[i] > 0 else -1
                other[i] -= step
                other[half + i] += step
                yield f"pads {constant.tolist()} -> {other.tolist()}", set_constant(1, other)
                break
    for name in ("strides", "dilations"):
        now = site.attribute(name)
        if now and max(now) > 1:
            yield f"{name} of one", set_attribute(name, [1] * len(now))


def broadcast_of(site: Site) -> Found:
    """A vector operand moved by one place, or its mean in place of all."""
    if site.node.op_type not in ("Add", "Sub", "Mul", "Div", "Conv", "Gemm", "PRelu", "LayerNormalization", "Pow", "Max", "Min"):
        return
    for slot in range(len(site.node.input)):
        constant = site.constant(slot)
        if constant is None or constant.dtype.kind != "f" or constant.size < 2 or constant.size != max(constant.shape):
            continue
        if float(np.ptp(constant)) > 0:
            yield f"operand {slot} moved by one place", set_constant(slot, np.roll(constant.reshape(-1), 1).reshape(constant.shape))
            mean = np.full_like(constant, constant.astype(np.float64).mean())
            yield f"the mean of operand {slot} broadcast", set_constant(slot, mean)


def swapped_of(site: Site) -> Found:
    """Inputs in each other's place, where that makes a difference."""
    op = site.node.op_type
    if op in ("Sub", "Div", "Pow", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "MatMul", "Mod") and site.node.input[0] != site.node.input[1]:
        a, b = site.value(0), site.value(1)
        if op != "MatMul" or (a is not None and b is not None and a.shape == b.shape):
            yield "inputs 0 and 1 swapped", swap_inputs(0, 1)
    elif op == "Concat" and len(site.node.input) > 1 and len(set(site.node.input)) > 1:
        a, b = site.value(0), site.value(1)
        if a is not None and b is not None and a.dtype.kind != "i":
            yield "inputs 0 and 1 swapped", swap_inputs(0, 1)
    elif op in ("LSTM", "GRU", "RNN") and len(site.node.input) > 2:
        constant = site.constant(1)
        if constant is not None:
            gates = 4 if op == "LSTM" else 3 if op == "GRU" else 1
            if gates > 1:
                order = np.split(constant, gates, axis=1)
                order[0], order[1] = order[1], order[0]
                yield "gates 0 and 1 swapped", set_constant(1, np.concatenate(order, axis=1))


def frozen_of(site: Site) -> Found:
    """What the example gives, in place of a value that follows from sizes or inputs."""
    op = site.node.op_type
    slots = {"Reshape": [1], "Expand": [1], "ConstantOfShape": [0], "Range": [0, 1], "Tile": [1], "Resize": [3], "If": [0]}
    slots |= {"Slice": [1, 2], "Where": [0], "Div": [1], "Mul": [1], "Gather": [1], "TopK": [1]}
    for slot in slots.get(op, []):
        value = site.value(slot)
        if value is None or site.constant(slot) is not None or value.size > 64:
            continue
        if op in ("Div", "Mul", "Where", "Gather") and value.size > 1:
            continue
        yield f"input {slot} frozen at the example's {value.tolist()}", set_constant(slot, value)


def branch_of(site: Site) -> Found:
    """The other branch, other comparisons, other logic."""
    op = site.node.op_type
    if op == "If":
        yield "condition negated", insert(0, ("Not", {}))
        for value in (True, False):
            yield f"always the {value} branch", set_constant(0, np.asarray(value))
    if op == "Where":
        yield "choices swapped", swap_inputs(1, 2)
    others = {
        "Less": ("LessOrEqual", "Greater"),
        "LessOrEqual": ("Less",),
        "Greater": ("GreaterOrEqual", "Less"),
        "GreaterOrEqual": ("Greater",),
        "And": ("Or", "Xor"),
        "Or": ("And", "Xor"),
        "Xor": ("Or",),
    }
    for other in others.get(op, ()):
        yield f"{op} -> {other}", set_operator(other)
    if op in ("Not", "BitwiseNot"):
        yield "negation dropped", bypass


def one_off_of(site: Site) -> Found:
    """Slices, indices, splits and counts that are off by one."""
    op = site.node.op_type
    if op == "Slice":
        start, end = site.constant(1), site.constant(2)
        if start is not None and np.all(np.abs(start) < 2**30):
            yield "start one later", set_constant(1, start + 1)
        if end is not None and np.all(np.abs(end) < 2**30):
            yield "end one earlier", set_constant(2, end - 1)
        if start is not None and end is not None and np.all(start > 0) and np.all(np.abs(end) < 2**30):
            later = set_constant(1, start - 1)

            def shift(graph: GraphProto, node: NodeProto) -> None:
                later(graph, node)
                set_constant(2, end - 1)(graph, node)

            yield "moved by one", shift
    slot = {"Gather": 1, "GatherElements": 1, "TopK": 1, "Split": 1, "ScatterElements": 1, "OneHot": 1}.get(op)
    constant = site.constant(slot) if slot else None
    if constant is not None and constant.dtype.kind == "i" and constant.size:
        if op == "Split" and constant.size > 1:
            other = constant.copy()
            other[0], other[1] = other[0] - 1, other[1] + 1
            yield f"split {constant.tolist()} -> {other.tolist()}", set_constant(slot or 0, other)
        else:
            top = site.value(0).shape[site.attribute("axis", 0)] if site.value(0) is not None and site.value(0).ndim else 0
            other = np.where(constant + 1 < top, constant + 1, np.maximum(constant - 1, -top)) if top > 1 else constant + 1
            yield "index off by one", set_constant(slot or 0, other.astype(constant.dtype))


def layout_of(site: Site) -> Found:
    """keepdims, permutations and shapes."""
    op = site.node.op_type
    if site.attribute("keepdims") is not None or op.startswith(("Reduce", "Arg")):
        yield "keepdims flipped", set_attribute("keepdims", 1 - int(site.attribute("keepdims", 1)))
    perm = site.attribute("perm")
    value = site.value(0)
    if op == "Transpose" and perm and value is not None and len(perm) > 1:
        for i in range(len(perm)):
            for j in range(i):
                if value.shape[perm[i]] == value.shape[perm[j]] and value.shape[perm[i]] > 1:
                    other = list(perm)
                    other[i], other[j] = other[j], other[i]
                    yield f"perm {list(perm)} -> {other}", set_attribute("perm", other)
    if op == "Gemm":
        for name, slot in (("transA", 0), ("transB", 1)):
            value = site.value(slot)
            if value is not None and value.ndim == 2 and value.shape[0] == value.shape[1]:
                yield f"{name} flipped", set_attribute(name, 1 - int(site.attribute(name, 0)))
    if op == "MatMul":
        for slot in (0, 1):
            value = site.value(slot)
            if value is not None and value.ndim > 1 and value.shape[-1] == value.shape[-2] > 1:
                order = [*range(value.ndim - 2), value.ndim - 1, value.ndim - 2]
                yield f"operand {slot} transposed", insert(slot, ("Transpose", {"perm": order}))


def rewired_of(site: Site) -> Found:
    """Another value of the same type and shape in place of an input."""
    for slot, name in enumerate(site.node.input):
        value = site.values.get(name)
        if value is None or value.ndim == 0 or value.dtype.kind not in "fb":
            continue
        for other in site.earlier:
            candidate = site.values.get(other)
            if candidate is None or other == name or candidate.dtype != value.dtype or candidate.shape != value.shape:
                continue
            if not np.array_equal(candidate, value):

                def change(graph: GraphProto, node: NodeProto, slot: int = slot, other: str = other) -> None:
                    node.input[slot] = other

                yield f"input {slot} reads {other}", change
                return
