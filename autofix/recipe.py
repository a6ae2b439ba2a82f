"""Fix, one repair step as plain data, and Recipe, a start config with ordered fixes."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from autofix.ids import canonical_json, content_id
from autofix.target import ExportConfig


class Level(enum.IntEnum):
    """Where a fix acts; a recipe applies its fixes in this order."""

    CONFIG = 1
    SOURCE = 2
    MODULE = 3
    PROGRAM = 4
    ONNX = 5
    RUNTIME = 6


@dataclass(frozen=True)
class Fix:
    """A strategy's name, the level it acts on, and JSON parameters."""

    strategy: str
    level: Level
    params: dict[str, Any] = field(default_factory=dict, hash=False)

    def key(self) -> str:
        """Equal for equal fixes."""
        return canonical_json([self.strategy, self.params])

    def to_json(self) -> dict[str, Any]:
        return {"strategy": self.strategy, "level": self.level.name.lower(), "params": self.params}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Fix:
        return cls(str(data["strategy"]), Level[str(data["level"]).upper()], dict(data.get("params", {})))

    def __str__(self) -> str:
        inner = ", ".join(f"{k}={v!r}" for k, v in self.params.items())
        return f"{self.strategy}({inner})"


@dataclass(frozen=True)
class Recipe:
    """A start config and fixes, ordered by level and within a level by when they were added."""

    fixes: tuple[Fix, ...] = ()
    start: ExportConfig = ExportConfig()

    @property
    def id(self) -> str:
        """Content id; equal recipes are tried once."""
        return content_id(self.to_json())

    def plus(self, fixes: Iterable[Fix]) -> Recipe:
        """This recipe with further fixes, those it has already left out. A fix with the parameter `last` comes after the others of its level."""
        have = {f.key() for f in self.fixes}
        added = list(self.fixes)
        for fix in fixes:
            if fix.key() not in have:
                have.add(fix.key())
                added.append(fix)
        return Recipe(tuple(sorted(added, key=lambda f: (f.level, bool(f.params.get("last"))))), self.start)

    def minus(self, fix: Fix) -> Recipe:
        """This recipe without one of its fixes."""
        return Recipe(tuple(f for f in self.fixes if f.key() != fix.key()), self.start)

    def at(self, level: Level) -> tuple[Fix, ...]:
        """The fixes of one level, in order."""
        return tuple(f for f in self.fixes if f.level == level)

    def has(self, strategy: str) -> bool:
        """Whether some fix comes from this strategy."""
        return any(f.strategy == strategy for f in self.fixes)

    def to_json(self) -> dict[str, Any]:
        return {"start": self.start.to_json(), "fixes": [f.to_json() for f in self.fixes]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Recipe:
        return cls(tuple(Fix.from_json(f) for f in data.get("fixes", ())), ExportConfig.from_json(data.get("start", {})))

    def __str__(self) -> str:
        return " + ".join(map(str, self.fixes)) or "stock export"
