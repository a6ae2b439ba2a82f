"""What evidence says about source files: which functions forward reaches, and on which lines a tensor became a Python value."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Mapping
from typing import Any

EXPORT_CAPTURES = frozenset({"export", "draft"})
"""Capture modes that know of torch.cond and while_loop; a tracer records what eager does, the script compiler and
Dynamo read the source themselves."""
SKIPPED = frozenset({"get_inputs", "get_init_inputs", "get_more_inputs", "get_kwargs", "build_model", "__init__", "extra_repr", "reset_parameters"})


def short_names(sources: Mapping[str, str]) -> dict[str, str]:
    """{path: name in a recipe} of the user's files: relative to the folder of the model file."""
    main = next((p for p, text in sources.items() if "def get_inputs" in text), next(iter(sources), ""))
    base = posixpath.dirname(main)
    out = {}
    for path in sources:
        relative = posixpath.relpath(path, base) if base else path
        out[path] = posixpath.basename(path) if relative.startswith("..") else relative
    return out


def library_module(path: str) -> str:
    """The dotted name of an installed module's file, "" for other files."""
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in path:
            return path.rsplit(mark, 1)[1].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return ""


def function_lines(text: str) -> dict[str, tuple[int, int]]:
    """{qualified name: (first line, last line)} of functions and methods."""
    found: dict[str, tuple[int, int]] = {}

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                found[prefix + node.name] = (node.lineno, node.end_lineno or node.lineno)
            elif isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, (ast.If, ast.Try)):
                walk(node.body, prefix)

    walk(ast.parse(text).body, "")
    return found


def reached_functions(text: str) -> list[str]:
    """Functions that a forward of this file may call, by name, itself included; all of them where it has no forward."""
    tree = ast.parse(text)
    lines = function_lines(text)
    nodes: dict[str, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for name, (first, _) in lines.items():
                if first == node.lineno:
                    nodes[name] = node
    queue = [n for n in lines if n.rsplit(".", 1)[-1] == "forward"] or [n for n in lines if n.rsplit(".", 1)[-1] not in SKIPPED]
    seen: list[str] = []
    while queue:
        name = queue.pop(0)
        if name in seen or name.rsplit(".", 1)[-1] in SKIPPED:
            continue
        seen.append(name)
        called = {n.attr if isinstance(n, ast.Attribute) else n.id for n in ast.walk(nodes[name]) if isinstance(n, (ast.Attribute, ast.Name))}
        queue += [n for n in lines if n.rsplit(".", 1)[-1] in called]
    return seen


def value_lines(facts: Mapping[str, Any], kinds: frozenset[str] | None = None) -> dict[str, list[int]]:
    """{file: lines} where eager turned a tensor into a Python value, of these kinds."""
    out: dict[str, set[int]] = {}
    for site in facts.get("sites", ()):
        if kinds is None or site.get("kind") in kinds:
            out.setdefault(str(site["file"]), set()).add(int(site["line"]))
    return {file: sorted(lines) for file, lines in out.items()}


def has_dynamic_axes(facts: Mapping[str, Any]) -> bool:
    """Whether some input has an axis that must stay dynamic."""
    return any(leaf.get("axes") for leaf in facts.get("inputs", ()))


def number_arguments(facts: Mapping[str, Any]) -> list[str]:
    """Names of inputs that are Python numbers or bools."""
    return sorted(str(leaf["name"]) for leaf in facts.get("inputs", ()) if leaf.get("kind") in ("int", "float", "bool"))


def user_files(facts: Mapping[str, Any]) -> list[tuple[str, str, list[str], list[int]]]:
    """(name in a recipe, text, reached functions, lines of values) of each of the user's files. Reached is also what holds such a line,
    though no call is seen: it defines a hook, say."""
    sources = facts.get("sources", {})
    names, lines = short_names(sources), value_lines(facts)
    out = []
    for path, text in sources.items():
        try:
            reached, values = reached_functions(text), lines.get(path, [])
            holders = [name for name, (first, last) in function_lines(text).items() if any(first <= line <= last for line in values)]
            out.append((names[path], text, [*reached, *(name for name in holders if name not in reached)], values))
        except SyntaxError:
            continue
    return out


def library_files(facts: Mapping[str, Any], kinds: frozenset[str] | None = None) -> list[tuple[str, list[int]]]:
    """(dotted module, lines) of installed modules in which a tensor became a Python value."""
    out = []
    for path, lines in value_lines(facts, kinds).items():
        name = library_module(path)
        if name and path not in facts.get("sources", {}):
            out.append((name, lines))
    return out


def zero_d_names(facts: Mapping[str, Any], path_lines: Mapping[str, list[int]] | None = None) -> list[str]:
    """Names of local variables that held a 0-d whole tensor where a tensor became an index or a size."""
    found: set[str] = set()
    for site in facts.get("sites", ()):
        if site.get("kind") in ("index", "int", "item"):
            found |= {n for n, kind in site.get("locals", {}).items() if kind.startswith(("tensor:int", "tensor:uint8")) and kind.endswith(":0")}
    return sorted(found)
