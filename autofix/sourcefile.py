"""A Python file cut into units: the top-level statements with the names that each binds, changes and uses."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

from autofix.errors import AutofixError
from autofix.scopes import Imported, Use, bound_names, global_uses, import_targets


class BundleError(AutofixError):
    """A strategy whose source text can't stand alone; the message says where and why."""


def is_ours(module: str, level: int = 0) -> bool:
    """Whether an import is of our own source, which is copied; anything else stays an import."""
    return level > 0 or module.partition(".")[0] == "autofix"


@dataclass
class Unit:
    """One or more lines of a file that stand together. first, last: line numbers, from 1."""

    file: SourceFile
    node: ast.stmt
    first: int
    last: int
    names: set[str]
    mutates: set[str]
    uses: list[Use]
    calls: bool

    @property
    def defines(self) -> bool:
        """Whether it is a function or a class."""
        return isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


@dataclass
class SourceFile:
    """See the module's docstring. imports: {name: what a top-level import makes of it}; plain: dotted modules of plain imports."""

    module: str
    path: str
    text: str
    units: list[Unit] = field(default_factory=list)
    imports: dict[str, Imported] = field(default_factory=dict)
    plain: list[str] = field(default_factory=list)
    identifiers: set[str] = field(default_factory=set)
    summary: str = ""

    def binding(self, name: str) -> list[Unit]:
        """The units that bind a name or change what it stands for."""
        return [u for u in self.units if name in u.names or name in u.mutates]


def read_source_file(module: str, path: str, text: str) -> SourceFile:
    """Cut a text into units; raises BundleError on a syntax error."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise BundleError(f"{path}:{error.lineno}: {error.msg}") from error
    found = SourceFile(module, path, text)
    found.summary = (ast.get_docstring(tree) or "").partition("\n")[0]
    found.identifiers = set(re.findall(r"[^\W\d]\w*", text))
    lines = text.splitlines()
    for position, node in enumerate(tree.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            note_import(found, node)
        elif is_type_checking(node):
            for inner in node.body:  # type: ignore[attr-defined]
                if isinstance(inner, (ast.Import, ast.ImportFrom)):
                    note_import(found, inner)
        elif isinstance(node, ast.Try) and tries_our_imports(node):
            for inner in node.body:
                note_import(found, inner)  # type: ignore[arg-type]
        elif is_docstring(node):
            if found.units and position and not found.units[-1].defines:
                found.units[-1].last = node.end_lineno or node.lineno
        elif not (isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)):
            found.units.append(make_unit(found, node, lines))
    return found


def note_import(found: SourceFile, node: ast.Import | ast.ImportFrom) -> None:
    """Record a top-level import."""
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return
    for name, target in import_targets(node):
        if target.name == "*":
            raise BundleError(f"{found.path}:{node.lineno}: a * import can't be followed; name what is imported")
        found.imports[name] = target
    if isinstance(node, ast.Import):
        found.plain += [a.name for a in node.names if a.asname is None]


def is_docstring(node: ast.stmt) -> bool:
    """Whether a statement is a bare string."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def is_type_checking(node: ast.stmt) -> bool:
    """Whether a statement is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def tries_our_imports(node: ast.Try) -> bool:
    """Whether a try statement's body only imports, some of it from us."""
    return all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in node.body) and any(
        is_ours(t.module, t.level)
        for n in node.body
        for _, t in import_targets(n)  # type: ignore[arg-type]
    )


def make_unit(found: SourceFile, node: ast.stmt, lines: list[str]) -> Unit:
    """The unit of one statement, with the comment lines right above it."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    while first > 1 and lines[first - 2].startswith("#"):
        first -= 1
    scope = bound_names([node], is_ours)
    mutated: set[str] = set()
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        mutated = {root for inner in ast.walk(node) for root in changed_roots(inner)} - scope.bound
    uses = global_uses(node, is_ours)
    calls = any(isinstance(inner, ast.Call) for inner in outside_functions(node)) or bool(getattr(node, "decorator_list", []))
    return Unit(found, node, first, node.end_lineno or node.lineno, scope.bound | set(scope.imported), mutated, uses, calls)


def changed_roots(node: ast.AST) -> list[str]:
    """Names whose value a statement changes in place: `NAME[...] = x`, `NAME.a = x`, `NAME += x`, `NAME.method(...)` as a statement."""
    targets: list[ast.AST] = []
    if isinstance(node, ast.Assign):
        targets = list(node.targets)
    elif isinstance(node, ast.AugAssign):
        targets = [node.target]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        targets = [node.value.func]
    roots = []
    for target in targets:
        plain = isinstance(target, ast.Name)
        while isinstance(target, (ast.Subscript, ast.Attribute)):
            target = target.value
        if isinstance(target, ast.Name) and (not plain or isinstance(node, ast.AugAssign)):
            roots.append(target.id)
    return roots


def outside_functions(node: ast.AST) -> list[ast.AST]:
    """The nodes below a statement that run when the module is loaded."""
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        children = [*getattr(node, "decorator_list", []), *node.args.defaults, *filter(None, node.args.kw_defaults)]
    return [n for child in children for n in [child, *outside_functions(child)]]


def inner_lines(tree: ast.AST) -> set[int]:
    """The lines that begin inside a string that spans lines: their indentation is part of the value."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.JoinedStr, ast.Constant)) and (isinstance(node, ast.JoinedStr) or isinstance(node.value, (str, bytes))):
            inside.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return inside


def dedented(lines: list[str], node: ast.AST, amount: int) -> list[str]:
    """The lines of a node moved left, strings that span lines kept as they are, docstrings apart."""
    kept = inner_lines(node)
    for inner in ast.walk(node):
        if isinstance(inner, (ast.FunctionDef, ast.ClassDef)) and inner.body and is_docstring(inner.body[0]):
            kept -= set(range(inner.body[0].lineno, (inner.body[0].end_lineno or 0) + 1))
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])  # type: ignore[attr-defined]
    numbered = enumerate(lines[first - 1 : node.end_lineno], first)  # type: ignore[attr-defined]
    return [line if number in kept else line[amount:] if not line[:amount].strip() else line for number, line in numbered]


def strategy_text(path: Path, name: str) -> str:
    """A strategy's file with its class replaced by its `apply` as a plain function `name`, documented by the class's docstring."""
    try:
        text = path.read_text()
        tree = ast.parse(text)
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise BundleError(f"{path}: can't be read: {error}") from error
    lines = text.splitlines()
    for cls in [n for n in tree.body if isinstance(n, ast.ClassDef)]:
        for node in cls.body:
            if isinstance(node, ast.FunctionDef) and node.name == "apply" and any(ast.unparse(d) == "staticmethod" for d in node.decorator_list):
                others = [d for d in node.decorator_list if ast.unparse(d) != "staticmethod"]
                if others:
                    raise BundleError(f"{path}:{node.lineno}: apply has a decorator besides staticmethod")
                node.decorator_list = []
                body = dedented(lines, node, node.col_offset)
                body[0] = re.sub(r"\bapply\b", name, body[0], count=1)
                if ast.get_docstring(node) is None and ast.get_docstring(cls):
                    opening = node.body[0].lineno - node.lineno
                    doc = cls.body[0]
                    # the class's docstring has the indentation of the function's body
                    shown = lines[doc.lineno - 1 : doc.end_lineno]
                    if node.body[0].lineno > node.lineno:
                        body[opening:opening] = shown
                before = lines[: min([cls.lineno, *(d.lineno for d in cls.decorator_list)]) - 1]
                return "\n".join([*before, *body, *lines[cls.end_lineno or len(lines) :]]) + "\n"
    raise BundleError(f"{path}: holds no class with a static apply")


def import_edits(found: SourceFile, tree: ast.Module) -> dict[int, str | None]:
    """{line number: text or None} for the lines of imports of our own inside functions: gone, or `pass` where nothing else is left."""
    edits: dict[int, str | None] = {}
    for node in ast.walk(tree):
        for part in ("body", "orelse", "finalbody"):
            body = getattr(node, part, None)
            if not isinstance(body, list) or isinstance(node, ast.Module):
                continue
            ours = [n for n in body if isinstance(n, (ast.Import, ast.ImportFrom)) and any(is_ours(t.module, t.level) for _, t in import_targets(n))]
            for statement in ours:
                for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
                    edits[line] = None
                if statement is body[0] and len(ours) == len([n for n in body if not is_docstring(n)]):
                    edits[statement.lineno] = " " * statement.col_offset + "pass"
    return edits


def banner(file: SourceFile) -> str:
    """The comment above what one file gives; a text without a path has its own."""
    if not file.path:
        return file.summary and f"# --- {file.summary}\n"
    path = Path(file.path)
    parts = path.parts
    start = max((i for i, p in enumerate(parts[:-1]) if p in ("autofix", "strategies")), default=len(parts) - 2)
    return f"# --- from {'/'.join(parts[start:])}: {file.summary}\n"


def name_span(lines: list[str], node: ast.AST, name: str) -> tuple[int, int, int] | None:
    """(line number, first byte, last byte) of a name's place, or None."""
    number = getattr(node, "lineno", 0)
    line = lines[number - 1].encode()
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global)):
        found = re.search(rb"\b%s\b" % name.encode(), line[node.col_offset :])
        return (number, node.col_offset + found.start(), node.col_offset + found.end()) if found else None
    start, end = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 0)
    if isinstance(node, ast.Name) and line[start:end] != name.encode():
        # before Python 3.12 places inside f-strings are not known
        found = re.search(rb"(?<=[{( ,\[.])%s\b(?!=)" % name.encode(), line)
        return (number, found.start(), found.end()) if found else None
    return number, start, end
