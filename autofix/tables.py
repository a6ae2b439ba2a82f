"""Leave out of fix.py what a repair never looks up: rows of a strategy's table for operators that its fixes don't name.

A strategy whose `apply` picks from a table by its parameter `operators`,

    added = {name: TABLE[name] for name in operators if name in TABLE}

needs the rows of those operators alone. Tables joined by `{**A, **B}` count, locally and at the top level of a module. Everything is read from
the syntax tree; a table that is used in any other way stays whole.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from autofix.bundle import STRATEGIES, Bundle, Ours
from autofix.scopes import import_targets
from autofix.sourcefile import SourceFile, strategy_text

PARAMETER = "operators"


def picked_dict(node: ast.AST) -> str | None:
    """T where a node is `{name: T[name] for name in operators if name in T}`, else None."""
    if not isinstance(node, ast.DictComp) or len(node.generators) != 1 or not isinstance(node.value, ast.Subscript):
        return None
    loop, table = node.generators[0], node.value.value
    if not isinstance(loop.iter, ast.Name) or loop.iter.id != PARAMETER or not isinstance(table, ast.Name) or not isinstance(loop.target, ast.Name):
        return None
    name = loop.target.id
    wanted = f"{{{name}: {table.id}[{name}] for {name} in {PARAMETER} if {name} in {table.id}}}"
    return table.id if ast.unparse(node) == wanted else None


def joined_dicts(node: ast.AST) -> list[str]:
    """[A, B] where a node is `{**A, **B}` with whatever else between, else nothing."""
    if not isinstance(node, ast.Dict):
        return []
    return [value.id for key, value in zip(node.keys, node.values, strict=True) if key is None and isinstance(value, ast.Name)]


def assignments(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr, ast.stmt]]:
    """(name, value, statement) of the plain assignments among some statements."""
    for statement in body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id, statement.value, statement
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None:
            yield statement.target.id, statement.value, statement


def reads(node: ast.AST, name: str) -> int:
    """How often a name is read below a node."""
    return sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(node))


def picked_tables(function: ast.FunctionDef) -> set[str]:
    """Names of which a function reads only the rows that `operators` names."""
    values = {name: value for name, value, _ in assignments(function.body)}
    picked: dict[str, int] = {}
    for value in values.values():
        table = picked_dict(value)
        if table is not None:
            picked[table] = picked.get(table, 0) + 2
    for name in [n for n in picked if n in values]:  # a local join of tables
        if reads(function, name) == picked[name]:
            for table in joined_dicts(values[name]):
                picked[table] = picked.get(table, 0) + 1
    return {name for name, times in picked.items() if name not in values and reads(function, name) == times}


def never_taken(function: ast.FunctionDef, operators: set[str]) -> list[ast.If]:
    """The `if "operator" in added:` statements for operators that are not among these; `added` was picked by `operators`."""
    added = {name for name, value, _ in assignments(function.body) if picked_dict(value) is not None}
    found = []
    for node in function.body:
        test = node.test if isinstance(node, ast.If) and not node.orelse else None
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Constant) and isinstance(test.ops[0], ast.In) and isinstance(node, ast.If):
            held = test.comparators[0]
            if len(test.ops) == 1 and isinstance(held, ast.Name) and held.id in added and test.left.value not in operators:
                found.append(node)
    return found


def without_lines(text: str, nodes: list[ast.If]) -> str:
    """A text without the lines of these statements."""
    dropped = {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return "".join(line for number, line in enumerate(text.splitlines(keepends=True), 1) if number not in dropped)


def top_level(text: str) -> dict[str, ast.expr]:
    """{name: value} of a module's plain assignments."""
    return {name: value for name, value, _ in assignments(ast.parse(text).body)}


def pruned_tables(text: str, tables: set[str], operators: set[str]) -> str:
    """A module's text with only the rows of these operators in these tables; rows whose key is no string literal stay."""
    lines = text.splitlines(keepends=True)
    changed = [(value, s) for name, value, s in assignments(ast.parse(text).body) if name in tables and isinstance(value, ast.Dict)]
    for value, _ in reversed(changed):
        assert isinstance(value, ast.Dict)
        kept = []
        for key, row in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value not in operators:
                continue
            source = ast.get_source_segment(text, row) or ast.unparse(row)
            kept.append(f"**{source}" if key is None else f"{ast.get_source_segment(text, key)}: {source}")
        if len(kept) == len(value.keys):
            continue
        first, last = value.lineno - 1, (value.end_lineno or value.lineno) - 1
        head, tail = lines[first].encode()[: value.col_offset].decode(), lines[last].encode()[value.end_col_offset :].decode()
        body = "".join(f"    {row},\n" for row in kept)
        lines[first : last + 1] = [f"{head}{{\n", body, f"}}{tail}"] if kept else [f"{head}{{}}{tail}"]
    return "".join(lines)


def function_of(name: str, file: str) -> tuple[str, ast.FunctionDef]:
    """A strategy's text as it stands in fix.py, and its function there."""
    text = strategy_text(Path(file), name)
    return text, next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == name)


def table_modules(function: ast.FunctionDef) -> dict[str, str]:
    """{name: module} of what a function imports from autofix under its own name."""
    found: dict[str, str] = {}
    for node in function.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {name: t.module for name, t in import_targets(node) if t.module.startswith("autofix.") and t.name == name}
    return found


def pruned_bundle(entry: SourceFile, strategies: Mapping[str, str], operators: Mapping[str, set[str]]) -> Bundle:
    """A Bundle of `entry` in which the tables of `strategies` ({name: file}) hold the rows of `operators` ({strategy: names}) alone.

    A table that anything else reads makes the bundle keep all rows of all tables.
    """
    rows: dict[str, dict[str, set[str]]] = {}
    for name, wanted in operators.items():
        function = function_of(name, strategies[name])[1]
        modules = table_modules(function)
        for table in picked_tables(function) & set(modules):
            rows.setdefault(modules[table], {}).setdefault(table, set()).update(wanted)

    def edit(module: str, text: str) -> str:
        strategy = module.removeprefix(STRATEGIES)
        if module.startswith(STRATEGIES) and strategy in operators:
            function = next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == strategy)
            return without_lines(text, never_taken(function, operators[strategy]))
        spread_rows(module, text, rows)
        for table, wanted in rows.get(module, {}).items():
            text = pruned_tables(text, {table}, wanted)
        return text

    made = Bundle([entry], strategies, edit)
    return made if only_picked(made, rows, operators) else Bundle([entry], strategies)


def spread_rows(module: str, text: str, rows: dict[str, dict[str, set[str]]]) -> None:
    """Let tables that are joined into a pruned one, at the top level of their module, be pruned alike."""
    values = top_level(text) if module in rows else {}
    sources = {a.asname or a.name: n.module or "" for n in ast.parse(text).body if isinstance(n, ast.ImportFrom) for a in n.names} if values else {}
    waiting = [t for t in rows.get(module, {}) if t in values]
    while waiting:
        table = waiting.pop()
        for part in joined_dicts(values[table]):
            held = rows.setdefault(sources.get(part, module), {})
            held[part] = held.get(part, set()) | rows[module][table]
            if part in values:
                waiting.append(part)


def only_picked(made: Bundle, rows: Mapping[str, Mapping[str, set[str]]], operators: Mapping[str, set[str]]) -> bool:
    """Whether pruned tables are read by the strategies that pick from them, and by joins, alone."""
    allowed = {STRATEGIES + name for name in operators}
    for unit in made.taken.values():
        joins = {part for name, value, _ in assignments([unit.node]) if name in rows.get(unit.file.module, {}) for part in joined_dicts(value)}
        for use in unit.uses:
            meaning = made.of(unit, use)
            pruned = isinstance(meaning, Ours) and meaning.name in rows.get(meaning.module, {})
            if pruned and not use.store and unit.file.module not in allowed and use.name not in joins:
                return False
    return True
