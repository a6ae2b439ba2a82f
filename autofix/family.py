"""Models of one family: the same modules and operators at other sizes. What has repaired one is proposed first for the next.

A family's record gives a hint, never a recipe as it stands: each of its strategies is asked again, with this model's own facts, and
what it then proposes is tried before the stock export and verified like anything else. A strategy that proposes nothing ends the hint.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autofix.ids import content_id
from autofix.recipe import Fix, Recipe
from autofix.strategy import Evidence, Strategy
from autofix.target import ExportConfig, Target
from autofix.trial import Diagnosis, Stage

Cause = tuple[str, str, str]
"""Symptom, operator and stage of what a fix was proposed for."""


@dataclass(frozen=True)
class Precedent:
    """A recipe that has passed for another model of the family, and what each of its strategies was proposed for."""

    recipe: Recipe
    causes: Mapping[str, tuple[Cause, ...]]


def family_id(facts: Mapping[str, Any]) -> str:
    """Equal for models with the same module classes, operators, kinds of inputs and outputs; sizes, counts and weights don't matter.

    Empty where nothing is known of the model (reference.py's facts are missing).
    """
    if not facts.get("operators") or not facts.get("modules"):
        return ""
    sites = sorted({str(site.get("kind", "")) for site in facts.get("sites", ())})
    # Where a value decides, the operators that ran are those of the branch that the example took: then what the source calls.
    does = sorted(called(facts.get("sources", {}).values())) if sites else sorted(facts["operators"])
    inputs = [[i["name"], i["kind"], i["dtype"], len(i["shape"]), sorted(i["axes"])] for i in facts.get("inputs", ())]
    outputs = [[o["name"], o["dtype"], len(o["shape"])] for o in facts.get("outputs", ())]
    kept = {"buffers": bool(facts.get("mutated_buffers")), "random": sorted(facts.get("random_operators", ()))}
    return content_id([sorted(facts["modules"]), does, inputs, outputs, sites, kept])


def called(sources: Iterable[str]) -> set[str]:
    """Names of the functions and methods that classes in these texts call."""
    names: set[str] = set()
    for text in sources:
        try:
            classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
        except (SyntaxError, ValueError):
            continue
        for node in (inner for one in classes for inner in ast.walk(one) if isinstance(inner, ast.Call)):
            names |= {node.func.attr} if isinstance(node.func, ast.Attribute) else {node.func.id} if isinstance(node.func, ast.Name) else set()
    return names


def rebuilt(
    precedent: Precedent,
    registry: Mapping[str, Strategy],
    facts: dict[str, Any],
    target: Target,
    config_of: Callable[[Recipe], ExportConfig],
) -> Recipe | None:
    """The recipe as its strategies propose it for the model of these facts; None where one of them does not."""
    recipe = Recipe((), precedent.recipe.start)
    for fix in precedent.recipe.fixes:
        strategy = registry.get(fix.strategy)
        fresh = proposed_again(strategy, fix, precedent, recipe, facts, target, config_of) if strategy is not None else None
        if fresh is None:
            return None
        recipe = recipe.plus([fresh])
    return recipe if recipe.fixes else None


def proposed_again(
    strategy: Strategy,
    fix: Fix,
    precedent: Precedent,
    recipe: Recipe,
    facts: dict[str, Any],
    target: Target,
    config_of: Callable[[Recipe], ExportConfig],
) -> Fix | None:
    """Of what the strategy proposes for this model, the fix that is most like the recorded one."""
    found: list[Fix] = []
    for symptom, operator, stage in precedent.causes.get(fix.strategy, ()):
        if symptom in strategy.treats:
            named = {("operator" if "." in operator or "::" in operator else "op_type"): operator} if operator else {}
            evidence = Evidence(Diagnosis(symptom, Stage[stage.upper()], named), recipe, config_of(recipe), facts)
            try:
                found += strategy.propose(evidence, target)
            except Exception:  # it needs more than is recorded: then there is no hint
                continue
    fits = [f for f in found if f.params.keys() == fix.params.keys() and target.allows(strategy.effect_of(f))]
    return max(fits, key=lambda f: sum(f.params[name] == value for name, value in fix.params.items()), default=None)
