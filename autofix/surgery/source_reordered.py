"""Lists that are made of other lists: turned around, copied, given through a helper."""

from __future__ import annotations

import libcst as cst

READERS = frozenset(
    {"len", "sum", "min", "max", "any", "all", "enumerate", "zip", "map", "filter", "iter", "next", "set", "sorted", "print", "isinstance"}
)
"""Builtin functions of a list that give no list."""


def minus_one(node: cst.BaseExpression) -> bool:
    """Whether an expression is the number -1."""
    minus = isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus)
    return minus and isinstance(node.expression, cst.Integer) and node.expression.value == "1"  # type: ignore[attr-defined]


def reordered(node: cst.BaseExpression) -> bool:
    """Whether an expression is a list again: `items[::-1]`, `list(items)`, or a plain function of it, which may be a helper that turns it around."""
    if isinstance(node, cst.Subscript):
        part = node.slice[0].slice if len(node.slice) == 1 else None
        return isinstance(part, cst.Slice) and part.lower is None and part.upper is None and part.step is not None and minus_one(part.step)
    plain = isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value not in READERS and len(node.args) == 1
    return plain and not node.args[0].star and node.args[0].keyword is None  # type: ignore[attr-defined]
