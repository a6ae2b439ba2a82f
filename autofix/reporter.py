"""Progress on stderr: a live line on a terminal, one plain line per trial elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from autofix.recipe import Recipe
from autofix.trial import Trial

if TYPE_CHECKING:
    from rich.status import Status


def trial_line(number: int, trial: Trial) -> str:
    """One line about a trial that ended."""
    what = "every value right" if trial.diagnosis is None else trial.diagnosis.symptom
    if trial.diagnosis is not None:
        if trial.diagnosis.where:
            what += f" at {Path(trial.diagnosis.facts['file']).name}:{trial.diagnosis.line}"
        else:
            operator = trial.diagnosis.facts.get("operator") or trial.diagnosis.facts.get("op_type", "")
            what += f" ({operator})" if operator else ""
    return f"{number:3d} {trial.seconds:6.1f} s  {trial.stage.name.lower():<9} {what}  [{trial.recipe}]"


class PlainReporter:
    """A line per stage and trial, for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

    def __enter__(self) -> PlainReporter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def say(self, text: str) -> None:
        """A line; a reader that went away is no reason to stop."""
        try:
            print(text, file=self.stream, flush=True)
        except (BrokenPipeError, ValueError):
            pass

    def stage(self, text: str) -> None:
        """Something of some length begins."""
        self.say(f"... {text}")

    def trial_started(self, number: int, recipe: Recipe) -> None:
        """Nothing: the line comes when the trial has ended."""

    def trial_finished(self, number: int, trial: Trial) -> None:
        """A trial ended."""
        self.say(trial_line(number, trial))


class LiveReporter(PlainReporter):
    """A spinner with what is going on and for how long; ended trials scroll above it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        from rich.console import Console

        self.console = Console(file=self.stream)
        self.status: Status | None = None
        self.started = time.monotonic()

    def __enter__(self) -> LiveReporter:
        self.status = self.console.status("starting")
        self.status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.status is not None:
            self.status.stop()

    def show(self, text: str) -> None:
        """Change the live line."""
        from rich.text import Text

        if self.status is not None:
            self.status.update(Text(f"{time.monotonic() - self.started:.0f} s  {text}"))

    def stage(self, text: str) -> None:
        """Something of some length begins."""
        self.show(text)

    def trial_started(self, number: int, recipe: Recipe) -> None:
        """A trial begins."""
        self.show(f"trial {number}: {recipe}")

    def trial_finished(self, number: int, trial: Trial) -> None:
        """A trial ended."""
        from rich.text import Text

        style = "green" if trial.ok else "yellow" if trial.verdict.value in ("mismatch", "slow") else "dim"
        self.console.print(Text(trial_line(number, trial), style=style, overflow="ellipsis", no_wrap=True), highlight=False)


def make_reporter(stream: TextIO | None = None) -> PlainReporter:
    """The reporter that suits stderr."""
    stream = stream or sys.stderr
    return LiveReporter(stream) if stream.isatty() else PlainReporter(stream)
