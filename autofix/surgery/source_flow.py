"""Turn `if`, `while` and `for` statements that depend on tensors or sizes into traced_if, traced_while and traced_for calls.

Works on libcst trees; a statement is rewritten when the text of its test (or of what it iterates over) is in `dynamic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

from autofix.surgery.source_exits import LoopExits, LoopReturns, RewriteReturns, as_tuple, plain_line
from autofix.surgery.source_expressions import ListReaders, TestRewriter, flag_call, none_names, turn_limit
from autofix.surgery.source_growers import grown_by_calls
from autofix.surgery.source_names import EVERYTHING, contains, else_statements, exposed, falls_through, parameter_names, statements, uses_of
from autofix.surgery.source_nodes import code_of


def tuple_text(names: Sequence[str]) -> str:
    """The text of a tuple of names, "(a,)" for one."""
    return "()" if not names else f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"


def _define(name: str, params: Sequence[str], body: Sequence[Any]) -> cst.FunctionDef:
    first = [
        s.with_changes(leading_lines=[n for n in s.leading_lines if n.comment]) if i == 0 and hasattr(s, "leading_lines") else s
        for i, s in enumerate(body)
    ]
    lines = [cst.EmptyLine(indent=False)]
    return cst.FunctionDef(cst.Name(name), cst.Parameters([cst.Param(cst.Name(p)) for p in params]), cst.IndentedBlock(first), leading_lines=lines)


def _targets(names: Sequence[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)


def _after_definitions(lines: list[Any]) -> list[Any]:
    """A blank line between local functions and the statement that calls them."""
    for before, s in zip(lines, lines[1:]):
        if isinstance(before, cst.FunctionDef) and isinstance(s, cst.SimpleStatementLine):
            lines = [s.with_changes(leading_lines=[cst.EmptyLine(indent=False)]) if n is s else n for n in lines]
    return lines


def _lead(new: list[Any], old: Any) -> list[Any]:
    """Keep the comments and blank lines above a statement above what replaces it."""
    new = _after_definitions(new)
    if new and hasattr(old, "leading_lines"):
        new[0] = new[0].with_changes(leading_lines=[*new[0].leading_lines, *[n for n in old.leading_lines if n.comment or not new[0].leading_lines]])
    return new


class FlowRewriter:
    """Rewrites one function. `dynamic` holds the texts of tests and iterables that need it; `caught`: what it raises may be caught;
    `growers`: functions that return lists whose length only the graph knows."""

    def __init__(self, function: cst.FunctionDef, dynamic: set[str], caught: bool = False, growers: frozenset[str] = frozenset()) -> None:
        self.dynamic, self.caught, self.growers = dynamic, caught, set(growers)
        self.grown = grown_by_calls(function, self.growers, dynamic)[0]
        self.changed = False
        self.helpers: set[str] = set()
        self.taken: set[str] = set()
        self._earlier: list[Any] = []
        found = uses_of(*statements(function.body))
        self.locals = found.stores | parameter_names(function.params)
        self.nones = none_names(function)

    def is_dynamic(self, node: cst.CSTNode) -> bool:
        """Whether this test or iterable was named as depending on tensors or sizes."""
        return code_of(node) in self.dynamic

    def fresh(self, stem: str) -> str:
        """A function name that is not taken in this function."""
        name, n = stem, 1
        while name in self.taken or name in self.locals:
            n += 1
            name = f"{stem}_{n}"
        self.taken.add(name)
        return name

    def function(self, node: cst.FunctionDef) -> cst.FunctionDef:
        """The whole function, rewritten."""
        body = statements(node.body)
        doc = body[:1] if node.get_docstring() is not None else []
        new = self.block(body[len(doc) :], set(), parameter_names(node.params), tail=True, raw=False)
        lists = ListReaders(body, self.helpers, self.grown, self.growers)
        if (self.changed and lists.names) or self.growers:
            new = [s.visit(lists) for s in new]
            self.changed |= lists.changed
        return node.with_changes(body=node.body.with_changes(body=[*doc, *new])) if isinstance(node.body, cst.IndentedBlock) else node

    def block(self, body: Sequence[Any], live: set[str], defined: Any, *, tail: bool, raw: bool) -> list[Any]:
        """Rewrite statements. `live`: names read later; `tail`: the block ends its function; `raw`: returns are tuples already."""
        earlier = self._earlier
        out = self._block(body, live, defined, tail=tail, raw=raw)
        self._earlier = earlier
        return out

    def _block(self, body: Sequence[Any], live: set[str], defined: Any, *, tail: bool, raw: bool) -> list[Any]:
        out: list[Any] = []
        body = list(body)
        for i, s in enumerate(body):
            rest = body[i + 1 :]
            reads, sure = exposed(rest)
            after = reads | (set() if sure is EVERYTHING else live - set(sure))
            have = exposed(out, defined)[1]
            self._earlier = out
            if isinstance(s, cst.If) and self.is_dynamic(s.test) and not (self.caught and contains([s], cst.Raise)):
                self.changed = True
                if self._only_raises(statements(s.body)):
                    return [*out, *self.block([*else_statements(s), *rest], live, have, tail=tail, raw=raw)]
                if s.orelse is not None and self._only_raises(else_statements(s)):
                    return [*out, *self.block([*statements(s.body), *rest], live, have, tail=tail, raw=raw)]
                unclear = tail and self._may_be_none(s, after)
                if contains([s], cst.Return) or unclear:
                    return [*out, *_lead(self._returning_if(s, rest, have, raw), s)]
                out += _lead(self._assigning_if(s, after, have), s)
            elif isinstance(s, cst.If) and rest and self._returns_dynamically([*statements(s.body), *else_statements(s)]):
                # what follows belongs into both arms: a return in one of them depends on a value
                arms = [[*a, *(r.deep_clone() for r in rest)] if falls_through(a) else a for a in (statements(s.body), else_statements(s))]
                a, b = (self.block(arm, live, have, tail=tail, raw=raw) for arm in arms)
                self._earlier = out
                return [*out, self._python_if(s.with_changes(orelse=cst.Else(cst.IndentedBlock(b))), a, b)]
            elif isinstance(s, cst.With) and self._returns_dynamically(statements(s.body)):
                new, behind = self._with_returns(s, rest, after, have)
                out += _lead(new, s)
                return [*out, *self.block(behind, live, exposed(out, defined)[1], tail=tail, raw=raw)]
            elif isinstance(s, cst.If):
                a = self.block(statements(s.body), after, have, tail=False, raw=raw)
                b = self.block(else_statements(s), after, have, tail=False, raw=raw)
                out.append(self._python_if(s, a, b))
            elif isinstance(s, (cst.For, cst.While)):
                if self._needs_loop(s):
                    new, more = self._loop(s, rest, after, have)
                    out += _lead(new, s)
                    if more is not None:
                        return [*out, *self.block(more, live, exposed(new, have)[1], tail=tail, raw=raw)]
                else:
                    inner = after | exposed(statements(s.body))[0]
                    if isinstance(s, cst.While):
                        inner |= uses_of(s.test).loads
                    held = have | set() if have is EVERYTHING else set(have) | (uses_of(s.target).loads if isinstance(s, cst.For) else set())
                    out.append(s.with_changes(body=cst.IndentedBlock(self.block(statements(s.body), inner, held, tail=False, raw=raw))))
            elif isinstance(s, (cst.With, cst.Try)):
                caught, self.caught = self.caught, self.caught or isinstance(s, cst.Try)
                out.append(s.with_changes(body=cst.IndentedBlock(self.block(statements(s.body), after, have, tail=False, raw=raw))))
                self.caught = caught
            elif isinstance(s, cst.SimpleStatementLine) and isinstance(s.body[0], cst.Assert) and self.is_dynamic(s.body[0].test):
                self.changed = True
            else:
                out.append(self._expressions(s))
        if not out:
            out = [plain_line("pass")]
        return out

    def _expressions(self, s: Any) -> Any:
        if isinstance(s, (cst.FunctionDef, cst.ClassDef)):
            return s
        rewriter = TestRewriter(self.dynamic, self.helpers)
        new = s.visit(rewriter)
        self.changed |= rewriter.changed
        return new if rewriter.changed else s

    def _only_raises(self, body: list[Any]) -> bool:
        last = body[-1] if body else None
        raises = isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Raise)
        return raises and not contains(body, cst.Return, cst.Break, cst.Continue)

    def _may_be_none(self, s: cst.If, after: set[str]) -> bool:
        """Whether a variable that the branches bind is None somewhere: what follows then belongs into both branches."""
        return bool(uses_of(*statements(s.body), *else_statements(s)).stores & after & self.nones)

    def _python_if(self, s: cst.If, a: list[Any], b: list[Any]) -> cst.If:
        s = s.with_changes(body=cst.IndentedBlock(a))
        if s.orelse is None:
            return s
        if isinstance(s.orelse, cst.If) and len(b) == 1 and isinstance(b[0], cst.If):
            return s.with_changes(orelse=b[0])
        return s.with_changes(orelse=cst.Else(cst.IndentedBlock(b)))

    def _flag(self, test: cst.BaseExpression) -> str:
        rewriter = TestRewriter(self.dynamic, self.helpers)
        new = test.visit(rewriter)
        assert isinstance(new, cst.BaseExpression)
        return code_of(flag_call(new, self.helpers))

    def _unset(self, names: Sequence[str], have: Any) -> list[Any]:
        """Lines that give names a value which may have none; those that may have one get theirs before it is bound first."""
        missing = [n for n in names if n not in have]
        if missing:
            self.helpers.add("UNSET")
        lines = []
        for n in missing:
            first = next((k for k, s in enumerate(self._earlier) if n in uses_of(s).stores), None)
            if first is None:
                lines.append(plain_line(f"{n} = UNSET"))
            else:
                self._earlier.insert(first, plain_line(f"{n} = UNSET"))
        return lines

    def _assigning_if(self, s: cst.If, after: set[str], have: Any) -> list[Any]:
        then, other = statements(s.body), else_statements(s)
        stores = uses_of(*then, *other).stores & self.locals
        outs = sorted(stores & after)
        a_reads, a_sure = exposed(then)
        b_reads, b_sure = exposed(other)
        params = [n for n in sorted(stores) if n in a_reads | b_reads or (n in outs and (n not in a_sure or n not in b_sure))]
        inner = set(have) | set(params) if have is not EVERYTHING else have
        done = plain_line(f"return {tuple_text(outs)}")
        bodies = [[*self.block([*b, done.deep_clone()], set(), inner, tail=True, raw=True)] for b in (then, other)]
        args, lines = self._branches(bodies, params, s.test)
        call = f"traced_if({args})"
        emit = [*self._unset(params, have), *lines]
        emit.append(plain_line(f"{_targets(outs)} = {call}" if outs else call))
        return emit

    def _returning_if(self, s: cst.If, rest: list[Any], have: Any, raw: bool) -> list[Any]:
        then, other = statements(s.body), else_statements(s)
        a = [*then, *rest] if falls_through(then) else then
        b = [*other, *(r.deep_clone() for r in rest)] if falls_through(other) else other
        bodies: list[list[Any]] = []
        for part in (a, b):
            part = [*part, plain_line("return None")] if falls_through(part) else part
            bodies.append(part if raw else [p.visit(RewriteReturns(as_tuple)) for p in part])
        stores = uses_of(*a, *b).stores & self.locals
        reads = exposed(a)[0] | exposed(b)[0]
        params = [n for n in sorted(stores) if n in reads]
        inner = set(have) | set(params) if have is not EVERYTHING else have
        done = [self.block(part, set(), inner, tail=True, raw=True) for part in bodies]
        args, lines = self._branches(done, params, s.test)
        return [*self._unset(params, have), *lines, plain_line(f"return traced_if({args})" + ("" if raw else "[0]"))]

    def _branches(self, bodies: list[list[Any]], params: list[str], test: cst.BaseExpression) -> tuple[str, list[Any]]:
        names, lines = [], []
        for stem, body in zip(("then", "otherwise"), bodies):
            only = body[0] if len(body) == 1 else None
            if isinstance(only, cst.SimpleStatementLine) and isinstance(only.body[0], cst.Return) and len(code_of(only)) < 60:
                value = code_of(only.body[0].value) if only.body[0].value is not None else "None"
                names.append(f"lambda {', '.join(params)}: {value}" if params else f"lambda: {value}")
            else:
                names.append(self.fresh(stem))
                lines.append(_define(names[-1], params, body))
        self.helpers.add("traced_if")
        return ", ".join([self._flag(test), *names, *params]), lines

    def _needs_loop(self, s: Any) -> bool:
        if s.orelse is not None:
            return False
        if self.is_dynamic(s.iter if isinstance(s, cst.For) else s.test):
            return True
        return self._exits_dynamically(statements(s.body))

    def _returns_dynamically(self, body: Sequence[Any]) -> bool:
        """Whether a rewritten `if` or loop, nested loops included, returns from the function."""
        for s in body:
            if isinstance(s, cst.If):
                inner = [*statements(s.body), *else_statements(s)]
                if (self.is_dynamic(s.test) and contains(inner, cst.Return)) or self._returns_dynamically(inner):
                    return True
            elif isinstance(s, (cst.For, cst.While)):
                if contains([s], cst.Return) and self._needs_loop(s):
                    return True
            elif isinstance(s, cst.With) and self._returns_dynamically(statements(s.body)):
                return True
        return False

    def _with_returns(self, s: cst.With, rest: list[Any], after: set[str], have: Any) -> tuple[list[Any], list[Any]]:
        """A `with` whose body may return: its body as a loop that is run once, and the test whether it returned behind it."""
        once = cst.For(cst.Name("_"), cst.parse_expression("range(1)"), s.body)
        new, more = self._loop(once, rest, after, have)
        assert more is not None
        first = next(i for i, n in enumerate(new) if isinstance(n, cst.FunctionDef))
        return [*new[:first], s.with_changes(body=cst.IndentedBlock(_after_definitions(new[first:])))], more

    def _exits_dynamically(self, body: Sequence[Any]) -> bool:
        """Whether a rewritten `if` leaves the loop (break, continue, return)."""
        for s in body:
            if isinstance(s, cst.If):
                inner = [*statements(s.body), *else_statements(s)]
                if self.is_dynamic(s.test) and (contains(inner, cst.Break, cst.Continue, into_loops=False) or contains(inner, cst.Return)):
                    return True
                if self._exits_dynamically(inner):
                    return True
            elif (
                isinstance(s, (cst.With, cst.Try))
                and self._exits_dynamically(statements(s.body))
                or isinstance(s, (cst.For, cst.While))
                and contains([s], cst.Return)
                and self._exits_dynamically(statements(s.body))
            ):
                return True
        return False

    def _loop(self, s: Any, rest: list[Any], after: set[str], have: Any) -> tuple[list[Any], list[Any] | None]:
        self.changed = True
        body = statements(s.body)
        emit: list[Any] = []
        more: list[Any] | None = None
        if contains(body, cst.Return):
            new_body: list[Any] = []
            for b in body:
                changed = b.visit(LoopReturns())
                new_body += list(changed.nodes) if isinstance(changed, cst.FlattenSentinel) else [changed]
            body = new_body
            self.locals |= {"result", "returned"}
            self.dynamic.add("returned")
            emit = [plain_line("returned = False"), *self._unset(["result"], have)]
            more = [cst.parse_statement("if returned:\n    return result\n"), *rest]
            after = after | {"returned", "result"}
            have = have if have is EVERYTHING else set(have) | {"returned", "result"}
        target = s.target if isinstance(s, cst.For) else None
        bound = uses_of(cst.Assign([cst.AssignTarget(target)], cst.Name("None"))).stores if target is not None else set()
        stores = (uses_of(*body, *([s.test] if target is None else [])).stores | (bound & after)) & self.locals
        reads = exposed(body, bound)[0] | (uses_of(s.test).loads if target is None else set())
        carried = [n for n in sorted(stores) if (n in reads or n in after) and n not in bound - after]
        exits = LoopExits(carried)
        steps = [b.visit(exits) for b in body]
        if falls_through(steps):
            steps.append(plain_line(exits.state("False")))
        params = list(carried)
        if target is not None:
            simple = isinstance(target, cst.Name) and target.value not in carried
            item = target.value if simple else self.fresh("item")  # type: ignore[attr-defined]
            if not simple:
                steps.insert(0, plain_line(f"{code_of(target).strip('()')} = {item}"))
            params = [item, *carried]
        inner = have if have is EVERYTHING else set(have) | set(params) | bound
        emit += self._unset(carried, have)
        name = self.fresh("step")
        emit.append(_define(name, params, self.block(steps, set(), inner, tail=True, raw=True)))
        if target is not None:
            rewriter = TestRewriter(self.dynamic, self.helpers)
            call = f"traced_for({code_of(rewriter.items(s.iter))}, {name}{''.join(', ' + n for n in carried)})"
            self.helpers.add("traced_for")
        else:
            limit = turn_limit(s)
            parts = [f"lambda {', '.join(carried)}: {self._flag(s.test)}".replace("lambda :", "lambda:"), name, *carried]
            call = f"traced_while({', '.join(parts)}{', bound=' + limit if limit else ''})"
            self.helpers.add("traced_while")
        outs = [n if n in after else "_" for n in carried]
        used = any(n != "_" for n in outs)
        emit.append(plain_line(f"{_targets(outs)} = {call}" if used else call))
        return emit, more
