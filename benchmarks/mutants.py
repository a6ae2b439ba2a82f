"""Mutation operators: small faults of the kinds that exporters and graph passes make, planted in an ONNX graph.

mutants_of(model, values) -> every Mutant that applies. values: {value name: array} of the main graph on the example.
Mutant.apply(model) -> the changed copy. Mutant.nodes: names of the nodes that may rightly be named as the fault's place: the changed node; where
a node was taken out, those that read its input in its stead; in a subgraph, the node that holds it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

Change = Callable[[GraphProto, NodeProto], None]
Found = Iterator[tuple[str, Change]]


@dataclass(frozen=True)
class Mutant:
    """One planted fault. path: indices of nodes and graph attributes from the main graph to the changed node."""

    kind: str
    text: str
    nodes: tuple[str, ...]
    path: tuple[int, ...]
    change: Change

    def apply(self, model: ModelProto) -> ModelProto:
        """A changed copy."""
        made = ModelProto()
        made.CopyFrom(model)
        graph, node = made.graph, made.graph.node[self.path[0]]
        for attribute, index in zip(self.path[1::2], self.path[2::2], strict=True):
            graph = node.attribute[attribute].g
            node = graph.node[index]
        self.change(graph, node)
        del made.graph.value_info[:]  # sizes noted there may no longer hold
        return made


@dataclass(frozen=True)
class Site:
    """A node with what is known about it: constants by value name, values on the example (none inside subgraphs), names of the values before it."""

    node: NodeProto
    constants: dict[str, Any]
    values: dict[str, Any]
    earlier: tuple[str, ...]
    rng: np.random.Generator

    def constant(self, slot: int) -> Any:
        """The constant in an input slot, or None."""
        return self.constants.get(self.node.input[slot]) if slot < len(self.node.input) else None

    def value(self, slot: int) -> Any:
        """The example's value in an input slot, or None."""
        if slot >= len(self.node.input):
            return None
        name = self.node.input[slot]
        return self.values.get(name, self.constants.get(name))

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value."""
        return next((helper.get_attribute_value(a) for a in self.node.attribute if a.name == name), default)

    @property
    def rank(self) -> int:
        """Rank of the first input, or 0 where it is not known."""
        value = self.value(0)
        return int(value.ndim) if value is not None else 0


def set_attribute(name: str, value: Any) -> Change:
    """A change of one attribute."""

    def change(graph: GraphProto, node: NodeProto) -> None:
        for i, a in enumerate(node.attribute):
            if a.name == name:
                del node.attribute[i]
                break
        node.attribute.append(helper.make_attribute(name, value))

    return change


def set_constant(slot: int, array: Any) -> Change:
    """A change of the constant that this node alone reads in a slot."""

    def change(graph: GraphProto, node: NodeProto) -> None:
        name = f"planted_{slot}"
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        node.input[slot] = name

    return change


def set_operator(op_type: str) -> Change:
    """Another operator with the same inputs and attributes."""

    def change(graph: GraphProto, node: NodeProto) -> None:
        node.op_type = op_type

    return change


def swap_inputs(a: int, b: int) -> Change:
    """Two inputs in each other's place."""

    def change(graph: GraphProto, node: NodeProto) -> None:
        node.input[a], node.input[b] = node.input[b], node.input[a]

    return change


def bypass(graph: GraphProto, node: NodeProto) -> None:
    """The node hands on its first input."""
    node.op_type = "Identity"
    del node.input[1:]
    del node.attribute[:]


def insert(slot: int, *chain: tuple[str, dict[str, Any]]) -> Change:
    """Operators in front of one input; they bear the node's own name, with a suffix."""

    def change(graph: GraphProto, node: NodeProto) -> None:
        at = next(i for i, n in enumerate(graph.node) if n.output and n.output[0] == node.output[0])
        name = node.input[slot]
        for i, (op_type, attributes) in enumerate(chain):
            made = helper.make_node(op_type, [name], [f"planted_value_{i}"], f"planted_{i}", **attributes)
            graph.node.insert(at + i, made)
            name = f"planted_value_{i}"
        graph.node[at + len(chain)].input[slot] = name

    return change


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


def epsilon_of(site: Site) -> Found:
    """Epsilons a hundred times larger."""
    epsilon = site.attribute("epsilon")
    if epsilon is not None:
        yield f"epsilon {epsilon:g} -> {100 * epsilon:g}", set_attribute("epsilon", 100 * float(epsilon))
    for slot in range(len(site.node.input)):
        constant = site.constant(slot)
        if site.node.op_type in ("Add", "Max", "Clip") and constant is not None and constant.dtype.kind == "f" and constant.size == 1:
            value = float(constant.reshape(()))
            if 0 < value < 1e-2:
                yield f"epsilon {value:g} -> {100 * value:g}", set_constant(slot, (constant * 100).astype(constant.dtype))


def rounding_of(site: Site) -> Found:
    """Another rounding; division of integers as of reals."""
    others = {"Floor": ("Ceil", "Round"), "Ceil": ("Floor",), "Round": ("Floor",)}
    for other in others.get(site.node.op_type, ()):
        yield f"{site.node.op_type} -> {other}", set_operator(other)
    if site.node.op_type == "Mod":
        value = site.value(0)
        if value is not None and value.dtype.kind == "i":
            yield "fmod flipped", set_attribute("fmod", 1 - int(site.attribute("fmod", 0)))
    if site.node.op_type == "Cast" and site.value(0) is not None and site.value(0).dtype.kind == "f" and site.attribute("to") in (6, 7):
        yield "rounded before the cast", insert(0, ("Round", {}))
        yield "floored before the cast", insert(0, ("Floor", {}))
    if site.attribute("ceil_mode") is not None or site.node.op_type in ("MaxPool", "AveragePool"):
        yield "ceil_mode flipped", set_attribute("ceil_mode", 1 - int(site.attribute("ceil_mode", 0)))


MODES: dict[str, tuple[tuple[str, tuple[Any, ...]], ...]] = {
    "Resize": (
        ("mode", (b"nearest", b"linear", b"cubic")),
        ("coordinate_transformation_mode", (b"half_pixel", b"asymmetric", b"align_corners", b"pytorch_half_pixel")),
        ("nearest_mode", (b"floor", b"ceil", b"round_prefer_floor")),
        ("cubic_coeff_a", (-0.75, -0.5)),
    ),
    "Pad": (("mode", (b"reflect", b"edge", b"constant")),),
    "GridSample": (("padding_mode", (b"zeros", b"border", b"reflection")), ("align_corners", (0, 1)), ("mode", (b"linear", b"nearest"))),
    "Gelu": (("approximate", (b"none", b"tanh")),),
    "AveragePool": (("count_include_pad", (0, 1)),),
    "ScatterElements": (("reduction", (b"none", b"add", b"max")),),
    "ScatterND": (("reduction", (b"none", b"add")),),
    "Trilu": (("upper", (0, 1)),),
    "GRU": (("linear_before_reset", (0, 1)),),
    "CumSum": (("exclusive", (0, 1)), ("reverse", (0, 1))),
    "LSTM": (("direction", (b"forward", b"reverse")),),
    "Gemm": (("alpha", (1.0, 0.99)),),
    "LpNormalization": (("p", (1, 2)),),
}


def mode_of(site: Site) -> Found:
    """Another mode of the operator."""
    for name, choices in MODES.get(site.node.op_type, ()):
        now = site.attribute(name, choices[0])
        for other in choices:
            if other != now and not (site.node.op_type == "LSTM" and now not in choices):
                yield f"{name} {now} -> {other}", set_attribute(name, other)


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


def dtype_of(site: Site) -> Found:
    """Casts to a narrower type and back in front of an input."""
    value = site.value(0)
    if value is None or site.constant(0) is not None or site.node.op_type in ("Cast", "Shape", "Identity"):
        return
    types = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64}
    back = types.get(value.dtype.name)
    narrow = {"float32": ("FLOAT16", "BFLOAT16", "INT32"), "float64": ("FLOAT",), "int64": ("INT32", "INT8")}.get(value.dtype.name, ())
    for name in narrow if back is not None and value.ndim else ():
        yield f"through {name.lower()}", insert(0, ("Cast", {"to": getattr(TensorProto, name)}), ("Cast", {"to": back}))


def swapped_of(site: Site) -> Found:
    """Inputs in each other's place, where that makes a difference."""
    op = site.node.op_type
    if op in ("Sub", "Div", "Pow", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "MatMul", "Mod") and site.node.input[0] != site.node.input[1]:
        a, b = site.value(0), site.value(1)
        if op != "MatMul" or (a is not None and b is not None and a.shape == b.shape):
            yield "inputs 0 and 1 swapped", swap_inputs(0, 1)
    elif op == "Concat" and len(site.node.input) > 1 and len({n for n in site.node.input}) > 1:
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


def weights_of(site: Site) -> Found:
    """Relative noise of 1e-3 on weights; one weight that is off by a tenth of the largest."""
    for slot in range(len(site.node.input)):
        constant = site.constant(slot)
        if constant is None or constant.dtype.kind != "f" or constant.size < 4:
            continue
        noise = 1 + 1e-3 * site.rng.standard_normal(constant.shape)
        yield f"1e-3 noise on operand {slot}", set_constant(slot, (constant * noise).astype(constant.dtype))
        one = constant.copy()
        place = int(site.rng.integers(constant.size))
        one.reshape(-1)[place] += np.asarray(0.1 * np.abs(constant).max(), constant.dtype)
        yield f"one value of operand {slot} off", set_constant(slot, one)


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


def dropped_of(site: Site) -> Found:
    """Operators and bounds left out."""
    op = site.node.op_type
    unary = ("Relu", "LeakyRelu", "Clip", "Abs", "Neg", "Tanh", "Sigmoid", "HardSwish", "HardSigmoid", "Elu", "Softplus", "Sqrt", "Erf", "PRelu")
    if op in (*unary, "Softmax", "LayerNormalization", "BatchNormalization", "Floor", "Exp", "Log"):
        yield f"{op} left out", bypass
    if op == "Clip":
        for slot, what in ((1, "lower"), (2, "upper")):
            if slot < len(site.node.input) and site.node.input[slot]:

                def change(graph: GraphProto, node: NodeProto, slot: int = slot) -> None:
                    node.input[slot] = ""

                yield f"{what} bound left out", change
    if op in ("Conv", "Gemm", "ConvTranspose") and len(site.node.input) > 2 and site.node.input[2]:

        def no_bias(graph: GraphProto, node: NodeProto) -> None:
            del node.input[2:]

        yield "bias left out", no_bias
    if op in ("Add", "Mul", "Sub", "Div") and site.constant(1) is not None and np.shape(site.value(0)) == np.broadcast(site.value(0), site.constant(1)).shape:
        yield f"{op} left out", bypass


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


REDUCTIONS = {
    "ReduceMean": ("ReduceSum", "ReduceMax"),
    "ReduceSum": ("ReduceMean",),
    "ReduceMax": ("ReduceMin", "ReduceMean"),
    "ReduceMin": ("ReduceMax",),
    "ReduceL2": ("ReduceL1",),
    "ReduceL1": ("ReduceL2",),
    "ReduceProd": ("ReduceSum",),
    "ReduceSumSquare": ("ReduceSum",),
    "ReduceLogSumExp": ("ReduceMax",),
    "ArgMax": ("ArgMin",),
    "ArgMin": ("ArgMax",),
    "GlobalAveragePool": ("GlobalMaxPool",),
    "GlobalMaxPool": ("GlobalAveragePool",),
}


def reduction_of(site: Site) -> Found:
    """Another reduction, another choice among equals, smallest for largest."""
    op = site.node.op_type
    for other in REDUCTIONS.get(op, ()):
        yield f"{op} -> {other}", set_operator(other)
    if op in ("ArgMax", "ArgMin"):
        yield "last of equals", set_attribute("select_last_index", 1 - int(site.attribute("select_last_index", 0)))
    if op == "TopK":
        yield "largest flipped", set_attribute("largest", 1 - int(site.attribute("largest", 1)))
    if op in ("MaxPool", "AveragePool"):
        kept = {a.name for a in site.node.attribute} & {"kernel_shape", "strides", "pads", "ceil_mode", "auto_pad"}

        def change(graph: GraphProto, node: NodeProto) -> None:
            attributes = [copy.deepcopy(a) for a in node.attribute if a.name in kept]
            node.op_type = "AveragePool" if op == "MaxPool" else "MaxPool"
            del node.attribute[:]
            node.attribute.extend(attributes)
            del node.output[1:]

        yield "maximum for mean" if op == "AveragePool" else "mean for maximum", change
    if op == "Softmax":
        yield "LogSoftmax", set_operator("LogSoftmax")


def constant_of(site: Site) -> Found:
    """Scalars and attributes off by a percent or by one."""
    for slot in range(len(site.node.input)):
        constant = site.constant(slot)
        if constant is None or constant.size != 1 or site.node.op_type in ("Slice", "Gather", "Unsqueeze", "Squeeze", "Reshape", "Pad", "TopK", "CumSum", "Split"):
            continue
        if site.node.op_type.startswith("Reduce"):
            continue
        if constant.dtype.kind == "f":
            yield f"constant {float(constant.reshape(())):g} off by 1 %", set_constant(slot, (constant * 1.01).astype(constant.dtype))
        elif constant.dtype.kind == "i":
            yield f"constant {int(constant.reshape(()))} off by one", set_constant(slot, constant + 1)
    for name in ("alpha", "beta", "gamma", "lambd", "bias"):
        now = site.attribute(name)
        if isinstance(now, float) and now:
            yield f"{name} {now:g} off by 5 %", set_attribute(name, now * 1.05)


OPERATORS = {
    "Add": "Sub",
    "Sub": "Add",
    "Mul": "Div",
    "Sin": "Cos",
    "Cos": "Sin",
    "Tanh": "Erf",
    "Erf": "Tanh",
    "Sigmoid": "HardSigmoid",
    "Max": "Min",
    "Min": "Max",
    "Softplus": "Relu",
    "Relu": "Softplus",
    "HardSwish": "Relu",
    "Elu": "Selu",
    "Abs": "Relu",
    "Sign": "Tanh",
    "Sqrt": "Reciprocal",
    "BitwiseAnd": "BitwiseOr",
    "BitwiseXor": "BitwiseOr",
    "Exp": "Softplus",
    "Mish": "Softplus",
}


def operator_of(site: Site) -> Found:
    """Another operator that takes the same inputs."""
    other = OPERATORS.get(site.node.op_type)
    if other and not (site.node.op_type in ("Relu", "Abs", "Sign", "Exp", "Tanh", "Erf") and site.value(0) is not None and site.value(0).dtype.kind == "i"):
        yield f"{site.node.op_type} -> {other}", set_operator(other)


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


KINDS: dict[str, Callable[[Site], Found]] = {
    "axis": axes_of,
    "pads, strides": pads_of,
    "epsilon": epsilon_of,
    "rounding": rounding_of,
    "mode": mode_of,
    "broadcast": broadcast_of,
    "dtype": dtype_of,
    "swapped inputs": swapped_of,
    "weights": weights_of,
    "frozen value": frozen_of,
    "branch, comparison": branch_of,
    "off by one": one_off_of,
    "dropped": dropped_of,
    "layout": layout_of,
    "reduction": reduction_of,
    "constant": constant_of,
    "operator": operator_of,
    "wrong edge": rewired_of,
}


def constants_of(graph: GraphProto) -> dict[str, Any]:
    """Initializers and Constant nodes of one graph, by name."""
    found = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            for a in node.attribute:
                if a.name == "value":
                    found[node.output[0]] = numpy_helper.to_array(a.t)
    return found


def locations(graph: GraphProto, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], NodeProto, GraphProto]]:
    """(path, node, its graph) of every node, subgraphs included."""
    for i, node in enumerate(graph.node):
        yield (*path, i), node, graph
        for j, attribute in enumerate(node.attribute):
            if attribute.type == AttributeProto.GRAPH:
                yield from locations(attribute.g, (*path, i, j))


def mutants_of(model: ModelProto, values: dict[str, Any], seed: int = 0) -> list[Mutant]:
    """Every mutant, in the order of the nodes."""
    rng = np.random.default_rng(seed)
    constants = constants_of(model.graph)
    found: list[Mutant] = []
    so_far: list[str] = [i.name for i in model.graph.input]
    for path, node, graph in locations(model.graph):
        outer = model.graph.node[path[0]]
        inside = len(path) > 1
        known = {**constants, **constants_of(graph)} if inside else constants
        site = Site(node, known, {} if inside else values, tuple(so_far), rng)
        for kind, operator in KINDS.items():
            if node.op_type == "Constant" or not node.output:
                continue
            for text, change in operator(site):
                found.append(Mutant(kind, f"{node.op_type} {node.name}: {text}", (outer.name,), path, change))
        if not inside:
            so_far += [o for o in node.output if o]
    return found
