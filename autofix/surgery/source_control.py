"""Rewrite all control flow of chosen functions that depends on tensors or sizes, in one go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from autofix.surgery.source_comprehensions import ComprehensionLoops
from autofix.surgery.source_flow import FlowRewriter
from autofix.surgery.source_forms import desugar
from autofix.surgery.source_growers import grown_by_calls, returns_grown_list
from autofix.surgery.source_local import with_local_functions
from autofix.surgery.source_names import contains, parameter_names, statements, uses_of
from autofix.surgery.source_numeric import rewrite_numbers
from autofix.surgery.source_passed import passed_sizes
from autofix.surgery.source_patch import add_runtime, functions_of, replace_functions
from autofix.surgery.source_sizes import dynamic_tests
from autofix.surgery.source_tries import Tries, generator_calls, listed_generator, raised_names, raising_branch, tried_names, with_error_flag


@dataclass
class FileFlow:
    """What the functions of a file tell each other: generators, functions that raise on values, those whose errors may be caught."""

    dynamic: dict[str, set[str]] = field(default_factory=dict)
    generators: set[str] = field(default_factory=set)
    growers: set[str] = field(default_factory=set)
    raisers: dict[str, set[str]] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    flagged: set[str] = field(default_factory=set)

    @staticmethod
    def of(wrapper: cst.MetadataWrapper, wanted: set[str], tests: Any) -> FileFlow:
        """`tests` gives the texts of a function's tests and iterables that depend on values or sizes."""
        functions = list(functions_of(wrapper.module))
        flow = FileFlow(tried=tried_names(wrapper.module, functions))
        flow.dynamic = {name: tests(node, name) for name, node in functions if name in wanted}
        shorts = [name.rsplit(".", 1)[-1] for name, _ in functions]
        for name, node in functions:
            short = name.rsplit(".", 1)[-1]
            found = flow.dynamic.get(name, set())
            if name not in wanted or shorts.count(short) > 1:
                continue
            if contains([node.body], cst.Yield):
                if any(not t.startswith("index ") for t in found):
                    flow.generators.add(short)
                continue
            if returns_grown_list(node, found):
                flow.growers.add(short)
            if raising_branch(statements(node.body), found):
                flow.raisers[short] = raised_names(statements(node.body))
        for name, node in functions:
            if name in wanted and contains([node.body], cst.Try):
                work = Tries(set(flow.dynamic[name]), lambda stem: stem, flow.raisers)
                node.body.visit(work)
                flow.flagged |= work.used
        return flow


def names_in(node: cst.FunctionDef) -> set[str]:
    """Every name that a function uses."""
    found = uses_of(*statements(node.body))
    return found.stores | found.loads | parameter_names(node.params)


def rewrite_control(node: cst.FunctionDef, dynamic: set[str], flow: FileFlow) -> cst.FunctionDef | None:
    """`node` with its control flow in forms that torch.export captures, None where nothing had to change."""
    taken = names_in(node)

    def fresh(stem: str) -> str:
        name, n = stem, 1
        while name in taken:
            n += 1
            name = f"{stem}_{n}"
        taken.add(name)
        return name

    plain, changed = desugar(node, dynamic, taken)
    tries = Tries(dynamic, fresh, flow.raisers)
    body = plain.body.visit(tries)
    plain = plain.with_changes(body=body) if tries.changed else plain
    flat = plain.visit(ComprehensionLoops(dynamic, taken))
    assert isinstance(flat, cst.FunctionDef)
    rewriter = FlowRewriter(flat, dynamic, node.name.value in flow.tried, frozenset(flow.growers | flow.generators))
    made = rewriter.function(flat)
    return made if rewriter.changed or changed or tries.changed else None


def rewrite_source(
    text: str,
    functions: Iterable[str],
    lines: Iterable[int] = (),
    *,
    sizes: bool = True,
    arguments: Iterable[str] = (),
    zero_d: Iterable[str] = (),
    numbers: bool = True,
    control: bool = True,
) -> str:
    """`text` with what `functions` (qualified names) do with values of tensors and (with `sizes`) with sizes kept in the graph.

    control: every `if`, `while`, `for`, conditional expression and assert that depends on them or stands on one of `lines` (where a
    tensor was seen to become a Python value) in a form that torch.export captures. numbers: Python arithmetic on them.
    arguments: parameters that are numbers which vary. zero_d: names of 0-d whole tensors.
    Returns `text` itself where nothing had to change.
    """
    wanted, marked, names = set(functions), set(lines), set(zero_d)
    passed = passed_sizes(dict(functions_of(cst.parse_module(text)))) if sizes else {}
    flows: list[FileFlow] = []

    def change_numbers(wrapper: cst.MetadataWrapper, name: str, node: cst.FunctionDef) -> cst.FunctionDef | None:
        return rewrite_numbers(wrapper, node, marked, names, sizes=sizes, given=passed.get(name, ())) if name in wanted else None

    def change_control(wrapper: cst.MetadataWrapper, name: str, node: cst.FunctionDef) -> Any:
        if name not in wanted or contains([node.body], cst.Await):
            return None

        def tests(function: cst.FunctionDef, named: str = "") -> set[str]:
            return dynamic_tests(wrapper, function, marked, sizes=sizes, arguments=arguments, given=passed.get(named, ()))

        if not flows:
            flows.append(FileFlow.of(wrapper, wanted, tests))
        flow = flows[0]
        growers = flow.generators | flow.growers
        dynamic = flow.dynamic[name] | generator_calls(node, growers)
        dynamic |= grown_by_calls(node, growers, dynamic)[1]
        short = node.name.value
        node, inner = with_local_functions(node, lambda before, after: rewrite_control(after, tests(before), flow))
        if contains([node.body], cst.Yield):
            taken = names_in(node)
            listed = listed_generator(node, lambda stem: stem if stem not in taken else f"{stem}_") if short in flow.generators else None
            return None if listed is None else rewrite_control(listed, dynamic, flow) or listed
        made = rewrite_control(node, set(dynamic), flow) or (node if inner else None)
        if short not in flow.flagged:
            return made
        sibling = with_error_flag(node)
        return cst.FlattenSentinel([made or node, rewrite_control(sibling, set(dynamic), flow) or sibling])

    new = replace_functions(text, change_numbers) if numbers else text
    new = replace_functions(new, change_control) if control else new
    return text if new == text else add_runtime(new, text)
