"""The loop: attempt, diagnose, propose, rank, retry, until every target passes or nothing is left.

Best-first over recipes, by the index rule for independent tries with costs (Simon and Kadane 1975); see frontier.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from autofix.diagnose import no_progress
from autofix.frontier import Candidate, Frontier, Priors, Ranker
from autofix.isolate import CaseProcess
from autofix.known import Hopeless
from autofix.probe import size_name
from autofix.ranking import gain_of
from autofix.recipe import Fix, Recipe
from autofix.reuse import parent_file
from autofix.strategy import Evidence, Strategy
from autofix.target import Effect, ExportConfig, Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict

DEAD_ENDS = frozenset({"nothing-to-do", "apply-error"})
TOO_SLOW = "too-slow"
NOTHING_LEFT = "no strategy has anything left to propose"
NOT_WORTH = "nothing that is left to propose is worth its time"
"""Rank of the stock export: after what the cache knows, before whatever a failure suggests."""


@dataclass(frozen=True)
class Budget:
    """What a search may spend: wall seconds and trials."""

    seconds: float = 300.0
    trials: int = 40


LEAST_SECONDS = 1.0
"""A trial that is begun has this long, however little of the budget is left."""

CUT_OFF = "cut-off"


def is_cut_off(trial: Trial) -> bool:
    """Whether the search's budget ended the trial: that tells nothing of its recipe."""
    return trial.diagnosis is not None and trial.diagnosis.symptom == CUT_OFF


class Reporter(Protocol):
    """Receives the events of a repair."""

    def stage(self, text: str) -> None:
        """Something of some length begins."""

    def trial_started(self, number: int, recipe: Recipe) -> None:
        """A trial begins."""

    def trial_finished(self, number: int, trial: Trial) -> None:
        """A trial ended."""


class Silent:
    """A reporter that says nothing."""

    def stage(self, text: str) -> None:
        """Nothing."""

    def trial_started(self, number: int, recipe: Recipe) -> None:
        """Nothing."""

    def trial_finished(self, number: int, trial: Trial) -> None:
        """Nothing."""


@dataclass
class Repair:
    """What a search yields."""

    case_id: str
    facts: dict[str, Any]
    target: Target
    trials: list[Trial] = field(default_factory=list)
    folders: dict[str, Path] = field(default_factory=dict)
    winner: Trial | None = None
    stopped: str = ""
    offers: list[tuple[Fix, Effect, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    from_cache: bool = False
    from_family: bool = False
    known_hopeless: Hopeless | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether a recipe passed every target."""
        return self.winner is not None and self.winner.ok

    @property
    def nearest(self) -> Trial | None:
        """The winner, or the trial that came furthest."""
        return self.winner or max(self.trials, key=lambda t: (t.stage, -len(t.recipe.fixes)), default=None)


class Search:
    """One search for one case. `run` does it all; the attributes hold the state for whoever must stop early (Ctrl-C)."""

    def __init__(
        self,
        process: CaseProcess,
        facts: dict[str, Any],
        registry: Mapping[str, Strategy],
        target: Target,
        budget: Budget = Budget(),
        ranker: Ranker | None = None,
        reporter: Reporter = Silent(),
        first: Iterable[Recipe] = (),
        jobs: int = 1,
    ) -> None:
        self.process, self.registry, self.target, self.budget = process, registry, target, budget
        self.ranker: Ranker = ranker or Priors()
        self.reporter, self.first, self.jobs = reporter, list(first), jobs
        self.repair = Repair(process.case_id, facts, target)
        self.frontier = Frontier(self.ranker, process.case_id)
        self.by_id: dict[str, Trial] = {}
        self.running: dict[int, Candidate] = {}
        self.started = time.monotonic()

    def out_of_budget(self) -> str:
        """Why no further trial may begin, or an empty string."""
        if len(self.repair.trials) + len(self.running) >= self.budget.trials:
            return f"the budget of {self.budget.trials} trials is used up"
        return self.out_of_time()

    def out_of_time(self) -> str:
        """That the seconds are spent, or an empty string."""
        return f"the budget of {self.budget.seconds:.0f} s is used up" if time.monotonic() - self.started > self.budget.seconds else ""

    def reason_to_stop(self) -> str:
        """Why no further trial is begun, or an empty string."""
        return self.out_of_budget() or (NOT_WORTH if self.frontier and not self.frontier.worthwhile() else "")

    def run(self) -> Repair:
        """Search, minimise, then see to latency; returns the repair."""
        for recipe in [*self.first, Recipe()]:
            self.frontier.add(Candidate(recipe))
        winner = self.until(lambda t: t.ok)
        if winner is not None:
            self.repair.winner = winner
            self.repair.from_cache = bool(self.first) and winner.recipe.id in {r.id for r in self.first}
            self.repair.stopped = "every target passes"
            if not self.repair.from_cache:
                self.minimize()
        elif not self.repair.stopped:
            self.repair.stopped = NOTHING_LEFT
        self.repair.seconds = time.monotonic() - self.started
        return self.repair

    def until(self, done: Callable[[Trial], bool]) -> Trial | None:
        """Try candidates, best first, until one is good; None when none is left or the budget spent."""
        while self.frontier or self.running:
            reason = self.reason_to_stop()
            while self.frontier and not reason and len(self.running) < self.jobs:
                self.begin(self.frontier.pop())
                reason = self.reason_to_stop()
            if not self.running:
                self.repair.stopped = reason
                return None
            trial = self.finish()
            if done(trial):
                while self.running:
                    self.finish(expand=False)
                return trial
        return None

    def begin(self, candidate: Candidate) -> None:
        """Start a trial."""
        left = max(LEAST_SECONDS, self.budget.seconds - (time.monotonic() - self.started))
        number = self.process.start_attempt(candidate.recipe, **parent_file(candidate, self.repair.folders, self.registry), seconds=left)
        self.running[number] = candidate
        self.reporter.trial_started(len(self.repair.trials) + len(self.running), candidate.recipe)

    def finish(self, expand: bool = True) -> Trial:
        """Wait for a trial, judge it, and add what it suggests to the frontier."""
        number, ended, answer, folder = self.process.collect()
        candidate = self.running.pop(number)
        trial = self.process.finish_attempt(candidate.recipe, ended, answer, folder)
        if trial.verdict is Verdict.TIMEOUT and self.out_of_time():
            trial = replace(trial, diagnosis=Diagnosis(CUT_OFF, trial.stage, {"message": self.out_of_time()}))
            self.repair.stopped, expand = self.out_of_time(), False
        trial = self.probed(trial, folder)
        trial = self.concede(replace(trial, parent=candidate.parent.recipe.id if candidate.parent else None))
        self.repair.trials.append(trial)
        self.repair.folders[trial.recipe.id] = folder
        self.by_id[trial.recipe.id] = trial
        self.reporter.trial_finished(len(self.repair.trials), trial)
        parent = candidate.parent.diagnosis if candidate.parent else None
        stuck = no_progress(parent, trial.diagnosis)
        judged = (
            parent is not None and not is_cut_off(trial) and (parent.symptom != TOO_SLOW or not trial.ok)
        )  # whether it is faster, racing.py finds out
        if candidate.strategy is not None and parent is not None and judged:
            gain = 0.0 if stuck else gain_of(trial, candidate.parent)
            self.ranker.observe(candidate.strategy.name, parent, self.repair.case_id, candidate.capture, gain, trial.seconds)
        if trial.diagnosis is not None and trial.diagnosis.symptom == "nothing-to-do" and trial.stage is Stage.REWRITE and candidate.added:
            self.frontier.discard(candidate.added)  # what source and module fixes find does not depend on the way of capture
        if expand and not trial.ok and not stuck:
            self.expand(trial)
        return trial

    def probed(self, trial: Trial, folder: Path) -> Trial:
        """A green trial after it was verified at the sizes where the capture's own size tests turn over."""
        if not trial.ok or not trial.probes:
            return trial
        ended, answer, _ = self.process.ask("probe", trial=str(folder), signature=trial.signature, sizes=[p["sizes"] for p in trial.probes])
        if answer is None or "error" in answer:
            facts = {"message": f"at other sizes the process died (limit: {ended['limit'] or 'none'}, exit {ended['exit']})", "during": "other-sizes"}
            verdict, symptom = Verdict.CRASH, "crash"
        else:
            trial = replace(trial, parity=(*trial.parity, *answer["rows"]))
            verdict, symptom, facts = Verdict.MISMATCH, answer["symptom"], dict(answer["facts"])
        if not symptom:
            return trial
        failed = {row["set"] for row in (answer or {}).get("rows", ()) if not row["ok"]}
        site = next((p for p in trial.probes if size_name(p["sizes"]) in failed), trial.probes[0])
        facts |= {"file": site["file"], "line": str(site["line"]), "code": site["code"], "expression": site["expression"]}
        facts |= {"capture": self.config_of(trial.recipe).capture}
        return replace(trial, verdict=verdict, stage=Stage.DYNAMIC, diagnosis=Diagnosis(symptom, Stage.DYNAMIC, facts))

    def effect(self, trial: Trial) -> Effect:
        """The effect of a trial's recipe, evidence of baked values included."""
        effects = [self.registry[f.strategy].effect_of(f) for f in trial.recipe.fixes if f.strategy in self.registry]
        return Effect.join([*effects, *([Effect.NARROWING] if trial.effect_evidence else [])])

    def concede(self, trial: Trial) -> Trial:
        """A green trial counts only if its effect is allowed; else it shows where a value was baked."""
        if not trial.ok or self.target.allows(self.effect(trial)):
            return trial
        first = trial.effect_evidence[0] if trial.effect_evidence else ""
        file, _, rest = first.partition(":")
        line = rest.partition(":")[0]
        facts = {"message": f"right on every input set, yet the tracer baked a value: {first}", "capture": self.config_of(trial.recipe).capture}
        if line.isdigit():
            facts |= {"file": file, "line": line}
        return replace(trial, verdict=Verdict.FAIL, stage=Stage.DYNAMIC, diagnosis=Diagnosis("baked-value", Stage.DYNAMIC, facts))

    def config_of(self, recipe: Recipe) -> ExportConfig:
        """The recipe's ExportConfig after its config fixes (they are pure data)."""
        from autofix.recipe import Level

        config = recipe.start
        for fix in recipe.at(Level.CONFIG):
            try:
                config = self.registry[fix.strategy].apply(config, **fix.params)
            except Exception:  # the trial itself reports it
                continue
        return config

    def evidence(self, trial: Trial) -> Evidence:
        """What strategies may look at after a trial."""
        assert trial.diagnosis is not None
        chain: list[Trial] = [trial]
        while chain[-1].parent and chain[-1].parent in self.by_id:
            chain.append(self.by_id[chain[-1].parent or ""])
        return Evidence(trial.diagnosis, trial.recipe, self.config_of(trial.recipe), self.repair.facts, tuple(reversed(chain)))

    def proposals(self, trial: Trial) -> list[tuple[Fix, Strategy]]:
        """Every fix that a strategy proposes for a trial's diagnosis; those whose effect is not allowed become offers."""
        evidence = self.evidence(trial)
        found: list[tuple[Fix, Strategy]] = []
        for strategy in self.registry.values():
            if evidence.diagnosis.symptom not in strategy.treats:
                continue
            for fix in self.proposed(strategy, evidence):
                effect = strategy.effect_of(fix)
                if self.target.allows(effect):
                    found.append((fix, strategy))
                elif all(fix.key() != offered.key() for offered, _, _ in self.repair.offers):
                    self.repair.offers.append((fix, effect, evidence.diagnosis.symptom))
        return found

    def proposed(self, strategy: Strategy, evidence: Evidence) -> list[Fix]:
        """What one strategy proposes; a strategy that raises is noted and left out, the search goes on."""
        try:
            return list(strategy.propose(evidence, self.target))
        except Exception as error:
            text = f"the strategy {strategy.name} failed to propose: {type(error).__name__}: {error}"
            if text not in self.repair.problems:
                self.repair.problems.append(text)
            return []

    def expand(self, trial: Trial) -> None:
        """Rank what the strategies propose after a trial."""
        assert trial.diagnosis is not None
        if trial.diagnosis.symptom in DEAD_ENDS:
            return
        capture = self.config_of(trial.recipe).capture
        for place, (fix, strategy) in enumerate(self.proposals(trial)):
            self.frontier.add(Candidate(self.extended(trial.recipe, fix, strategy), trial, fix, strategy, capture, place))

    def extended(self, recipe: Recipe, fix: Fix, strategy: Strategy) -> Recipe:
        """A recipe with one more fix; fixes of the same exclusive group give way."""
        if strategy.group:
            for other in recipe.fixes:
                held = self.registry.get(other.strategy)
                if held is not None and held.group == strategy.group:
                    recipe = recipe.minus(other)
        return recipe.plus([fix])

    def minimize(self) -> None:
        """Drop every fix that is not needed (delta debugging, one at a time); the winner stays verified throughout."""
        assert self.repair.winner is not None
        if len(self.repair.winner.recipe.fixes) < 2:
            return
        self.reporter.stage("minimising the recipe")
        for fix in self.repair.winner.recipe.fixes:
            smaller = self.repair.winner.recipe.minus(fix)
            known = self.by_id.get(smaller.id)
            if known is not None or self.out_of_budget():
                continue
            self.frontier.seen.add(smaller.id)
            self.begin(Candidate(smaller, self.repair.winner))
            trial = self.finish(expand=False)
            if trial.ok:
                self.repair.winner = trial
