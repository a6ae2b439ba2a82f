"""Replace nodes of an ONNX graph one by one, in branches and loop bodies too."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
import onnx.inliner

from autofix.surgery.onnx_types import onnx_opset_of, onnx_subgraphs, onnx_value_types
from autofix.surgery.onnx_writer import OnnxWriter

NodeForm = Callable[[OnnxWriter, onnx.NodeProto, dict[str, int]], bool]
"""Writes another form of a node, whose last nodes have the node's own outputs; False leaves the node. The dictionary
holds the element types of all values."""


def replace_nodes(model: onnx.ModelProto, forms: Mapping[str, NodeForm]) -> int:
    """Give nodes of the default domain the form that `forms` has for their operator, in place; returns how many changed."""
    if model.functions:
        model.CopyFrom(onnx.inliner.inline_local_functions(model))
    count = replace_in_graph(model.graph, forms, onnx_opset_of(model), onnx_value_types(model))
    if count:
        forget_inferred(model.graph)
    return count


def replace_in_graph(graph: onnx.GraphProto, forms: Mapping[str, NodeForm], opset: int, types: dict[str, int]) -> int:
    """The part of replace_nodes for one graph."""
    count, done = 0, []
    for node in graph.node:
        for sub in onnx_subgraphs(node):
            count += replace_in_graph(sub, forms, opset, types)
        form = forms.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        writer = OnnxWriter(f"autofix_{next((o for o in node.output if o), '')}", opset)
        if form is not None and form(writer, node, types):
            done += writer.nodes
            count += 1
        else:
            done.append(node)
    if count:
        kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in done]
        del graph.node[:]
        graph.node.extend(kept)
    return count


def forget_inferred(graph: onnx.GraphProto) -> None:
    """Drop the recorded types of inner values, which a change may have made wrong; they are inferred again on loading."""
    del graph.value_info[:]
    for node in graph.node:
        for sub in onnx_subgraphs(node):
            forget_inferred(sub)
