"""Made-up trials and caches for the tests of the cache."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from autofix.cache import Cache, CaseRecord
from autofix.connect import in_memory
from autofix.exchange import export_lines
from autofix.recipe import Fix, Level, Recipe
from autofix.target import Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict

ENV = {"torch": "2.13.0+cpu", "onnx": "1.23.2", "onnxruntime": "1.32.0", "onnxscript": "0.7.2", "python": "3.11.7", "platform": "Linux"}
OLD = {**ENV, "torch": "2.12.1", "onnxruntime": "1.31.0"}
TARGET = Target()
STOCK = Recipe()
MISSING = Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default", "file": "/home/me/model.py", "line": "3"})
WRONG = Diagnosis("mismatch-at-example", Stage.PARITY, {"message": "off by 1"})


def fix(strategy: str = "add_lgamma", **params: object) -> Fix:
    return Fix(strategy, Level.PROGRAM, dict(params))


def stock(seconds: float = 1.0) -> Trial:
    return Trial(STOCK, Stage.CONVERT, Verdict.FAIL, MISSING, seconds=seconds)


def passed(*fixes: Fix, seconds: float = 2.0, parent: Recipe | None = STOCK) -> Trial:
    return Trial(Recipe(fixes), Stage.DONE, Verdict.PASS, seconds=seconds, parent=parent.id if parent else None)


def failed(*fixes: Fix, stage: Stage = Stage.CONVERT, diagnosis: Diagnosis = MISSING, seconds: float = 2.0, parent: Recipe = STOCK) -> Trial:
    return Trial(Recipe(fixes), stage, Verdict.FAIL, diagnosis, seconds=seconds, parent=parent.id)


def case(name: str = "one") -> CaseRecord:
    return CaseRecord(name * 3, f"{name}.py:Model", {"Linear": 2, "GELU": 1}, "unsupported-operator: aten.lgamma")


def opened(folder: Path, name: str = "cache.db", user: str = "ann") -> Cache:
    return Cache.open(folder / name, origin={"team": "blue", "user": user, "machine": "Linux-x86_64"}, seed=False)


def text(connection: sqlite3.Connection, redact: bool = False) -> str:
    return "".join(export_lines(connection, redact=redact))


def known(count: int = 12) -> list[bytes]:
    """Export lines with every kind of row: several cases, environments, origins, a search and retractions."""
    lines: set[bytes] = set()
    for user in ("ann", "bob"):
        with Cache(in_memory(), None, True, None, {"team": "blue", "user": user, "machine": "x"}) as cache:
            for n in range(count):
                trials = [stock(), failed(fix("far"), stage=Stage.PARITY, diagnosis=WRONG), passed(fix(n=n % 3), seconds=n)]
                cache.record(case(f"c{n % 4}"), OLD if n % 2 else ENV, TARGET, trials, stopped="solved")
            cache.retract(case("c1").id, passed(fix(n=1)).recipe.id, "wrong")
            lines |= {line.rstrip("\n").encode() for line in export_lines(cache.connection)}
    return sorted(lines)


LINES = known()
