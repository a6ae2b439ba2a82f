"""What the mutation operators share: a place in an ONNX graph, and the elementary changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

Change = Callable[[GraphProto, NodeProto], None]
Found = Iterator[tuple[str, Change]]


@dataclass(frozen=True)
class Site:
    """A node with what is known about it: constants by value name, values on the example (none inside subgraphs), names of the values before it."""

    node: NodeProto
    constants: dict[str, Any]
    values: dict[str, Any]
    earlier: tuple[str, ...]
    rng: np.random.Generator

    def constant(self, slot: int) -> Any:
        """The constant in an input slot, or None."""
        return self.constants.get(self.node.input[slot]) if slot < len(self.node.input) else None

    def value(self, slot: int) -> Any:
        """The example's value in an input slot, or None."""
        if slot >= len(self.node.input):
            return None
        name = self.node.input[slot]
        return self.values.get(name, self.constants.get(name))

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value."""
        return next((helper.get_attribute_value(a) for a in self.node.attribute if a.name == name), default)

    @property
    def rank(self) -> int:
        """Rank of the first input, or 0 where it is not known."""
        value = self.value(0)
        return int(value.ndim) if value is not None else 0


def set_attribute(name: str, value: Any) -> Change:
    """A change of one attribute."""

    def change(graph: GraphProto, node: NodeProto) -> None:
        for i, a in enumerate(node.attribute):
            if a.name == name:
                del node.attribute[i]
                break
        node.attribute.append(helper.make_attribute(name, value))

    return change


def set_constant(slot: int, array: Any) -> Change:
    """A change of the constant that this node alone reads in a slot."""

    def change(graph: GraphProto, node: NodeProto) -> None:
        name = f"planted_{slot}"
        graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        node.input[slot] = name

    return change


def set_operator(op_type: str) -> Change:
    """Another operator with the same inputs and attributes."""

    def change(graph: GraphProto, node: NodeProto) -> None:
        node.op_type = op_type

    return change


def swap_inputs(a: int, b: int) -> Change:
    """Two inputs in each other's place."""

    def change(graph: GraphProto, node: NodeProto) -> None:
        node.input[a], node.input[b] = node.input[b], node.input[a]

    return change


def bypass(graph: GraphProto, node: NodeProto) -> None:
    """The node hands on its first input."""
    node.op_type = "Identity"
    del node.input[1:]
    del node.attribute[:]


def insert(slot: int, *chain: tuple[str, dict[str, Any]]) -> Change:
    """Operators in front of one input; they bear the node's own name, with a suffix."""

    def change(graph: GraphProto, node: NodeProto) -> None:
        at = next(i for i, n in enumerate(graph.node) if n.output and n.output[0] == node.output[0])
        name = node.input[slot]
        for i, (op_type, attributes) in enumerate(chain):
            made = helper.make_node(op_type, [name], [f"planted_value_{i}"], f"planted_{i}", **attributes)
            graph.node.insert(at + i, made)
            name = f"planted_value_{i}"
        graph.node[at + len(chain)].input[slot] = name

    return change
