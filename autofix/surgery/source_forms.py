"""Bring Python's rarer forms into plain `if`, `while` and `for`: else of a loop, `:=` in a test, `match`, any() and all().

Only what depends on tensors or sizes is changed: tests and iterables whose text is in `dynamic`, which grows with the new texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

from autofix.surgery.source_exits import plain_line
from autofix.surgery.source_expressions import TestRewriter, flag_call
from autofix.surgery.source_names import contains, else_statements, statements, uses_of
from autofix.surgery.source_nodes import call, code_of

EXITS = (cst.Break, cst.Continue, cst.Return, cst.Raise)


class LoopBreaks(cst.CSTTransformer):
    """In the body of one loop: `break` -> `<lines>; break`."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines, self.depth = list(lines), 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_For(self, node: cst.For) -> None:
        self.depth += 1

    def visit_While(self, node: cst.While) -> None:
        self.depth += 1

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        self.depth -= 1
        return updated_node

    def leave_While(self, original_node: cst.While, updated_node: cst.While) -> cst.While:
        self.depth -= 1
        return updated_node

    def leave_SimpleStatementLine(self, original_node: Any, updated_node: cst.SimpleStatementLine) -> Any:
        if self.depth or not isinstance(updated_node.body[-1], cst.Break):
            return updated_node
        return cst.FlattenSentinel([*[plain_line(n) for n in self.lines], updated_node])


def visited(body: Sequence[Any], transformer: cst.CSTTransformer) -> list[Any]:
    """The statements after a transformer, which may give several for one."""
    out: list[Any] = []
    for s in body:
        new = s.visit(transformer)
        out += list(new.nodes) if isinstance(new, cst.FlattenSentinel) else [new]
    return out


class _Named(cst.CSTTransformer):
    """Take `name := value` out of an expression where it is surely evaluated."""

    def __init__(self) -> None:
        self.taken: list[tuple[cst.BaseExpression, cst.BaseExpression]] = []

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def visit_IfExp(self, node: cst.IfExp) -> bool:
        return False

    def visit_ListComp(self, node: cst.ListComp) -> bool:
        return False

    def visit_GeneratorExp(self, node: cst.GeneratorExp) -> bool:
        return False

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> bool:
        return not contains_named(node.right)

    def leave_NamedExpr(self, original_node: cst.NamedExpr, updated_node: cst.NamedExpr) -> cst.BaseExpression:
        self.taken.append((updated_node.target, updated_node.value))
        return updated_node.target


class _NamedFinder(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found = False

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self.found = True


def contains_named(node: cst.CSTNode) -> bool:
    """Whether `:=` stands in an expression."""
    finder = _NamedFinder()
    node.visit(finder)
    return finder.found


class Desugar(cst.CSTTransformer):
    """One function. `taken`: names in use; `helpers` collects the runtime functions that the new text calls."""

    def __init__(self, dynamic: set[str], taken: set[str]) -> None:
        self.dynamic, self.taken = dynamic, taken
        self.helpers: set[str] = set()
        self.rewriter = TestRewriter(dynamic, self.helpers)
        self.changed = False
        self.elifs: set[int] = set()

    def fresh(self, stem: str) -> str:
        name, n = stem, 1
        while name in self.taken:
            n += 1
            name = f"{stem}_{n}"
        self.taken.add(name)
        return name

    def is_dynamic(self, body: Sequence[Any], test: cst.CSTNode | None = None) -> bool:
        """Whether a loop turns on values, or is left on one."""
        if test is not None and code_of(test) in self.dynamic:
            return True
        for s in body:
            if isinstance(s, cst.If):
                inner = [*statements(s.body), *else_statements(s)]
                if (code_of(s.test) in self.dynamic and contains(inner, *EXITS)) or self.is_dynamic(inner):
                    return True
            elif isinstance(s, (cst.For, cst.While, cst.With, cst.Try)) and self.is_dynamic(statements(s.body)):
                return True
        return False

    def leave_SimpleStatementSuite(self, original_node: Any, updated_node: cst.SimpleStatementSuite) -> cst.BaseSuite:
        return cst.IndentedBlock(statements(updated_node)) if contains([updated_node], *EXITS) else updated_node

    # -- loops with else -------------------------------------------------------------------------------------------------

    def _loop(self, original: Any, updated: Any) -> Any:
        if isinstance(updated, cst.While):
            updated = self._named_while(original, updated)
        if updated.orelse is None:
            return updated
        body = statements(original.body)
        if not self.is_dynamic(body, original.iter if isinstance(original, cst.For) else original.test):
            return updated
        self.changed = True
        plain = updated.with_changes(orelse=None, leading_lines=[])
        after = statements(updated.orelse.body)
        if not contains(statements(updated.body), cst.Break, into_loops=False):
            return cst.FlattenSentinel([plain.with_changes(leading_lines=updated.leading_lines), *after])
        flag = self.fresh("broke")
        self.dynamic |= {flag, f"not {flag}"}
        plain = plain.with_changes(body=cst.IndentedBlock(visited(statements(updated.body), LoopBreaks([f"{flag} = True"]))))
        first = plain_line(f"{flag} = False").with_changes(leading_lines=updated.leading_lines)
        return cst.FlattenSentinel([first, plain, cst.If(cst.parse_expression(f"not {flag}"), cst.IndentedBlock(after))])

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> Any:
        return self._loop(original_node, updated_node)

    def _named_while(self, original: cst.While, updated: cst.While) -> cst.While:
        """`while (n := f()) > 0:` -> `while True: n = f(); if not n > 0: break`."""
        if not contains_named(updated.test) or code_of(original.test) not in self.dynamic or updated.orelse is not None:
            return updated
        named = _Named()
        test = updated.test.visit(named)
        if not named.taken or contains_named(test):  # type: ignore[arg-type]
            return updated
        self.changed = True
        stop = cst.UnaryOperation(cst.Not(), _in_brackets(test))  # type: ignore[arg-type]
        self.dynamic.add(code_of(stop))
        lines = [plain_line(f"{code_of(n)} = {code_of(v)}") for n, v in named.taken]
        leave = cst.If(stop, cst.IndentedBlock([plain_line("break")]))
        return updated.with_changes(test=cst.Name("True"), body=cst.IndentedBlock([*lines, leave, *statements(updated.body)]))

    def leave_While(self, original_node: cst.While, updated_node: cst.While) -> Any:
        return self._loop(original_node, updated_node)

    # -- tests -----------------------------------------------------------------------------------------------------------

    def visit_If(self, node: cst.If) -> None:
        if isinstance(node.orelse, cst.If):
            self.elifs.add(id(node.orelse))

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> Any:
        if code_of(original_node.test) in self.dynamic:
            self.dynamic.add(code_of(updated_node.test))
        if isinstance(updated_node.orelse, cst.If):  # elif: its names are bound before it
            lines, inner = self._named_if(updated_node.orelse)
            if lines:
                updated_node = updated_node.with_changes(orelse=cst.Else(cst.IndentedBlock([*lines, inner])))
        lines, new = ([], updated_node) if id(original_node) in self.elifs else self._named_if(updated_node)
        return cst.FlattenSentinel([*lines, new]) if lines else new

    def _named_if(self, node: cst.If) -> tuple[list[Any], cst.If]:
        """(lines that bind the names of a test, the statement with the names in their place)."""
        if code_of(node.test) not in self.dynamic or not contains_named(node.test):
            return [], node
        named = _Named()
        test = node.test.visit(named)
        if not named.taken or contains_named(test):  # type: ignore[arg-type]
            return [], node
        self.changed = True
        self.dynamic.add(code_of(test))  # type: ignore[arg-type]
        lines = [plain_line(f"{code_of(n)} = {code_of(v)}") for n, v in named.taken]
        lines[0] = lines[0].with_changes(leading_lines=node.leading_lines)
        return lines, node.with_changes(test=_bare(test), leading_lines=[])

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        if code_of(original_node.test) in self.dynamic:
            self.dynamic.add(code_of(updated_node.test))
        return updated_node

    def leave_BooleanOperation(self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation) -> cst.BaseExpression:
        if code_of(original_node) in self.dynamic:
            self.dynamic.add(code_of(updated_node))
        return updated_node

    def leave_UnaryOperation(self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation) -> cst.BaseExpression:
        if code_of(original_node) in self.dynamic:
            self.dynamic.add(code_of(updated_node))
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """any() and all() of tests: one after the other until one of them decides."""
        name = updated_node.func.value if isinstance(updated_node.func, cst.Name) else ""
        if name not in ("any", "all") or code_of(original_node) not in self.dynamic:
            return updated_node
        argument = updated_node.args[0].value
        self.changed = True
        if not isinstance(argument, (cst.GeneratorExp, cst.ListComp)):
            return call(f"{name}_item", argument)
        clause = argument.for_in
        if clause.inner_for_in is not None:
            return updated_node
        test = flag_call(argument.elt, self.helpers)
        for condition in reversed(clause.ifs):
            held = flag_call(condition.test, self.helpers)
            if name == "all":
                held = call("none_of", held)
            test = call("all_of" if name == "any" else "any_of", _thunk(held), _thunk(test))
        names = code_of(clause.target).strip("()")
        inner = cst.parse_expression(f"lambda {names}: {code_of(test)}")
        if not isinstance(clause.target, cst.Name):
            inner = cst.parse_expression(f"lambda item: ({code_of(inner)})(*item)")
        return call(f"{name}_item", self.rewriter.items(clause.iter), inner)

    # -- match -----------------------------------------------------------------------------------------------------------

    def leave_Match(self, original_node: cst.Match, updated_node: cst.Match) -> Any:
        """`match` on a value as if, elif, else. Literals, captures, alternatives and flat sequences are known."""
        guards = any(c.guard is not None and code_of(c.guard) in self.dynamic for c in original_node.cases)
        if not guards and code_of(original_node.subject) not in self.dynamic:
            return updated_node
        subject = self.fresh("subject")
        parts = []
        for case in updated_node.cases:
            made = pattern_test(case.pattern, subject)
            if made is None:
                return updated_node
            tests, bound = made
            if case.guard is not None:
                if bound and case is not updated_node.cases[-1]:
                    renamed = _Rename(dict(bound))
                    tests = [*tests, _in_brackets(case.guard.visit(renamed))]  # type: ignore[arg-type]
                else:
                    tests = [*tests, _in_brackets(case.guard)]
            body = [*[plain_line(f"{n} = {code_of(v)}") for n, v in bound], *statements(case.body)]
            parts.append((tests, body))
        self.changed = True
        chain: Any = None
        for tests, body in reversed(parts):
            if not tests:
                chain = cst.Else(cst.IndentedBlock(body))
                continue
            test = tests[0]
            for t in tests[1:]:
                test = cst.BooleanOperation(test, cst.And(), t)
            self.dynamic.add(code_of(test))
            chain = cst.If(test, cst.IndentedBlock(body), chain)
        first = plain_line(f"{subject} = {code_of(updated_node.subject)}").with_changes(leading_lines=updated_node.leading_lines)
        return cst.FlattenSentinel([first, *(statements(chain.body) if isinstance(chain, cst.Else) else [chain])])


class _Rename(cst.CSTTransformer):
    def __init__(self, table: dict[str, cst.BaseExpression]) -> None:
        self.table = table

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self.table.get(updated_node.value, updated_node)


def _thunk(value: cst.BaseExpression) -> cst.BaseExpression:
    return cst.parse_expression(f"lambda: {code_of(value)}")


def _bare(node: Any) -> Any:
    return node.with_changes(lpar=[], rpar=[]) if hasattr(node, "lpar") else node


def _in_brackets(node: cst.BaseExpression) -> cst.BaseExpression:
    simple = isinstance(node, (cst.Name, cst.Call, cst.Attribute, cst.Subscript)) or bool(getattr(node, "lpar", ()))
    return node if simple else node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def pattern_test(pattern: cst.MatchPattern, subject: str) -> tuple[list[cst.BaseExpression], list[tuple[str, cst.BaseExpression]]] | None:
    """(tests that must hold, names bound) of a pattern on the variable `subject`, None for a pattern that is not known."""
    if isinstance(pattern, cst.MatchAs):
        inner = ([], []) if pattern.pattern is None else pattern_test(pattern.pattern, subject)
        if inner is None:
            return None
        bound = [] if pattern.name is None else [(pattern.name.value, cst.parse_expression(subject))]
        return inner[0], [*inner[1], *bound]
    if isinstance(pattern, cst.MatchValue):
        return [cst.parse_expression(f"{subject} == {code_of(pattern.value)}")], []
    if isinstance(pattern, cst.MatchSingleton):
        return [cst.parse_expression(f"{subject} == {code_of(pattern.value)}")], []
    if isinstance(pattern, cst.MatchOr):
        tests = []
        for alternative in pattern.patterns:
            made = pattern_test(alternative.pattern, subject)
            if made is None or made[1] or len(made[0]) != 1:
                return None
            tests += made[0]
        test = tests[0]
        for t in tests[1:]:
            test = cst.BooleanOperation(test, cst.Or(), t)
        return [_in_brackets(test)], []
    if isinstance(pattern, (cst.MatchList, cst.MatchTuple)):
        all_tests: list[cst.BaseExpression] = [cst.parse_expression(f"len({subject}) == {len(pattern.patterns)}")]
        names: list[tuple[str, cst.BaseExpression]] = []
        for i, element in enumerate(pattern.patterns):
            made = pattern_test(element.value, f"{subject}[{i}]") if isinstance(element, cst.MatchSequenceElement) else None
            if made is None:
                return None
            all_tests += made[0]
            names += made[1]
        return all_tests, names
    return None


def desugar(function: cst.FunctionDef, dynamic: set[str], taken: set[str]) -> tuple[cst.FunctionDef, bool]:
    """`function` without the rarer forms where they depend on values, and whether it had any; `dynamic` gains the texts of the new tests."""
    work = Desugar(dynamic, taken | uses_of(*statements(function.body)).stores)
    body = function.body.visit(work)
    return function.with_changes(body=body), work.changed
