"""Mutation operators: small faults of the kinds that exporters and graph passes make, planted in an ONNX graph.

mutants_of(model, values) -> every Mutant that applies. values: {value name: array} of the main graph on the example.
Mutant.apply(model) -> the changed copy. Mutant.nodes: names of the nodes that may rightly be named as the fault's place: the changed node; in a
subgraph, the node that holds it. Operators put in front of the changed node are named `planted_0` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mutant_numbers as numbers
import mutant_structure as structure
import numpy as np
from mutant_changes import Change, Found, Site
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, numpy_helper


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


KINDS: dict[str, Callable[[Site], Found]] = {
    "axis": structure.axes_of,
    "pads, strides": structure.pads_of,
    "epsilon": numbers.epsilon_of,
    "rounding": numbers.rounding_of,
    "mode": numbers.mode_of,
    "broadcast": structure.broadcast_of,
    "dtype": numbers.dtype_of,
    "swapped inputs": structure.swapped_of,
    "weights": numbers.weights_of,
    "frozen value": structure.frozen_of,
    "branch, comparison": structure.branch_of,
    "off by one": structure.one_off_of,
    "dropped": numbers.dropped_of,
    "layout": structure.layout_of,
    "reduction": numbers.reduction_of,
    "constant": numbers.constant_of,
    "operator": numbers.operator_of,
    "wrong edge": structure.rewired_of,
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
