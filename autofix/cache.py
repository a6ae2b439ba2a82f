"""The cache: outcomes of trials in SQLite, safe for many processes, merged by set union, read through team layers.

Rows are content-addressed and only ever added, so that caches merge to the same rows in any order. Counts by strategy and
symptom are kept in step in the same transaction (table `rates`), so that ranking does not slow down as outcomes grow.
A cache that can't be written or read any more says so in `problem` and never stops a repair.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import platform
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofix.connect import connect, default_path, in_memory, open_layer
from autofix.errors import CacheError
from autofix.ids import content_id
from autofix.migrations import CASE_COUNTS, FAMILY_COUNTS, rates_sum
from autofix.ranking import Rates, version_weight
from autofix.recipe import Recipe
from autofix.row_checks import Refused
from autofix.rows import Row, new_row
from autofix.store import add_rows, read_rows
from autofix.target import Effect, Target
from autofix.trial import Trial

if TYPE_CHECKING:
    from autofix.family import Precedent
    from autofix.known import Hopeless


@dataclass(frozen=True)
class CaseRecord:
    """What the cache knows of a case: class-name counts, its family (family.py) and one line of symptom; no weights and no source."""

    id: str
    name: str
    modules: Mapping[str, int] = field(default_factory=dict)
    symptom: str = ""
    family: str = ""


def default_origin() -> dict[str, str]:
    """Who records: AUTOFIX_TEAM, the user's login name, the kind of machine."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = ""
    return {"team": clean(os.environ.get("AUTOFIX_TEAM", ""), 80), "user": clean(user, 80), "machine": f"{platform.system()}-{platform.machine()}"}


def clean(text: str, limit: int) -> str:
    """The text on one line, printable and not too long."""
    return "".join(c if c.isprintable() else " " for c in str(text))[:limit]


def clean_environment(environment: Mapping[str, Any]) -> dict[str, str]:
    """Versions as short texts; what the id of an environment is made of."""
    return {str(k): clean(v, 200) for k, v in environment.items() if v is not None}


class Cache:
    """A local cache over read-only layers. Made by `Cache.open`; `problem` is one line when it reads or writes less than it should."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None, writable: bool, problem: str | None, origin: dict[str, str] | None) -> None:
        self.connection, self.path, self.writable, self.problem = connection, path, writable, problem
        self.origin = default_origin() if origin is None else origin
        self.layers: list[tuple[Path, sqlite3.Connection]] = []
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path | None, layers: Sequence[Path] = (), *, origin: dict[str, str] | None = None, seed: bool = True) -> Cache:
        """Opens or makes the cache at `path` (None: the default place) with team caches below it, read-only.

        Raises CacheError with one line for a broken file, a newer schema, a stranger's database, or a `path` in a folder that does not
        exist. A place that can't be written gives a cache that only reads, or one in memory, with `problem` set.
        """
        connection, writable, problem = connect(path)
        cache = cls(connection, path or default_path(), writable, problem, origin)
        for layer in layers:
            try:
                cache.layers.append((Path(layer), open_layer(Path(layer))))
            except (CacheError, sqlite3.Error, OSError) as error:
                cache._note(f"team cache left out: {error}")
        if seed and (writable or problem):
            cache._plant()
        return cache

    @classmethod
    def memory(cls, *, seed: bool = True) -> Cache:
        """A cache that forgets: shipped knowledge and what this process records."""
        connection = in_memory()
        cache = cls(connection, None, True, None, None)
        if seed:
            cache._plant()
        return cache

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file and the layers; safe to call twice."""
        for connection in (self.connection, *(c for _, c in self.layers)):
            connection.close()

    @property
    def db(self) -> Any:
        """The local file as a sqlite_utils.Database."""
        import sqlite_utils

        return sqlite_utils.Database(self.connection)

    def _note(self, problem: str) -> None:
        self.problem = self.problem or clean(problem, 300)

    def _plant(self) -> None:
        """Brings in the outcomes that ship with autofix, once for each edition of them."""
        from autofix.exchange import plant_seed

        try:
            with self._lock:
                plant_seed(self.connection)
        except (sqlite3.Error, OSError) as error:
            self._note(f"shipped outcomes not loaded: {error}")

    def record(
        self,
        case: CaseRecord,
        environment: Mapping[str, Any],
        target: Target,
        trials: Sequence[Trial],
        *,
        stopped: str = "",
        strategies: str = "",
        effect_of: Callable[[Recipe], Effect] | None = None,
    ) -> None:
        """Stores every trial as an outcome, failures too, in one transaction; the same trials again change nothing.

        A trial's parent is looked up in `trials`, then in the cache; its diagnosis is what the added fixes were proposed for. `stopped`
        ("exhausted", "solved", "budget", ...) with `strategies` (a hex id of those installed) records how the search ended.
        `effect_of` gives a recipe's effect; without it the worst is taken that the target allows.
        """
        from autofix.observe import rows_of_search

        if not self.writable:
            return
        try:
            with self._lock:
                rows, lost = rows_of_search(self, case, clean_environment(environment), target, trials, stopped, strategies, effect_of)
                add_rows(self.connection, rows)
            if lost:
                self._note(f"{len(lost)} rows not recorded: {lost[0]}")
        except Refused as error:
            self._note(f"not recorded: {error}")
        except sqlite3.Error as error:
            self._note(f"{self.path}: not recorded: {error}")

    def known_recipe(self, case_id: str, environment: Mapping[str, Any], target: Target) -> Recipe | None:
        """The best recipe that has passed for this very case and whose effect the target allows; a hint, to be verified again.

        Preferred: this environment, this target, exact effects, origins that were seldom wrong, few fixes, many passes. Left out: retracted
        outcomes, those of origins that were wrong too often, and recipes that only failed in this environment.
        """
        from autofix.known import known_recipe

        return known_recipe(self, case_id, clean_environment(environment), target)

    def recipe(self, recipe_id: str) -> Recipe | None:
        """A recorded recipe by its id; None also for one that only another version of autofix can read."""
        for query in self._readers():
            for (body,) in query("SELECT body FROM recipes WHERE id = ?", recipe_id):
                with contextlib.suppress(TypeError, ValueError, KeyError, AttributeError):
                    return Recipe.from_json(json.loads(body))
        return None

    def known_hopeless(self, case_id: str, environment: Mapping[str, Any], target: Target, strategies: str = "") -> Hopeless | None:
        """A recorded search for this case, with these versions, target and strategies, that ran out of recipes; None when any differs."""
        from autofix.known import known_hopeless

        return known_hopeless(self, case_id, clean_environment(environment), target, strategies)

    def family_precedent(self, family: str, case_id: str, environment: Mapping[str, Any], target: Target) -> Precedent | None:
        """What has repaired most other models of this family (family.py) at these minor versions; None where nothing has, or nothing needed to."""
        from autofix.known import family_precedent

        return family_precedent(self, family, case_id, clean_environment(environment), target) if family else None

    def retract(self, case_id: str, recipe_id: str, reason: str, *, environment: Mapping[str, Any] | None = None) -> int:
        """Withdraws every pass recorded so far of this recipe for this case (in one environment, where given), here and in what is exported.

        Returns how many outcomes were withdrawn. A later pass, observed anew, counts again.
        """
        where, values = "case_id = ? AND recipe_id = ? AND verdict = 'pass'", [case_id, recipe_id]
        if environment is not None:
            where, values = where + " AND environment_id = ?", [*values, content_id(clean_environment(environment))]
        outcomes = {row[0] for query in self._readers() for row in query(f"SELECT id FROM outcomes WHERE {where}", *values)}
        if not self.writable or not outcomes:
            return 0
        origin = new_row("origin", self.origin)
        rows = [origin, *(new_row("retraction", {"outcome_id": o, "reason": clean(reason, 200), "origin_id": origin.id}) for o in sorted(outcomes))]
        try:
            with self._lock:
                add_rows(self.connection, rows)
        except sqlite3.Error as error:
            self._note(f"{self.path}: not retracted: {error}")
            return 0
        return len(outcomes)

    def rates(self) -> Rates:
        """Counts for Ranking, from the local cache and its layers, read as they are needed."""

        def source(query: Callable[..., list[tuple[Any, ...]]]) -> Callable[[str], list[tuple[Any, ...]]]:
            def counts(key: str) -> list[tuple[Any, ...]]:
                if key.startswith("case "):
                    return query(CASE_COUNTS, *key[5:].rsplit(" ", 1))
                if key.startswith("family "):
                    return query(FAMILY_COUNTS, *key[7:].rsplit(" ", 1))
                return query("SELECT strategy, versions, tries, gain, ms FROM rates WHERE key = ?", key)

            return counts

        readers = self._readers()

        def summed(key: str, ours: str) -> list[tuple[str, float, float, float]] | None:
            if len(readers) > 1 or key.startswith(("case ", "family ")):
                return None
            versions = [v for (v,) in readers[0]("SELECT DISTINCT versions FROM rates WHERE key = ?", key)]
            return readers[0](rates_sum(len(versions)), *(x for v in versions for x in (v, version_weight(v, ours))), key) if versions else []

        return Rates(*(source(query) for query in readers), summed=summed)

    def rows(self, kinds: Iterable[str] | None = None, *, origins: set[str] | None = None) -> Iterator[Row]:
        """All local rows in export order; with `origins`, only what these recorded and what it refers to."""
        return read_rows(self.connection, kinds, origins)

    def stats(self) -> dict[str, Any]:
        """Counts by table, verdict, origin and symptom, and where the file is."""
        from autofix.browse import stats

        return stats(self)

    def show(self, prefix: str) -> list[dict[str, Any]]:
        """Every outcome of the cases whose id or name starts with `prefix`, the best first."""
        from autofix.browse import show

        return show(self, prefix)

    def _readers(self) -> list[Callable[..., list[tuple[Any, ...]]]]:
        """A query function for each file, local first; a file that fails is noted and reads as empty."""

        def reader(connection: sqlite3.Connection, name: object) -> Callable[..., list[tuple[Any, ...]]]:
            def query(sql: str, *values: Any) -> list[tuple[Any, ...]]:
                try:
                    return connection.execute(sql, values).fetchall()
                except sqlite3.Error as error:
                    self._note(f"{name}: not read: {error}")
                    return []

            return query

        return [reader(self.connection, self.path), *(reader(c, p) for p, c in self.layers)]
