"""A team's settings: the nearest autofix.toml, or [tool.autofix] in the nearest pyproject.toml, above the current folder.

They are defaults for the command line's options, which win unless `locked` names them (locks.py). Paths in the file are meant relative to it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autofix.errors import UsageError

LISTS = frozenset({"strategies", "layers", "only", "without"})
PATHS = frozenset({"output", "cache", "strategies", "layers", "calibration"})
SWITCHES = frozenset({"no_cache", "fastest", "retry"})
KEYS = [
    "output",
    "opset",
    "rtol",
    "atol",
    "max_latency",
    "min_speedup",
    "fastest",
    "max_error",
    "calibration",
    "threads",
    "allow",
    "budget",
    "max_trials",
    "jobs",
    "strategies",
    "only",
    "without",
    "cache",
    "layers",
    "no_cache",
    "retry",
    "seed",
    "timeout",
    "memory",
]
"""What may stand in the file, with underscores or hyphens: the options of the same names; `layers` are read-only team caches."""
BEYOND = ("locked", "versions", "caches")
"""What may stand there too and is no option."""


@dataclass(frozen=True)
class Policy:
    """The settings of one file, as the command line's defaults; `file` is None where there is none.

    locked: settings that the command line may not loosen. versions: {package: "specifiers"}. caches: the places (fsspec URLs) where the team
    shares its outcomes; those that are files on this machine are among the layers.
    """

    file: Path | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    locked: frozenset[str] = frozenset()
    versions: dict[str, str] = field(default_factory=dict)
    caches: tuple[str, ...] = ()


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
            return made(own, read_toml(own))
        project = place / "pyproject.toml"
        if project.is_file() and "[tool.autofix" in project.read_text(errors="replace"):
            table = read_toml(project).get("tool", {}).get("autofix", {})
            return made(project, table)
    return Policy()


def made(file: Path, table: dict[str, Any]) -> Policy:
    """The policy in a file's table."""
    settings = checked(file, {k: v for k, v in table.items() if k.replace("-", "_") not in BEYOND})
    shared = texts_of(file, "caches", table.get("caches", []))
    paths = [(file.parent / text).resolve() for text in shared if "://" not in text]
    folders = [path for path in paths if path.is_dir()]
    local = [str(path) for path in paths if path not in folders]
    if local:
        settings["layers"] = [*settings.get("layers", []), *local]
    versions = table.get("versions", {})
    if not isinstance(versions, dict) or any(not isinstance(v, str) for v in versions.values()):
        raise UsageError(f'{file}: versions must be a table such as {{ torch = ">=2.9,<3" }}')
    places = (*(text for text in shared if "://" in text), *(path.as_uri() for path in folders))
    return Policy(file, settings, locked_names(file, table.get("locked", []), settings), dict(versions), places)


def locked_names(file: Path, value: Any, settings: dict[str, Any]) -> frozenset[str]:
    """The settings that are locked: those named, or with `true` all that the file sets."""
    if isinstance(value, bool):
        return frozenset(settings) if value else frozenset()
    names = [name.replace("-", "_") for name in texts_of(file, "locked", value)]
    for name in names:
        if name not in KEYS:
            raise UsageError(f"{file}: locked names {name!r}, which is no setting; there are {', '.join(k.replace('_', '-') for k in KEYS)}")
    return frozenset(names)


def texts_of(file: Path, key: str, value: Any) -> list[str]:
    """A list of texts; raises UsageError for anything else."""
    if not isinstance(value, list) or any(not isinstance(v, str) for v in value):
        raise UsageError(f"{file}: {key} must be a list of texts{' or true' if key == 'locked' else ''}")
    return value


def checked(file: Path, table: dict[str, Any]) -> dict[str, Any]:
    """The settings under their options' names, values as the command line would give them."""
    every = [k.replace("_", "-") for k in (*KEYS, *BEYOND)]
    settings: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in KEYS:
            raise UsageError(f"{file}: unknown setting {key!r}; there are {', '.join(every)}")
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
