"""What a function binds to which names, and which expressions turn tensors into Python numbers."""

from __future__ import annotations

import libcst as cst

from autofix.surgery.source_names import called_names, root_name, uses_of
from autofix.surgery.source_nodes import code_of
from autofix.surgery.source_pieces import is_split


class Assignments(cst.CSTVisitor):
    """(names, expression) of what a function binds, loops included."""

    def __init__(self) -> None:
        self.pairs: list[tuple[set[str], cst.BaseExpression]] = []
        self.looped: set[str] = set()

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
        names = uses_of(cst.Assign([cst.AssignTarget(node.target)], cst.Name("None"))).stores
        self.looped |= names
        self.pairs.append((names, node.iter))

    visit_CompFor = visit_For


def converts(node: cst.CSTNode) -> bool:
    """Whether an expression turns something into a Python number: int(), float(), item(), tolist() or what replaced them."""
    return bool(called_names([node]) & {"int", "float", "bool", "item", "tolist", "whole_number", "number_of", "real_of", "size_list"})


LISTS = (cst.List, cst.Tuple, cst.ListComp, cst.Dict, cst.DictComp, cst.Set, cst.GeneratorExp, cst.SimpleString)
LIST_CALLS = frozenset({"list", "tuple", "sorted", "range", "zip", "dict", "set", "enumerate", "str"})
LIST_METHODS = frozenset({"split", "chunk", "unbind", "tensor_split", "split_with_sizes", "tolist", "size", "items", "keys", "values", "copy"})


def is_list(node: cst.BaseExpression) -> bool:
    """Whether an expression surely gives a Python list, tuple, text or the like."""
    if is_split(node):
        return True
    if isinstance(node, cst.Call):
        func = node.func
        return func.attr.value in LIST_METHODS if isinstance(func, cst.Attribute) else code_of(func) in LIST_CALLS
    return isinstance(node, LISTS) or (isinstance(node, cst.Attribute) and node.attr.value == "shape")


def listed_names(function: cst.FunctionDef) -> set[str]:
    """Local names that are bound to a Python list, tuple, text or the like somewhere."""
    found = Assignments()
    function.body.visit(found)
    return {name for names, expression in found.pairs if is_list(expression) for name in names} - found.looped


def may_be_tensor(node: cst.BaseExpression, lists: set[str]) -> bool:
    """Whether len() of an expression may be the size of a tensor."""
    if isinstance(node, cst.Subscript):
        return may_be_tensor(node.value, lists)
    if isinstance(node, cst.Attribute) and node.attr.value == "shape":
        return False
    return isinstance(node, (cst.Name, cst.Attribute)) and root_name(node) not in {"self", "", *lists}
