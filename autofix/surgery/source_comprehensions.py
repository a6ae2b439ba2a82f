"""List comprehensions over items whose number is known only at run time, as for loops in front of their statement."""

from __future__ import annotations

from typing import Any

import libcst as cst

from autofix.surgery.source_nodes import code_of


class _Hoist(cst.CSTTransformer):
    """Take list comprehensions over symbolic numbers of items out of one statement."""

    def __init__(self, dynamic: set[str], fresh: Any) -> None:
        self.dynamic, self.fresh = dynamic, fresh
        self.loops: list[Any] = []

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_Call(self, node: cst.Call) -> bool:
        return not (isinstance(node.func, cst.Name) and node.func.value in ("any_item", "all_item"))

    def _take(self, node: Any) -> cst.BaseExpression | None:
        clause = node.for_in
        if clause.inner_for_in is not None or code_of(clause.iter) not in self.dynamic:
            return None
        name = self.fresh("items")
        append = cst.parse_statement(f"{name}.append({code_of(node.elt)})")
        body: Any = cst.IndentedBlock([append])
        for condition in reversed(clause.ifs):
            self.dynamic.add(code_of(condition.test))
            body = cst.IndentedBlock([cst.If(condition.test, body)])
        self.loops += [cst.parse_statement(f"{name} = []"), cst.For(clause.target, clause.iter, body)]
        return cst.Name(name)

    def leave_ListComp(self, original_node: cst.ListComp, updated_node: cst.ListComp) -> cst.BaseExpression:
        return self._take(updated_node) or updated_node

    def leave_GeneratorExp(self, original_node: cst.GeneratorExp, updated_node: cst.GeneratorExp) -> cst.BaseExpression:
        return self._take(updated_node) or updated_node


class ComprehensionLoops(cst.CSTTransformer):
    """List comprehensions over items whose number is symbolic, as for loops in front of their statement."""

    def __init__(self, dynamic: set[str], taken: set[str]) -> None:
        self.dynamic, self.taken = dynamic, taken

    def fresh(self, stem: str) -> str:
        name, n = stem, 1
        while name in self.taken:
            n += 1
            name = f"{stem}_{n}"
        self.taken.add(name)
        return name

    def leave_SimpleStatementLine(self, original_node: Any, updated_node: cst.SimpleStatementLine) -> Any:
        hoist = _Hoist(self.dynamic, self.fresh)
        new = updated_node.visit(hoist)
        if not hoist.loops or not isinstance(new, cst.SimpleStatementLine):
            return updated_node
        only = new.body[0]
        if (
            isinstance(only, cst.Assign)
            and isinstance(only.value, cst.Name)
            and len(only.targets) == 1
            and isinstance(only.targets[0].target, cst.Name)
        ):
            wanted, made = only.targets[0].target, only.value.value  # `rows = [...]`: the loop fills `rows` itself

            class Rename(cst.CSTTransformer):
                def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
                    return updated_node.with_changes(value=wanted.value) if updated_node.value == made else updated_node

            hoist.loops = [s.visit(Rename()) for s in hoist.loops]
            hoist.loops[0] = hoist.loops[0].with_changes(leading_lines=updated_node.leading_lines)
            return cst.FlattenSentinel(hoist.loops)
        return cst.FlattenSentinel([*hoist.loops, new])
