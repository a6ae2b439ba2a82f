"""A team's settings: the nearest autofix.toml, or [tool.autofix] in the nearest pyproject.toml, above the current folder.

They are defaults for the command line's options, which win. Paths in the file are meant relative to it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autofix.errors import UsageError

LISTS = frozenset({"strategies", "layers"})
PATHS = frozenset({"output", "cache", "strategies", "layers"})
SWITCHES = frozenset({"no_cache"})
KEYS = [
    "output",
    "opset",
    "rtol",
    "atol",
    "max_latency",
    "min_speedup",
    "threads",
    "allow",
    "budget",
    "max_trials",
    "jobs",
    "strategies",
    "cache",
    "layers",
    "no_cache",
    "seed",
    "timeout",
    "memory",
]
"""What may stand in the file, with underscores or hyphens: the options of the same names; `layers` are read-only team caches."""


@dataclass(frozen=True)
class Policy:
    """The settings of one file, as the command line's defaults; `file` is None where there is none."""

    file: Path | None = None
    settings: dict[str, Any] = field(default_factory=dict)


def read_toml(file: Path) -> dict[str, Any]:
    """A TOML file's content; raises UsageError."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return dict(tomllib.loads(file.read_text()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file}: {error}") from error


def find_policy(folder: Path) -> Policy:
    """The policy that holds in a folder; raises UsageError for a file that can't be read or names what does not exist."""
    for place in (folder, *folder.parents):
        own = place / "autofix.toml"
        if own.is_file():
            return Policy(own, checked(own, read_toml(own)))
        project = place / "pyproject.toml"
        if project.is_file() and "[tool.autofix" in project.read_text(errors="replace"):
            table = read_toml(project).get("tool", {}).get("autofix", {})
            return Policy(project, checked(project, table))
    return Policy()


def checked(file: Path, table: dict[str, Any]) -> dict[str, Any]:
    """The settings under their options' names, values as the command line would give them."""
    settings: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in KEYS:
            raise UsageError(f"{file}: unknown setting {key!r}; there are {', '.join(k.replace('_', '-') for k in KEYS)}")
        if name in SWITCHES:
            if not isinstance(value, bool):
                raise UsageError(f"{file}: {key} must be true or false")
            settings[name] = value
            continue
        values = value if isinstance(value, list) else [value]
        if any(not isinstance(v, (str, int, float)) or isinstance(v, bool) for v in values):
            raise UsageError(f"{file}: {key} must be a text or a number{' or a list of texts' if name in LISTS or name == 'allow' else ''}")
        texts = [str((file.parent / str(v)).resolve()) if name in PATHS else str(v) for v in values]
        if name in LISTS:
            settings[name] = texts
        elif len(texts) == 1 or name == "allow":
            settings[name] = ",".join(texts)
        else:
            raise UsageError(f"{file}: {key} must be one value")
    return settings
