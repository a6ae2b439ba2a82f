"""How likely a strategy is to cure a symptom, and how long it takes, learned from recorded outcomes.

p = (s + k p_parent) / (n + k) with k = 2, recursively over: the same case and symptom; the same family (family.py) and symptom;
symptom, operator and capture mode; symptom; strategy; and at the root (S + 2.5 prior) / (N + 2.5), which is (S + 0.3) / (N + 2.5) for a
prior of 0.12. Counts made under other minor versions of torch or ONNX Runtime weigh half for each version in between, at most six halvings.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from autofix.recipe import Level, Recipe
from autofix.target import CAPTURES
from autofix.trial import Diagnosis, Trial

K = 2.0
ROOT = 2.5
PASS, PROGRESS, SIDEWAYS = 1.0, 0.6, 0.3
MAX_HALVINGS = 6
PLAIN_TRIAL_SECONDS = 2.0
"""What a trial of a small model takes where nothing is known."""
_NOTHING = ("nothing-to-do", "apply-error")
_NOT_SIDEWAYS = ("crash", "timeout", "out-of-memory")

Counts = Collection[tuple[str, str, int, int, int]]
"""Rows of strategy, versions, tries, gain in tenths, total milliseconds."""


Sums = Iterable[tuple[str, float, float, float]]
"""Rows of strategy, tries, gain in tenths, total milliseconds, each version by its weight."""


class Rates:
    """Counts by key from one or more caches, read as they are asked for.

    Team caches hold much of what the local one holds, so counts are not added up: for each strategy and version the
    source that has seen the most is believed. summed: gives the weighted sums under a key for these versions where one source can add them
    up itself, None for a key where it can't.
    """

    def __init__(self, *sources: Callable[[str], Counts], summed: Callable[[str, str], Sums | None] | None = None) -> None:
        self.sources, self.summed = sources, summed

    def of(self, key: str) -> Counts:
        """What is counted under a key, one row for each strategy and version."""
        if len(self.sources) == 1:
            return self.sources[0](key)
        best: dict[tuple[str, str], tuple[str, str, int, int, int]] = {}
        for source in self.sources:
            for row in source(key):
                known = best.get(row[:2])
                if known is None or row[2] > known[2]:
                    best[row[:2]] = row
        return best.values()

    def weighted(self, key: str, ours: str) -> Sums:
        """What is counted under a key, as seen from these versions; a strategy may have several rows."""
        found = self.summed(key, ours) if self.summed is not None else None
        if found is not None:
            return found
        rows = ((strategy, version_weight(versions, ours), tries, gain, ms) for strategy, versions, tries, gain, ms in self.of(key))
        return ((strategy, weight * tries, weight * gain, weight * ms) for strategy, weight, tries, gain, ms in rows)


def minor_versions(environment: dict[str, str]) -> str:
    """The versions that outcomes are counted by, "2.13|1.32": torch's and ONNX Runtime's first two numbers, "?" where unknown."""
    return "|".join(_minor(str(environment.get(name, ""))) for name in ("torch", "onnxruntime"))


def _minor(version: str) -> str:
    found = re.match(r"(\d{1,4})\.(\d{1,4})", version)
    return f"{found[1]}.{found[2]}" if found else "?"


@functools.lru_cache(maxsize=4096)
def version_weight(theirs: str, ours: str) -> float:
    """1 for equal versions, half for each minor version in between; a major version counts as four."""
    if theirs == ours:
        return 1.0
    steps = 0
    for a, b in zip(theirs.split("|"), ours.split("|"), strict=False):
        if a == b:
            continue
        try:
            (major, minor), (other_major, other_minor) = map(int, a.split(".")), map(int, b.split("."))
        except ValueError:
            steps += 1
            continue
        steps += 4 * abs(major - other_major) or abs(minor - other_minor)
    return float(0.5 ** min(steps, MAX_HALVINGS))


def operator_of(diagnosis: Diagnosis) -> str:
    """The operator that a diagnosis is about, or an empty string."""
    return _plain(str(diagnosis.facts.get("operator") or diagnosis.facts.get("op_type") or ""))


@functools.lru_cache(maxsize=1024)
def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.:<> -]", "", text)[:120]


def capture_of(recipe: Recipe) -> str:
    """The capture mode that a recipe ends with: the last that a config fix names (by parameter or as `capture_MODE`), else that of its start."""
    capture = recipe.start.capture
    for fix in recipe.at(Level.CONFIG):
        named = fix.params.get("capture") or fix.strategy.removeprefix("capture_")
        if named in CAPTURES:
            capture = str(named)
    return capture


def gain_of(trial: Trial, parent: Trial | None) -> float:
    """How far the fixes that a trial adds to its parent cured it: 1 passed, 0.6 reached a later stage, 0.3 another failure at the same
    stage (on a model with two faults the first is then gone), 0 no change or worse."""
    if trial.ok:
        return PASS
    if parent is None or trial.stage < parent.stage or (trial.diagnosis is not None and trial.diagnosis.symptom in _NOTHING):
        return 0.0
    if trial.stage > parent.stage:
        return PROGRESS
    if trial.diagnosis is None or parent.diagnosis is None or trial.diagnosis.symptom in _NOT_SIDEWAYS:
        return 0.0
    now, before = ((d.symptom, operator_of(d)) for d in (trial.diagnosis, parent.diagnosis))
    return SIDEWAYS if now != before else 0.0


def keys_of(diagnosis: Diagnosis, case_id: str, capture: str, family: str = "") -> tuple[str, ...]:
    """From the root to the most particular; migrations.KEYS says the same in SQL."""
    symptom = diagnosis.symptom
    within = (f"family {family} {symptom}",) if family else ()
    return "*", f"symptom {symptom}", f"kind {symptom} {capture} {operator_of(diagnosis)}", *within, f"case {case_id} {symptom}"


@dataclass(slots=True)
class _Count:
    tries: float = 0.0
    gain: float = 0.0
    seconds: float = 0.0


class Ranking:
    """Probabilities and seconds for one search: what was recorded, and what this search has just seen.

    `family` is the model's (family.py), an empty string where it is not known.
    """

    def __init__(self, rates: Rates, environment: dict[str, str], family: str = "") -> None:
        self.rates, self.family = rates, family
        self.versions = minor_versions(environment)
        self._recorded: dict[str, dict[str, _Count]] = {}
        self._here: dict[str, dict[str, _Count]] = {}
        self._latest: dict[str, float] = {}
        self._seen_seconds, self._expected_seconds = 1.0, 1.0
        self._usual = 0.0

    def _at(self, key: str) -> dict[str, _Count]:
        """Recorded counts by strategy, weighted by version."""
        found = self._recorded.get(key)
        if found is None:
            found = self._recorded[key] = {}
            for strategy, tries, gain, ms in self.rates.weighted(key, self.versions):
                count = found.get(strategy)
                if count is None:
                    found[strategy] = _Count(tries, gain / 10, ms / 1000)
                else:
                    count.tries += tries
                    count.gain += gain / 10
                    count.seconds += ms / 1000
        return found

    def probability(self, strategy: str, diagnosis: Diagnosis, case_id: str, capture: str, prior: float) -> float:
        """Probability, 0 to 1, that a fix of this strategy cures the diagnosis; `prior` is the strategy's own."""
        p = min(max(prior, 0.0), 1.0)
        strength = ROOT
        for key in keys_of(diagnosis, case_id, capture, self.family):
            recorded = self._recorded.get(key)
            count, seen = (self._at(key) if recorded is None else recorded).get(strategy), self._here.get(key, {}).get(strategy)
            tries, gain = (count.tries, count.gain) if count else (0.0, 0.0)
            if seen:
                tries, gain = tries + seen.tries, gain + seen.gain
            p = (gain + strength * p) / (tries + strength)
            strength = K
        return p

    def usual_seconds(self) -> float:
        """The recorded mean of all trials."""
        if not self._usual:
            recorded = self._at("*").values()
            tries, seconds = sum(c.tries for c in recorded), sum(c.seconds for c in recorded)
            self._usual = (seconds + K * PLAIN_TRIAL_SECONDS) / (tries + K)
        return self._usual

    def seconds(self, strategy: str, default: float) -> float:
        """Expected seconds of a trial that adds a fix of this strategy.

        The recorded mean, recent versions weighing most, scaled by how slow this search's own trials are against their recorded means (a
        large model is slow with every strategy); then a moving average with what the strategy took in this search. `default`, seconds on a
        small model where nothing is known, counts by how much it is above PLAIN_TRIAL_SECONDS: the plain part is the mean of all trials.
        """
        scale = self._seen_seconds / self._expected_seconds
        default = scale * self.usual_seconds() + max(default - PLAIN_TRIAL_SECONDS, 0.0)
        recorded = self._at("*").get(strategy)
        expected = default
        if recorded is not None and recorded.tries > 0:
            expected = (scale * recorded.seconds + K * default) / (recorded.tries + K)
        latest = self._latest.get(strategy)
        return expected if latest is None else (expected + latest) / 2

    def observe(self, strategy: str, diagnosis: Diagnosis, case_id: str, capture: str, gain: float, seconds: float | None = None) -> None:
        """Takes in a trial of this search at once: `gain` is `gain_of(trial, parent)`, `diagnosis` the parent's."""
        if seconds is not None:
            recorded = self._at("*").get(strategy)
            if recorded is not None and recorded.tries > 0:
                self._seen_seconds += seconds
                self._expected_seconds += recorded.seconds / recorded.tries
            latest = self._latest.get(strategy)
            self._latest[strategy] = seconds if latest is None else (latest + seconds) / 2
        for key in keys_of(diagnosis, case_id, capture, self.family):
            count = self._here.setdefault(key, {}).setdefault(strategy, _Count())
            count.tries += 1
            count.gain += gain
