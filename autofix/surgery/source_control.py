"""Rewrite all control flow of chosen functions that depends on tensors or sizes, in one go."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from autofix.surgery.source_expressions import ComprehensionLoops
from autofix.surgery.source_flow import FlowRewriter
from autofix.surgery.source_names import contains, parameter_names, statements, uses_of
from autofix.surgery.source_numeric import rewrite_numbers
from autofix.surgery.source_patch import add_runtime, replace_functions
from autofix.surgery.source_sizes import dynamic_tests


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

    def change_numbers(wrapper: cst.MetadataWrapper, name: str, node: cst.FunctionDef) -> cst.FunctionDef | None:
        return rewrite_numbers(wrapper, node, marked, names, sizes=sizes) if name in wanted else None

    def change_control(wrapper: cst.MetadataWrapper, name: str, node: cst.FunctionDef) -> cst.FunctionDef | None:
        if name not in wanted or contains([node.body], cst.Yield, cst.Await):
            return None
        dynamic = dynamic_tests(wrapper, node, marked, sizes=sizes, arguments=arguments)
        found = uses_of(*statements(node.body))
        flat = node.visit(ComprehensionLoops(dynamic, found.stores | found.loads | parameter_names(node.params)))
        assert isinstance(flat, cst.FunctionDef)
        node = flat
        rewriter = FlowRewriter(node, dynamic)
        made = rewriter.function(node)
        return made if rewriter.changed else None

    new = replace_functions(text, change_numbers) if numbers else text
    new = replace_functions(new, change_control) if control else new
    return text if new == text else add_runtime(new, text)
