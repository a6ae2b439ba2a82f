"""Find functions in a source text, replace them, and carry the runtime functions that the new text calls along."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import PositionProvider

RUNTIME_PARTS = ("merge", "index", "items", "rows", "runtime", "choices", "loops", "plans", "whiles", "numbers", "arrays", "arrays_more")
RUNTIME_FILES = tuple(f"source_{n}.py" for n in (*RUNTIME_PARTS, "arrays_shapes"))
MARK = "# RUNTIME BEGINS\n"
ADDED_BY = "# What the rewritten functions above call.\n"


def functions_of(module: cst.Module) -> Iterator[tuple[str, cst.FunctionDef]]:
    """(qualified name, node) of every function and method of a module, e.g. "Model.forward"."""

    def walk(body: Any, prefix: str) -> Iterator[tuple[str, cst.FunctionDef]]:
        for s in body:
            if isinstance(s, cst.FunctionDef):
                yield prefix + s.name.value, s
            elif isinstance(s, cst.ClassDef) and isinstance(s.body, cst.IndentedBlock):
                yield from walk(s.body.body, f"{prefix}{s.name.value}.")
            elif isinstance(s, (cst.If, cst.Try)) and isinstance(s.body, cst.IndentedBlock):
                yield from walk(s.body.body, prefix)

    yield from walk(module.body, "")


class _Replace(cst.CSTTransformer):
    def __init__(self, new: dict[cst.CSTNode, cst.CSTNode]) -> None:
        self.new = new

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        return self.new.get(original_node, updated_node)


def replace_functions(text: str, change: Callable[[cst.MetadataWrapper, str, cst.FunctionDef], cst.FunctionDef | None]) -> str:
    """`text` with every function for which `change` gives a new node replaced."""
    wrapper = cst.MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    new: dict[cst.CSTNode, cst.CSTNode] = {}
    for name, node in functions_of(wrapper.module):
        made = change(wrapper, name, node)
        if made is not None:
            new[node] = made
    if not new:
        return text
    done = wrapper.module.visit(_Replace(new))
    return done.code


def _runtime_parts() -> tuple[list[str], dict[str, str]]:
    """The import lines and the top-level definitions (by name) of the runtime files."""
    imports: list[str] = []
    parts: dict[str, str] = {}
    spec = find_spec("autofix.surgery")
    assert spec is not None and spec.submodule_search_locations
    for file in RUNTIME_FILES:
        path = Path(next(iter(spec.submodule_search_locations))) / file
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8").split(MARK, 1)[1]
        lines = text.splitlines()
        body = ast.parse(text).body
        for i, node in enumerate(body):
            decorators = getattr(node, "decorator_list", [])
            start = min([node.lineno, *(d.lineno for d in decorators)]) - 1
            piece = "\n".join(lines[start : node.end_lineno])
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                if "autofix" not in piece and piece not in imports:
                    imports.append(piece)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                parts[node.name] = piece
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name):
                    after = body[i + 1] if i + 1 < len(body) else None
                    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                        piece += "\n" + "\n".join(lines[after.lineno - 1 : after.end_lineno])
                    parts[target.id] = piece
    return imports, parts


def add_runtime(text: str, original: str) -> str:
    """`text` with the runtime definitions that it (and they) mention and `original` lacks: imports to the imports, the rest at the end.

    At the end the person's own lines keep their places and a patch tells first what changed; only statements that may
    already call the file's functions as it is loaded, such as `if __name__ == "__main__"`, stay behind them.
    """
    imports, parts = _runtime_parts()
    needed: set[str] = set()
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    tree = ast.parse(text)
    have = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        have |= {t.id for t in targets if isinstance(t, ast.Name)}
    queue = [name for name in parts if name in words and name not in have]
    while queue:
        name = queue.pop()
        if name in needed or name in have:
            continue
        needed.add(name)
        queue += [w for w in re.findall(r"[A-Za-z_]\w*", parts[name]) if w in parts and w not in needed]
    if not needed:
        return text
    chosen = [parts[name] for name in parts if name in needed]
    body = _plain("\n\n\n".join(chosen)).rstrip()
    used = set(re.findall(r"[A-Za-z_]\w*", body))
    wanted = [i for i in imports if used & {w for w in re.split(r"\W+", i.split("import", 1)[1]) if w} and i not in text.splitlines()]
    last = _end_of_imports(tree)
    end = _start_of_calls(tree, text)
    lines = text.splitlines()
    tail = ["", "", *lines[end:]] if any(line.strip() for line in lines[end:]) else []
    own = "\n".join([*lines[:last], *wanted, *lines[last:end]]).rstrip()
    return "\n".join([own, "", "", ADDED_BY, body, *tail]) + "\n"


def _end_of_imports(tree: ast.Module) -> int:
    """The number of lines up to the end of the leading imports, or of the docstring where there are none."""
    last = 0
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not isinstance(node, (ast.Import, ast.ImportFrom)):
            break
        last = node.end_lineno or 0
    return last


def _start_of_calls(tree: ast.Module, text: str) -> int:
    """The number of lines before the first top-level statement that may call what the file itself defines."""
    defined = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
            continue
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            defined |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} if names & defined else set()
        calls = any(isinstance(n, (ast.Call, ast.With, ast.For, ast.While)) for n in ast.walk(node))
        if (calls and names & defined) or "__name__" in names:
            above = text.splitlines()[: node.lineno - 1]
            while above and above[-1].lstrip().startswith("#"):
                above.pop()
            return len(above)
    return len(text.splitlines())


class _Bare(cst.CSTTransformer):
    """Drop annotations: the pasted code must not depend on `from __future__ import annotations`."""

    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param:
        return updated_node.with_changes(
            annotation=None,
            **({"equal": cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))} if updated_node.default is not None else {}),
        )

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        return updated_node.with_changes(returns=None)

    def leave_AnnAssign(self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign) -> Any:
        if updated_node.value is None:
            return cst.RemoveFromParent()
        return cst.Assign([cst.AssignTarget(updated_node.target)], updated_node.value)


def _plain(text: str) -> str:
    """Runtime code without annotations and without comments for linters."""
    return re.sub(r"  # (noqa|type: ignore)[^\n]*", "", cst.parse_module(text).visit(_Bare()).code)


def functions_at(text: str, lines: list[int]) -> list[str]:
    """The innermost functions (qualified names) that hold these lines."""
    wrapper = cst.MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    positions: Any = wrapper.resolve(PositionProvider)
    spans = [(name, positions[node]) for name, node in functions_of(wrapper.module)]
    found: list[str] = []
    for line in lines:
        inside = [(place.start.line, name) for name, place in spans if place.start.line <= line <= place.end.line]
        if inside and max(inside)[1] not in found:
            found.append(max(inside)[1])
    return found


def replace_expression(text: str, function: str, old: str, new: str) -> str:
    """`text` with the expression `old` of one function replaced by `new`."""

    class Swap(cst.CSTTransformer):
        def on_leave(self, original_node: Any, updated_node: Any) -> Any:
            if isinstance(original_node, cst.BaseExpression) and cst.Module([]).code_for_node(original_node).strip() == old:
                return cst.parse_expression(new)
            return updated_node

    def change(wrapper: cst.MetadataWrapper, name: str, node: cst.FunctionDef) -> cst.FunctionDef | None:
        made = node.visit(Swap()) if name == function else None
        return made if isinstance(made, cst.FunctionDef) else None

    return replace_functions(text, change)
