"""Functions of a file that return lists with as many items as only the graph knows, and what their callers do with these lists."""

from __future__ import annotations

from typing import Any

import libcst as cst

from autofix.surgery.source_names import called_name, contains
from autofix.surgery.source_nodes import code_of
from autofix.surgery.source_pieces import LoopsOver, grown_lists


class _Returns(cst.CSTVisitor):
    """What a function returns, nested functions apart."""

    def __init__(self) -> None:
        self.values: list[cst.BaseExpression | None] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def visit_Return(self, node: cst.Return) -> None:
        self.values.append(node.value)


def returns_grown_list(function: cst.FunctionDef, dynamic: set[str]) -> bool:
    """Whether a function returns a list that it lengthens in a loop over something in `dynamic`."""
    grown = grown_lists(function, dynamic)
    found = _Returns()
    function.body.visit(found)
    named = [v.value for v in found.values if isinstance(v, cst.Name)]
    return bool(grown) and bool(named) and len(named) == len(found.values) and set(named) <= grown and not contains([function.body], cst.Yield)


def calls_grower(node: cst.BaseExpression, growers: set[str]) -> bool:
    """Whether an expression is `grower(...)`, or a list or tuple of that."""
    if not isinstance(node, cst.Call):
        return False
    if code_of(node.func) in ("list", "tuple") and len(node.args) == 1:
        return calls_grower(node.args[0].value, growers)
    return called_name(node) in growers


class _Bound(cst.CSTVisitor):
    def __init__(self, growers: set[str]) -> None:
        self.growers, self.names, self.others = growers, set[str](), set[str]()

    def visit_Assign(self, node: cst.Assign) -> None:
        names = {t.target.value for t in node.targets if isinstance(t.target, cst.Name)}
        if calls_grower(node.value, self.growers):
            self.names |= names
        else:
            self.others |= names


def grown_by_calls(function: cst.FunctionDef, growers: set[str], dynamic: set[str]) -> tuple[set[str], set[str]]:
    """(names that hold what the growers return, texts of what loops over such lists, and lists made in these loops, run over)."""
    bound = _Bound(growers)
    if growers:
        function.body.visit(bound)
    first = bound.names - bound.others
    names, texts = set(first), set[str]()
    for _ in range(3 if names else 0):
        over: Any = LoopsOver(names)
        function.body.visit(over)
        texts |= over.found
        names |= grown_lists(function, dynamic | texts)
    return first, texts
