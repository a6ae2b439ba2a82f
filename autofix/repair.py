"""`repair`, the Python API: one call from a model file to a verified folder, with everything the command line can."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autofix.case import CaseSpec
from autofix.env import environment
from autofix.errors import StrategyError
from autofix.family import family_id, rebuilt
from autofix.frontier import Priors, Ranker
from autofix.ids import content_id, text_id
from autofix.isolate import CaseProcess, Limits, default_memory_mb
from autofix.known import Hopeless
from autofix.loader import Registry, check_recipe, load_strategies
from autofix.recipe import Recipe
from autofix.search import NOT_WORTH, NOTHING_LEFT, Budget, Repair, Reporter, Search, Silent, is_cut_off
from autofix.strategy import Strategy
from autofix.target import Effect, Target
from autofix.trial import Verdict

OTHER_TARGET = frozenset({"opset-too-low", "opset-not-reached", "baked-value"})
"""Failures of a cached recipe that say that the target is another, not that the recipe was recorded wrongly."""


@dataclass(frozen=True)
class Settings:
    """How a repair is done, as against what it must reach (Target). retry: search although all was tried in vain before.
    only, without: names of the strategies that may be used (empty: all) and of those that may not.
    """

    output: Path | None = None
    strategies: tuple[Path, ...] = ()
    cache: Path | None = None
    layers: tuple[Path, ...] = ()
    use_cache: bool = True
    budget: Budget = Budget()
    limits: Limits = Limits()
    jobs: int = 1
    latency_seconds: float = 1.0
    recipe: Recipe | None = None
    retry: bool = False
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@contextlib.contextmanager
def opened_cache(settings: Settings) -> Iterator[Any]:
    """The cache, or None where it is switched off."""
    if not settings.use_cache:
        yield None
        return
    from autofix.cache import Cache

    cache = Cache.open(settings.cache, settings.layers)
    try:
        yield cache
    finally:
        cache.close()


def repair(
    spec: CaseSpec | str | Path, target: Target = Target(), settings: Settings = Settings(), reporter: Reporter = Silent(), fork: bool = False
) -> Repair:
    """Repair one model file. Writes the output folder, records the outcome in the cache, returns the Repair.

    Raises CaseError where the file can't be used, StrategyError for a broken strategy folder, CacheError for a broken
    cache. KeyboardInterrupt passes through after the log and the cache are written.
    """
    if not isinstance(spec, CaseSpec):
        spec = CaseSpec(str(spec))
    registry = permitted(load_strategies(settings.strategies), settings)
    if settings.recipe is not None:
        check_recipe(settings.recipe, registry)
    limits = settings.limits
    if limits == Limits():
        limits = replace(limits, memory_mb=default_memory_mb())
    started = time.monotonic()
    with opened_cache(settings) as cache:
        if cache is not None and cache.problem:
            reporter.stage(cache.problem)
        reporter.stage(f"loading {spec.file}")
        with CaseProcess(spec, target, settings.strategies, limits, fork) as process:
            hopeless = known_hopeless(cache, process.case_id, registry, target, settings)
            if hopeless is not None:
                found = Repair(process.case_id, {}, target, stopped=str(hopeless), known_hopeless=hopeless, seconds=time.monotonic() - started)
                leave_behind(spec, found, registry, settings)
                return found
            reporter.stage("running the model in eager PyTorch")
            facts = process.reference()
            search = make_search(process, facts, registry, target, settings, cache, reporter)
            try:
                found = search.run()
                found.from_family &= found.from_cache
                found.from_cache &= not found.from_family
                finish_latency(process, found, search, settings, reporter)
            except KeyboardInterrupt:
                search.repair.stopped = "interrupted"
                search.repair.seconds = time.monotonic() - started
                leave_behind(spec, search.repair, registry, settings)
                record(cache, process, search)
                raise
            found.seconds = time.monotonic() - started
            if settings.recipe is not None:
                found.from_cache = False
                found.stopped = found.stopped if found.ok else "the recipe that was asked for does not pass"
            reporter.stage("writing the output folder")
            leave_behind(spec, found, registry, settings)
            record(cache, process, search)
    return found


def permitted(registry: Registry, settings: Settings) -> Registry:
    """The strategies that may be used. Raises StrategyError for a name that is none: a slip of the pen must not permit anything."""
    for name in (*settings.only, *settings.without):
        if name not in registry:
            raise StrategyError(f"there is no strategy {name!r} to use or to do without; `autofix strategies` lists them")
    return {name: s for name, s in registry.items() if (not settings.only or name in settings.only) and name not in settings.without}


def make_search(
    process: CaseProcess, facts: dict[str, Any], registry: Registry, target: Target, settings: Settings, cache: Any, reporter: Reporter
) -> Search:
    """The search, started from what is asked for, else from what the cache knows of this very case, else of its family."""
    first: list[Recipe] = []
    ranker: Ranker = Priors()
    if cache is not None:
        from autofix.ranking import Ranking

        family = family_id(facts)
        ranker = Ranking(cache.rates(), environment(), family)
    budget = settings.budget
    if settings.recipe is not None:
        first, budget = [settings.recipe], Budget(budget.seconds, 1)
    elif cache is not None:
        known = cache.known_recipe(process.case_id, environment(), target)
        if known is not None:
            with contextlib.suppress(Exception):  # a hint that no longer fits is no hint
                check_recipe(known, registry)
                first = [known]
    search = Search(process, facts, registry, target, budget, ranker, reporter, first, settings.jobs)
    if cache is not None and settings.recipe is None and not first:
        precedent = cache.family_precedent(family, process.case_id, environment(), target)
        hint = rebuilt(precedent, registry, facts, target, search.config_of) if precedent is not None else None
        search.first = [hint] if hint is not None else []
        search.repair.from_family = hint is not None  # until it is known whether it holds
    return search


def known_hopeless(cache: Any, case_id: str, registry: Registry, target: Target, settings: Settings) -> Hopeless | None:
    """That all was tried for this case with these versions and strategies; None where it was not, or where it is to be tried again."""
    if cache is None or settings.retry or settings.recipe is not None:
        return None
    known: Hopeless | None = cache.known_hopeless(case_id, environment(), target, registry_id(registry))
    return known


def finish_latency(process: CaseProcess, found: Repair, search: Search, settings: Settings, reporter: Reporter) -> None:
    """Measure the winner against eager and go on where a latency target is missed."""
    if found.winner is None or settings.latency_seconds <= 0:
        return
    from autofix.racing import race

    race(process, found, search, settings.latency_seconds, reporter)


def leave_behind(spec: CaseSpec, found: Repair, registry: Registry, settings: Settings) -> Path:
    """Write the output folder."""
    from autofix.report import write_folder

    output = output_folder(spec, settings)
    write_folder(output, spec, found, registry)
    return output


def output_folder(spec: CaseSpec, settings: Settings) -> Path:
    """Where the files go."""
    return settings.output or Path.cwd() / f"{spec.stem}-autofix"


def record(cache: Any, process: CaseProcess, search: Search) -> None:
    """Put the trials into the cache; a cached recipe that failed its verification is retracted."""
    if cache is None:
        return
    from autofix.cache import CaseRecord

    found = search.repair
    first = found.trials[0].diagnosis if found.trials else None
    case = CaseRecord(process.case_id, process.spec.stem, dict(process.modules), first.symptom if first else "", family_id(found.facts))
    effects = {t.recipe.id: search.effect(t) for t in found.trials}
    ended = how_it_ended(found)
    installed = registry_id(search.registry) if ended == "exhausted" else ""

    def effect_of(recipe: Recipe) -> Effect:
        return effects[recipe.id]

    known = [t for t in found.trials if not is_cut_off(t)]
    cache.record(case, environment(), found.target, known, stopped=ended, strategies=installed, effect_of=effect_of)
    hints = {r.id for r in search.first}
    for trial in found.trials:
        why = trial.diagnosis.symptom if trial.diagnosis else ""
        if trial.recipe.id in hints and trial.verdict in (Verdict.FAIL, Verdict.MISMATCH) and why not in OTHER_TARGET:
            cache.retract(process.case_id, trial.recipe.id, why, environment=environment())


def how_it_ended(found: Repair) -> str:
    """A slug; "exhausted" only where no limit had a part in it, so that it will be so again."""
    if found.ok:
        return "solved"
    if found.stopped not in (NOTHING_LEFT, NOT_WORTH):
        return "interrupted" if found.stopped == "interrupted" else "budget"
    return "limits" if any(t.verdict in (Verdict.TIMEOUT, Verdict.OUT_OF_MEMORY) for t in found.trials) else "exhausted"


def registry_id(registry: Mapping[str, Strategy]) -> str:
    """Changes when a strategy is added, removed or edited, or autofix itself: what strategies are written with lies there."""
    own = sorted([str(p.name), text_id(p.read_text())] for p in Path(__file__).parent.rglob("*.py"))
    return content_id([own, sorted([s.name, text_id(Path(s.file).read_text())] for s in registry.values())])
