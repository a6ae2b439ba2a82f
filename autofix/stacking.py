"""Which latency fixes to add up: what each was measured to gain alone decides whether it joins the others, and whether it is tried again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autofix.recipe import Fix, Level, Recipe

if TYPE_CHECKING:
    from autofix.search import Search
    from autofix.strategy import Strategy

JOINS = 1.02
"""A fix joins the others from this median gain on, where most rounds show it; all together are measured anew before they are believed."""
OTHER_RUNTIMES = ("openvino_runtime", "providers")
"""Strategies whose fix lets something else than ONNX Runtime's own CPU kernels run the file."""
AGAIN = 0.03
"""A fix is tried again on a faster file where what it saved, at best, would be this much of that file's time."""


@dataclass(frozen=True)
class Gain:
    """A fix measured alone: the base's time over its own (median and lower quartile per round; 0 where it failed), and the ms that it saved at
    best (upper quartile)."""

    key: str
    gain: float
    gain_q1: float
    saved_ms: float = 0.0
    level: Level = Level.ONNX


def gainers(gains: Iterable[Gain]) -> list[Gain]:
    """Those that made the file faster, best first."""
    return sorted((g for g in gains if g.gain >= JOINS and g.gain_q1 > 1.0), key=lambda g: -g.gain)


def still_worth(known: Gain | None, now_ms: float) -> bool:
    """Whether a fix may matter on a file that takes `now_ms`: it was not tried yet, or what it saved was small only beside a larger time."""
    return known is None or known.saved_ms >= AGAIN * now_ms


def carried(known: Mapping[str, Gain], before: Recipe, after: Recipe) -> dict[str, Gain]:
    """What is known of the fixes by key once `after` has replaced `before`. Settings of the runtime may do more for another graph, and what another
    runtime does with a fix, or with a whole recipe, is to be measured there: only what lies below that level and in one runtime is carried on."""
    if before.at(Level.RUNTIME) != after.at(Level.RUNTIME):
        return {}
    return {key: gain for key, gain in known.items() if gain.level is not Level.RUNTIME}


def other_runtime(recipe: Recipe) -> Fix | None:
    """The fix that moves a recipe's file to another runtime, if there is one."""
    return next((f for f in recipe.fixes if f.strategy in OTHER_RUNTIMES), None)


def united(recipe: Recipe, fixes: Iterable[tuple[Fix, Strategy]], search: Search) -> Recipe:
    """A recipe with all of these fixes that can stand beside what it has and beside one another; earlier ones have precedence."""
    for fix, strategy in fixes:
        others = [search.registry[f.strategy] for f in recipe.fixes if f.strategy in search.registry]
        if strategy.group and any(o.group == strategy.group for o in others):
            continue
        if recipe.has(fix.strategy):  # what a strategy proposes beside one another are two settings of one thing
            continue
        recipe = search.extended(recipe, fix, strategy)
    return recipe
