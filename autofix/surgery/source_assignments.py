"""What a function binds to which names, and which expressions turn tensors into Python numbers."""

from __future__ import annotations

import libcst as cst

from autofix.surgery.source_names import uses_of


class Assignments(cst.CSTVisitor):
    """(names, expression) of what a function binds, loops included."""

    def __init__(self) -> None:
        self.pairs: list[tuple[set[str], cst.BaseExpression]] = []

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            if isinstance(target.target, cst.Tuple) and isinstance(node.value, cst.Tuple) and len(target.target.elements) == len(node.value.elements):
                for t, v in zip(target.target.elements, node.value.elements):
                    self.pairs.append((uses_of(cst.Assign([cst.AssignTarget(t.value)], cst.Name("None"))).stores, v.value))  # type: ignore[arg-type]
            else:
                self.pairs.append((uses_of(cst.Assign([target], cst.Name("None"))).stores, node.value))

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        if isinstance(node.target, cst.Name):
            self.pairs.append(({node.target.value}, node.value))

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        if isinstance(node.target, cst.Name):
            self.pairs.append(({node.target.value}, node.value))

    def visit_For(self, node: cst.For | cst.CompFor) -> None:
        self.pairs.append((uses_of(cst.Assign([cst.AssignTarget(node.target)], cst.Name("None"))).stores, node.iter))

    visit_CompFor = visit_For


def converts(node: cst.CSTNode) -> bool:
    """Whether an expression turns something into a Python number: int(), float(), item(), tolist() or what replaced them."""
    found = _Calls()
    node.visit(found)
    return bool(found.names & {"int", "float", "bool", "item", "tolist", "whole_number", "number_of", "real_of", "size_list"})


class _Calls(cst.CSTVisitor):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Call(self, node: cst.Call) -> None:
        func = node.func
        self.names.add(func.attr.value if isinstance(func, cst.Attribute) else func.value if isinstance(func, cst.Name) else "")
