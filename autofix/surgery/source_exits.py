"""Give `return`, `break` and `continue` the forms that local branch and loop functions need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

from autofix.surgery.source_nodes import bracketed, code_of


def plain_line(text: str) -> cst.SimpleStatementLine:
    """One simple statement from its text."""
    node = cst.parse_statement(text)
    assert isinstance(node, cst.SimpleStatementLine)
    return node


class RewriteReturns(cst.CSTTransformer):
    """Give every `return value` of a function body another form."""

    def __init__(self, wrap: Any) -> None:
        self.wrap = wrap

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> Any:
        return self.wrap(updated_node)


def as_tuple(node: cst.Return) -> cst.Return:
    """`return a` -> `return (a,)`."""
    value = bracketed(node.value) if node.value is not None else cst.Name("None")
    return node.with_changes(value=cst.Tuple([cst.Element(value, comma=cst.Comma())]), whitespace_after_return=cst.SimpleWhitespace(" "))


class LoopExits(cst.CSTTransformer):
    """In the body of one loop: `break` and `continue` become returns of (stop, carried...); `return v` leaves with a flag set."""

    def __init__(self, carried: Sequence[str]) -> None:
        self.carried, self.depth = list(carried), 0

    def state(self, stop: str) -> str:
        return f"return ({', '.join([stop, *self.carried])},)" if not self.carried else f"return ({', '.join([stop, *self.carried])})"

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
        last = updated_node.body[-1]
        if self.depth == 0 and isinstance(last, (cst.Break, cst.Continue)):
            exit_line = plain_line(self.state("True" if isinstance(last, cst.Break) else "False"))
            if len(updated_node.body) == 1:
                return exit_line.with_changes(leading_lines=updated_node.leading_lines)
            return updated_node.with_changes(body=[*updated_node.body[:-1], *exit_line.body])
        return updated_node


class LoopReturns(cst.CSTTransformer):
    """`return v` inside a loop -> `result = v; returned = True; break`."""

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def leave_SimpleStatementLine(self, original_node: Any, updated_node: cst.SimpleStatementLine) -> Any:
        last = updated_node.body[-1]
        if not isinstance(last, cst.Return):
            return updated_node
        value = code_of(last.value) if last.value is not None else "None"
        lines = [plain_line(f"result = {value}"), plain_line("returned = True"), plain_line("break")]
        return cst.FlattenSentinel([*([updated_node.with_changes(body=updated_node.body[:-1])] if len(updated_node.body) > 1 else []), *lines])
