"""Write an ONNX graph at a lower opset: each operator in the form that it had then, or from other operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto

from autofix.surgery.onnx_lower_forms import (
    lower_bitwise,
    lower_celu,
    lower_clip,
    lower_extremes,
    lower_or_equal,
    lower_pow,
    lower_scatter_elements,
    lower_scatter_nd,
    lower_softmax,
    lower_trilu,
)
from autofix.surgery.onnx_nodes import forget_inferred
from autofix.surgery.onnx_types import onnx_attribute, onnx_graph_types, onnx_opset_of, onnx_subgraphs
from autofix.surgery.onnx_writer import OnnxWriter


class CantLower(Exception):
    """An operator has no form at the opset that is wanted."""


LowerForm = Callable[["OpsetLowering", OnnxWriter, onnx.NodeProto], bool]
"""Writes the node's form at `w.opset`; False keeps the node (whose attributes may have been changed)."""


class OpsetLowering:
    """Lowers one model from opset `had` to opset `wanted`."""

    def __init__(self, model: onnx.ModelProto, wanted: int) -> None:
        self.had, self.wanted = onnx_opset_of(model), wanted
        self.types: dict[str, int] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.count = 0

    def graph(self, graph: onnx.GraphProto) -> None:
        """Lower a graph in place, nested ones first."""
        onnx_graph_types(graph, self.had, self.types)
        for tensor in graph.initializer:
            if int(np.prod(tensor.dims)) <= 64:
                self.constants[tensor.name] = onnx.numpy_helper.to_array(tensor)
        done: list[onnx.NodeProto] = []
        for node in graph.node:
            for sub in onnx_subgraphs(node):
                self.graph(sub)
            if node.op_type == "Constant" and onnx_attribute(node, "value") is not None:
                self.constants[node.output[0]] = onnx.numpy_helper.to_array(onnx_attribute(node, "value"))
            done += self.lowered(node)
        kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in done]
        del graph.node[:]
        graph.node.extend(kept)

    def lowered(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The nodes that stand for one node."""
        if node.domain not in ("", "ai.onnx"):
            return [node]
        for since, form in LOWER_FORMS.get(node.op_type, ()):
            if self.wanted < since:
                self.count += 1
                w = OnnxWriter(f"autofix_{next((o for o in node.output if o), '')}_{self.count}", self.wanted)
                if form(self, w, node):
                    return [part for n in w.nodes for part in self.lowered(n)]
        try:
            old = onnx.defs.get_schema(node.op_type, max_inclusive_version=self.wanted, domain="")
        except onnx.defs.SchemaError:
            raise CantLower(f"{node.op_type} does not exist at opset {self.wanted}") from None
        for attribute in list(node.attribute):
            if attribute.name not in old.attributes:
                default = onnx.defs.get_schema(node.op_type, max_inclusive_version=self.had, domain="").attributes[attribute.name].default_value
                if onnx.helper.get_attribute_value(attribute) not in (0, b"none") and attribute.SerializeToString() != default.SerializeToString():
                    raise CantLower(f"{node.op_type} has no attribute {attribute.name} at opset {self.wanted}")
                node.attribute.remove(attribute)
        if sum(bool(n) for n in node.input) > old.max_input:
            raise CantLower(f"{node.op_type} takes {old.max_input} inputs at opset {self.wanted}")
        return [node]

    def values_of(self, name: str) -> list[int]:
        """The constant integers that a value holds."""
        if name not in self.constants:
            raise CantLower(f"{name} must be constant")
        return [int(v) for v in self.constants[name].reshape(-1)]


def lower_axes(lowering: OpsetLowering, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """Axes as an attribute instead of an input."""
    if len(node.input) > 1 and node.input[1]:
        node.attribute.append(onnx.helper.make_attribute("axes", lowering.values_of(node.input[1])))
    elif onnx_attribute(node, "noop_with_empty_axes", 0):
        w.op("Identity", node.input[0], out=node.output[0])
        return True
    for attribute in list(node.attribute):
        if attribute.name == "noop_with_empty_axes":
            node.attribute.remove(attribute)
    del node.input[1:]
    return False


def lower_split_outputs(lowering: OpsetLowering, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """Equal parts are what a Split without sizes gives."""
    for attribute in list(node.attribute):
        if attribute.name == "num_outputs":
            node.attribute.remove(attribute)
    return False


def lower_split_sizes(lowering: OpsetLowering, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """Sizes as an attribute instead of an input."""
    if len(node.input) > 1 and node.input[1]:
        node.attribute.append(onnx.helper.make_attribute("split", lowering.values_of(node.input[1])))
    del node.input[1:]
    return False


def lower_layer_norm(lowering: OpsetLowering, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """(x - mean) / sqrt(var + eps) * scale + bias over the last axes; `axis` must be negative or the graph's rank unknown."""
    axis = int(onnx_attribute(node, "axis", -1))
    if axis >= 0 or sum(bool(o) for o in node.output) != 1:
        raise CantLower("LayerNormalization over axes counted from the front")
    x, code = node.input[0], lowering.types.get(node.input[0], TensorProto.FLOAT)
    axes = list(range(axis, 0))
    centred = w.op("Sub", x, w.reduce("ReduceMean", x, axes, True))
    variance = w.reduce("ReduceMean", w.op("Mul", centred, centred), axes, True)
    eps = w.cast(w.const(float(onnx_attribute(node, "epsilon", 1e-5)), np.float32), code)
    normal = w.op("Div", centred, w.op("Sqrt", w.op("Add", variance, eps)))
    has_bias = len(node.input) > 2 and bool(node.input[2])
    scaled = w.op("Mul", normal, node.input[1], out=None if has_bias else node.output[0])
    if has_bias:
        w.op("Add", scaled, node.input[2], out=node.output[0])
    return True


def lower_gelu(lowering: OpsetLowering, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """0.5 x (1 + erf(x / sqrt 2)), or the tanh form."""
    x, code = node.input[0], lowering.types.get(node.input[0], TensorProto.FLOAT)

    def number(value: float) -> str:
        return w.cast(w.const(value, np.float32), code)

    if onnx_attribute(node, "approximate", b"none") == b"tanh":
        cube = w.op("Mul", w.op("Mul", x, x), x)
        phi = w.op("Tanh", w.op("Mul", number(float(np.sqrt(2 / np.pi))), w.op("Add", x, w.op("Mul", number(0.044715), cube))))
    else:
        phi = w.op("Erf", w.op("Mul", x, number(float(np.sqrt(0.5)))))
    w.op("Mul", w.op("Mul", x, number(0.5)), w.op("Add", phi, number(1.0)), out=node.output[0])
    return True


def lower_mish(lowering: OpsetLowering, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """x tanh(softplus(x))."""
    w.op("Mul", node.input[0], w.op("Tanh", w.op("Softplus", node.input[0])), out=node.output[0])
    return True


def lower_hard_swish(lowering: OpsetLowering, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """x clip(x / 6 + 1/2, 0, 1)."""
    w.op("Mul", node.input[0], w.op("HardSigmoid", node.input[0], alpha=1.0 / 6.0, beta=0.5), out=node.output[0])
    return True


def lower_cast_like(lowering: OpsetLowering, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """A cast to a type that is known by now."""
    code = lowering.types.get(node.input[1])
    if code is None:
        raise CantLower("CastLike to an unknown type")
    w.cast(node.input[0], code, out=node.output[0])
    return True


def lower_shape(lowering: OpsetLowering, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """A part of a shape is sliced from the whole."""
    start, end = int(onnx_attribute(node, "start", 0)), onnx_attribute(node, "end")
    if not start and end is None:
        del node.attribute[:]
        return False
    whole = w.op("Shape", node.input[0])
    part = w.slice(whole, [start], [2**31 if end is None else int(end)], [0])
    w.op("Identity", part, out=node.output[0])
    return True


def lower_reshape(lowering: OpsetLowering, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """Without allowzero a 0 copies an axis; the same where the shape holds none."""
    if onnx_attribute(node, "allowzero", 0) and 0 in lowering.constants.get(node.input[1], np.ones(1)).reshape(-1):
        raise CantLower("Reshape to a shape with a true 0")
    for attribute in list(node.attribute):
        node.attribute.remove(attribute)
    return False


def lower_constant(lowering: OpsetLowering, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """Numbers as a tensor."""
    for attribute in list(node.attribute):
        if attribute.name in ("value_int", "value_ints", "value_float", "value_floats"):
            dtype = np.int64 if "int" in attribute.name else np.float32
            value = onnx.numpy_helper.from_array(np.asarray(onnx.helper.get_attribute_value(attribute), dtype))
            node.attribute.remove(attribute)
            node.attribute.append(onnx.helper.make_attribute("value", value))
    return False


def lower_drop(lowering: OpsetLowering, w: OnnxWriter, node: onnx.NodeProto) -> bool:
    """Attributes that do not matter in inference."""
    for attribute in list(node.attribute):
        if attribute.name in ("training_mode", "saturate", "round_mode"):
            node.attribute.remove(attribute)
    return False


REDUCTIONS = ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
LOWER_FORMS: dict[str, tuple[tuple[int, LowerForm], ...]] = {
    **dict.fromkeys(REDUCTIONS, ((18, lower_axes),)),
    "ReduceSum": ((13, lower_axes),),
    "Squeeze": ((13, lower_axes),),
    "Unsqueeze": ((13, lower_axes),),
    "Split": ((18, lower_split_outputs), (13, lower_split_sizes)),
    "LayerNormalization": ((17, lower_layer_norm),),
    "Gelu": ((20, lower_gelu),),
    "Mish": ((18, lower_mish),),
    "HardSwish": ((14, lower_hard_swish),),
    "CastLike": ((15, lower_cast_like),),
    "Shape": ((15, lower_shape),),
    "Reshape": ((14, lower_reshape),),
    "Softmax": ((13, lower_softmax),),
    "LogSoftmax": ((13, lower_softmax),),
    "Constant": ((12, lower_constant),),
    "Max": ((12, lower_extremes),),
    "Min": ((12, lower_extremes),),
    "Clip": ((12, lower_clip),),
    "Pow": ((12, lower_pow),),
    "GreaterOrEqual": ((12, lower_or_equal),),
    "LessOrEqual": ((12, lower_or_equal),),
    "Celu": ((12, lower_celu),),
    "Trilu": ((14, lower_trilu),),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"), ((18, lower_bitwise),)),
    "ScatterElements": ((18, lower_scatter_elements),),
    "ScatterND": ((18, lower_scatter_nd),),
    "BatchNormalization": ((14, lower_drop),),
    "Cast": ((19, lower_drop),),
}
"""Operator -> (first opset of the newer form, how to write the older one), newest first."""


def lower_opset(model: onnx.ModelProto, wanted: int) -> bool:
    """Write the model at opset `wanted`, in place; False where it is no higher. Raises CantLower."""
    if onnx_opset_of(model) <= wanted:
        return False
    if model.functions:
        model.CopyFrom(onnx.inliner.inline_local_functions(model))
    OpsetLowering(model, wanted).graph(model.graph)
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = wanted
    model.ir_version = min(model.ir_version, 8)
    forget_inferred(model.graph)
    return True
