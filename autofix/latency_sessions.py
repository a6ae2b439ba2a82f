"""Asks the case's process to time, profile and weigh the files of trials, each time in a fresh process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autofix.elimination import counts_as_gain, ratios
from autofix.isolate import CaseProcess
from autofix.latency import Session, race_row
from autofix.recipe import Level
from autofix.search import Repair
from autofix.stacking import Gain
from autofix.trial import Trial

MEMORY_SHARE = 0.5
"""Of a process's memory limit that the files of one race may take; each takes about COPIES times its size when it is open."""
COPIES = 2.5


def race_gain(session: Session, index: int, key: str, level: Level = Level.ONNX) -> Gain:
    """What a race says of one file, as a Gain."""
    row = race_row(session, index)
    return Gain(key, row["gain"], row["gain_q1"], row["ort_ms"] * (row["gain_q3"] - 1), level)


def pick(sessions: list[Session], count: int) -> int:
    """Which of the files is to be kept: 0, the present one, unless a later one counts as faster; among those the first, unless a later one does."""
    chosen = 0
    for later in range(1, count):
        if counts_as_gain([ratios(s["files"][chosen], s["files"][later]) for s in sessions]):
            chosen = later
    return chosen


@dataclass(frozen=True)
class Timer:
    """Measures the trials of one repair. `seconds` is what one measurement may take."""

    process: CaseProcess
    found: Repair
    seconds: float

    def sessions(self, trials: list[Trial], count: int) -> list[Session]:
        """Times of these trials' files beside eager's, each session in a process of its own; [] where one died."""
        found = [self.timed(trials, self.seconds, racing=False) for _ in range(count)]
        return [s for s in found if s is not None] if all(s is not None for s in found) else []

    def timed(self, trials: list[Trial], seconds: float, racing: bool) -> Session | None:
        """Times of these trials' files in one process, None where it died."""
        folders = [str(self.found.folders[t.recipe.id]) for t in trials]
        _, answer, _ = self.process.ask("latency", files=folders, seconds=seconds, racing=racing)
        return None if answer is None or "error" in answer else dict(answer)

    def facts(self, of: str, trial: Trial) -> dict[str, str]:
        """The facts of profile.py or peak.py ("profile", "peak") for a trial's file; {} where that process died: they only help."""
        _, answer, _ = self.process.ask(of, trial=str(self.found.folders[trial.recipe.id]))
        return dict(answer["facts"]) if answer is not None and "facts" in answer else {}

    def files_at_once(self, base: Trial) -> int:
        """How many files of this size one process may hold beside the winner's two sessions."""
        folder: Path = self.found.folders[base.recipe.id]
        size = sum(f.stat().st_size for f in folder.glob("model.onnx*")) / 2**20
        return max(1, int(self.process.limits.memory_mb * MEMORY_SHARE / max(size * COPIES, 1.0)) - 2)
