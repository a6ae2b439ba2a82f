"""Rewrite the expressions that stand in tests, and the things that loops run over, for capture."""

from __future__ import annotations

from typing import Any

import libcst as cst

from autofix.surgery.source_growers import calls_grower
from autofix.surgery.source_lookups import FLAGS, lookup, lookup_or, membership
from autofix.surgery.source_names import contains, statements, uses_of
from autofix.surgery.source_nodes import call, code_of, one_tuple, thunk
from autofix.surgery.source_reordered import reordered


class _Nones(cst.CSTVisitor):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Assign(self, node: cst.Assign) -> None:
        if code_of(node.value) == "None":
            self.names |= {t.target.value for t in node.targets if isinstance(t.target, cst.Name)}


def none_names(function: cst.FunctionDef) -> set[str]:
    """Local names that are set to None somewhere."""
    found = _Nones()
    function.body.visit(found)
    return found.names


def _chain(node: cst.BaseExpression, kind: type) -> list[cst.BaseExpression]:
    if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, kind):
        return [*_chain(node.left, kind), *_chain(node.right, kind)]
    return [node]


def flag_call(test: cst.BaseExpression, helpers: set[str]) -> cst.BaseExpression:
    """A test without Python's own `and`, `or`, `not` and chained comparisons, which would force its value."""
    if isinstance(test, cst.BooleanOperation):
        kind = type(test.operator)
        name = "all_of" if kind is cst.And else "any_of"
        helpers.add(name)
        return call(name, *[thunk(flag_call(t, helpers)) for t in _chain(test, kind)])
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        helpers.add("none_of")
        return call("none_of", flag_call(test.expression, helpers))
    if isinstance(test, cst.Comparison) and membership(test) is not None:
        return membership(test)  # type: ignore[return-value]
    if isinstance(test, cst.Comparison) and len(test.comparisons) > 1:
        helpers.add("all_of")
        left, parts = test.left, []
        for c in test.comparisons:
            parts.append(thunk(cst.Comparison(left, [c])))
            left = c.comparator
        return call("all_of", *parts)
    if isinstance(test, cst.Call) and isinstance(test.func, cst.Name) and test.func.value == "bool" and len(test.args) == 1:
        return flag_call(test.args[0].value, helpers)
    return test.with_changes(lpar=[], rpar=[]) if hasattr(test, "lpar") else test


class TestRewriter(cst.CSTTransformer):
    """Conditional expressions, boolean operations and flags of calls whose text is in `dynamic`."""

    def __init__(self, dynamic: set[str], helpers: set[str]) -> None:
        self.dynamic, self.helpers, self.changed = dynamic, helpers, False

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        if code_of(original_node.test) not in self.dynamic:
            return updated_node
        self.changed = True
        self.helpers.add("traced_if")
        arms = [thunk(one_tuple(v)) for v in (updated_node.body, updated_node.orelse)]
        return cst.Subscript(
            call("traced_if", flag_call(updated_node.test, self.helpers), *arms), [cst.SubscriptElement(cst.Index(cst.Integer("0")))]
        )

    def leave_BooleanOperation(self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation) -> cst.BaseExpression:
        text = code_of(original_node)
        if f"value {text}" in self.dynamic and text not in self.dynamic:
            self.changed = True
            name = "value_and" if isinstance(updated_node.operator, cst.And) else "value_or"
            self.helpers.add(name)
            return call(name, thunk(updated_node.left), thunk(updated_node.right))
        if text not in self.dynamic:
            return updated_node
        self.changed = True
        return flag_call(updated_node, self.helpers)

    def leave_UnaryOperation(self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation) -> cst.BaseExpression:
        if isinstance(updated_node.operator, cst.Not) and code_of(original_node) in self.dynamic:
            self.changed = True
            return flag_call(updated_node, self.helpers)
        return updated_node

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        """parts = x.chunk(4, 1), where only the graph knows how many there are."""
        target = original_node.targets[0].target
        if not isinstance(target, cst.Name) or f"pieces {target.value}" not in self.dynamic:
            return updated_node
        self.changed = True
        return updated_node.with_changes(value=self.items(updated_node.value))

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        """One of several modules or tensors, picked by a value."""
        made = lookup(original_node, updated_node.value, self.dynamic)
        self.changed |= made is not None
        return made or updated_node

    def leave_AssignTarget(self, original_node: cst.AssignTarget, updated_node: cst.AssignTarget) -> cst.AssignTarget:
        """What is put into a place picked by a value stays as it is."""
        return original_node if isinstance(updated_node.target, cst.Call) else updated_node

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        made = membership(updated_node) if code_of(original_node) in self.dynamic else None
        self.changed |= made is not None
        return made or updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """A flag such as `is_causal=t > 1`, which has to be a Python bool: one call for each. len() of pieces."""
        if code_of(original_node.func) == "len" and len(original_node.args) == 1 and f"pieces {code_of(original_node.args[0].value)}" in self.dynamic:
            self.changed = True
            return updated_node.with_changes(func=cst.Name("list_length"))
        made = lookup_or(original_node, updated_node, self.dynamic)
        if made is not None:
            self.changed = True
            return made
        for i, arg in enumerate(updated_node.args):
            if arg.keyword is not None and arg.keyword.value in FLAGS and f"flag {code_of(original_node.args[i].value)}" in self.dynamic:
                self.changed = True
                self.helpers.add("traced_if")
                arms = []
                for value in ("True", "False"):
                    args = [*updated_node.args[:i], arg.with_changes(value=cst.Name(value)), *updated_node.args[i + 1 :]]
                    arms.append(thunk(one_tuple(updated_node.with_changes(args=args).deep_clone())))
                return cst.Subscript(
                    call("traced_if", flag_call(arg.value, self.helpers), *arms), [cst.SubscriptElement(cst.Index(cst.Integer("0")))]
                )
        return updated_node

    def items(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """What a rewritten `for` runs over: range, enumerate, zip, split and the like by helpers that keep lengths symbolic."""
        if isinstance(node, cst.Subscript) and code_of(node.value).startswith("self.") and isinstance(node.slice[0].slice, cst.Slice):
            part = node.slice[0].slice
            if len(node.slice) == 1 and part.step is None:
                ends = [end if end is not None else cst.Name("None") for end in (part.lower, part.upper)]
                return call("cut_view", node.value, call("slice", *ends))
        if isinstance(node, cst.Subscript) and reordered(node):
            return node.with_changes(value=self.items(node.value))
        if not isinstance(node, cst.Call):
            return node
        args = [a.value for a in node.args]
        func = node.func
        if isinstance(func, cst.Name) and func.value == "size_list":
            return args[0]
        if isinstance(func, cst.Name) and func.value in ("range", "enumerate", "zip", "reversed", "list", "tuple"):
            if func.value == "range":
                self.helpers.add("loop_range")
                return call("loop_range", *[a.visit(self) for a in args])  # type: ignore[arg-type]
            if func.value in ("list", "tuple") and len(args) == 1:
                return self.items(args[0])
            self.helpers.add(f"loop_{func.value}")
            return node.with_changes(
                func=cst.Name(f"loop_{func.value}"), args=[a.with_changes(value=self.items(a.value)) if a.keyword is None else a for a in node.args]
            )
        # a helper of the file, such as one that turns a list around
        if isinstance(func, cst.Name) and len(args) == 1 and isinstance(args[0], cst.Call):
            return node.with_changes(args=[node.args[0].with_changes(value=self.items(args[0]))])
        if isinstance(func, cst.Attribute) and func.attr.value in ("split", "chunk", "unbind", "tolist"):
            root = code_of(func.value)
            if func.attr.value == "tolist":
                return func.value
            self.helpers.add(f"loop_{func.attr.value}")
            if root == "torch":
                return node.with_changes(func=cst.Name(f"loop_{func.attr.value}"))
            return node.with_changes(func=cst.Name(f"loop_{func.attr.value}"), args=[cst.Arg(func.value), *node.args])
        return node


def uses_helper(code: Any, name: str) -> bool:
    """Whether a module's text calls a helper."""
    return f"{name}(" in str(code)


READERS_OF_LISTS = {
    "torch.stack": "stack_list",
    "torch.cat": "cat_list",
    "torch.concat": "cat_list",
    "torch.tensor": "tensor_of",
    "len": "list_length",
    "list": "as_list",
}


class _Appended(cst.CSTVisitor):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Call(self, node: cst.Call) -> None:
        func = node.func
        if isinstance(func, cst.Attribute) and func.attr.value in ("append", "extend") and isinstance(func.value, cst.Name):
            self.names.add(func.value.value)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        if isinstance(node.target, cst.Name) and isinstance(node.value, (cst.List, cst.ListComp)):
            self.names.add(node.target.value)

    def visit_Assign(self, node: cst.Assign) -> None:
        if is_list_of(self.names, node.value):  # rows = rows[::-1]
            self.names |= {t.target.value for t in node.targets if isinstance(t.target, cst.Name)}


def is_list_of(names: set[str], node: cst.BaseExpression, growers: set[str] | None = None) -> bool:
    """Whether an expression is one of the lists, a part of it, or a list made of it; growers: functions that return such lists."""
    if isinstance(node, cst.Subscript):
        return len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Slice) and is_list_of(names, node.value, growers)
    if isinstance(node, cst.Call):
        return calls_grower(node, growers or set()) or (reordered(node) and is_list_of(names, node.args[0].value, growers))
    return isinstance(node, cst.Name) and node.value in names


class ListReaders(cst.CSTTransformer):
    """torch.stack, torch.cat, len and list of the lists that a function appends to, by helpers that know lists grown in the graph."""

    def __init__(self, body: Any, helpers: set[str], grown: set[str] | None = None, growers: set[str] | None = None) -> None:
        found = _Appended()
        found.names |= grown or set()
        for s in body:
            s.visit(found)
        self.names, self.helpers, self.growers, self.changed = found.names, helpers, growers or set(), False

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        """One item, at a place that a loop counts."""
        part = updated_node.slice[0].slice
        plain = isinstance(original_node.value, cst.Name) and original_node.value.value in self.names and len(updated_node.slice) == 1
        if not plain or not isinstance(part, cst.Index) or not isinstance(part.value, (cst.Name, cst.BinaryOperation)):
            return updated_node
        self.changed = True
        return call("list_item", updated_node.value, part.value)

    def leave_AssignTarget(self, original_node: cst.AssignTarget, updated_node: cst.AssignTarget) -> cst.AssignTarget:
        return original_node if isinstance(original_node.target, cst.Subscript) else updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if not original_node.args or not is_list_of(self.names, original_node.args[0].value, self.growers):
            return updated_node
        new = READERS_OF_LISTS.get(code_of(updated_node.func))
        if new is None:
            return updated_node
        self.helpers.add(new)
        self.changed = True
        return updated_node.with_changes(func=cst.Name(new))


def turn_limit(loop: cst.While) -> str:
    """An expression for the most turns of `while n < limit: ...; n += step`, taken before the loop; "" where none is seen."""
    body = statements(loop.body)
    if contains(body, cst.Continue, into_loops=False):
        return ""
    steps: dict[str, int] = {}
    for s in body:
        if isinstance(s, cst.SimpleStatementLine) and isinstance(s.body[0], cst.AugAssign):
            small = s.body[0]
            plus = isinstance(small.operator, cst.AddAssign)
            if (
                isinstance(small.target, cst.Name)
                and isinstance(small.value, cst.Integer)
                and (plus or isinstance(small.operator, cst.SubtractAssign))
            ):
                steps[small.target.value] = int(small.value.value) * (1 if plus else -1)
    stored = uses_of(*body).stores
    counts = {n: v for n, v in steps.items() if sum(n in uses_of(s).stores for s in body) == 1}
    for test in _chain(loop.test, cst.And):
        if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
            continue
        left, right, operator = test.left, test.comparisons[0].comparator, test.comparisons[0].operator
        if isinstance(operator, (cst.GreaterThan, cst.GreaterThanEqual)):
            left, right = right, left
        elif not isinstance(operator, (cst.LessThan, cst.LessThanEqual)):
            continue
        extra = " + 1" if isinstance(operator, (cst.LessThanEqual, cst.GreaterThanEqual)) else ""
        for near, far, sign in ((left, right, 1), (right, left, -1)):
            if isinstance(near, cst.Name) and counts.get(near.value, 0) * sign > 0 and not uses_of(far).loads & stored:
                low, high = (code_of(near), code_of(far)) if sign > 0 else (code_of(far), code_of(near))
                return f"{high} - {low}{extra}"
    return ""
