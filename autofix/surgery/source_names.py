"""Which local names a piece of Python reads, binds or changes in place: definite assignment and liveness on libcst trees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

LIST_MUTATORS = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add", "reverse", "sort"})
"""Methods of lists, dicts and sets that change their receiver."""

MODULES = frozenset({"self", "torch", "F", "nn", "np", "numpy", "math"})
"""Names whose functions change nothing, though they are called as such methods are: torch.sort(x)."""


def root_name(node: cst.BaseExpression) -> str:
    """The name at the bottom of `a[0].b[1]`, or "" where there is none."""
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def is_view(node: cst.BaseExpression) -> bool:
    """Whether an expression is a part of a tensor, as rewritten numbers give it."""
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "cut_view" and bool(node.args)


@dataclass
class Uses(cst.CSTVisitor):
    """Names that a node reads (`loads`) and binds or changes in place (`stores`); `changed` is the in-place part."""

    loads: set[str] = field(default_factory=set)
    stores: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)

    def visit_Name(self, node: cst.Name) -> None:
        self.loads.add(node.value)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_Annotation(self, node: cst.Annotation) -> bool:
        return False

    def store(self, target: cst.BaseExpression) -> None:
        """Bind an assignment target."""
        if isinstance(target, cst.Name):
            self.stores.add(target.value)
        elif isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                self.store(element.value)
        elif isinstance(target, cst.StarredElement):
            self.store(target.value)
        elif isinstance(target, (cst.Subscript, cst.Attribute)):
            target.visit(self)
            name = root_name(target)
            if name and name != "self" and isinstance(target, cst.Subscript):
                self.stores.add(name)
                self.changed.add(name)

    def visit_Assign(self, node: cst.Assign) -> bool:
        node.value.visit(self)
        for target in node.targets:
            self.store(target.target)
        return False

    def visit_AnnAssign(self, node: cst.AnnAssign) -> bool:
        if node.value is not None:
            node.value.visit(self)
            self.store(node.target)
        return False

    def visit_AugAssign(self, node: cst.AugAssign) -> bool:
        node.value.visit(self)
        node.target.visit(self)
        self.store(node.target)
        if isinstance(node.target, cst.Name):
            self.changed.add(node.target.value)
        return False

    def visit_NamedExpr(self, node: cst.NamedExpr) -> bool:
        node.value.visit(self)
        self.store(node.target)
        return False

    def visit_For(self, node: cst.For) -> bool:
        node.iter.visit(self)
        self.store(node.target)
        node.body.visit(self)
        if node.orelse is not None:
            node.orelse.visit(self)
        return False

    def visit_AsName(self, node: cst.AsName) -> bool:
        self.store(node.name)
        return False

    def visit_Import(self, node: cst.Import) -> bool:
        for alias in node.names:
            self.stores.add(alias.evaluated_alias or alias.evaluated_name.split(".")[0])
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if not isinstance(node.names, cst.ImportStar):
            for alias in node.names:
                self.stores.add(alias.evaluated_alias or alias.evaluated_name)
        return False

    def visit_Call(self, node: cst.Call) -> None:
        func = node.func
        if isinstance(func, cst.Attribute):
            name, method = root_name(func.value), func.attr.value
            if not name and is_view(func.value):  # cut_view(x, ...).add_(y)
                name = root_name(func.value.args[0].value)  # type: ignore[attr-defined]
            if name and name not in MODULES and (method in LIST_MUTATORS or (method.endswith("_") and not method.endswith("__"))):
                self.stores.add(name)
                self.changed.add(name)
        elif isinstance(func, cst.Name) and func.value == "put_view" and node.args:
            name = root_name(node.args[0].value)
            if name and name != "self":
                self.stores.add(name)
                self.changed.add(name)

    def _inner(self, node: cst.CSTNode, bound: set[str]) -> None:
        inner = Uses()
        for child in node.children:
            child.visit(inner)
        self.loads |= inner.loads - inner.stores - bound

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        self._inner(node.body if not isinstance(node.body, cst.Name) else cst.Tuple([cst.Element(node.body)]), parameter_names(node.params))
        return False

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        self._inner(node.body, parameter_names(node.params))
        self.stores.add(node.name.value)
        return False

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        self.stores.add(node.name.value)
        return False

    def _comprehension(self, node: Any) -> bool:
        inner = Uses()
        clause: cst.CompFor | None = node.for_in
        while clause is not None:
            clause.iter.visit(inner)
            inner.store(clause.target)
            for condition in clause.ifs:
                condition.visit(inner)
            clause = clause.inner_for_in
        for name in ("elt", "key", "value"):
            if hasattr(node, name):
                getattr(node, name).visit(inner)
        self.loads |= inner.loads - inner.stores
        return False

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


def parameter_names(params: cst.Parameters) -> set[str]:
    """Every name that a parameter list binds."""
    out = {p.name.value for p in (*params.posonly_params, *params.params, *params.kwonly_params)}
    for star in (params.star_arg, params.star_kwarg):
        if isinstance(star, cst.Param):
            out.add(star.name.value)
    return out


def uses_of(*nodes: cst.CSTNode) -> Uses:
    """The names that these nodes read and bind, in any order."""
    found = Uses()
    for node in nodes:
        node.visit(found)
    return found


class _Everything(frozenset[str]):
    """The set of names assigned on a path that never falls through: all of them."""

    def __contains__(self, item: object) -> bool:
        return True


EVERYTHING = _Everything()


def meet(a: frozenset[str], b: frozenset[str]) -> frozenset[str]:
    """Names assigned on both of two paths."""
    if isinstance(a, _Everything):
        return b
    return a if isinstance(b, _Everything) else a & b


def statements(block: cst.BaseSuite | cst.BaseStatement) -> list[Any]:
    """The statements of a suite; small statements on one line are split into lines of their own."""
    if isinstance(block, cst.SimpleStatementSuite):
        return [cst.SimpleStatementLine([s.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]) for s in block.body]
    if isinstance(block, cst.IndentedBlock):
        out: list[Any] = []
        for s in block.body:
            if isinstance(s, cst.SimpleStatementLine) and len(s.body) > 1:
                parts = [cst.SimpleStatementLine([p.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]) for p in s.body]
                out += [parts[0].with_changes(leading_lines=s.leading_lines), *parts[1:]]
            else:
                out.append(s)
        return out
    return [block]


def else_statements(node: cst.If) -> list[Any]:
    """The statements of the else part; an elif is one If statement."""
    if node.orelse is None:
        return []
    return [node.orelse] if isinstance(node.orelse, cst.If) else statements(node.orelse.body)


def exposed(body: Sequence[Any], defined: Iterable[str] = ()) -> tuple[set[str], frozenset[str]]:
    """Names that may be read before these statements assign them, and names surely assigned afterwards."""
    reads: set[str] = set()
    have: frozenset[str] = frozenset(defined)

    def read(*nodes: cst.CSTNode | None) -> frozenset[str]:
        found = uses_of(*[n for n in nodes if n is not None])
        reads.update(n for n in found.loads | found.changed if n not in have)
        return have | found.stores

    for s in body:
        if isinstance(s, cst.If):
            have = read(s.test)
            a, after_a = exposed(statements(s.body), have)
            b, after_b = exposed(else_statements(s), have)
            reads |= a | b
            have = meet(after_a, after_b)
        elif isinstance(s, (cst.For, cst.While)):
            have = read(s.iter if isinstance(s, cst.For) else s.test)
            inner = have | (uses_of(cst.Assign([cst.AssignTarget(s.target)], cst.Name("None"))).stores if isinstance(s, cst.For) else set())
            reads |= exposed(statements(s.body), inner)[0]
            if s.orelse is not None:
                reads |= exposed(statements(s.orelse.body), have)[0]
        elif isinstance(s, cst.With):
            have = read(*s.items)
            inner_reads, have = exposed(statements(s.body), have)
            reads |= inner_reads
        elif isinstance(s, cst.SimpleStatementLine):
            for small in s.body:
                have = read(small)
                if isinstance(small, (cst.Return, cst.Raise, cst.Break, cst.Continue)):
                    have = EVERYTHING
        else:
            found = uses_of(s)
            reads |= {n for n in found.loads | found.changed if n not in have}
            have = have | found.stores if isinstance(s, cst.FunctionDef) else have
        if isinstance(have, _Everything):
            break
    return reads, have


def falls_through(body: Sequence[Any]) -> bool:
    """Whether control can reach the end of these statements."""
    return not isinstance(exposed(body)[1], _Everything)


class _Finder(cst.CSTVisitor):
    def __init__(self, kinds: tuple[type, ...], into_loops: bool) -> None:
        self.kinds, self.into_loops, self.found = kinds, into_loops, False

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, self.kinds):
            self.found = True
        if isinstance(node, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            return False
        return self.into_loops or not isinstance(node, (cst.For, cst.While))


def contains(body: Sequence[cst.CSTNode], *kinds: type, into_loops: bool = True) -> bool:
    """Whether a node of these kinds stands in the statements, nested functions (and loops, if so asked) apart."""
    for s in body:
        finder = _Finder(kinds, into_loops)
        s.visit(finder)
        if finder.found:
            return True
    return False


class _Calls(cst.CSTVisitor):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Call(self, node: cst.Call) -> None:
        self.names.add(called_name(node))


def called_name(node: cst.Call) -> str:
    """The name of the function or method that is called, "" for what has none."""
    func = node.func
    return func.attr.value if isinstance(func, cst.Attribute) else func.value if isinstance(func, cst.Name) else ""


def called_names(nodes: Iterable[cst.CSTNode]) -> set[str]:
    """Names of the functions and methods that are called somewhere in these nodes."""
    found = _Calls()
    for node in nodes:
        node.visit(found)
    return found.names
