"""The schema of a cache file, version by version: older files are brought up to date, newer ones are refused."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from autofix.errors import CacheError

APPLICATION_ID = 0x61666978  # "afix", so that a stranger's database is never written to

OUTCOME_COLUMNS = (
    "id TEXT PRIMARY KEY, case_id TEXT, environment_id TEXT, target_id TEXT, recipe_id TEXT, parent_id TEXT, origin_id TEXT, added TEXT, "
    "cause_symptom TEXT, cause_operator TEXT, cause_stage INTEGER, symptom TEXT, operator TEXT, stage INTEGER, verdict TEXT, capture TEXT, "
    "effect TEXT, versions TEXT, ms INTEGER, cpu_ms INTEGER, seen INTEGER"
)

TABLES = {
    "origins": "id TEXT PRIMARY KEY, body TEXT",
    "cases": "id TEXT PRIMARY KEY, case_id TEXT, body TEXT",
    "environments": "id TEXT PRIMARY KEY, body TEXT",
    "targets": "id TEXT PRIMARY KEY, body TEXT",
    "recipes": "id TEXT PRIMARY KEY, body TEXT",
    "searches": "id TEXT PRIMARY KEY, case_id TEXT, body TEXT",
    "outcomes": OUTCOME_COLUMNS,
    "retractions": "id TEXT PRIMARY KEY, outcome_id TEXT, body TEXT",
}
"""Columns of each table. `seen` (days since 1970) is local: no part of the content, so not of the id either."""

# Tenths. A fix that only moved the failure to another operator or symptom of the same stage has probably done its own
# work on a model with two faults, so it is not counted as a plain failure.
GAIN = """CASE WHEN verdict = 'pass' THEN 10 WHEN symptom IN ('nothing-to-do', 'apply-error') THEN 0 WHEN stage > cause_stage THEN 6
    WHEN stage = cause_stage AND (symptom <> cause_symptom OR operator <> cause_operator)
        AND symptom NOT IN ('crash', 'timeout', 'out-of-memory') THEN 3 ELSE 0 END"""

KEYS = (
    "'*'",
    "'symptom ' || cause_symptom",
    "'kind ' || cause_symptom || ' ' || capture || ' ' || cause_operator",
)
"""What outcomes are counted by, from the root to the more particular; ranking.keys_of says the same in Python. The most particular, the
case, is not kept in step: a case has few outcomes, and a count for each would be as long as the outcomes themselves."""

CASE_COUNTS = f"""SELECT value, versions, count(*), sum(gain), sum(ms) FROM (SELECT added, versions, {GAIN} AS gain, ms FROM outcomes
    WHERE case_id = ? AND cause_symptom = ? AND id NOT IN (SELECT outcome_id FROM retractions) LIMIT 2000) AS o, json_each(o.added) GROUP BY 1, 2"""

FAMILY_COUNTS = CASE_COUNTS.replace("case_id = ?", "case_id IN (SELECT case_id FROM families WHERE family = ? LIMIT 200)")


def rates_sum(versions: int) -> str:
    """Sums over versions, each by its weight: takes (version, weight) for each of them, then the key."""
    weight = f"CASE versions {'WHEN ? THEN ? ' * versions}ELSE 0 END"
    rows = f"SELECT strategy, tries, gain, ms, {weight} AS w FROM rates WHERE key = ?"
    return f"SELECT strategy, sum(w * tries), sum(w * gain), sum(w * ms) FROM ({rows}) GROUP BY strategy"


# A table, because an index over json_extract can't be written with trusted_schema off.
FAMILIES_OF = """INSERT OR IGNORE INTO families SELECT json_extract(body, '$.family'), case_id FROM {}
    WHERE json_extract(body, '$.family') IS NOT NULL"""


def counts_of(outcomes: str) -> str:
    """SELECT of key, strategy, versions, tries, gain (tenths) and ms over the outcomes of a table expression.

    Counted once by all that any key names; the keys add these up, which are few.
    """
    counted = f"""WITH counted AS MATERIALIZED (SELECT cause_symptom, capture, cause_operator, value AS strategy, versions, count(*) AS tries,
        sum({GAIN}) AS gain, sum(ms) AS ms FROM {outcomes} AS o, json_each(o.added) WHERE cause_symptom <> '' GROUP BY 1, 2, 3, 4, 5) """
    return counted + " UNION ALL ".join(
        f"SELECT {key} AS key, strategy, versions, sum(tries) AS tries, sum(gain) AS gain, sum(ms) AS ms FROM counted GROUP BY 1, 2, 3"
        for key in KEYS
    )


def _tables(connection: sqlite3.Connection) -> None:
    for name, columns in TABLES.items():
        # Outcomes are kept in order of arrival: in the order of their ids, which are hashes, each merge would rewrite the whole file.
        connection.execute(f"CREATE TABLE {name} ({columns}){'' if name == 'outcomes' else ' WITHOUT ROWID'}")
    connection.execute("CREATE INDEX cases_case ON cases (case_id)")
    connection.execute("CREATE INDEX searches_case ON searches (case_id)")
    connection.execute("CREATE INDEX outcomes_case ON outcomes (case_id, verdict)")
    connection.execute("CREATE INDEX retractions_outcome ON retractions (outcome_id)")
    connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")


def _rates(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE rates (key TEXT, strategy TEXT, versions TEXT, tries INTEGER, gain INTEGER, ms INTEGER, "
        "PRIMARY KEY (key, strategy, versions)) WITHOUT ROWID"
    )
    rebuild_rates(connection)


def rebuild_rates(connection: sqlite3.Connection) -> None:
    """Counts all outcomes anew, inside the caller's transaction."""
    connection.execute("DELETE FROM rates")
    live = "(SELECT * FROM outcomes WHERE id NOT IN (SELECT outcome_id FROM retractions))"
    connection.execute(f"INSERT INTO rates {counts_of(live)}")


def _remotes(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE segments (remote TEXT, name TEXT, merged INTEGER, PRIMARY KEY (remote, name)) WITHOUT ROWID")
    connection.execute("CREATE TABLE shared (remote TEXT, id TEXT, PRIMARY KEY (remote, id)) WITHOUT ROWID")


def _families(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE families (family TEXT, case_id TEXT, PRIMARY KEY (family, case_id)) WITHOUT ROWID")
    connection.execute(FAMILIES_OF.format("cases"))
    # Withdrawn and counted by origin; and without it an export of one team's rows reads the whole table.
    connection.execute("CREATE INDEX outcomes_origin ON outcomes (origin_id)")


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (_tables, _rates, _remotes, _families, rebuild_rates)
"""The step from version n to n + 1; a step that has been released is never changed."""


def version_of(connection: sqlite3.Connection, path: str) -> int:
    """The file's schema version, 0 for an empty file. Raises CacheError for a stranger's or a newer file."""
    connection.execute("BEGIN")  # one moment for all three: another process may be making the file just now
    try:
        version, owner, tables = (
            int(connection.execute(sql).fetchone()[0])
            for sql in ("PRAGMA user_version", "PRAGMA application_id", "SELECT count(*) FROM sqlite_master")
        )
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if owner != APPLICATION_ID and (version or owner or tables):
        raise CacheError(f"{path}: a SQLite database, but not an autofix cache; pass another file with --cache")
    if version > len(MIGRATIONS):
        raise CacheError(
            f"{path}: written by a newer autofix (schema {version}, this one knows {len(MIGRATIONS)}); "
            "upgrade autofix or pass another file with --cache"
        )
    return version


def migrate(connection: sqlite3.Connection, path: str, upto: int | None = None) -> None:
    """Brings the file up to date in one transaction, safe against others that do the same at the same moment."""
    last = len(MIGRATIONS) if upto is None else upto
    if version_of(connection, path) >= last:
        return
    _write_ahead(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for step in MIGRATIONS[version_of_locked(connection) : last]:
            step(connection)
        connection.execute(f"PRAGMA user_version = {last}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def version_of_locked(connection: sqlite3.Connection) -> int:
    """The version, read again under the write lock: another process may have migrated in between."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switches to WAL. SQLite does not wait for a lock here, so several processes on a new file have to try again."""
    for attempt in range(200):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or attempt == 199:
                raise
            time.sleep(0.01)
