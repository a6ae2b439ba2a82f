"""What a cache knows before a search begins: a recipe for this very case, one for its family, or that all was tried in vain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autofix.family import Cause, Precedent
from autofix.ids import canonical_json, content_id
from autofix.ranking import minor_versions
from autofix.recipe import Recipe
from autofix.target import Effect, Target
from autofix.trial import Stage

if TYPE_CHECKING:
    from autofix.cache import Cache

_EFFECTS = (Effect.EXACT, Effect.APPROXIMATE, Effect.NARROWING)
LEAST_WEIGHT = 0.5
"""Hints from an origin that weighs less are left out: they cost more trials than they save."""
PER_RETRACTION = 10
"""An outcome that proved wrong weighs as much as this many that did not."""


@dataclass(frozen=True)
class Hopeless:
    """A recorded search that tried everything with these versions and strategies and did not succeed."""

    environment: dict[str, str]
    trials: int
    stage: str
    symptom: str
    nearest: Recipe | None

    def to_json(self) -> dict[str, Any]:
        nearest = self.nearest.to_json() if self.nearest else None
        return {"environment": self.environment, "trials": self.trials, "stage": self.stage, "symptom": self.symptom, "nearest": nearest}

    def __str__(self) -> str:
        versions = ", ".join(
            f"{name} {self.environment[name]}" for name in ("torch", "onnx", "onnxruntime", "onnxscript") if name in self.environment
        )
        tried = f"{self.trials} trial{'s' if self.trials != 1 else ''}"
        return f"known not repairable with {versions}: {tried} came to {self.stage} ({self.symptom}); --retry tries again"


def origin_weight(outcomes: int, retracted: int) -> float:
    """1 for an origin without retractions, less with each: (n + 20) / (n + 20 + 10 r). Three of a few outcomes bring it below LEAST_WEIGHT."""
    return (outcomes + 20) / (outcomes + 20 + PER_RETRACTION * retracted)


def weights_of(cache: Cache, origins: set[str]) -> dict[str, float]:
    """The weight of each origin, by what the local cache and its layers hold; that of the file that has seen the most doubts counts."""
    weights = dict.fromkeys(origins, 1.0)
    wanted = json.dumps(sorted(origins))
    for query in cache._readers():
        gone = query(
            "SELECT o.origin_id, count(DISTINCT o.id) FROM retractions r JOIN outcomes o ON o.id = r.outcome_id "
            "WHERE o.origin_id IN (SELECT value FROM json_each(?)) GROUP BY 1",
            wanted,
        )
        for name, retracted in gone:
            # The first ten thousand are enough: beyond, a few retractions weigh nothing. Keeps the look-up short in a large file.
            outcomes = query("SELECT count(*) FROM (SELECT 1 FROM outcomes WHERE origin_id = ? LIMIT 10000)", name)[0][0]
            weights[name] = min(weights[name], origin_weight(outcomes, retracted))
    return weights


def known_recipe(cache: Cache, case_id: str, environment: dict[str, str], target: Target) -> Recipe | None:
    """See Cache.known_recipe."""
    here, wanted = content_id(environment), content_id(target.to_json())
    passes: dict[str, list[tuple[Any, ...]]] = {}
    failed: set[str] = set()
    columns = "id, recipe_id, environment_id, target_id, effect, origin_id"
    for query in cache._readers():
        for row in query(f"SELECT {columns} FROM outcomes WHERE case_id = ? AND verdict = 'pass'", case_id):
            if target.allows(Effect(row[4])):
                passes.setdefault(row[1], []).append(row)
    passes = believed(cache, passes)
    if not passes:
        return None
    for query in cache._readers():
        sql = "SELECT recipe_id FROM outcomes WHERE case_id = ? AND verdict <> 'pass' AND environment_id = ? AND target_id = ?"
        failed.update(r for (r,) in query(sql, case_id, here, wanted))
    sql = "SELECT id, json_array_length(body, '$.fixes') FROM recipes WHERE id IN (SELECT value FROM json_each(?))"
    lengths = {name: length or 0 for query in cache._readers() for name, length in query(sql, json.dumps(list(passes)))}
    ranked = []
    for recipe_id, rows in passes.items():
        known_here = any(row[2] == here for row in rows)
        if recipe_id in lengths and (known_here or recipe_id not in failed):
            effect = min(_EFFECTS.index(Effect(row[4])) for row in rows)
            ranked.append(
                (
                    not known_here,
                    effect,
                    all(row[3] != wanted for row in rows),
                    -max(row[6] for row in rows),
                    lengths[recipe_id],
                    -len({r[0] for r in rows}),
                    recipe_id,
                )
            )
    # The best that can be read: a recipe of another version of autofix may not be.
    return next((recipe for *_, recipe_id in sorted(ranked) if (recipe := cache.recipe(recipe_id)) is not None), None)


def believed(cache: Cache, passes: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    """The passes (rows that begin with id and end with origin_id) that nobody withdrew and whose origin has weight, which is added to them."""
    withdrawn = withdrawn_of(cache, [row[0] for rows in passes.values() for row in rows])
    weights = weights_of(cache, {row[-1] for rows in passes.values() for row in rows if row[-1]})
    weights |= dict.fromkeys([content_id(cache.origin)], 1.0)  # one's own eyes
    kept = {
        name: [(*row, weight) for row in rows if row[0] not in withdrawn and (weight := weights.get(row[-1], 1.0)) >= LEAST_WEIGHT]
        for name, rows in passes.items()
    }
    return {name: rows for name, rows in kept.items() if rows}


def withdrawn_of(cache: Cache, outcomes: list[str]) -> set[str]:
    """Those that some cache or layer has retracted: an outcome and its retraction may stand in different files."""
    sql = "SELECT outcome_id FROM retractions WHERE outcome_id IN (SELECT value FROM json_each(?))"
    return {name for query in cache._readers() for (name,) in query(sql, json.dumps(outcomes))} if outcomes else set()


def known_hopeless(cache: Cache, case_id: str, environment: dict[str, str], target: Target, strategies: str) -> Hopeless | None:
    """See Cache.known_hopeless."""
    wanted = {
        "case_id": case_id,
        "environment_id": content_id(environment),
        "target_id": content_id(target.to_json()),
        "strategies": strategies,
        "stopped": "exhausted",
    }
    found: list[dict[str, Any]] = []
    for query in cache._readers():
        for (text,) in query("SELECT body FROM searches WHERE case_id = ?", case_id):
            body = json.loads(text)
            if all(body[name] == value for name, value in wanted.items()):
                found.append(body)
    if not found or known_recipe(cache, case_id, environment, target) is not None:
        return None
    best = max(found, key=lambda b: (b["trials"], canonical_json(b)))
    return Hopeless(environment, best["trials"], best["stage"], best["symptom"], cache.recipe(best["nearest_id"]))


def family_precedent(cache: Cache, family: str, case_id: str, environment: Mapping[str, Any], target: Target) -> Precedent | None:
    """The recipe that has passed for most models of a family, other than this one, at these minor versions.

    None where there is none, or where the stock export has passed for one: then it comes first here too.
    """
    versions = minor_versions({k: str(v) for k, v in environment.items()})
    siblings: set[str] = set()
    for query in cache._readers():
        siblings.update(c for (c,) in query("SELECT case_id FROM families WHERE family = ? LIMIT 200", family))
    siblings.discard(case_id)
    wanted = json.dumps(sorted(siblings))
    passes: dict[str, list[tuple[Any, ...]]] = {}
    causes: dict[str, dict[Cause, None]] = {}
    inside = "case_id IN (SELECT value FROM json_each(?))"
    for query in cache._readers() if siblings else []:
        sql = f"SELECT id, recipe_id, case_id, effect, origin_id FROM outcomes WHERE {inside} AND verdict = 'pass' AND versions = ? LIMIT 2000"
        for row in query(sql, wanted, versions):
            if target.allows(Effect(row[3])):
                passes.setdefault(row[1], []).append(row)
        sql = f"SELECT DISTINCT added, cause_symptom, cause_operator, cause_stage FROM outcomes WHERE {inside} AND cause_symptom <> '' LIMIT 2000"
        for added, symptom, operator, stage in query(sql, wanted):
            for strategy in json.loads(added):
                causes.setdefault(strategy, {})[symptom, operator, Stage(stage).name.lower()] = None
    found = [(rows, recipe) for name, rows in believed(cache, passes).items() if (recipe := cache.recipe(name)) is not None]
    if not found or any(not recipe.fixes for _, recipe in found):
        return None
    _, best = max(found, key=lambda pair: (len({row[2] for row in pair[0]}), -len(pair[1].fixes), pair[1].id))
    return Precedent(best, {strategy: tuple(sorted(c)) for strategy, c in causes.items()})
