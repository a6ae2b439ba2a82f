"""From the trials of a search to rows of the cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from autofix.ids import canonical_json
from autofix.ranking import capture_of, minor_versions, operator_of
from autofix.recipe import Recipe
from autofix.row_checks import Refused
from autofix.rows import Row, new_row
from autofix.target import Effect, Target
from autofix.trial import Diagnosis, Stage, Trial

if TYPE_CHECKING:
    from autofix.cache import Cache, CaseRecord

Cause = tuple[str, str, str, Recipe]
"""Symptom, operator and stage of a parent, and its recipe."""


def rows_of_search(
    cache: Cache,
    case: CaseRecord,
    environment: dict[str, str],
    target: Target,
    trials: Sequence[Trial],
    stopped: str,
    strategies: str,
    effect_of: Callable[[Recipe], Effect] | None,
) -> tuple[list[Row], list[str]]:
    """(rows, why some were left out). Raises Refused where the case, the environment or the target is no row."""
    from autofix.cache import clean

    modules = {clean(name, 120): int(count) for name, count in list(case.modules.items())[:500]}
    body = {"case_id": case.id, "name": clean(case.name, 200), "modules": modules, "symptom": clean(case.symptom, 300)}
    context = [
        new_row("origin", cache.origin),
        new_row("case", body | ({"family": case.family} if case.family else {})),
        new_row("environment", environment),
        new_row("target", target.to_json()),
    ]
    rows, lost = list(context), []
    ids = {"case_id": case.id, "environment_id": context[2].id, "target_id": context[3].id, "origin_id": context[0].id}
    by_recipe: dict[str, Trial] = {}
    for trial in trials:  # the first trial of a recipe is the one that its children grew from
        by_recipe.setdefault(trial.recipe.id, trial)
    versions = minor_versions(environment)
    for trial in trials:
        try:
            recipe = new_row("recipe", json.loads(canonical_json(trial.recipe.to_json())))
            body = _outcome(trial, _cause(cache, trial, by_recipe, ids), _effect(trial, target, effect_of), recipe.id)
            rows += [recipe, new_row("outcome", {**ids, **body, "versions": versions})]
        except (Refused, ValueError, TypeError) as error:
            lost.append(str(error))
    if stopped:
        rows.append(new_row("search", {**ids, "strategies": strategies, "stopped": stopped, **_nearest(trials)}))
    return rows, lost


def _outcome(trial: Trial, cause: Cause | None, effect: Effect, recipe_id: str) -> dict[str, Any]:
    symptom, operator = _facts(trial.diagnosis)
    cause_symptom, cause_operator, cause_stage, parent = cause or ("", "", "", trial.recipe)
    had = {fix.key() for fix in parent.fixes}
    added = sorted({fix.strategy for fix in trial.recipe.fixes if fix.key() not in had})
    return {
        "recipe_id": recipe_id,
        "parent_id": trial.parent or "",
        "added": added,
        "cause_symptom": cause_symptom,
        "cause_operator": cause_operator,
        "cause_stage": cause_stage,
        "symptom": symptom,
        "operator": operator,
        "stage": trial.stage.name.lower(),
        "verdict": trial.verdict.value,
        "capture": capture_of(parent),  # the mode in which the cause was seen: what ranking asks by
        "effect": effect.value,
        "ms": _milliseconds(trial.seconds),
        "cpu_ms": _milliseconds(trial.cpu_seconds),
    }


def _milliseconds(seconds: float) -> int:
    return round(min(max(seconds, 0.0), 1e6) * 1000)


def _facts(diagnosis: Diagnosis | None) -> tuple[str, str]:
    """Symptom and operator; messages, files and lines stay out of the cache."""
    return (diagnosis.symptom, operator_of(diagnosis)) if diagnosis else ("", "")


def _cause(cache: Cache, trial: Trial, by_recipe: dict[str, Trial], ids: dict[str, str]) -> Cause | None:
    if not trial.parent or trial.parent == trial.recipe.id:
        return None
    parent = by_recipe.get(trial.parent)
    if parent is not None:
        return (*_facts(parent.diagnosis), parent.stage.name.lower(), parent.recipe) if parent.diagnosis else None
    recipe = cache.recipe(trial.parent)
    found = cache.connection.execute(
        "SELECT symptom, operator, stage FROM outcomes WHERE case_id = ? AND recipe_id = ? AND environment_id = ? AND target_id = ? "
        "AND symptom <> '' ORDER BY id",
        (ids["case_id"], trial.parent, ids["environment_id"], ids["target_id"]),
    ).fetchone()
    if recipe is None or found is None:
        return None
    return found[0], found[1], Stage(found[2]).name.lower(), recipe


def _effect(trial: Trial, target: Target, effect_of: Callable[[Recipe], Effect] | None) -> Effect:
    if trial.effect_evidence:
        return Effect.NARROWING
    if effect_of is not None:
        return effect_of(trial.recipe)
    return Effect.join(list(target.allow)) if trial.recipe.fixes else Effect.EXACT


def _nearest(trials: Sequence[Trial]) -> dict[str, Any]:
    if not trials:
        return {"trials": 0, "nearest_id": "", "stage": "load", "symptom": ""}
    best = max(trials, key=lambda t: (t.stage, -len(t.recipe.fixes)))
    return {"trials": len(trials), "nearest_id": best.recipe.id, "stage": best.stage.name.lower(), "symptom": _facts(best.diagnosis)[0]}
