"""Generators as functions that give a list; `try` whose path a value picks as a flag.

`raise` inside a `try` leaves its body like `break` leaves a loop that is run once; a function of the same file that raises
on a value gets a sibling `name_or_error` that returns (whether it raised, value) instead.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import libcst as cst

from autofix.surgery.source_exits import RewriteReturns, plain_line
from autofix.surgery.source_forms import visited
from autofix.surgery.source_names import called_names, contains, else_statements, falls_through, statements, uses_of
from autofix.surgery.source_nodes import bracketed, code_of

SUFFIX = "_or_error"


def short_name(call_node: cst.Call) -> str:
    """`f` of `f(...)` and of `self.f(...)`, "" for other calls."""
    func = call_node.func
    if isinstance(func, cst.Name):
        return func.value
    return func.attr.value if isinstance(func, cst.Attribute) and isinstance(func.value, cst.Name) and func.value.value == "self" else ""


class _Tries(cst.CSTVisitor):
    def __init__(self) -> None:
        self.bodies: list[cst.CSTNode] = []

    def visit_Try(self, node: cst.Try) -> None:
        self.bodies.append(node.body)


def tried_names(module: cst.Module, functions: Sequence[tuple[str, cst.FunctionDef]]) -> set[str]:
    """Names of the file's functions that run inside of some `try`: what they raise may be caught."""
    tries = _Tries()
    module.visit(tries)
    reached = called_names(tries.bodies)
    known = {name.rsplit(".", 1)[-1]: node for name, node in functions}
    queue = [n for n in reached if n in known]
    found: set[str] = set()
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += [n for n in called_names([known[name].body]) if n in known]
    return found


def raising_branch(body: Sequence[Any], dynamic: set[str]) -> bool:
    """Whether an `if` on a value holds a `raise`, nested functions apart."""
    for s in body:
        if isinstance(s, cst.If):
            inner = [*statements(s.body), *else_statements(s)]
            if (code_of(s.test) in dynamic and contains(inner, cst.Raise)) or raising_branch(inner, dynamic):
                return True
        elif isinstance(s, (cst.For, cst.While, cst.With)) and raising_branch(statements(s.body), dynamic):
            return True
    return False


def raised_names(body: Sequence[cst.CSTNode]) -> set[str]:
    """Names of the exception classes that statements raise."""

    class Find(cst.CSTVisitor):
        def __init__(self) -> None:
            self.names: set[str] = set()

        def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
            return False

        def visit_Raise(self, node: cst.Raise) -> None:
            exc = node.exc.func if isinstance(node.exc, cst.Call) else node.exc
            self.names.add(code_of(exc) if exc is not None else "")

    found = Find()
    for s in body:
        s.visit(found)
    return found.names


def catches(handler: cst.ExceptHandler, name: str) -> bool:
    """Whether a handler surely takes an exception of this name."""
    if handler.type is None:
        return True
    kinds = [e.value for e in handler.type.elements] if isinstance(handler.type, cst.Tuple) else [handler.type]
    raised = getattr(builtins, name, None)
    for kind in map(code_of, kinds):
        held = getattr(builtins, kind, None)
        if (
            kind == name
            or kind in ("Exception", "BaseException")
            or (isinstance(raised, type) and isinstance(held, type) and issubclass(raised, held))
        ):
            return True
    return False


class _Raises(cst.CSTTransformer):
    """`raise ...` -> lines; calls of functions that have a sibling with an error flag -> that sibling and a test of the flag."""

    def __init__(self, lines: Sequence[str], siblings: set[str], flag: str) -> None:
        self.lines, self.siblings, self.flag = list(lines), siblings, flag

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_For(self, node: cst.For) -> bool:
        return "break" not in self.lines

    def visit_While(self, node: cst.While) -> bool:
        return "break" not in self.lines

    def leave_SimpleStatementLine(self, original_node: Any, updated_node: cst.SimpleStatementLine) -> Any:
        last = updated_node.body[-1]
        if isinstance(last, cst.Raise):
            lead = [updated_node.with_changes(body=updated_node.body[:-1])] if len(updated_node.body) > 1 else []
            return cst.FlattenSentinel([*lead, *[plain_line(n) for n in self.lines]])
        if len(updated_node.body) != 1 or not self.siblings:
            return updated_node
        value = last.value if isinstance(last, (cst.Assign, cst.Expr, cst.Return)) else None
        if not isinstance(value, cst.Call) or short_name(value) not in self.siblings:
            return updated_node
        func = value.func
        name = cst.Name(short_name(value) + SUFFIX)
        changed = value.with_changes(func=func.with_changes(attr=name) if isinstance(func, cst.Attribute) else name)
        target = code_of(last.targets[0].target) if isinstance(last, cst.Assign) else "_" if isinstance(last, cst.Expr) else "result"
        target = f"({target})" if "," in target and not target.startswith("(") else target
        stop = cst.parse_statement(f"if {self.flag}:\n    break\n")
        out: list[Any] = [plain_line(f"{self.flag}, {target} = {code_of(changed)}").with_changes(leading_lines=updated_node.leading_lines), stop]
        if isinstance(last, cst.Return):
            out.append(plain_line("return result"))
        return cst.FlattenSentinel(out)


def _plain_calls(body: Sequence[Any], siblings: set[str]) -> bool:
    """Whether every call of a function with a sibling is a statement of its own, so that its flag can be tested."""

    class Count(cst.CSTVisitor):
        def __init__(self) -> None:
            self.all = self.plain = 0

        def visit_Call(self, node: cst.Call) -> None:
            func = node.func
            name = func.attr.value if isinstance(func, cst.Attribute) else func.value if isinstance(func, cst.Name) else ""
            self.all += name in siblings

        def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:
            last = node.body[-1]
            value = last.value if isinstance(last, (cst.Assign, cst.Expr, cst.Return)) else None
            one = not isinstance(last, cst.Assign) or len(last.targets) == 1
            self.plain += one and isinstance(value, cst.Call) and short_name(value) in siblings

    count = Count()
    for s in body:
        s.visit(count)
    return count.all == count.plain


class Tries(cst.CSTTransformer):
    """`try` statements of one function whose path depends on values. `raisers`: {function of the file: classes it raises on values}."""

    def __init__(self, dynamic: set[str], fresh: Any, raisers: dict[str, set[str]]) -> None:
        self.dynamic, self.fresh, self.raisers = dynamic, fresh, raisers
        self.changed = False
        self.used: set[str] = set()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def leave_Try(self, original_node: cst.Try, updated_node: cst.Try) -> Any:
        body = statements(updated_node.body)
        siblings = called_names(body) & set(self.raisers)
        direct = raising_branch(body, self.dynamic)
        if not direct and not siblings or len(updated_node.handlers) != 1:
            return updated_node
        handler = updated_node.handlers[0]
        names = (raised_names(body) if direct else set()).union(*[self.raisers[n] for n in siblings])
        loose = contains(body, cst.Break, cst.Continue, into_loops=False) or contains(body, cst.Try)
        if loose or not all(catches(handler, n) for n in names) or not _plain_calls(body, siblings):
            return updated_node
        loops = inner_loops(body)
        if raising_branch(loops, self.dynamic) or called_names(loops) & siblings:
            return updated_node  # a raise out of a loop inside of the try
        after = statements(handler.body)
        if handler.name is not None and code_of(handler.name.name) in uses_of(*after).loads:
            return updated_node
        if contains(after, cst.Raise):
            return updated_node
        flag = self.fresh("raised")
        self.dynamic |= {flag, f"not {flag}"}
        self.changed = True
        self.used |= siblings
        steps = visited(body, _Raises([f"{flag} = True", "break"], siblings, flag))
        once = cst.For(cst.Name("_"), cst.parse_expression("range(1)"), cst.IndentedBlock(steps))
        otherwise = cst.Else(cst.IndentedBlock(statements(updated_node.orelse.body))) if updated_node.orelse is not None else None
        final = statements(updated_node.finalbody.body) if updated_node.finalbody is not None else []
        first = plain_line(f"{flag} = False").with_changes(leading_lines=updated_node.leading_lines)
        return cst.FlattenSentinel([first, once, cst.If(cst.Name(flag), cst.IndentedBlock(after), otherwise), *final])


def inner_loops(body: Sequence[cst.CSTNode]) -> list[cst.CSTNode]:
    """The loops in these statements."""

    class Find(cst.CSTVisitor):
        def __init__(self) -> None:
            self.loops: list[cst.CSTNode] = []

        def on_visit(self, node: cst.CSTNode) -> bool:
            if isinstance(node, (cst.For, cst.While)):
                self.loops.append(node)
            return True

    found = Find()
    for s in body:
        s.visit(found)
    return found.loops


def with_error_flag(node: cst.FunctionDef) -> cst.FunctionDef:
    """The sibling of a function that raises on values: returns (False, value), or (True, UNSET) where it raised."""

    def flagged(r: cst.Return) -> cst.Return:
        value = bracketed(r.value) if r.value is not None else cst.Name("None")
        return cst.Return(cst.Tuple([cst.Element(cst.Name("False")), cst.Element(value)], lpar=[], rpar=[]))

    body = [s.visit(RewriteReturns(flagged)) for s in statements(node.body)]
    if falls_through(body):
        body.append(plain_line("return False, None"))
    body = visited(body, _Raises(["return True, UNSET"], set(), ""))
    return node.with_changes(name=cst.Name(node.name.value + SUFFIX), body=cst.IndentedBlock(body), returns=None)


def generator_calls(node: cst.FunctionDef, generators: set[str]) -> set[str]:
    """Texts of what loops and comprehensions run over, where that calls one of the generators."""

    class Find(cst.CSTVisitor):
        def __init__(self) -> None:
            self.texts: set[str] = set()

        def visit_For(self, node: cst.For) -> None:
            if called_names([node.iter]) & generators:
                self.texts.add(code_of(node.iter))

        def visit_CompFor(self, node: cst.CompFor) -> None:
            if called_names([node.iter]) & generators:
                self.texts.add(code_of(node.iter))

    found = Find()
    if generators:
        node.body.visit(found)
    return found.texts


def listed_generator(node: cst.FunctionDef, fresh: Any) -> cst.FunctionDef | None:
    """A generator function as one that returns the list of what it yields; None where it does more than that.

    Not for generators without an end, those that receive values, that yield inside of `with` or `try`, or that are decorated.
    """
    if node.decorators or node.asynchronous is not None:
        return None
    good = True
    name = fresh("items")

    class Lists(cst.CSTTransformer):
        def visit_FunctionDef(self, inner: cst.FunctionDef) -> bool:
            return False

        def visit_Lambda(self, inner: cst.Lambda) -> bool:
            return False

        def _shut(self, inner: cst.CSTNode) -> None:
            nonlocal good
            good = good and not contains([inner], cst.Yield)

        def visit_With(self, inner: cst.With) -> None:
            self._shut(inner)

        def visit_Try(self, inner: cst.Try) -> None:
            self._shut(inner)

        def visit_While(self, inner: cst.While) -> None:
            nonlocal good
            good = good and (code_of(inner.test) not in ("True", "1") or contains([inner.body], cst.Break, cst.Return))

        def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> Any:
            value = updated_node.value
            if not isinstance(value, cst.Yield):
                return updated_node
            if isinstance(value.value, cst.From):
                return updated_node.with_changes(value=cst.parse_expression(f"{name}.extend({code_of(value.value.item)})"))
            item = code_of(bracketed(value.value)) if value.value is not None else "None"
            return updated_node.with_changes(value=cst.parse_expression(f"{name}.append({item})"))

        def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return:
            nonlocal good
            good = good and updated_node.value is None
            return cst.Return(cst.Name(name), whitespace_after_return=cst.SimpleWhitespace(" "))

    body = [s.visit(Lists()) for s in statements(node.body)]
    if not good or contains(body, cst.Yield):
        return None
    doc = 1 if node.get_docstring() is not None else 0
    body = [*body[:doc], plain_line(f"{name} = []"), *body[doc:]]
    if falls_through(body):
        body.append(plain_line(f"return {name}"))
    return node.with_changes(body=cst.IndentedBlock(body), returns=None)
