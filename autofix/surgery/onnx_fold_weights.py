"""Weights that the file computes anew at each run, from constants alone, stored as what they come to."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx.inliner
from onnx import numpy_helper

RANDOM_OPS = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout")


def constant_values(graph: onnx.GraphProto) -> set[str]:
    """The names of all values of a graph that depend on no input. Nodes with branches or bodies are left out."""
    inputs = {i.name for i in graph.input}
    known = {t.name for t in graph.initializer if t.name not in inputs} | {""}
    for node in graph.node:
        plain = node.op_type not in RANDOM_OPS and not any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute)
        if plain and node.domain in ("", "ai.onnx") and all(i in known for i in node.input):
            known.update(node.output)
    return known - {""}


def fold_weights(model: onnx.ModelProto, wanted: Iterable[str]) -> int:
    """Replace these values, where they are computed from constants, by initializers, in place; returns how many. ONNX Runtime computes them, without
    optimising, as it would at each run. The nodes that are then unused stay."""
    import onnxruntime as ort

    graph = model.graph
    made = {o: n for n in graph.node for o in n.output}
    constant = constant_values(graph)
    names = [n for n in dict.fromkeys(wanted) if n in constant and n in made and made[n].op_type != "Constant"]
    if not names:
        return 0
    needed, waiting = set(names), list(names)
    while waiting:
        node = made.get(waiting.pop())
        for name in node.input if node is not None else ():
            if name and name not in needed:
                needed.add(name)
                waiting.append(name)
    part = onnx.ModelProto()
    part.ir_version = model.ir_version
    part.opset_import.extend(model.opset_import)
    part.graph.name = "weights"
    part.graph.node.extend(n for n in graph.node if any(o in needed for o in n.output))
    part.graph.initializer.extend(t for t in graph.initializer if t.name in needed)
    part.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    values = ort.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, {})
    for name, value in zip(names, values, strict=True):
        node = made[name]
        for k, output in enumerate(node.output):
            if output == name:
                node.output[k] = f"{name}_at_run_time"
        graph.initializer.append(numpy_helper.from_array(value, name))
    return len(names)
