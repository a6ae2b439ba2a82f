"""Faults of numbers: modes, rounding, epsilons, types, constants, weights, operators."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from mutant_changes import Found, Site, bypass, insert, set_attribute, set_constant, set_operator
from onnx import GraphProto, NodeProto, TensorProto

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


def mode_of(site: Site) -> Found:
    """Another mode of the operator."""
    for name, choices in MODES.get(site.node.op_type, ()):
        now = site.attribute(name, choices[0])
        for other in choices:
            if other != now and not (site.node.op_type == "LSTM" and now not in choices):
                yield f"{name} {now} -> {other}", set_attribute(name, other)


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
    if (
        op in ("Add", "Mul", "Sub", "Div")
        and site.constant(1) is not None
        and np.shape(site.value(0)) == np.broadcast(site.value(0), site.constant(1)).shape
    ):
        yield f"{op} left out", bypass


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
        if (
            constant is None
            or constant.size != 1
            or site.node.op_type in ("Slice", "Gather", "Unsqueeze", "Squeeze", "Reshape", "Pad", "TopK", "CumSum", "Split")
        ):
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


def operator_of(site: Site) -> Found:
    """Another operator that takes the same inputs."""
    other = OPERATORS.get(site.node.op_type)
    if other and not (
        site.node.op_type in ("Relu", "Abs", "Sign", "Exp", "Tanh", "Erf") and site.value(0) is not None and site.value(0).dtype.kind == "i"
    ):
        yield f"{site.node.op_type} -> {other}", set_operator(other)
