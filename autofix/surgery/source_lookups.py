"""Places where a value picks one of several things: an index, a key made of a number, get() of a dictionary, `in`; flags of calls."""

from __future__ import annotations

import re

import libcst as cst

from autofix.surgery.source_names import parameter_names, statements, uses_of
from autofix.surgery.source_nodes import call, code_of

FLAGS = frozenset(
    {"is_causal", "unbiased", "keepdim", "largest", "sorted", "descending", "stable", "right", "align_corners", "ceil_mode", "count_include_pad"}
    | {"antialias", "upper", "include_self", "enable_gqa"}
)
"""Keywords of torch's own functions that take a Python bool."""
DISPLAYS = (cst.List, cst.Tuple, cst.Dict, cst.ListComp, cst.DictComp)


def held_names(function: cst.FunctionDef, pairs: list[tuple[set[str], cst.BaseExpression]]) -> set[str]:
    """Names that stand for lists or dictionaries of things: those of the module, and local ones that are written out once and left so."""
    found = uses_of(*statements(function.body))
    bound: dict[str, list[cst.BaseExpression]] = {}
    for names, expression in pairs:
        for name in names:
            bound.setdefault(name, []).append(expression)
    local = {n for n, values in bound.items() if len(values) == 1 and isinstance(values[0], DISPLAYS) and n not in found.changed}
    return local | (found.loads - found.stores - parameter_names(function.params) - {"self", "cls", "torch", "F", "math", "np", "numpy"})


def is_held(node: cst.BaseExpression, dynamic: set[str]) -> bool:
    """Whether an expression stands for several things to pick from: an attribute of self, or a name of `held_names`."""
    return code_of(node).startswith("self.") or isinstance(node, cst.Name) and f"held {node.value}" in dynamic


def chosen_number(node: cst.BaseExpression, dynamic: set[str]) -> cst.BaseExpression | None:
    """`t` of `int(t)`, `t.item()`, of a name where "index t" is in `dynamic`, and of arithmetic with such; else None."""
    if isinstance(node, cst.Name):
        return node if f"index {node.value}" in dynamic else None
    if isinstance(node, cst.BinaryOperation):  # self.modules[n % 4]
        read = uses_of(cst.Expr(node)).loads
        known = any(f"index {n}" in dynamic for n in read) or re.search(r"\b(int|whole_number|number_of|index_of)\(|\.item\(\)", code_of(node))
        return node if known else None
    if not isinstance(node, cst.Call):
        return None
    func = node.func
    if isinstance(func, cst.Name) and func.value in ("int", "whole_number", "number_of", "index_of") and node.args:
        return node.args[0].value
    return func.value if isinstance(func, cst.Attribute) and func.attr.value == "item" else None


def chosen_text(node: cst.BaseExpression, dynamic: set[str]) -> tuple[cst.BaseExpression, str] | None:
    """(`t`, text of the key) of `str(int(t))`, `f"level{t.item()}"`: a text made of one value."""
    value: cst.BaseExpression | None = None
    if isinstance(node, cst.Call) and code_of(node.func) == "str" and len(node.args) == 1:
        value = node.args[0].value
    elif isinstance(node, cst.FormattedString):
        parts = [p for p in node.parts if isinstance(p, cst.FormattedStringExpression)]
        value = parts[0].expression if len(parts) == 1 else None
    place = chosen_number(value, dynamic) if value is not None else None
    return None if place is None or value is None else (place, code_of(node.deep_replace(value, cst.Name("number"))))


def lookup(original: cst.Subscript, held: cst.BaseExpression, dynamic: set[str]) -> cst.BaseExpression | None:
    """`held[t]` as a call that picks by the value, None where the index is no value. held: the rewritten base."""
    part = original.slice[0].slice
    if len(original.slice) != 1 or not isinstance(part, cst.Index) or not is_held(original.value, dynamic):
        return None
    keyed = chosen_text(part.value, dynamic)
    if keyed is not None:
        return call("traced_key", held, keyed[0], cst.parse_expression(f"lambda number: {keyed[1]}"))
    index = chosen_number(part.value, dynamic)
    return None if index is None else call("traced_choice", held, index)


def lookup_or(original: cst.Call, updated: cst.Call, dynamic: set[str]) -> cst.BaseExpression | None:
    """`held.get(t, default)` as a call that picks by the value, None for other calls."""
    func, new = original.func, updated.func
    if not (isinstance(func, cst.Attribute) and isinstance(new, cst.Attribute) and func.attr.value == "get" and is_held(func.value, dynamic)):
        return None
    if len(original.args) not in (1, 2) or any(a.keyword is not None or a.star for a in original.args):
        return None
    keyed = chosen_text(original.args[0].value, dynamic)
    index = chosen_number(original.args[0].value, dynamic) if keyed is None else keyed[0]
    if index is None:
        return None
    key = cst.parse_expression(f"lambda number: {keyed[1] if keyed is not None else 'number'}")
    return call("traced_get", new.value, index, key, *[a.value for a in updated.args[1:]])


def membership(test: cst.Comparison) -> cst.BaseExpression | None:
    """`t in held` as a call, `t not in held` as its negation; None for other comparisons."""
    if len(test.comparisons) != 1 or not isinstance(test.comparisons[0].operator, (cst.In, cst.NotIn)):
        return None
    found = call("is_among", test.left, test.comparisons[0].comparator)
    return found if isinstance(test.comparisons[0].operator, cst.In) else call("none_of", found)
