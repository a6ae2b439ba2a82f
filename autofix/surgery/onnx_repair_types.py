"""Make an ONNX graph's element types agree: operands of one operator with each other, outputs with what is expected."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from autofix.surgery.onnx_nodes import forget_inferred
from autofix.surgery.onnx_types import (
    onnx_formal_arguments,
    onnx_graph_types,
    onnx_opset_of,
    onnx_output_type,
    onnx_schema_of,
    onnx_subgraphs,
    onnx_value_types,
)

REAL_RANK: dict[int, int] = {TensorProto.FLOAT16: 1, TensorProto.BFLOAT16: 1, TensorProto.FLOAT: 2, TensorProto.DOUBLE: 3}


def promoted_type(codes: list[int]) -> int:
    """The type PyTorch promotes tensors of these types to: reals win over integers, two kinds of half become float32."""
    reals = sorted({c for c in codes if c in REAL_RANK}, key=lambda c: REAL_RANK[c])
    if reals:
        return TensorProto.FLOAT if set(reals) == {TensorProto.FLOAT16, TensorProto.BFLOAT16} else reals[-1]
    joint = np.result_type(*[onnx.helper.tensor_dtype_to_np_dtype(c) for c in codes])
    return int(onnx.helper.np_dtype_to_tensor_dtype(joint)) if joint.kind in "biu" else TensorProto.INT64


WHOLE_TYPES = (TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32)


def long_operands(node: onnx.NodeProto, formals: list[onnx.defs.OpSchema.FormalParameter | None], types: dict[str, int]) -> list[int]:
    """Places of whole numbers that an operator takes in 64 bits alone: indices of ScatterND, a shape."""
    return [
        k
        for k, formal in enumerate(formals)
        if formal is not None and set(formal.types) == {"tensor(int64)"} and types.get(node.input[k]) in WHOLE_TYPES
    ]


def agree_operands(graph: onnx.GraphProto, opset: int, types: dict[str, int], done: list[str]) -> None:
    """Cast operands that must have one type to the promoted one, in place. `types` is kept up to date."""
    nodes: list[onnx.NodeProto] = []
    onnx_graph_types(graph, opset, types)
    for node in graph.node:
        for sub in onnx_subgraphs(node):
            agree_operands(sub, opset, types, done)
        schema = onnx_schema_of(node, opset)
        if schema is not None and not onnx_subgraphs(node):
            formals = onnx_formal_arguments(schema.inputs, len(node.input))
            variables = {c.type_param_str for c in schema.type_constraints}
            for k in long_operands(node, formals, types):
                name = f"{node.output[0]}_operand_{k}"
                nodes.append(onnx.helper.make_node("Cast", [node.input[k]], [name], name=f"{name}_cast", to=TensorProto.INT64))
                node.input[k], types[name] = name, TensorProto.INT64
                done.append(node.op_type)
            groups: dict[str, list[int]] = {}
            for k, formal in enumerate(formals):
                if formal is not None and formal.type_str in variables and formal.is_homogeneous and types.get(node.input[k]):
                    groups.setdefault(formal.type_str, []).append(k)
            for places in groups.values():
                codes = [types[node.input[k]] for k in places]
                if len(set(codes)) < 2:
                    continue
                wanted = promoted_type(codes)
                for k in places:
                    if types[node.input[k]] != wanted:
                        name = f"{node.output[0]}_operand_{k}"
                        nodes.append(onnx.helper.make_node("Cast", [node.input[k]], [name], name=f"{name}_cast", to=wanted))
                        node.input[k] = name
                        types[name] = wanted
                done.append(node.op_type)
        for k, name in enumerate(node.output):
            code = onnx_output_type(node, k, opset, types)
            if name and code:
                types[name] = code
        nodes.append(node)
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def agree_outputs(model: onnx.ModelProto, expected: dict[str, int]) -> int:
    """Cast graph outputs whose element type is not the expected (else the declared) one, in place; returns how many."""
    types, count = onnx_value_types(model), 0
    inner: dict[str, str] = {}
    for value in model.graph.output:
        declared = value.type.tensor_type.elem_type
        wanted = expected.get(value.name) or declared
        actual = types.get(value.name)
        if not wanted or not actual or wanted == actual and wanted == declared:
            continue
        count += 1
        value.type.tensor_type.elem_type = wanted
        if wanted == actual:
            continue
        inner[value.name] = f"{value.name}_before_cast"
    for node in model.graph.node:
        for k, name in enumerate(node.output):
            if name in inner:
                node.output[k] = inner[name]
        rename_uses(node, inner)
    for name, source in inner.items():
        wanted = next(v.type.tensor_type.elem_type for v in model.graph.output if v.name == name)
        produced = any(source in n.output for n in model.graph.node)
        model.graph.node.append(onnx.helper.make_node("Cast", [source if produced else name], [name], name=f"{name}_cast", to=wanted))
    return count


def rename_uses(node: onnx.NodeProto, names: dict[str, str]) -> None:
    """Rename a node's inputs, and those of the nodes in its branches."""
    for k, name in enumerate(node.input):
        if name in names:
            node.input[k] = names[name]
    for sub in onnx_subgraphs(node):
        for inner in sub.node:
            rename_uses(inner, names)
        for value in sub.output:
            if value.name in names:
                value.name = names[value.name]


def repair_types(model: onnx.ModelProto, expected: dict[str, int]) -> int:
    """Both repairs, in place; returns how many nodes and outputs changed. `expected`: output name -> element type."""
    done: list[str] = []
    agree_operands(model.graph, onnx_opset_of(model), {}, done)
    changed = len(done) + agree_outputs(model, expected)
    if changed:
        forget_inferred(model.graph)
    return changed
