"""The names that an exported graph must carry: inputs, dynamic axes, weights. Used by fix.py too."""

from __future__ import annotations

import re
from typing import Any

import torch


def own_initializer_names(graph: Any) -> None:
    """Name weights as state_dict does: without the `model.` of the flat model around the person's own."""
    names = {i.name for i in graph.initializer}
    plain = {n: n.removeprefix("model.") for n in names if n.startswith("model.") and n.removeprefix("model.") not in names}
    taken = {o for node in graph.node for o in node.output} | {i.name for i in graph.input}
    plain = {old: new for old, new in plain.items() if new not in taken}

    def rename(inner: Any) -> None:
        for tensor in inner.initializer:
            tensor.name = plain.get(tensor.name, tensor.name)
        for value in [*inner.value_info, *inner.output]:
            value.name = plain.get(value.name, value.name)
        for node in inner.node:
            for i, name in enumerate(node.input):
                if name in plain:
                    node.input[i] = plain[name]
            for attribute in node.attribute:
                for below in [attribute.g, *attribute.graphs] if attribute.type in (5, 10) else ():
                    rename(below)

    rename(graph)


def finish_names(proto: Any, inputs: list[str], axes: dict[str, dict[int, str]], examples: dict[str, Any]) -> Any:
    """Give the graph exactly the contract's inputs, in order (an input that capture dropped as unused comes back), and
    the declared names of the dynamic axes. Returns the proto, changed in place."""
    from onnx import TensorProto, helper

    graph = proto.graph
    own_initializer_names(graph)
    have = {i.name: i for i in graph.input}
    onnx_types = {
        torch.float32: TensorProto.FLOAT,
        torch.float64: TensorProto.DOUBLE,
        torch.float16: TensorProto.FLOAT16,
        torch.bfloat16: TensorProto.BFLOAT16,
        torch.int64: TensorProto.INT64,
        torch.int32: TensorProto.INT32,
        torch.int16: TensorProto.INT16,
        torch.int8: TensorProto.INT8,
        torch.uint8: TensorProto.UINT8,
        torch.bool: TensorProto.BOOL,
    }
    for name in inputs:
        if name not in have and name in examples and examples[name].dtype in onnx_types:
            example = examples[name]
            dims = [axes.get(name, {}).get(a, int(s)) for a, s in enumerate(example.shape)]
            have[name] = helper.make_tensor_value_info(name, onnx_types[example.dtype], dims)
    ordered = [have.pop(n) for n in inputs if n in have] + list(have.values())
    kept = [type(i).FromString(i.SerializeToString()) for i in ordered]
    del graph.input[:]
    graph.input.extend(kept)
    symbols: dict[str, str] = {}
    for value in graph.input:
        for axis, symbol in axes.get(value.name, {}).items():
            dims = value.type.tensor_type.shape.dim
            if axis < len(dims) and dims[axis].dim_param:
                symbols.setdefault(dims[axis].dim_param, symbol)
                dims[axis].dim_param = symbol
    for value in [*graph.input, *graph.output, *graph.value_info]:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:  # sums and products of symbols as well
                dim.dim_param = re.sub(r"[A-Za-z_]\w*", lambda found: symbols.get(found[0], found[0]), dim.dim_param)
    return proto
