"""Dynamic 8-bit forms of matrix products and LSTMs: weights stored in 8 bits, activations quantised as they come.

Symmetric weights (zero point 0), unsigned activations by DynamicQuantizeLinear. Formulas: the ONNX operators' documentation
(DynamicQuantizeLinear, MatMulInteger) and com.microsoft.DynamicQuantizeLSTM's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto, numpy_helper

from autofix.surgery.onnx_fold_weights import fold_weights
from autofix.surgery.onnx_types import onnx_attribute, onnx_opset_of
from autofix.surgery.onnx_writer import OnnxWriter

INT8_KINDS = ("MatMul", "Gemm", "LSTM")


class Int8Constants:
    """Constant values of a graph, through Identity and Transpose, and the 8-bit weights that are added to it."""

    def __init__(self, model: onnx.ModelProto, per_channel: bool, reduce_range: bool) -> None:
        self.graph, self.per_channel, self.limit = model.graph, per_channel, 63 if reduce_range else 127
        self.tensors = {t.name: t for t in model.graph.initializer}
        self.makers = {o: n for n in model.graph.node for o in n.output}
        self.inputs = {i.name for i in model.graph.input}
        self.added: dict[str, onnx.TensorProto] = {}
        self.quantized: dict[tuple[str, str], tuple[str, str, str]] = {}
        self.activations: dict[str, tuple[str, str, str]] = {}

    def value(self, name: str) -> Any | None:
        """The float32 constant of this name as an array, or None."""
        if name in self.inputs or not name:
            return None
        if name in self.tensors:
            tensor = self.tensors[name]
            return numpy_helper.to_array(tensor) if tensor.data_type == TensorProto.FLOAT else None
        node = self.makers.get(name)
        if node is None or node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type == "Constant":
            tensor = onnx_attribute(node, "value")
            return numpy_helper.to_array(tensor) if tensor is not None and tensor.data_type == TensorProto.FLOAT else None
        if node.op_type in ("Identity", "Transpose"):
            found = self.value(node.input[0])
            if found is None or node.op_type == "Identity":
                return found
            return np.transpose(found, onnx_attribute(node, "perm") or None)
        return None

    def is_constant(self, name: str) -> bool:
        """Whether `value` would find a constant, without reading it."""
        node = self.makers.get(name)
        if name in self.tensors:
            return name not in self.inputs and self.tensors[name].data_type == TensorProto.FLOAT
        if node is not None and node.op_type in ("Identity", "Transpose"):
            return self.is_constant(node.input[0])
        return node is not None and node.op_type == "Constant" and self.value(name) is not None

    def add(self, name: str, array: Any) -> str:
        """A new initializer."""
        if name not in self.added:
            self.added[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def weight(self, name: str, transposed: bool, axes: tuple[int, ...]) -> tuple[str, str, str] | None:
        """(8-bit weight, scale, zero point) of a constant whose last two axes may be swapped first. `axes` are those that a scale per
        channel keeps; without per_channel the first of three axes (an LSTM's direction) is kept alone."""
        key = (name, str(transposed))
        if key not in self.quantized:
            value = self.value(name)
            if value is None or not np.isfinite(value).all():
                return None
            value = np.swapaxes(value, -1, -2) if transposed else value
            kept = axes if self.per_channel else axes[:-1]
            scale = np.abs(value).max(axis=tuple(a for a in range(value.ndim) if a not in kept), keepdims=True) / self.limit
            scale = np.where(scale < np.finfo(np.float32).tiny, 1.0, scale).astype(np.float32)
            whole = np.clip(np.rint(value / scale), -self.limit, self.limit).astype(np.int8)
            base = f"{name}_int8" + ("_t" if transposed else "")
            scale = scale.reshape([value.shape[a] for a in kept])
            self.quantized[key] = (
                self.add(base, whole),
                self.add(f"{base}_scale", scale),
                self.add(f"{base}_zero", np.zeros(scale.shape, np.int8)),
            )
        return self.quantized[key]


def first_output(node: onnx.NodeProto) -> str:
    """The name that a node goes by: that of its first output."""
    return next((o for o in node.output if o), "")


def has_int8_form(node: onnx.NodeProto, constants: Int8Constants) -> bool:
    """Whether `write_int8` can write this node."""
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "MatMul":
        return constants.is_constant(node.input[1]) and not constants.is_constant(node.input[0]) and rank_of(node.input[1], constants) == 2
    if node.op_type == "Gemm":
        plain = onnx_attribute(node, "alpha", 1.0) == 1.0 and onnx_attribute(node, "beta", 1.0) == 1.0 and not onnx_attribute(node, "transA", 0)
        return plain and constants.is_constant(node.input[1]) and not constants.is_constant(node.input[0])
    if node.op_type == "LSTM":
        unusual = any(onnx_attribute(node, name) for name in ("layout", "input_forget", "clip", "activations"))
        return not unusual and all(constants.is_constant(n) for n in node.input[1:3])
    return False


def rank_of(name: str, constants: Int8Constants) -> int:
    """The rank of a constant."""
    if name in constants.tensors:
        return len(constants.tensors[name].dims)
    value = constants.value(name)
    return -1 if value is None else value.ndim


def write_int8(w: OnnxWriter, node: onnx.NodeProto, constants: Int8Constants, outputs: list[str]) -> bool:
    """Write a node's 8-bit form with these output names; False where a weight is not finite."""
    if node.op_type == "LSTM":
        return write_int8_lstm(w, node, constants, outputs)
    swapped = node.op_type == "Gemm" and bool(onnx_attribute(node, "transB", 0))
    weight = constants.weight(node.input[1], swapped, (1,))
    if weight is None:
        return False
    name = node.input[0]
    if name not in constants.activations:
        parts = [f"{name}_u8", f"{name}_u8_scale", f"{name}_u8_zero"]
        w.nodes.append(onnx.helper.make_node("DynamicQuantizeLinear", [name], parts, name=f"{name}_u8_node"))
        constants.activations[name] = (parts[0], parts[1], parts[2])
    x, x_scale, x_zero = constants.activations[name]
    bias = node.input[2] if node.op_type == "Gemm" and len(node.input) > 2 else ""
    whole = w.cast(w.op("MatMulInteger", x, weight[0], x_zero, weight[2]), TensorProto.FLOAT)
    scaled = w.op("Mul", whole, w.op("Mul", x_scale, weight[1]), out=None if bias else outputs[0])
    if bias:
        w.op("Add", scaled, bias, out=outputs[0])
    return True


def write_int8_lstm(w: OnnxWriter, node: onnx.NodeProto, constants: Int8Constants, outputs: list[str]) -> bool:
    """An LSTM as com.microsoft.DynamicQuantizeLSTM, whose weights are [directions, input size, 4 hidden size]."""
    first, second = constants.weight(node.input[1], True, (0, 2)), constants.weight(node.input[2], True, (0, 2))
    if first is None or second is None:
        return False
    rest = [*node.input[3:], *[""] * (5 - len(node.input[3:]))]
    inputs = [node.input[0], first[0], second[0], *rest[:5], first[1], first[2], second[1], second[2]]
    made = onnx.helper.make_node("DynamicQuantizeLSTM", inputs, outputs, name=f"{outputs[0] or outputs[-1]}_node", domain="com.microsoft")
    made.attribute.extend(a for a in node.attribute if a.name in ("direction", "hidden_size"))
    w.nodes.append(made)
    return True


def to_int8(model: onnx.ModelProto, keep: Iterable[str], per_channel: bool, reduce_range: bool) -> int:
    """Give every node of the main graph that has one its 8-bit form, in place, apart from those that `keep` names; returns how many."""
    prepare_int8(model)
    constants, kept = Int8Constants(model, per_channel, reduce_range), set(keep)
    opset, count, done = onnx_opset_of(model), 0, []
    for node in model.graph.node:
        writer = OnnxWriter(f"int8_{first_output(node)}", opset)
        if first_output(node) not in kept and has_int8_form(node, constants) and write_int8(writer, node, constants, list(node.output)):
            done += writer.nodes
            count += 1
        else:
            done.append(node)
    if count:
        put_nodes(model, done, constants)
        drop_unused(model)
    return count


def prepare_int8(model: onnx.ModelProto) -> None:
    """Inline local functions and store weights that are computed from constants, in place."""
    if model.functions:
        model.CopyFrom(onnx.inliner.inline_local_functions(model))
    found: list[str] = []
    for node in model.graph.node:
        if node.op_type in (*INT8_KINDS, "Conv", "ConvTranspose"):
            found += node.input[1:3] if node.op_type == "LSTM" else node.input[1:2]
    fold_weights(model, found)


def put_nodes(model: onnx.ModelProto, nodes: list[onnx.NodeProto], constants: Int8Constants) -> None:
    """Put nodes and the new constants into the graph, and import what they need."""
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.graph.initializer.extend(constants.added.values())
    if any(n.domain == "com.microsoft" for n in kept) and not onnx_opset_of(model, "com.microsoft"):
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))


def drop_unused(model: onnx.ModelProto) -> None:
    """Remove nodes and initializers of the main graph that nothing reads."""
    wanted = {o.name for o in model.graph.output}
    needed: list[onnx.NodeProto] = []
    for node in reversed(model.graph.node):
        if any(o in wanted for o in node.output):
            needed.append(node)
            wanted.update(node.input)
            wanted.update(read_inside(node))
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(needed)]
    unused = [t.name for t in model.graph.initializer if t.name not in wanted]
    if len(kept) != len(model.graph.node):
        del model.graph.node[:]
        model.graph.node.extend(kept)
    if unused:
        gone = set(unused)
        left = [t for t in model.graph.initializer if t.name not in gone]
        rest = onnx.GraphProto()
        rest.initializer.extend(left)
        del model.graph.initializer[:]
        model.graph.initializer.extend(rest.initializer)


def read_inside(node: onnx.NodeProto) -> set[str]:
    """The names that a node's branches and bodies read."""
    found: set[str] = set()
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            for inner in graph.node:
                found.update(inner.input)
                found |= read_inside(inner)
            found.update(o.name for o in graph.output)
    return found
