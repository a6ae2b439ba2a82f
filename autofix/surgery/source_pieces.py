"""Lists in one function that have as many items as only the graph knows: pieces of a tensor, lists that a loop lengthens."""

from __future__ import annotations

import libcst as cst

from autofix.surgery.source_names import contains, root_name, uses_of
from autofix.surgery.source_nodes import code_of
from autofix.surgery.source_reordered import reordered

SPLITS = frozenset({"split", "chunk", "unbind", "tensor_split"})


def is_split(node: cst.BaseExpression) -> bool:
    """Whether an expression cuts a tensor into pieces."""
    if reordered(node):
        return is_split(node.args[0].value if isinstance(node, cst.Call) else node.value)  # type: ignore[attr-defined]
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in SPLITS - {"tensor_split"}


class LoopsOver(cst.CSTVisitor):
    """Texts of what loops run over, where that is one of `names`, also by way of enumerate, zip or reversed; `count` tells how often."""

    def __init__(self, names: set[str]) -> None:
        self.names, self.found, self.count = names, set[str](), dict.fromkeys(names, 0)
        self.ranged: set[str] = set()  # those whose places a loop counts: range(len(name))

    def visit_For(self, node: cst.For | cst.CompFor) -> None:
        if isinstance(node.iter, cst.Call) and code_of(node.iter.func) == "range":
            self.ranged |= {n for n in self.names if any(code_of(a.value) == f"len({n})" for a in node.iter.args)}
        items = [node.iter]
        if isinstance(node.iter, cst.Call) and code_of(node.iter.func) in ("enumerate", "zip", "reversed"):
            items = [a.value for a in node.iter.args]
        for item in items:
            if isinstance(item, cst.Name) and item.value in self.names:
                self.found.add(code_of(node.iter))
                self.count[item.value] += 1

    visit_CompFor = visit_For


class _Reads(cst.CSTVisitor):
    """How often each name is read, and how often only as len(name) or name[...]."""

    def __init__(self) -> None:
        self.all: dict[str, int] = {}
        self.plain: dict[str, int] = {}

    def visit_Name(self, node: cst.Name) -> None:
        self.all[node.value] = self.all.get(node.value, 0) + 1

    def visit_Subscript(self, node: cst.Subscript) -> None:
        if isinstance(node.value, cst.Name) and len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
            self.plain[node.value.value] = self.plain.get(node.value.value, 0) + 1

    def visit_Call(self, node: cst.Call) -> None:
        if code_of(node.func) == "len" and len(node.args) == 1 and isinstance(node.args[0].value, cst.Name):
            self.plain[node.args[0].value.value] = self.plain.get(node.args[0].value.value, 0) + 1


def pieces_of(function: cst.FunctionDef, pairs: list[tuple[set[str], cst.BaseExpression]]) -> set[str]:
    """Names of the pieces of one split or chunk, which are only run over, counted and picked from."""
    bound: dict[str, list[cst.BaseExpression]] = {}
    for names, expression in pairs:
        for name in names:
            bound.setdefault(name, []).append(expression)
    held = {n for n, values in bound.items() if len(values) == 1 and is_split(values[0])}
    held &= {t.value for t in _single_targets(function)}
    over, reads = LoopsOver(held), _Reads()
    function.body.visit(over)
    function.body.visit(reads)
    return {n for n in held if (over.count[n] or n in over.ranged) and reads.all[n] == 1 + over.count[n] + reads.plain.get(n, 0)}


def _single_targets(function: cst.FunctionDef) -> list[cst.Name]:
    found = _Singles()
    function.body.visit(found)
    return found.names


class _Singles(cst.CSTVisitor):
    def __init__(self) -> None:
        self.names: list[cst.Name] = []

    def visit_Assign(self, node: cst.Assign) -> None:
        if len(node.targets) == 1 and isinstance(node.targets[0].target, cst.Name):
            self.names.append(node.targets[0].target)


class _Lists(cst.CSTVisitor):
    """Names of lists that are made or lengthened in a loop over something in `dynamic`."""

    def __init__(self, dynamic: set[str]) -> None:
        self.dynamic, self.depth, self.names = dynamic, 0, set[str]()

    def visit_For(self, node: cst.For) -> None:
        self.depth += self.known(node.iter)

    def leave_For(self, original_node: cst.For) -> None:
        self.depth -= self.known(original_node.iter)

    def visit_While(self, node: cst.While) -> None:
        self.depth += self.known(node.test)

    def leave_While(self, original_node: cst.While) -> None:
        self.depth -= self.known(original_node.test)

    def known(self, node: cst.BaseExpression) -> int:
        return int(code_of(node) in self.dynamic or (isinstance(node, cst.Name) and f"pieces {node.value}" in self.dynamic))

    def visit_Call(self, node: cst.Call) -> None:
        if self.depth and isinstance(node.func, cst.Attribute) and node.func.attr.value in ("append", "extend"):
            self.names.add(root_name(node.func))

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        if self.depth and isinstance(node.target, cst.Name) and isinstance(node.value, (cst.List, cst.ListComp)):
            self.names.add(node.target.value)

    def visit_Assign(self, node: cst.Assign) -> None:
        value, target = node.value, node.targets[0].target
        if isinstance(value, cst.ListComp) and isinstance(target, cst.Name) and self.known(value.for_in.iter):
            self.names.add(target.value)


def grown_lists(function: cst.FunctionDef, dynamic: set[str]) -> set[str]:
    """Names of lists that have as many items as only the graph knows."""
    found = _Lists(dynamic)
    function.body.visit(found)
    return found.names - {""}


class Truths(cst.CSTVisitor):
    """Texts of tests whether one of the lists `names` is empty."""

    def __init__(self, names: set[str]) -> None:
        self.names, self.found = names, set[str]()

    def _test(self, node: cst.BaseExpression) -> None:
        inner = node.expression if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not) else node
        if isinstance(inner, cst.Name) and inner.value in self.names:
            self.found.add(code_of(node))

    def visit_If(self, node: cst.If) -> None:
        self._test(node.test)

    def visit_IfExp(self, node: cst.IfExp) -> None:
        self._test(node.test)


class _LoopNames(cst.CSTVisitor):
    """Names that loops bind or count with, where only the graph knows how often they turn."""

    def __init__(self, dynamic: set[str]) -> None:
        self.dynamic, self.names = dynamic, set[str]()

    def visit_For(self, node: cst.For) -> None:
        if code_of(node.iter) in self.dynamic or self.leaves(node):
            self.names |= uses_of(cst.Assign([cst.AssignTarget(node.target)], cst.Name("None"))).stores
            self.count(node)

    def visit_While(self, node: cst.While) -> None:
        if code_of(node.test) in self.dynamic or self.leaves(node):
            self.count(node)

    def leaves(self, node: cst.For | cst.While) -> bool:
        found = _Leaving(self.dynamic)
        node.body.visit(found)
        return found.found

    def count(self, node: cst.For | cst.While) -> None:
        found = _Counters()
        node.body.visit(found)
        self.names |= found.names


class _Leaving(cst.CSTVisitor):
    def __init__(self, dynamic: set[str]) -> None:
        self.dynamic, self.found = dynamic, False

    def visit_If(self, node: cst.If) -> None:
        inner = [node.body, *([node.orelse] if node.orelse is not None else [])]
        self.found |= code_of(node.test) in self.dynamic and contains(inner, cst.Break, cst.Continue, cst.Return)


class _Counters(cst.CSTVisitor):
    """Names that are counted up or down, or that take one of a few numbers."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        if isinstance(node.target, cst.Name):
            self.names.add(node.target.value)

    def visit_Assign(self, node: cst.Assign) -> None:
        plain = isinstance(node.value, (cst.Integer, cst.Float, cst.UnaryOperation)) or code_of(node.value) in ("True", "False")
        names = {t.target.value for t in node.targets if isinstance(t.target, cst.Name)}
        self.names |= names if plain or names & uses_of(cst.Expr(node.value)).loads and isinstance(node.value, cst.BinaryOperation) else set()


def loop_names(function: cst.FunctionDef, dynamic: set[str]) -> set[str]:
    """Names whose value depends on how often a loop turned, where that depends on something in `dynamic`."""
    found = _LoopNames(dynamic)
    function.body.visit(found)
    return found.names
