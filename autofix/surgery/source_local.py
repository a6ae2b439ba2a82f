"""Functions inside of functions (hooks, closures, lambdas): their control flow is rewritten before that of the function around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libcst as cst

from autofix.surgery.source_names import contains, statements

Rewrite = Callable[[cst.FunctionDef, cst.FunctionDef], cst.FunctionDef | None]
"""(the function as it was, the same with what is inside of it rewritten) -> its new form, None where nothing had to change."""


class _LocalFunctions(cst.CSTTransformer):
    """The innermost first, so that each is rewritten once."""

    def __init__(self, outer: cst.FunctionDef, rewrite: Rewrite) -> None:
        self.outer, self.rewrite, self.changed = outer, rewrite, False

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        if original_node is self.outer or contains([original_node.body], cst.Await, cst.Yield, cst.Nonlocal, cst.Global):
            return updated_node
        made = self.rewrite(original_node, updated_node)
        self.changed |= made is not None
        return made or updated_node

    def leave_Lambda(self, original_node: cst.Lambda, updated_node: cst.Lambda) -> cst.Lambda:
        if contains([original_node.body], cst.Await, cst.Yield, cst.NamedExpr):
            return updated_node
        made = self.rewrite(_as_function(original_node), _as_function(updated_node))
        body = statements(made.body) if made is not None else []
        if len(body) != 1 or not isinstance(body[0], cst.SimpleStatementLine):
            return updated_node  # a lambda can't hold statements
        value = body[0].body[0]
        if not isinstance(value, cst.Return) or value.value is None:
            return updated_node
        self.changed = True
        return updated_node.with_changes(body=value.value)


def _as_function(node: cst.Lambda) -> cst.FunctionDef:
    """A lambda as a function of one statement; the expression is the same node, so that its place is known."""
    line = cst.SimpleStatementLine([cst.Return(node.body)])
    return cst.FunctionDef(cst.Name("anonymous"), node.params, cst.IndentedBlock([line]))


def with_local_functions(node: cst.FunctionDef, rewrite: Rewrite) -> tuple[cst.FunctionDef, bool]:
    """(`node` with the functions inside of it rewritten, whether any was)."""
    work = _LocalFunctions(node, rewrite)
    made: Any = node.visit(work)
    return (made, True) if work.changed else (node, False)
