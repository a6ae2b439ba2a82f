"""Which names in a Python text are global: read from its syntax tree alone, nothing is imported.

`global_uses(statement, ours)` lists the places where a top-level statement reads or binds a name of the module level, or a name that a
function imports locally from one of our own modules (`ours` says which modules those are).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__class__", "__spec__", "__annotations__", "__debug__"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Imported:
    """A name that stands for `name` of a module, or for the module itself where `name` is empty."""

    module: str
    name: str = ""
    level: int = 0


@dataclass(frozen=True)
class Use:
    """One place of a name.

    node: an ast.Name, or the def, class or global statement that holds the name. attribute: the ast.Attribute whose value the name is. target:
    what a local import makes of it, else None. deferred: read when a function runs, not when the module is loaded. hidden: names bound in
    the scopes around the place.
    """

    name: str
    node: ast.AST
    target: Imported | None = None
    annotation: bool = False
    store: bool = False
    deferred: bool = False
    hidden: frozenset[str] = frozenset()
    attribute: ast.Attribute | None = None


@dataclass
class Scope:
    """The names bound in one function, class or comprehension."""

    is_class: bool = False
    bound: set[str] = field(default_factory=set)
    imported: dict[str, Imported] = field(default_factory=dict)
    declared_global: set[str] = field(default_factory=set)


class Bindings(ast.NodeVisitor):
    """Fills a Scope with what its statements bind, nested scopes left out."""

    def __init__(self, scope: Scope, ours: Callable[[str, int], bool]) -> None:
        self.scope, self.ours = scope, ours

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.scope.bound.add(node.id)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.scope.bound.add(node.name)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Another scope."""

    def visit_ListComp(self, node: ast.AST) -> None:
        for inner in ast.walk(node):  # := binds outside the comprehension
            if isinstance(inner, ast.NamedExpr) and isinstance(inner.target, ast.Name):
                self.scope.bound.add(inner.target.id)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias, target in import_targets(node):
            if self.ours(target.module, target.level):
                self.scope.imported[alias] = target
            else:
                self.scope.bound.add(alias)

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.scope.bound.add(node.name)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.declared_global.update(node.names)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name:
            self.scope.bound.add(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.scope.bound.add(node.rest)
        self.generic_visit(node)


def import_targets(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
    """(bound name, what it stands for) of an import statement."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, Imported(node.module or "", alias.name, node.level)
        elif alias.asname:
            yield alias.asname, Imported(alias.name)
        else:
            yield alias.name.partition(".")[0], Imported(alias.name.partition(".")[0])


def bound_names(body: list[ast.stmt], ours: Callable[[str, int], bool]) -> Scope:
    """The names that statements bind in their own scope."""
    scope = Scope()
    visitor = Bindings(scope, ours)
    for statement in body:
        visitor.visit(statement)
    return scope


class Uses(ast.NodeVisitor):
    """Collects the Uses of a module-level statement."""

    def __init__(self, ours: Callable[[str, int], bool]) -> None:
        self.ours = ours
        self.scopes: list[Scope] = []
        self.found: list[Use] = []
        self.annotation = False
        self.deferred = False

    def add(self, name: str, node: ast.AST, store: bool = False) -> None:
        """Note a place unless the name is local there."""
        hidden = frozenset(n for s in self.scopes for n in s.bound)
        for depth, scope in enumerate(reversed(self.scopes)):
            if scope.is_class and depth > 0:
                continue
            if name in scope.declared_global:
                break
            if name in scope.imported:
                self.found.append(Use(name, node, scope.imported[name], self.annotation, False, self.deferred, hidden))
                return
            if name in scope.bound:
                return
        self.found.append(Use(name, node, None, self.annotation, store, self.deferred, hidden))

    def visit_Name(self, node: ast.Name) -> None:
        self.add(node.id, node, not isinstance(node.ctx, ast.Load))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        before = len(self.found)
        self.visit(node.value)
        if isinstance(node.value, ast.Name) and len(self.found) == before + 1:
            self.found[-1] = replace(self.found[-1], attribute=node)

    def visit_Global(self, node: ast.Global) -> None:
        for name in node.names:
            self.found.append(Use(name, node, None, False, True, self.deferred))

    def annotated(self, node: ast.AST | None) -> None:
        """Visit an annotation."""
        if node is not None:
            before, self.annotation = self.annotation, True
            self.visit(node)
            self.annotation = before

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        self.annotated(node.annotation)
        if node.value is not None:
            self.visit(node.value)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        """Decorators, defaults and annotations where the function stands; its body in a scope of its own."""
        args = node.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
        for default in [*args.defaults, *filter(None, args.kw_defaults)]:
            self.visit(default)
        scope = Scope(bound={a.arg for a in every})
        body = [ast.Expr(node.body)] if isinstance(node, ast.Lambda) else node.body
        if not isinstance(node, ast.Lambda):
            for decorator in node.decorator_list:
                self.visit(decorator)
            parameters = {p.name for p in getattr(node, "type_params", [])}
            self.scopes.append(Scope(bound=parameters))
            for arg in every:
                self.annotated(arg.annotation)
            self.annotated(node.returns)
            self.scopes.pop()
            scope.bound |= parameters
        visitor = Bindings(scope, self.ours)
        for statement in body:
            visitor.visit(statement)
        scope.bound -= scope.declared_global
        before, self.deferred = self.deferred, True
        self.scopes.append(scope)
        for statement in body:
            self.visit(statement)
        self.scopes.pop()
        self.deferred = before

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.add(node.name, node, True)
        self.function(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.add(node.name, node, True)
        for outer in [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]:
            self.visit(outer)
        scope = bound_names(node.body, self.ours)
        scope.is_class = True
        scope.bound |= {p.name for p in getattr(node, "type_params", [])}
        self.scopes.append(scope)
        for statement in node.body:
            self.visit(statement)
        self.scopes.pop()

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.visit(node.generators[0].iter)
        scope = Scope()
        visitor = Bindings(scope, self.ours)
        for generator in node.generators:
            visitor.visit(generator.target)
        self.scopes.append(scope)
        for i, generator in enumerate(node.generators):
            self.visit(generator.target)
            if i:
                self.visit(generator.iter)
            for condition in generator.ifs:
                self.visit(condition)
        for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
            self.visit(part)
        self.scopes.pop()

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp


def global_uses(statement: ast.stmt, ours: Callable[[str, int], bool]) -> list[Use]:
    """The Uses of one module-level statement."""
    visitor = Uses(ours)
    visitor.visit(statement)
    return visitor.found


def undefined_names(text: str) -> list[str]:
    """Global names that a Python text reads and neither binds nor finds among the builtins, `line: name` each."""
    tree = ast.parse(text)
    bound = bound_names(tree.body, lambda module, level: False).bound
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            bound.update(node.names)
    missing = []
    for statement in tree.body:
        for use in global_uses(statement, lambda module, level: False):
            if not use.store and use.name not in bound and use.name not in BUILTINS:
                missing.append(f"{getattr(use.node, 'lineno', 0)}: {use.name}")
    return missing
