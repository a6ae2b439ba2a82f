"""The errors that autofix raises on purpose; each message says what, where, and what to do."""

from __future__ import annotations


class AutofixError(Exception):
    """Base of all errors meant for the person at the terminal; the command line exits with `exit_code`."""

    exit_code = 2


class UsageError(AutofixError):
    """An option or a call that makes no sense."""


class CaseError(AutofixError):
    """The model file can't be used: missing, broken, not a model, not deterministic."""

    def __init__(self, message: str, *, file: str = "", line: int = 0) -> None:
        where = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        super().__init__(where + message)
        self.file, self.line, self.message = file, line, message


class StrategyError(AutofixError):
    """A strategy file that does not load, or a recipe that names an unknown strategy or bad parameters."""


class CacheError(AutofixError):
    """The cache can't be read or written."""


class NothingToDo(Exception):
    """Raised by a strategy's `apply` that found nothing to change; the trial is recorded and not built upon."""
