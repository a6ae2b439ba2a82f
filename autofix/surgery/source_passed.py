"""Sizes that functions of one file hand to each other as arguments."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst
from libcst import matchers

from autofix.surgery.source_sizes import is_number_expression, reach, tainted_names

ROUNDS = 4
"""How many calls deep a size is followed."""


def matched_arguments(function: cst.FunctionDef, call: cst.Call) -> list[tuple[str, cst.BaseExpression]]:
    """(parameter, argument) of a call of this function, as far as they are written one by one; a method's first parameter is left out."""
    names = [p.name.value for p in (*function.params.posonly_params, *function.params.params)]
    if names[:1] == ["self"] and isinstance(call.func, cst.Attribute):
        names = names[1:]
    found, place = [], 0
    for argument in call.args:
        if argument.star:
            break
        if argument.keyword is not None:
            found.append((argument.keyword.value, argument.value))
        elif place < len(names):
            found.append((names[place], argument.value))
            place += 1
    return found


def passed_sizes(functions: Mapping[str, cst.FunctionDef]) -> dict[str, set[str]]:
    """{qualified name: parameters that some call in these functions gives a size of a tensor, or a number made of sizes}.

    A call is matched by the function's own name, where only one function has it.
    """
    shorts = [name.rsplit(".", 1)[-1] for name in functions]
    named = {name.rsplit(".", 1)[-1]: name for name in functions if shorts.count(name.rsplit(".", 1)[-1]) == 1}
    found: dict[str, set[str]] = {name: set() for name in functions}
    for _ in range(ROUNDS):
        before = sum(map(len, found.values()))
        for name, node in functions.items():
            sizes, values = tainted_names(node, given=found[name])
            for call in matchers.findall(node.body, matchers.Call()):
                assert isinstance(call, cst.Call)
                func = call.func
                target = named.get(func.attr.value if isinstance(func, cst.Attribute) else func.value if isinstance(func, cst.Name) else "")
                for parameter, argument in matched_arguments(functions[target], call) if target is not None else []:
                    if is_number_expression(argument) and reach(argument, sizes, values)[0]:
                        found[target or ""].add(parameter)
        if sum(map(len, found.values())) == before:
            break
    return found
