"""Faster exact forms of single ONNX nodes: what a form may know of the graph, and how forms are put in.

A fast form may be right for finite values only. Such a form is `guarded`: where its result holds NaN (which every wrong result of infinity
or NaN becomes), the node itself is run in the other branch of an If, so that the values are the node's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.inliner

from autofix.surgery.onnx_nodes import forget_inferred
from autofix.surgery.onnx_types import onnx_opset_of, onnx_subgraphs, onnx_value_types
from autofix.surgery.onnx_writer import OnnxWriter

Shape = tuple["int | str", ...]
"""Sizes of a value's axes; a string (perhaps empty) where a size is not fixed."""
FAST_INFERENCE_LIMIT = 2**31 - 2**20
FAST_FOLDED = frozenset({"Add", "Sub", "Mul", "Unsqueeze", "Squeeze", "Concat", "Reshape", "Cast", "Identity", "Range", "Expand", "Transpose"})
FAST_FOLDED_SIZE = 4_000_000


@dataclass
class FastGraph:
    """What is known of a graph's values, by name: element types, shapes, constants, the nodes that make and read them."""

    types: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    tensors: dict[str, onnx.TensorProto] = field(default_factory=dict)
    makers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)
    values: dict[str, np.ndarray | None] = field(default_factory=dict)
    opset: int = 20

    def is_float(self, name: str) -> bool:
        """Whether a value is float32."""
        return self.types.get(name) == onnx.TensorProto.FLOAT

    def rank(self, name: str) -> int | None:
        """The number of axes, or None."""
        shape = self.shapes.get(name)
        return None if shape is None else len(shape)

    def fixed(self, name: str) -> tuple[int, ...] | None:
        """The shape, where every size of it is fixed."""
        shape = self.shapes.get(name)
        return None if shape is None or not all(isinstance(d, int) for d in shape) else tuple(int(d) for d in shape)

    def size(self, name: str, axis: int) -> int | None:
        """The fixed size of one axis, or None."""
        shape = self.shapes.get(name)
        value = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
        return value if isinstance(value, int) else None

    def value(self, name: str) -> np.ndarray | None:
        """A constant's value, or that of index arithmetic on constants, or None."""
        if name not in self.values:
            tensor = self.tensors.get(name)
            self.values[name] = self.folded(name) if tensor is None else onnx.numpy_helper.to_array(tensor)
        return self.values[name]

    def folded(self, name: str) -> np.ndarray | None:
        """The value of a node of FAST_FOLDED whose inputs are all constants, as the exporter leaves where the result is large."""
        node = self.makers.get(name)
        if node is None or node.op_type not in FAST_FOLDED or node.domain not in ("", "ai.onnx") or not all(node.input):
            return None
        given = {n: self.value(n) for n in node.input}
        if any(v is None or v.size > FAST_FOLDED_SIZE for v in given.values()):
            return None
        from onnx.reference import ReferenceEvaluator

        try:
            results: Any = ReferenceEvaluator(node, opsets={"": self.opset}).run(None, given)
        except Exception:  # an evaluator without this form: the value stays unknown
            return None
        return results[0] if isinstance(results[0], np.ndarray) else None

    def numbers(self, name: str) -> list[int] | None:
        """A constant's values as a list of whole numbers, or None."""
        value = self.value(name)
        return None if value is None else [int(v) for v in value.reshape(-1)]

    def maker(self, name: str, op_type: str) -> onnx.NodeProto | None:
        """The node that makes a value, if it is of this operator."""
        node = self.makers.get(name)
        return node if node is not None and node.op_type == op_type else None


FastForm = Callable[[OnnxWriter, onnx.NodeProto, FastGraph], bool]
"""Writes another form of a node, whose last nodes have the node's own outputs; False leaves the node."""


def fast_graph(model: onnx.ModelProto) -> FastGraph:
    """Collect what is known of the main graph's values."""
    known = FastGraph(types=onnx_value_types(model), opset=onnx_opset_of(model))
    inferred = model
    if model.ByteSize() < FAST_INFERENCE_LIMIT:
        try:
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        except Exception:  # inference stops at a node that it can't type; what the exporter recorded is used then
            inferred = model
    graph = model.graph
    for tensor in graph.initializer:
        known.shapes[tensor.name] = tuple(int(d) for d in tensor.dims)
        known.tensors[tensor.name] = tensor
    for value in (*inferred.graph.value_info, *graph.input, *inferred.graph.output):
        if value.type.tensor_type.HasField("shape"):
            known.shapes[value.name] = tuple(int(d.dim_value) if d.HasField("dim_value") else d.dim_param for d in value.type.tensor_type.shape.dim)
    for node in graph.node:
        for name in node.output:
            known.makers[name] = node
        for name in set(fast_reads(node)):
            known.readers[name] = known.readers.get(name, 0) + 1
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    known.tensors[node.output[0]] = attribute.t
                elif attribute.name in ("value_int", "value_ints", "value_float", "value_floats"):
                    array = np.asarray(onnx.helper.get_attribute_value(attribute), np.int64 if "int" in attribute.name else np.float32)
                    known.tensors[node.output[0]] = onnx.numpy_helper.from_array(array)
    for value in graph.output:
        known.readers[value.name] = known.readers.get(value.name, 0) + 1
    return known


def fast_reads(node: onnx.NodeProto) -> list[str]:
    """Every name that a node reads, its subgraphs' reads included."""
    return [*node.input, *(name for sub in onnx_subgraphs(node) for inner in sub.node for name in fast_reads(inner))]


def replace_fast(model: onnx.ModelProto, forms: Mapping[str, FastForm]) -> int:
    """Give nodes of the main graph the form that `forms` has for their operator, in place; returns how many changed.

    Nodes whose results nothing reads any more are dropped.
    """
    if model.functions:
        model.CopyFrom(onnx.inliner.inline_local_functions(model))
    known, opset = fast_graph(model), onnx_opset_of(model)
    done: list[onnx.NodeProto] = []
    count = 0
    for node in model.graph.node:
        form = forms.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        writer = OnnxWriter(f"fast_{next((o for o in node.output if o), '')}", opset)
        if form is not None and form(writer, node, known):
            done += writer.nodes
            count += 1
        else:
            done.append(node)
    if count:
        kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in fast_live(done, {o.name for o in model.graph.output})]
        del model.graph.node[:]
        model.graph.node.extend(kept)
        forget_inferred(model.graph)
    return count


def fast_live(nodes: list[onnx.NodeProto], wanted: set[str]) -> list[onnx.NodeProto]:
    """The nodes that something still reads, in order."""
    needed, kept = set(wanted), []
    for node in reversed(nodes):
        if any(o in needed for o in node.output):
            kept.append(node)
            needed.update(fast_reads(node))
    return kept[::-1]


def fast_scalar(w: OnnxWriter, value: float) -> str:
    """A float32 constant without axes."""
    return w.const(value, np.float32)


def fast_guarded(w: OnnxWriter, originals: list[onnx.NodeProto], fast: str, out: str, finite: str = "", also: str = "") -> bool:
    """`out` is `fast` where that holds no NaN (or, if `finite` names a value, where that one has a finite sum), else what the `originals`
    give, the last of which makes `out`; all are float32.

    `also`: a number that must not be NaN either. A sum is NaN where any of its values is, and where infinities of both signs meet; without NaN and
    infinity it can but overflow.
    """
    total = w.op("ReduceSum", finite or fast, keepdims=0)
    total = w.op("Sub", total, total) if finite else total
    doubt = w.op("IsNaN", w.op("Add", total, also) if also else total)
    return fast_branches(w, doubt, originals, fast, out)


def fast_branches(w: OnnxWriter, doubt: str, originals: list[onnx.NodeProto], fast: str, out: str) -> bool:
    """`out` is what the `originals` give where `doubt` holds, else `fast`."""
    renamed: dict[str, str] = {}
    exact: list[onnx.NodeProto] = []
    for node in originals:
        twin = onnx.NodeProto()
        twin.CopyFrom(node)
        twin.name = f"{w.prefix}_{len(exact)}_exact"  # nodes may be without a name
        for k, name in enumerate(twin.input):
            twin.input[k] = renamed.get(name, name)
        for k, name in enumerate(twin.output):
            if name:
                renamed[name] = twin.output[k] = f"{w.prefix}_exact_{name}"
        exact.append(twin)
    passed = f"{w.prefix}_passed"
    same = onnx.helper.make_node("Identity", [fast], [passed], name=f"{passed}_node")

    def branch(nodes: list[onnx.NodeProto], result: str) -> onnx.GraphProto:
        value = onnx.ValueInfoProto(name=result)
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        return onnx.helper.make_graph(nodes, f"{result}_graph", [], [value])

    w.nodes.append(
        onnx.helper.make_node("If", [doubt], [out], name=f"{out}_guard", then_branch=branch(exact, renamed[out]), else_branch=branch([same], passed))
    )
    return True
