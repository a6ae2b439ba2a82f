"""fix.py holds the rows of a table that the repair looks up, and no others."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autofix.bundle import Bundle
from autofix.loader import load_strategies
from autofix.scopes import undefined_names
from autofix.sourcefile import read_source_file
from autofix.tables import never_taken, picked_tables, pruned_bundle, pruned_tables

STRATEGIES = load_strategies(entry_points=False)
PICKING = {
    name: {str(o) for e in s.REPAIRS if e.fix for o in e.fix.get("operators", ())}
    for name, s in STRATEGIES.items()
    if any(isinstance((e.fix or {}).get("operators"), list) for e in s.REPAIRS)
}


def function(text: str) -> ast.FunctionDef:
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def test_a_table_counts_as_picked_only_where_nothing_else_reads_it() -> None:
    picks = "def f(plan, operators):\n    known = {**A, **make(), **B}\n    added = {n: known[n] for n in operators if n in known}\n"
    assert picked_tables(function(picks)) == {"A", "B"}
    assert picked_tables(function(picks + "    plan.update(known)\n")) == set()
    assert picked_tables(function(picks + "    plan.update(B)\n")) == {"A"}
    assert picked_tables(function("def f(plan, operators):\n    added = {n: A[n] for n in operators if n in A}\n    print(A)\n")) == set()
    assert picked_tables(function("def f(plan, operators):\n    added = {n: A[n] for n in others if n in A}\n")) == set()


def test_rows_are_left_out_by_key() -> None:
    text = 'X = 1\nT = {\n    "a": f,  # why\n    "b": lambda x: {\n        "c": x},\n    **REST,\n    K: g,\n}\nY = 2\n'
    pruned = pruned_tables(text, {"T"}, {"b"})
    assert ast.unparse(ast.parse(pruned)) == "X = 1\nT = {'b': lambda x: {'c': x}, **REST, K: g}\nY = 2"
    assert pruned_tables(text, {"T"}, {"a", "b"}) == text
    assert pruned_tables('T = {"a": f}\n', {"T"}, set()) == "T = {}\n"


def test_branches_for_operators_that_are_not_named_are_left_out() -> None:
    picks = "def f(plan, operators):\n    added = {n: A[n] for n in operators if n in A}\n"
    node = function(picks + '    if "x" in added:\n        g()\n    if "y" in added:\n        h()\n')
    assert [i.lineno for i in never_taken(node, {"y"})] == [3]


@pytest.mark.parametrize("name", sorted(PICKING))
def test_what_is_left_stands_alone_and_is_shorter(name: str) -> None:
    entry = read_source_file("repair", "", f"from autofix.strategies.{name} import {name}\n\n\ndef entry():\n    return {name}\n")
    files = {name: STRATEGIES[name].file}
    whole = Bundle([entry], files).text()
    pruned = pruned_bundle(entry, files, {name: PICKING[name]}).text()
    compile(pruned, name, "exec")
    assert undefined_names(pruned) == []
    assert len(pruned) <= len(whole)


def test_one_operator_brings_its_own_code_alone(tmp_path: Path) -> None:
    entry = read_source_file(
        "repair", "", "from autofix.strategies.decompose_linalg import decompose_linalg\n\n\ndef entry():\n    return decompose_linalg\n"
    )
    text = pruned_bundle(
        entry, {"decompose_linalg": STRATEGIES["decompose_linalg"].file}, {"decompose_linalg": {"aten.linalg_cholesky.default"}}
    ).text()
    assert "def cholesky" in text
    assert "def eigh" not in text
    assert "def lstsq" not in text
