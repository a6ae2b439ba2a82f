"""Adding rows to a cache file in one transaction, and reading them back: the only code that writes outcomes."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from typing import Any

from autofix.ids import canonical_json
from autofix.migrations import FAMILIES_OF, OUTCOME_COLUMNS, TABLES, counts_of
from autofix.row_checks import KINDS
from autofix.rows import Row
from autofix.trial import Stage

TABLE_OF = {kind: kind + ("es" if kind == "search" else "s") for kind in KINDS}
_STAGE_NUMBER: dict[str, int | None] = {stage.name.lower(): int(stage) for stage in Stage} | {"": None}
_STAGE_NAME: dict[int | None, str] = {number: name for name, number in _STAGE_NUMBER.items()}
_OUTCOME_NAMES = tuple(part.split()[0] for part in OUTCOME_COLUMNS.split(", "))
_PLAIN = ("origin", "environment", "target", "recipe")
_REFERENCE = {"case": "case_id", "search": "case_id", "retraction": "outcome_id"}


def today() -> int:
    """Days since 1970."""
    return int(time.time() // 86400)


def _values(row: Row, day: int) -> tuple[Any, ...]:
    body = row.body
    if row.kind == "outcome":
        return (
            row.id,
            body["case_id"],
            body["environment_id"],
            body["target_id"],
            body["recipe_id"],
            body["parent_id"],
            body["origin_id"],
            '["' + '","'.join(body["added"]) + '"]' if body["added"] else "[]",
            body["cause_symptom"],
            body["cause_operator"],
            _STAGE_NUMBER[body["cause_stage"]],
            body["symptom"],
            body["operator"],
            _STAGE_NUMBER[body["stage"]],
            body["verdict"],
            body["capture"],
            body["effect"],
            body["versions"],
            body["ms"],
            body["cpu_ms"],
            day,
        )
    if row.kind in _PLAIN:
        return (row.id, canonical_json(body))
    return (row.id, body[_REFERENCE[row.kind]], canonical_json(body))


def stage_rows(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Puts rows into temporary tables, which takes no lock on the file."""
    for kind in KINDS:
        table = TABLE_OF[kind]
        connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS new_{table} ({TABLES[table]}) WITHOUT ROWID")
        connection.execute(f"DELETE FROM new_{table}")
    day = today()
    waiting: dict[str, list[tuple[Any, ...]]] = {kind: [] for kind in KINDS}
    connection.execute("BEGIN")
    try:
        for row in rows:
            kept = waiting[row.kind]
            kept.append(_values(row, day))
            if len(kept) == 5000:
                _put(connection, row.kind, kept)
        for kind, kept in waiting.items():
            _put(connection, kind, kept)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _put(connection: sqlite3.Connection, kind: str, values: list[tuple[Any, ...]]) -> None:
    if values:
        marks = ",".join("?" * len(values[0]))
        connection.executemany(f"INSERT OR IGNORE INTO temp.new_{TABLE_OF[kind]} VALUES ({marks})", values)
        values.clear()


def commit_staged(connection: sqlite3.Connection) -> dict[str, int]:
    """Adds the staged rows that are new, in one transaction, and keeps the rates in step; returns how many of each kind."""
    added: dict[str, int] = {}
    large = connection.execute("SELECT count(*) FROM (SELECT 1 FROM temp.new_outcomes LIMIT 5001)").fetchone()[0] > 5000
    if large:  # room for the indexes of a million outcomes, for the time of this merge
        usual = connection.execute("PRAGMA main.cache_size").fetchone()[0]
        connection.execute("PRAGMA main.cache_size = -128000")
    try:
        _commit(connection, added)
    finally:
        if large:
            connection.execute(f"PRAGMA main.cache_size = {usual}")
            connection.execute("PRAGMA shrink_memory")
    for kind in KINDS:
        connection.execute(f"DELETE FROM temp.new_{TABLE_OF[kind]}")
    return added


def _commit(connection: sqlite3.Connection, added: dict[str, int]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for kind in KINDS:
            if kind == "outcome":
                continue  # the many, so looked up once, when they are put in
            table = TABLE_OF[kind]
            connection.execute(f"DELETE FROM temp.new_{table} WHERE id IN (SELECT id FROM main.{table})")
            added[kind] = connection.execute(f"SELECT count(*) FROM temp.new_{table}").fetchone()[0]
        if added["retraction"]:
            # Outcomes that were counted so far and are withdrawn now.
            gone = "SELECT outcome_id FROM temp.new_retractions EXCEPT SELECT outcome_id FROM main.retractions"
            _count(connection, f"(SELECT * FROM main.outcomes WHERE id IN ({gone}))", -1)
        for kind in KINDS:
            if added.get(kind):
                connection.execute(f"INSERT INTO main.{TABLE_OF[kind]} SELECT * FROM temp.new_{TABLE_OF[kind]}")
        if added["case"]:
            connection.execute(FAMILIES_OF.format("temp.new_cases"))
        # Rows get ascending numbers, so those above the last are the new ones.
        last = connection.execute("SELECT ifnull(max(rowid), 0) FROM main.outcomes").fetchone()[0]
        added["outcome"] = connection.execute("INSERT OR IGNORE INTO main.outcomes SELECT * FROM temp.new_outcomes").rowcount
        if added["outcome"]:
            new = f"SELECT * FROM main.outcomes WHERE rowid > {last} AND id NOT IN (SELECT outcome_id FROM main.retractions)"
            _count(connection, f"({new})", 1)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _count(connection: sqlite3.Connection, outcomes: str, sign: int) -> None:
    connection.execute(
        f"INSERT INTO rates SELECT key, strategy, versions, {sign} * tries, {sign} * gain, {sign} * ms FROM ({counts_of(outcomes)}) WHERE true "
        "ON CONFLICT (key, strategy, versions) DO UPDATE SET tries = tries + excluded.tries, gain = gain + excluded.gain, ms = ms + excluded.ms"
    )
    if sign < 0:
        connection.execute("DELETE FROM rates WHERE tries = 0")


def drop_case(connection: sqlite3.Connection, case_id: str) -> None:
    """Forgets the outcomes of one case id, in one transaction, and keeps the rates in step."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        mine = "case_id = '" + case_id.replace("'", "''") + "'"
        _count(connection, f"(SELECT * FROM main.outcomes WHERE {mine} AND id NOT IN (SELECT outcome_id FROM main.retractions))", -1)
        connection.execute(f"DELETE FROM main.outcomes WHERE {mine}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def add_rows(connection: sqlite3.Connection, rows: Iterable[Row]) -> dict[str, int]:
    """Adds checked rows; all or none. Returns how many of each kind were new. Raises sqlite3.Error."""
    stage_rows(connection, rows)
    return commit_staged(connection)


def outcome_body(values: dict[str, Any]) -> dict[str, Any]:
    """The body of an outcome from its columns."""
    body = {name: values[name] for name in _OUTCOME_NAMES if name not in ("id", "seen")}
    body["added"] = json.loads(body["added"])
    body["cause_stage"] = _STAGE_NAME[body["cause_stage"]]
    body["stage"] = _STAGE_NAME[body["stage"]]
    return body


def read_rows(connection: sqlite3.Connection, kinds: Iterable[str] | None = None, origins: set[str] | None = None) -> Iterator[Row]:
    """Rows by kind and id; with `origins` (ids), only what these recorded and what that refers to."""
    wanted = set(KINDS if kinds is None else kinds)
    marks = ",".join("?" * len(origins)) if origins is not None else ""
    mine = f"SELECT %s FROM outcomes WHERE origin_id IN ({marks})"
    for kind in KINDS:
        if kind not in wanted:
            continue
        where, values = "", tuple(sorted(origins)) if origins is not None else ()
        if origins is not None:
            if kind == "outcome":
                where = f"WHERE origin_id IN ({marks})"
            elif kind == "origin":
                where = f"WHERE id IN ({marks})"
            elif kind in ("search", "retraction"):
                where = f"WHERE json_extract(body, '$.origin_id') IN ({marks})"
            else:
                column = "case_id" if kind == "case" else "id"
                where = f"WHERE {column} IN ({mine % (kind + '_id')})"
        columns = ", ".join(_OUTCOME_NAMES) if kind == "outcome" else "id, body"
        for found in connection.execute(f"SELECT {columns} FROM {TABLE_OF[kind]} {where} ORDER BY id", values):
            body = outcome_body(dict(zip(_OUTCOME_NAMES, found, strict=True))) if kind == "outcome" else json.loads(found[1])
            yield Row(kind, found[0], body)
