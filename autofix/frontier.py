"""The recipes yet to be tried, ranked anew whenever one is taken: what has just failed counts at once.

A candidate's rank is how far its parent came x the probability that its fix cures the parent's symptom / the expected seconds, by the
index rule for independent tries with costs (Simon and Kadane 1975).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from autofix.ranking import PLAIN_TRIAL_SECONDS
from autofix.recipe import Fix, Recipe
from autofix.strategy import Strategy
from autofix.trial import Diagnosis, Stage, Trial

OVERHEAD_SECONDS = 2.0
"""What a trial costs beyond its own seconds: its files, its line in a log that someone reads. Without it, three hopeless tries of a tenth of a
second each come before one of a second that is likely to help; with it, replays need 2 trials in the median, at no greater cost."""
WORTH_SECONDS = 3600.0
"""What a repair is worth: an hour of whoever would do it by hand. A fix whose chance of a repair is worth less than its trial costs is not tried
(Weitzman 1979). In replays nothing that ever helped is near that: the least was worth 60 times its cost."""
LENGTH_DISCOUNT = 0.9
"""Each fix that a recipe has already makes a further one worth this much less: short recipes are easier to review."""


class Ranker(Protocol):
    """Probabilities and costs, from the cache where there is one (ranking.py)."""

    def probability(self, strategy: str, diagnosis: Diagnosis, case_id: str, capture: str, prior: float) -> float:
        """That a fix of this strategy cures this diagnosis."""

    def seconds(self, strategy: str, default: float) -> float:
        """Expected seconds of a trial with this strategy."""

    def observe(self, strategy: str, diagnosis: Diagnosis, case_id: str, capture: str, gain: float, seconds: float | None = None) -> None:
        """A trial of this search ended: what its fix gained on its parent's diagnosis."""


class Priors:
    """The strategies' own priors; each failure at a symptom halves what the strategy is given for it."""

    def __init__(self) -> None:
        self.failures: dict[tuple[str, str], int] = {}

    def probability(self, strategy: str, diagnosis: Diagnosis, case_id: str, capture: str, prior: float) -> float:
        """The prior, halved by failures."""
        return prior * 0.5 ** self.failures.get((strategy, diagnosis.symptom), 0)

    def seconds(self, strategy: str, default: float) -> float:
        """The default."""
        return default

    def observe(self, strategy: str, diagnosis: Diagnosis, case_id: str, capture: str, gain: float, seconds: float | None = None) -> None:
        """Counts a failure where nothing was gained."""
        if gain <= 0:
            self.failures[strategy, diagnosis.symptom] = self.failures.get((strategy, diagnosis.symptom), 0) + 1


@dataclass(eq=False)
class Candidate:
    """A recipe to try: its parent with one more fix. place: the fix's position among its strategy's proposals. A candidate
    without a parent (a cached recipe, the stock export) comes first, in order."""

    recipe: Recipe
    parent: Trial | None = None
    added: Fix | None = None
    strategy: Strategy | None = None
    capture: str = ""
    place: int = 0


class Frontier:
    """Candidates not yet tried; equal recipes enter once."""

    def __init__(self, ranker: Ranker, case_id: str) -> None:
        self.ranker, self.case_id = ranker, case_id
        self.open: list[Candidate] = []
        self.seen: set[str] = set()
        self.discarded: set[str] = set()

    def __len__(self) -> int:
        return len(self.open)

    def add(self, candidate: Candidate) -> None:
        """Put a candidate in, unless its recipe was there before."""
        if candidate.added is not None and candidate.added.key() in self.discarded:
            return
        if candidate.recipe.id not in self.seen:
            self.seen.add(candidate.recipe.id)
            self.open.append(candidate)

    def discard(self, fix: Fix) -> None:
        """Drop what adds this fix, now and later."""
        self.discarded.add(fix.key())
        self.open = [c for c in self.open if c.added is None or c.added.key() != fix.key()]

    def rank(self, one: Candidate) -> float:
        """The candidate's worth now."""
        if one.parent is None or one.strategy is None or one.parent.diagnosis is None:
            return float("inf")
        chance, seconds = self.odds(one)
        progress = (one.parent.stage + 1) / (Stage.DONE + 1)
        return progress * chance / seconds * float(LENGTH_DISCOUNT ** len(one.parent.recipe.fixes)) - one.place * 1e-9

    def worthwhile(self) -> bool:
        """Whether some candidate's chance is worth its trial."""
        return any(self.worth(one) >= 1 for one in self.open)

    def worth(self, one: Candidate) -> float:
        """What a candidate's chance of a repair is worth over what its trial costs."""
        chance, seconds = self.odds(one)
        return WORTH_SECONDS * chance / seconds

    def odds(self, one: Candidate) -> tuple[float, float]:
        """(probability that the candidate's fix cures its parent's failure, seconds); next to no seconds for what is tried in any case."""
        if one.parent is None or one.strategy is None or one.parent.diagnosis is None:
            return 1.0, 1e-9
        chance = self.ranker.probability(one.strategy.name, one.parent.diagnosis, self.case_id, one.capture, one.strategy.prior)
        return chance, self.ranker.seconds(one.strategy.name, PLAIN_TRIAL_SECONDS + one.strategy.cost) + OVERHEAD_SECONDS

    def pop(self) -> Candidate:
        """Take the best candidate out."""
        best = max(range(len(self.open)), key=lambda i: (self.rank(self.open[i]), -i))
        return self.open.pop(best)
