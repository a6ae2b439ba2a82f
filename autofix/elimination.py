"""Racing, as pure arithmetic on times that somebody else takes: few rounds for all, more for what may still win; and what counts as a gain.

Race works on rounds: it says whom to time next, is told the times, and drops what is clearly slower. Two rules drop:
  a sequential test: ratios to the leader are formed round by round (neighbours on the machine slow both alike); a file is dropped when the
  median of log(ratio) lies more than SURE standard errors above 0. The spread is never believed to be below FLOOR, because one session
  differs from another by that much (memory placement), whatever the rounds of one session say;
  successive halving (Karnin, Koren and Somekh 2013): the budget is shared out among ceil(log2(files)) phases, after each of which the
  better half stays.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence

LEAST = 3
SURE = 2.5
FLOOR = 0.02
WORTH = 1.05
"""A gain under 5 % is within what one session differs from another (A/A controls of 0.92 to 1.09 were measured)."""


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """(first quartile, median, third quartile)."""
    if len(values) < 2:
        return (values[0],) * 3
    q1, q2, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return q1, q2, q3


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """above / below, round by round, as far as both go."""
    return [a / max(b, 1e-9) for a, b in zip(above, below, strict=False)]


def counts_as_gain(sessions: Iterable[Sequence[float]]) -> bool:
    """Whether a file is faster than another, by its gain (other's time over its own) per round, one list a session.

    A median of 5 % and more counts; less only if it repeats: every session's interval between the quartiles lies above 1, in three at least.
    """
    spreads = [quartiles(s) for s in sessions if s]
    if not spreads:
        return False
    if statistics.median(s[1] for s in spreads) >= WORTH:
        return True
    return len(spreads) >= 3 and all(q1 > 1 for q1, _, _ in spreads)


class Race:
    """Whom to time next. keep: names that stay to the end (what the others are compared with); they cannot be dropped.

    budget: cost of all timing, in the unit of the costs that `record` is told; the race ends when it is spent or one file is left.
    """

    def __init__(self, names: Sequence[str], budget: float, keep: Iterable[str] = (), seed: int = 0) -> None:
        self.names, self.budget, self.keep = list(names), budget, set(keep)
        self.alive = [n for n in self.names if n not in self.keep]
        self.times: dict[str, list[float]] = {n: [] for n in self.names}
        self.spent = 0.0
        self.rounds = 0
        self.phases = max(1, math.ceil(math.log2(max(2, len(self.alive)))))
        self.shuffled = random.Random(seed)

    @property
    def over(self) -> bool:
        """Whether nothing is left to find out, or nothing to spend on it."""
        return self.rounds >= LEAST and (len(self.alive) <= 1 or self.spent >= self.budget)

    def next_round(self) -> list[str]:
        """Who is timed now, in shuffled order."""
        order = [n for n in self.names if n in self.alive or n in self.keep]
        self.shuffled.shuffle(order)
        return order

    def record(self, times: dict[str, float], cost: float) -> None:
        """One round's times by name, and what it cost."""
        for name, value in times.items():
            self.times[name].append(value)
        self.rounds += 1
        self.spent += cost
        if self.rounds < LEAST or len(self.alive) <= 1:
            return
        leader = self.leader
        self.alive = [n for n in self.alive if n == leader or not self.is_slower(n, leader)]
        done = int(min(self.spent / self.budget, 1.0) * self.phases) if self.budget > 0 else self.phases
        allowed = math.ceil((len(self.names) - len(self.keep)) / 2**done)
        self.alive = sorted(self.alive, key=self.median)[:allowed]

    def median(self, name: str) -> float:
        """The median of a file's times."""
        return statistics.median(self.times[name])

    @property
    def leader(self) -> str:
        """The fastest so far."""
        return min(self.alive, key=self.median)

    def is_slower(self, name: str, leader: str) -> bool:
        """Whether a file is slower than the leader beyond doubt."""
        logs = [math.log(r) for r in ratios(self.times[name], self.times[leader]) if r > 0]
        q1, median, q3 = quartiles(logs)
        spread = max(FLOOR, (q3 - q1) / 1.349)
        return median > SURE * 1.2533 * spread / math.sqrt(len(logs))
