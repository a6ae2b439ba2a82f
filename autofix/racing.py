"""Latency after parity: measure the winner against eager; where a target is missed, add up the fixes that make it faster.

Each step profiles the winner, attempts every fix that a strategy proposes for "too-slow" (verified as always), races what passes against the winner
in one process, tries all fixes that gained together, and settles between the best ones in several fresh processes. It ends when
the targets are met (with `fastest`, when no strategy makes it faster), or on budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from autofix.frontier import Candidate
from autofix.isolate import CaseProcess
from autofix.latency import latency_row, race_row
from autofix.latency_sessions import Timer, pick, race_gain
from autofix.peak import peak_share, peak_text
from autofix.recipe import Fix, Level, Recipe
from autofix.search import Repair, Reporter, Search
from autofix.stacking import OTHER_RUNTIMES, Gain, carried, gainers, other_runtime, still_worth, united
from autofix.strategy import Strategy
from autofix.target import Effect, Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict

SESSIONS = 3
STEPS = 6
NOTHING_FASTER = "no strategy makes it faster"
QUICK_SECONDS = 0.2
NEARLY = 1.15
HELPERS = 2
"""How many changes of the graph are tried for a runtime whose results differ."""


def meets(latency: dict[str, Any], target: Target) -> bool:
    """Whether a measured file passes the latency targets. The speedup's lower quartile must pass, not a lucky median."""
    if target.max_latency_ms is not None and latency["q3_ms"] > target.max_latency_ms:
        return False
    return target.min_speedup is None or latency["speedup_q1"] >= target.min_speedup


def slow(trial: Trial, target: Target, facts: dict[str, str] | None = None) -> Trial:
    """The trial as one that misses its latency target, or could be faster still."""
    row = trial.latency or {}
    wanted = [
        f"at most {target.max_latency_ms} ms" if target.max_latency_ms is not None else "",
        f"at least {target.min_speedup}x eager" if target.min_speedup is not None else "",
        "the fastest" if target.fastest else "",
    ]
    message = f"{row['ort_ms']:.3g} ms (quartiles {row['q1_ms']:.3g} to {row['q3_ms']:.3g}), {row['speedup']:.2f}x eager"
    message += f" ({row['speedup_q1']:.2f} to {row['speedup_q3']:.2f}); wanted {' and '.join(filter(None, wanted))}"
    message += f"; {peak_text(row)}" if peak_text(row) else ""
    diagnosis = Diagnosis("too-slow", Stage.LATENCY, {"message": message, **(facts or {})})
    return replace(trial, verdict=Verdict.SLOW, stage=Stage.LATENCY, diagnosis=diagnosis)


def has_fix(recipe: Recipe, fix: Fix) -> bool:
    """Whether a recipe contains this very fix."""
    return any(f.key() == fix.key() for f in recipe.fixes)


def no_faster(trial: Trial) -> Trial:
    """A trial that passes parity and gained nothing: its fix did not cure what it was tried for."""
    row = trial.latency or {}
    message = (
        f"right, and no faster: {row['gain']:.2f}x ({row['gain_q1']:.2f} to {row['gain_q3']:.2f})" if "gain" in row else "right, and not measured"
    )
    return replace(trial, verdict=Verdict.SLOW, stage=Stage.LATENCY, diagnosis=Diagnosis("too-slow", Stage.LATENCY, {"message": message}))


def race(process: CaseProcess, found: Repair, search: Search, seconds: float, reporter: Reporter) -> None:
    """Measure the winner; while a target is missed, try what strategies propose for "too-slow" and keep what is faster."""
    Climb(Timer(process, found, seconds), found, search, reporter).run()


@dataclass
class Climb:
    """One repair's way to its latency target."""

    timer: Timer
    found: Repair
    search: Search
    reporter: Reporter
    known: dict[str, Gain] = field(default_factory=dict)
    profiles: dict[str, dict[str, str]] = field(default_factory=dict)
    first_ms: float = 0.0
    first_recipe: Recipe = Recipe()

    @property
    def winner(self) -> Trial:
        """The file that is best so far; it passes parity."""
        assert self.found.winner is not None
        return self.found.winner

    @property
    def target(self) -> Target:
        """What is wanted."""
        return self.found.target

    def run(self) -> None:
        """See the module's docstring."""
        self.reporter.stage("measuring latency")
        sessions = self.timer.sessions([self.winner], 1)
        if sessions and self.target.wants_latency and self.is_near(latency_row(sessions, 0)):
            sessions += self.timer.sessions([self.winner], SESSIONS - 1)
        if not sessions:
            if self.target.wants_latency:
                diagnosis = Diagnosis("too-slow", Stage.LATENCY, {"message": "latency could not be measured"})
                self.take(replace(self.winner, verdict=Verdict.SLOW, stage=Stage.LATENCY, diagnosis=diagnosis))
                self.found.stopped = "latency could not be measured"
            return
        row = latency_row(sessions, 0)
        self.first_ms, self.first_recipe = row["ort_ms"], self.winner.recipe
        self.take(self.judged(replace(self.winner, latency=row)))
        if self.target.wants_latency:
            self.climb()

    def climb(self) -> None:
        """Step by step until the target is met or nothing is left; then the verdict."""
        ended = NOTHING_FASTER
        for _ in range(STEPS):
            if self.met and not self.target.fastest:
                break
            if self.search.out_of_budget() or not self.step():
                break
        else:
            ended = f"{STEPS} steps made it faster; no more are taken"
        if not self.met or self.target.fastest:
            self.shorten()
            row = {**(self.winner.latency or {}), **self.timer.facts("peak", self.winner)}
            share = peak_share(row)
            row |= {"peak_share": round(share, 4)} if share is not None else {}
            self.found.winner = replace(self.winner, latency=row)
            self.found.stopped = self.search.out_of_budget() or ended
        self.take(self.judged(self.winner))

    def judged(self, trial: Trial) -> Trial:
        """A measured trial as one that passes or that is too slow; an interrupted search never claims what is not met."""
        if meets(trial.latency or {}, self.target):
            return replace(trial, verdict=Verdict.PASS, stage=Stage.DONE, diagnosis=None)
        return slow(trial, self.target, self.profiles.get(trial.recipe.id))

    def is_near(self, row: dict[str, Any]) -> bool:
        """Whether one session's row meets the target or misses it by no more than sessions differ."""
        limit = replace(
            self.target,
            max_latency_ms=self.target.max_latency_ms * NEARLY if self.target.max_latency_ms is not None else None,
            min_speedup=self.target.min_speedup / NEARLY if self.target.min_speedup is not None else None,
        )
        return meets(row, limit)

    @property
    def met(self) -> bool:
        """Whether the winner meets the target."""
        return meets(self.winner.latency or {}, self.target)

    def step(self) -> bool:
        """One round of proposals; whether the winner changed."""
        self.reporter.stage("profiling by operator")
        facts = self.profiles[self.winner.recipe.id] = self.timer.facts("profile", self.winner)
        base = slow(self.winner, self.target, facts)
        self.replace_trial(base)  # what the next trials are tried for stands in the log
        for lane in (Effect.EXACT, Effect.NARROWING, Effect.APPROXIMATE):  # what moves numbers is for what exact fixes can't reach
            by_key = self.proposals(base, lane)
            proposed = dict(by_key)
            entrants = self.attempts(base, by_key)
            if lane is Effect.APPROXIMATE:
                entrants |= self.at_home(base, proposed, by_key)
            if entrants and self.settle(self.stacked(base, entrants, by_key)):
                return True
        return False

    def shorten(self) -> None:
        """Leave out what makes the winner slower since later fixes stand beside it: each of the climb's fixes in turn, raced against the whole."""
        while True:
            recipe = self.winner.recipe
            added = [fix for fix in recipe.fixes if not has_fix(self.first_recipe, fix)]
            tried = [self.attempt(recipe.minus(fix), self.winner, None, None) for fix in added] if len(added) > 1 else []
            shorter = [trial for trial in tried if trial is not None and trial.ok]
            session = self.timer.timed([self.winner, *shorter], self.timer.seconds * 2, racing=True) if shorter else None
            if session is None:
                return
            gained = gainers([race_gain(session, i, str(i)) for i in range(1, len(shorter) + 1)])
            if not gained or not self.settle([shorter[int(gained[0].key) - 1]]):
                return

    def proposals(self, base: Trial, effect: Effect) -> dict[str, tuple[Fix, Strategy]]:
        """{key: (fix, strategy)} of one effect, best first, without those that are known to bring nothing here."""
        now_ms = (base.latency or {})["ort_ms"]
        found = []
        for fix, strategy in self.search.proposals(base):
            if strategy.effect_of(fix) is effect and not has_fix(base.recipe, fix) and still_worth(self.known.get(fix.key()), now_ms):
                found.append((self.added(base, fix, strategy), fix, strategy))
        found.sort(key=lambda entry: self.search.frontier.rank(entry[0]), reverse=True)
        return {fix.key(): (fix, strategy) for _, fix, strategy in found}

    def attempts(self, base: Trial, by_key: dict[str, tuple[Fix, Strategy]]) -> dict[str, Trial]:
        """{fix's key: trial} of the proposals that pass parity. Ends early where one meets the target with room to spare."""
        passed: dict[str, Trial] = {}
        for key, (fix, strategy) in list(by_key.items()):
            trial = self.attempt(self.search.extended(base.recipe, fix, strategy), base, fix, strategy)
            if trial is not None and not trial.ok and fix.level is Level.RUNTIME:
                trial = self.helped(trial)
            if trial is None or not trial.ok:
                self.known[key] = Gain(key, 0.0, 0.0, level=fix.level)
                continue
            passed[key] = trial
            last = next((f for f in trial.recipe.fixes if f.strategy == fix.strategy and not has_fix(base.recipe, f)), fix)
            by_key[key] = (last, strategy)  # with the nodes that an error budget has left out
            if not self.target.fastest and self.clearly_meets(trial):
                break
        return passed

    def at_home(self, base: Trial, proposed: dict[str, tuple[Fix, Strategy]], by_key: dict[str, tuple[Fix, Strategy]]) -> dict[str, Trial]:
        """What passes of the proposals in ONNX Runtime itself where the winner runs in another runtime, which may lack kernels for 8 bits. They
        become further entries of `by_key`."""
        switch = other_runtime(base.recipe)
        if switch is None:
            return {}
        plain = base.recipe.minus(switch)
        passed: dict[str, Trial] = {}
        for key, (fix, strategy) in proposed.items():
            trial = self.attempt(self.search.extended(plain, fix, strategy), self.search.by_id.get(plain.id, base), fix, strategy)
            if trial is not None and trial.ok:
                passed[f"{key} in ONNX Runtime"] = trial
                by_key[f"{key} in ONNX Runtime"] = (next(f for f in trial.recipe.fixes if f.strategy == fix.strategy), strategy)
        return passed

    def helped(self, failed: Trial) -> Trial | None:
        """A setting of the runtime whose results differ, with the likeliest change of the graph that cures that, where one does."""
        if failed.stage is not Stage.PARITY or failed.diagnosis is None:
            return None
        found = [(f, s) for f, s in self.search.proposals(failed) if f.level is Level.ONNX and s.effect_of(f) is Effect.EXACT]
        ranked = sorted(found, key=lambda one: self.search.frontier.rank(self.added(failed, *one)), reverse=True)
        for fix, strategy in ranked[:HELPERS]:
            trial = self.attempt(self.search.extended(failed.recipe, fix, strategy), failed, fix, strategy)
            if trial is not None and trial.ok:
                return trial
        return None

    def added(self, base: Trial, fix: Fix, strategy: Strategy) -> Candidate:
        """A trial's recipe with one more fix."""
        return Candidate(self.search.extended(base.recipe, fix, strategy), base, fix, strategy)

    def attempt(self, recipe: Recipe, base: Trial, fix: Fix | None, strategy: Strategy | None) -> Trial | None:
        """One trial, its error kept within budget; None where there was none (tried before, or out of budget)."""
        from autofix.approximate import within_budget

        if self.search.out_of_budget():
            return None
        if recipe.id in self.search.frontier.seen:
            known = self.search.by_id.get(recipe.id)
            return known if known is not None and known.ok else None
        self.search.frontier.seen.add(recipe.id)
        self.search.begin(Candidate(recipe, base, fix, strategy))
        return within_budget(self.search, self.search.finish(expand=False))

    def clearly_meets(self, trial: Trial) -> bool:
        """Whether a short measurement passes the target by a tenth."""
        session = self.timer.timed([trial], QUICK_SECONDS, racing=False)
        if session is None:
            return False
        row = latency_row([session], 0)
        easier = {"ort_ms": row["ort_ms"], "q3_ms": row["q3_ms"] * 1.1, "speedup_q1": row["speedup_q1"] / 1.1}
        return meets(easier, self.target)

    def stacked(self, base: Trial, entrants: dict[str, Trial], by_key: dict[str, tuple[Fix, Strategy]]) -> list[Trial]:
        """The finalists, shortest recipe first: the best entrant, and the recipe of all that gained, or of those that pass one on the other."""
        gains = self.raced(base, entrants, by_key)
        if not gains:
            return []
        best = entrants[gains[0].key]
        more = [by_key[g.key] for g in gains[1:]]
        whole = self.joined(best, more)
        here = [g.key for g in gains if by_key[g.key][0].strategy not in OTHER_RUNTIMES]
        rest = self.joined(entrants[here[0]], [by_key[k] for k in here[1:]]) if 1 < len(here) < len(gains) else None
        apart = [rest] if rest is not None and rest.ok else []  # forms that are fast in ONNX Runtime alone
        if whole is not None and whole.ok:
            return [best, *apart, whole]
        chain = [best]
        for one in more if whole is not None else []:  # together they do not pass: one after the other
            longer = self.joined(chain[-1], [one])
            if longer is None or not longer.ok:
                continue
            session = self.timer.timed([chain[-1], longer], self.timer.seconds, racing=True)
            if session is not None and gainers([race_gain(session, 1, "")]):
                chain.append(longer)
        return [best, *apart, *chain[1:][-1:]]

    def joined(self, trial: Trial, fixes: list[tuple[Fix, Strategy]]) -> Trial | None:
        """The trial of a recipe with further fixes; None where none of them can stand beside it."""
        recipe = united(trial.recipe, fixes, self.search)
        return self.attempt(recipe, trial, None, None) if recipe.id != trial.recipe.id else None

    def raced(self, base: Trial, entrants: dict[str, Trial], by_key: dict[str, tuple[Fix, Strategy]]) -> list[Gain]:
        """Race the entrants against the winner, as many at a time as memory holds; those that gained, best first."""
        self.reporter.stage(f"racing {len(entrants)} candidate{'s' if len(entrants) != 1 else ''}")
        keys = list(entrants)
        at_once = self.timer.files_at_once(base)
        for start in range(0, len(keys), at_once):
            some = keys[start : start + at_once]
            session = self.timer.timed([self.winner, *(entrants[k] for k in some)], self.timer.seconds * 2, racing=True)
            if session is None:
                continue
            for i, key in enumerate(some, 1):
                entrants[key] = replace(entrants[key], latency=race_row(session, i))
                self.known[key] = race_gain(session, i, key, by_key[key][0].level)
        gained = gainers([self.known[k] for k in keys if k in self.known])
        for key in keys:
            faster = key in {g.key for g in gained}
            self.replace_trial(entrants[key] if faster else no_faster(entrants[key]))
            assert base.diagnosis is not None
            name, capture = by_key[key][1].name, self.search.config_of(entrants[key].recipe).capture
            self.search.ranker.observe(name, base.diagnosis, self.found.case_id, capture, float(faster), entrants[key].seconds)
        return gained

    def settle(self, finalists: list[Trial]) -> bool:
        """Measure winner and finalists in several processes; whether one of them counts as faster. It becomes the winner then."""
        if not finalists:
            return False
        self.reporter.stage(f"confirming in {SESSIONS} sessions")
        sessions = self.timer.sessions([self.winner, *finalists], SESSIONS)
        if not sessions:
            return False
        best = pick(sessions, len(finalists) + 1)
        if best == 0:
            return False
        self.replace_trial(slow(replace(self.winner, latency=latency_row(sessions, 0)), self.target, self.profiles.get(self.winner.recipe.id)))
        for i, trial in enumerate(finalists, 1):
            self.replace_trial(replace(trial, latency=latency_row(sessions, i)))
        row = {**latency_row(sessions, best), "before_ms": round(self.first_ms, 4)}
        self.known = carried(self.known, self.winner.recipe, finalists[best - 1].recipe)
        self.take(self.judged(replace(finalists[best - 1], latency=row)))
        return True

    def take(self, trial: Trial) -> None:
        """Make this form of the winner the one that is shown."""
        self.found.winner = trial
        self.replace_trial(trial)

    def replace_trial(self, trial: Trial) -> None:
        """Put the measured form of a trial in its place in the list."""
        self.found.trials = [trial if t.recipe.id == trial.recipe.id else t for t in self.found.trials]
        self.search.by_id[trial.recipe.id] = trial
