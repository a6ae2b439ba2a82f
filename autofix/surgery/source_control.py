"""Rewrite all control flow of chosen functions that depends on tensors or sizes, in one go."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from autofix.surgery.source_flow import FlowRewriter
from autofix.surgery.source_names import contains
from autofix.surgery.source_patch import add_runtime, replace_functions
from autofix.surgery.source_sizes import dynamic_tests


def rewrite_control_flow(text: str, functions: Iterable[str], lines: Iterable[int] = (), *, sizes: bool = True, arguments: Iterable[str] = ()) -> str:
    """`text` with every `if`, `while`, `for`, conditional expression and assert of `functions` (qualified names) that depends on tensor
    values, stands on one of `lines`, or (with `sizes`) depends on sizes, in a form that torch.export captures.

    Returns `text` itself where nothing had to change.
    """
    wanted, marked = set(functions), set(lines)

    def change(wrapper: cst.MetadataWrapper, name: str, node: cst.FunctionDef) -> cst.FunctionDef | None:
        if name not in wanted or contains([node.body], cst.Yield, cst.Await):
            return None
        dynamic = dynamic_tests(wrapper, node, marked, sizes=sizes, arguments=arguments)
        if not dynamic:
            return None
        rewriter = FlowRewriter(node, dynamic)
        made = rewriter.function(node)
        return made if rewriter.changed else None

    new = replace_functions(text, change)
    return text if new == text else add_runtime(new, text)
