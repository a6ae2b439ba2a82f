"""Install rewritten source: the functions that changed replace the originals in their live modules. Used by fix.py too."""

from __future__ import annotations

import ast
import linecache
import sys
from typing import Any

STATEMENTS = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)


def classes_of(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """{qualified name: node} of the classes of a file, those inside functions left out."""
    found: dict[str, ast.ClassDef] = {}

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                found[prefix + node.name] = node
                walk(node.body, prefix + node.name + ".")

    walk(tree.body, "")
    return found


def class_names(tree: ast.Module) -> set[str]:
    """Qualified names of the classes of a file, those inside functions left out."""
    return set(classes_of(tree))


def kept_classes(old: ast.Module, new: ast.Module) -> set[str]:
    """The classes of `old` that `new` makes in the same way, so that new methods can be put into them: of the same bases, none of which is itself
    made anew."""

    def head(node: ast.ClassDef) -> list[str]:
        return [ast.dump(part) for part in (*node.bases, *node.keywords, *node.decorator_list)]

    before, after = classes_of(old), classes_of(new)
    kept = {name for name, node in before.items() if name in after and head(node) == head(after[name])}
    while True:
        others = {name.rpartition(".")[2] for name in before if name in after and name not in kept}
        stale = {name for name in kept if any(ast.unparse(b).rpartition(".")[2] in others for b in before[name].bases)}
        stale |= {name for name in kept if "." in name and name.rpartition(".")[0] not in kept}
        if not stale:
            return kept
        kept -= stale


def function_units(tree: ast.Module, known: set[str] | None = None) -> dict[str, ast.AST]:
    """{qualified name: node} of functions at module and class level; {"<statement text>": node} of imports and assignments.

    A class that is not among `known` is one unit as a whole.
    """
    units: dict[str, ast.AST] = {}

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                units[prefix + node.name] = node
            elif isinstance(node, ast.ClassDef):
                if known is None or prefix + node.name in known:
                    walk(node.body, prefix + node.name + ".")
                else:
                    units[prefix + node.name] = node
            elif not prefix and isinstance(node, STATEMENTS) and getattr(node, "module", "") != "__future__":
                units["<" + ast.unparse(node) + ">"] = node

    walk(tree.body, "")
    return units


def changed_units(old: str, new: str) -> list[tuple[str, ast.AST]]:
    """The units of `new` that `old` lacks or has otherwise, in the order of the text."""
    tree, made = ast.parse(old), ast.parse(new)
    before, after = function_units(tree), function_units(made, kept_classes(tree, made))
    return [(n, node) for n, node in after.items() if n not in before or ast.dump(before[n]) != ast.dump(node)]


def reaches_built_models(old: str, new: str) -> bool:
    """Whether a model that was built from `old` holds something that `new` has otherwise: a unit that runs as models are built, whose decorators
    make another object of it, or that defines further functions; a class of other bases."""
    tree = ast.parse(old)
    before, after = function_units(tree), function_units(ast.parse(new))
    changed = changed_units(old, new)
    if any(name in class_names(tree) for name, _ in changed):
        return True
    names = [name for name, _ in changed if name in before]
    builders = building_functions(before)
    if any(name in builders or decorators(before[name]) != decorators(after[name]) for name in names):
        return True
    return any(isinstance(n, (ast.FunctionDef, ast.Lambda)) for name in names for n in ast.walk(before[name]) if n is not before[name])


BUILDERS = ("__init__", "build_model", "Model")
"""Functions that a model is built by (loading.py), or its modules."""


def building_functions(units: dict[str, ast.AST]) -> set[str]:
    """Those of a file's functions that run as its models are built: the builders, and what they name."""
    queue = [name for name in units if name.rpartition(".")[2] in BUILDERS]
    found = set(queue)
    while queue:
        node = units[queue.pop()]
        named = {n.attr if isinstance(n, ast.Attribute) else n.id for n in ast.walk(node) if isinstance(n, (ast.Attribute, ast.Name))}
        more = [name for name in units if name not in found and not name.startswith("<") and name.rpartition(".")[2] in named]
        found.update(more)
        queue += more
    return found


def decorators(node: ast.AST) -> list[str]:
    """The text of a unit's decorators."""
    return [ast.unparse(d) for d in getattr(node, "decorator_list", [])]


def unit_source(node: ast.AST, text: str) -> str:
    """The source lines of a unit, decorators included."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])  # type: ignore[attr-defined]
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])  # type: ignore[attr-defined]


def compile_for(module: Any, tree: ast.Module, filename: str) -> Any:
    """Compile with the `from __future__ import annotations` of the module, not of this file: torch.jit.script reads annotations."""
    import __future__

    evaluated = getattr(module, "annotations", None) is not __future__.annotations
    return compile(tree, filename, "exec", 0 if evaluated else __future__.annotations.compiler_flag, dont_inherit=True)


def install_unit(module: Any, name: str, node: ast.AST, filename: str) -> None:
    """Execute one changed unit in its module: a statement, a function, or a method with its `__class__` cell.

    `node` keeps its line numbers, so that tracebacks and inspect find the rewritten text at `filename`.
    """
    scope = module.__dict__
    if name.startswith("<"):
        exec(compile_for(module, ast.Module([node], []), filename), scope)  # type: ignore[list-item]  # noqa: S102
        return
    owner_path, _, plain = name.rpartition(".")
    owner = module
    for part in filter(None, owner_path.split(".")):
        owner = getattr(owner, part)
    if not owner_path:
        old = scope.get(plain)
        exec(compile_for(module, ast.Module([node], []), filename), scope)  # type: ignore[list-item]  # noqa: S102
        replace_references(old, scope[plain])
        return
    tree = ast.parse(f"def make_method(__class__):\n    return {plain}\n")
    tree.body[0].body.insert(0, node)  # type: ignore[attr-defined]
    local: dict[str, Any] = {}
    exec(compile_for(module, tree, filename), scope, local)  # noqa: S102
    method = local["make_method"](owner)
    if hasattr(method, "__qualname__"):
        method.__qualname__ = name
    setattr(owner, plain, method)


def replace_references(old: Any, new: Any) -> None:
    """Point names in other modules that were imported from the old function at the new one."""
    if old is None:
        return
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict):
            continue
        for key, value in list(names.items()):
            if value is old:
                names[key] = new


def install_source(module: Any, old: str, new: str, filename: str) -> list[str]:
    """Install every unit of `new` that differs from `old`; returns their names. The text is registered with linecache."""
    linecache.cache[filename] = (len(new), None, [line + "\n" for line in new.splitlines()], filename)
    names = []
    for name, node in changed_units(old, new):
        install_unit(module, name, node, filename)
        names.append(name)
    return names


def install_functions(module: Any, filename: str, functions: dict[str, str]) -> None:
    """Install functions and classes given as {qualified name: source text}; a name in angle brackets stands for plain statements."""
    # methods keep their indentation, which strings that span lines may depend on
    texts = {name: "if True:\n" + source if source[:1].isspace() else source for name, source in functions.items()}
    whole = "\n".join(texts.values())
    linecache.cache[filename] = (len(whole), None, [line + "\n" for line in whole.splitlines()], filename)
    line = 0
    for name, text in texts.items():
        for outer in ast.parse("\n" * line + text).body:
            node = outer.body[0] if isinstance(outer, ast.If) and text is not functions[name] else outer
            install_unit(module, name, node, filename)
        line += text.count("\n") + 1
