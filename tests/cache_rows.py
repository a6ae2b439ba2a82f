"""Made-up trials and caches for the tests of the cache."""

from __future__ import annotations

from pathlib import Path

from autofix.cache import Cache, CaseRecord
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
