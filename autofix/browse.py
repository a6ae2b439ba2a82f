"""Looking into a cache: counts, the outcomes of a case, integrity, and thinning out."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autofix.errors import CacheError
from autofix.known import origin_weight
from autofix.migrations import counts_of, rebuild_rates
from autofix.recipe import Recipe
from autofix.row_checks import KINDS, Refused, check_body
from autofix.store import TABLE_OF, read_rows, today
from autofix.trial import Stage

if TYPE_CHECKING:
    from autofix.cache import Cache


def stats(cache: Cache) -> dict[str, Any]:
    """Counts by table, verdict, origin and symptom, and where the file is."""
    connection = cache.connection

    def pairs(sql: str) -> dict[str, int]:
        return {str(name): int(count) for name, count in connection.execute(sql)}

    cases = connection.execute(
        "SELECT count(DISTINCT case_id), count(DISTINCT CASE WHEN verdict = 'pass' THEN case_id END) FROM outcomes "
        "WHERE case_id NOT IN ('-', 'shipped')"
    ).fetchone()
    return {
        "path": str(cache.path) if cache.path else "memory",
        "problem": cache.problem,
        "layers": [str(path) for path, _ in cache.layers],
        "bytes": connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0],
        "rows": {TABLE_OF[kind]: connection.execute(f"SELECT count(*) FROM {TABLE_OF[kind]}").fetchone()[0] for kind in KINDS},
        "cases_tried": cases[0],
        "cases_repaired": cases[1],
        "verdicts": pairs("SELECT verdict, count(*) FROM outcomes GROUP BY 1 ORDER BY 2 DESC"),
        "symptoms": pairs("SELECT symptom, count(*) FROM outcomes WHERE symptom <> '' GROUP BY 1 ORDER BY 2 DESC LIMIT 15"),
        "strategies": {
            name: {"tries": tries, "rate": round(gain / 10 / tries, 3), "seconds": round(ms / 1000 / tries, 3)}
            for name, tries, gain, ms in connection.execute(
                "SELECT strategy, sum(tries), sum(gain), sum(ms) FROM rates WHERE key = '*' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 100"
            )
        },
        "origins": origins(connection),
    }


def origins(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Who recorded how much, how much of it was withdrawn, and what the hints of each weigh (known.py)."""
    rows = connection.execute(
        "SELECT o.origin_id, count(*), (SELECT body FROM origins WHERE id = o.origin_id), "
        "(SELECT count(*) FROM retractions r JOIN outcomes p ON p.id = r.outcome_id WHERE p.origin_id = o.origin_id) "
        "FROM outcomes o GROUP BY 1 ORDER BY 2 DESC"
    )
    unknown = {"team": "", "user": "", "machine": ""}
    return [
        {"id": name, **(json.loads(body) if body else unknown), "outcomes": count, "retracted": gone, "weight": round(origin_weight(count, gone), 2)}
        for name, count, body, gone in rows
    ]


def origin_ids(connection: sqlite3.Connection, words: Sequence[str]) -> set[str]:
    """The ids of origins whose team, user, machine kind or id is one of `words`. Raises CacheError for a word that fits none."""
    found: set[str] = set()
    for word in words:
        fits = {o["id"] for o in origins(connection) if o["id"] and word in (o["id"], o["team"], o["user"], o["machine"])}
        if not fits:
            raise CacheError(f"no origin {word!r} in this cache; `autofix cache stats` lists them")
        found |= fits
    return found


def one_id(connection: sqlite3.Connection, table: str, column: str, prefix: str) -> str:
    """The one id in a column that starts with `prefix`. Raises CacheError where there is none or more than one."""
    found = {
        row[0] for row in connection.execute(f"SELECT DISTINCT {column} FROM {table} WHERE substr({column}, 1, ?) = ? LIMIT 3", (len(prefix), prefix))
    }
    if prefix in found:
        return prefix
    if len(found) != 1:
        raise CacheError(
            f"{'no' if not found else 'more than one'} {column.replace('_id', '')} starts with {prefix!r}; `autofix cache show CASE` lists them"
        )
    return str(found.pop())


def show(cache: Cache, prefix: str) -> list[dict[str, Any]]:
    """Every outcome of the cases whose id or name starts with `prefix`: how far it came, the best first."""
    connection = cache.connection
    names: dict[str, str] = {}
    pattern = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    for case_id, body in connection.execute(
        "SELECT case_id, body FROM cases WHERE case_id LIKE ? ESCAPE '\\' OR json_extract(body, '$.name') LIKE ? ESCAPE '\\' ORDER BY id DESC",
        (pattern, pattern),
    ):
        names[case_id] = json.loads(body)["name"] or names.get(case_id, "")
    for (case_id,) in connection.execute("SELECT DISTINCT case_id FROM outcomes WHERE case_id LIKE ? ESCAPE '\\'", (pattern,)):
        names.setdefault(case_id, "")
    found = []
    for case_id, name in sorted(names.items()):
        for row in connection.execute(
            "SELECT o.id, o.recipe_id, r.body, o.stage, o.verdict, o.symptom, o.operator, o.effect, o.ms, o.versions, o.added, "
            "EXISTS (SELECT 1 FROM retractions x WHERE x.outcome_id = o.id) FROM outcomes o LEFT JOIN recipes r ON r.id = o.recipe_id "
            "WHERE o.case_id = ? ORDER BY o.verdict = 'pass' DESC, o.stage DESC, o.ms, o.id",
            (case_id,),
        ):
            try:
                recipe = str(Recipe.from_json(json.loads(row[2]))) if row[2] else "(not shared)"
            except (TypeError, ValueError, KeyError):
                recipe = "(of another version)"
            found.append(
                {
                    "case": case_id,
                    "name": name,
                    "outcome": row[0],
                    "recipe_id": row[1],
                    "recipe": recipe,
                    "stage": Stage(row[3]).name.lower(),
                    "verdict": row[4],
                    "symptom": row[5],
                    "operator": row[6],
                    "effect": row[7],
                    "seconds": row[8] / 1000,
                    "versions": row[9],
                    "added": json.loads(row[10]),
                    "retracted": bool(row[11]),
                }
            )
    return found


def verify(connection: sqlite3.Connection) -> list[str]:
    """What is wrong with a cache file, one line each; an empty list where all is well."""
    from autofix.ids import content_id

    faults: list[str] = []
    try:
        faults += [f"file: {text}" for (text,) in connection.execute("PRAGMA integrity_check(5)") if text != "ok"]
        if faults:
            return faults
        for kind in KINDS:
            bad: dict[str, int] = {}
            for row in read_rows(connection, [kind]):
                try:
                    check_body(kind, row.body)
                    why = "" if content_id(row.body) == row.id else "wrong hash"
                except (Refused, ValueError, KeyError, TypeError) as error:
                    why = str(error)
                if why:
                    bad[why] = bad.get(why, 0) + 1
            faults += [f"{TABLE_OF[kind]}: {count} rows: {why}" for why, count in bad.items()]
        live = "(SELECT * FROM outcomes WHERE id NOT IN (SELECT outcome_id FROM retractions))"
        counted, kept = f"SELECT * FROM ({counts_of(live)})", "SELECT * FROM rates WHERE tries <> 0"
        different = connection.execute(
            f"SELECT (SELECT count(*) FROM ({counted} EXCEPT {kept})) + (SELECT count(*) FROM ({kept} EXCEPT {counted}))"
        ).fetchone()[0]
        if different:
            faults.append(f"rates: {different} counts differ from the outcomes; autofix cache gc counts anew")
    except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
        faults.append(f"file: {error}")
    return faults


def collect_garbage(connection: sqlite3.Connection, older_than_days: int | None) -> dict[str, int]:
    """Drops withdrawn outcomes, those seen longer ago than given, and what nothing refers to any more; counts anew and shrinks the file."""
    dropped: dict[str, int] = {}
    connection.execute("BEGIN IMMEDIATE")
    try:
        before = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLE_OF.values()}
        # Retractions stay: without them a merge would bring the withdrawn outcome back to life.
        connection.execute("DELETE FROM outcomes WHERE id IN (SELECT outcome_id FROM retractions)")
        if older_than_days is not None:
            connection.execute("DELETE FROM outcomes WHERE seen < ?", (today() - older_than_days,))
        for table in ("cases", "searches", "families"):
            connection.execute(f"DELETE FROM {table} WHERE case_id NOT IN (SELECT case_id FROM outcomes)")
        connection.execute(
            "DELETE FROM recipes WHERE id NOT IN (SELECT recipe_id FROM outcomes) AND id NOT IN (SELECT parent_id FROM outcomes) "
            "AND id NOT IN (SELECT json_extract(body, '$.nearest_id') FROM searches)"
        )
        for table, column in (("environments", "environment_id"), ("targets", "target_id")):
            connection.execute(
                f"DELETE FROM {table} WHERE id NOT IN (SELECT {column} FROM outcomes) "
                f"AND id NOT IN (SELECT json_extract(body, '$.{column}') FROM searches)"
            )
        rebuild_rates(connection)
        dropped = {table: count - connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table, count in before.items()}
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return dropped
