"""Element types of every value of an ONNX graph, found without ONNX's own inference, which stops at the first ill-typed node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
from onnx import TensorProto

ORT_TYPE_NAMES: dict[int, str] = {
    TensorProto.FLOAT: "tensor(float)",
    TensorProto.DOUBLE: "tensor(double)",
    TensorProto.FLOAT16: "tensor(float16)",
    TensorProto.BFLOAT16: "tensor(bfloat16)",
    TensorProto.BOOL: "tensor(bool)",
    TensorProto.INT8: "tensor(int8)",
    TensorProto.INT16: "tensor(int16)",
    TensorProto.INT32: "tensor(int32)",
    TensorProto.INT64: "tensor(int64)",
    TensorProto.UINT8: "tensor(uint8)",
    TensorProto.UINT16: "tensor(uint16)",
    TensorProto.UINT32: "tensor(uint32)",
    TensorProto.UINT64: "tensor(uint64)",
    TensorProto.STRING: "tensor(string)",
    TensorProto.COMPLEX64: "tensor(complex64)",
    TensorProto.COMPLEX128: "tensor(complex128)",
}
ORT_TYPE_CODES = {name: code for code, name in ORT_TYPE_NAMES.items()}
TYPE_FROM_ATTRIBUTE = {
    "Cast": "to",
    "QuantizeLinear": "output_dtype",
    "DequantizeLinear": "output_dtype",
    **dict.fromkeys(("EyeLike", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"), "dtype"),
}
WINDOW_OPS = ("HannWindow", "HammingWindow", "BlackmanWindow")


def onnx_opset_of(model: onnx.ModelProto, domain: str = "") -> int:
    """The version of a domain that the model imports; 0 where it does not."""
    aliases = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return max((int(o.version) for o in model.opset_import if o.domain in aliases), default=0)


def onnx_schema_of(node: onnx.NodeProto, opset: int) -> Any | None:
    """The operator's schema at an opset of the default domain, or None."""
    if node.domain not in ("", "ai.onnx"):
        return None
    try:
        return onnx.defs.get_schema(node.op_type, max_inclusive_version=opset, domain="")
    except onnx.defs.SchemaError:
        return None


def onnx_formal_arguments(formals: Iterable[Any], count: int) -> list[Any | None]:
    """The formal parameter that each of `count` actual arguments stands for; a variadic one repeats."""
    known = list(formals)
    if not known:
        return [None] * count
    variadic = known[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return [known[i] if i < len(known) else known[-1] if variadic else None for i in range(count)]


def onnx_attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """An attribute's value, or the default."""
    for attribute in node.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default


def onnx_subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs among a node's attributes (branches and loop bodies)."""
    return [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH] + [g for a in node.attribute for g in a.graphs]


def onnx_value_types(model: onnx.ModelProto) -> dict[str, int]:
    """Element type (TensorProto code) of every tensor, in branches and loop bodies too; unknown ones are left out.

    Names are taken to be unique over all nested graphs, as ONNX asks for.
    """
    types: dict[str, int] = {}
    onnx_graph_types(model.graph, onnx_opset_of(model), types)
    return types


def onnx_graph_types(graph: onnx.GraphProto, opset: int, types: dict[str, int]) -> None:
    """Add the element types of one graph's values to `types`."""
    for value in graph.input:
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type:
            types[value.name] = value.type.tensor_type.elem_type
    for tensor in graph.initializer:
        types[tensor.name] = tensor.data_type
    declared = {v.name: v.type.tensor_type.elem_type for v in graph.value_info if v.type.HasField("tensor_type")}
    for node in graph.node:
        inner = onnx_subgraphs(node)
        if node.op_type in ("Loop", "Scan") and inner:
            given = list(node.input) if node.op_type == "Scan" else ["", "", *node.input[2:]]
            for formal, actual in zip(inner[0].input, given, strict=False):
                if actual in types:
                    types[formal.name] = types[actual]
        for sub in inner:
            onnx_graph_types(sub, opset, types)
        for k, name in enumerate(node.output):
            code = onnx_output_type(node, k, opset, types) or declared.get(name)
            if name and code:
                types[name] = code


def onnx_output_type(node: onnx.NodeProto, k: int, opset: int, types: dict[str, int]) -> int | None:
    """Element type of a node's k-th output, from its inputs and attributes."""
    op = node.op_type
    inner = onnx_subgraphs(node)
    if inner:
        position = k + 1 if op == "Loop" else k
        return types.get(inner[0].output[position].name) if position < len(inner[0].output) else None
    if op == "Constant":
        value = onnx_attribute(node, "value")
        if value is not None:
            return int(value.data_type)
        kinds = {"value_int": TensorProto.INT64, "value_ints": TensorProto.INT64, "value_float": TensorProto.FLOAT, "value_floats": TensorProto.FLOAT}
        return next((code for a in node.attribute for name, code in kinds.items() if a.name == name), TensorProto.STRING)
    if op == "ConstantOfShape":
        value = onnx_attribute(node, "value")
        return int(value.data_type) if value is not None else TensorProto.FLOAT
    if op in TYPE_FROM_ATTRIBUTE and onnx_attribute(node, TYPE_FROM_ATTRIBUTE[op]):
        return int(onnx_attribute(node, TYPE_FROM_ATTRIBUTE[op]))
    if op in WINDOW_OPS:
        return int(onnx_attribute(node, "output_datatype", TensorProto.FLOAT))
    schema = onnx_schema_of(node, opset)
    if schema is None:
        return None
    formal = onnx_formal_arguments(schema.outputs, k + 1)[k]
    if formal is None:
        return None
    for actual, parameter in zip(node.input, onnx_formal_arguments(schema.inputs, len(node.input)), strict=True):
        if parameter is not None and parameter.type_str == formal.type_str and actual in types:
            return types[actual]
    if formal.type_str in ORT_TYPE_CODES:
        return ORT_TYPE_CODES[formal.type_str]
    for constraint in schema.type_constraints:
        if constraint.type_param_str == formal.type_str and len(constraint.allowed_type_strs) == 1:
            return ORT_TYPE_CODES.get(constraint.allowed_type_strs[0])
    return TensorProto.UINT8 if op in ("QuantizeLinear", "DynamicQuantizeLinear") else None
