"""The command line's value types: opset ranges, durations, latencies, memory sizes, effects."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from autofix.target import Effect

SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
MILLISECONDS = {"": 1.0, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "s": 1000.0}
MEBIBYTES = {"": 1.0, "m": 1.0, "mb": 1.0, "mib": 1.0, "g": 1024.0, "gb": 1024.0, "gib": 1024.0}


class Parsed(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A click type made of a function that raises ValueError with what is expected."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed value; values that are no text came through here already."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(f"{value!r} is not {error}", param, ctx)


def with_unit(text: str, units: dict[str, float], expected: str) -> float:
    """A positive number with a unit; raises ValueError with what is expected."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-zµ]*)", text.strip().lower())
    if not match or match[2] not in units or float(match[1]) <= 0:
        raise ValueError(expected)
    return float(match[1]) * units[match[2]]


def parse_duration(text: str) -> float:
    """Seconds in "90", "90s", "10m", "1.5h"."""
    return with_unit(text, SECONDS, "a duration such as 90s, 10m or 1h")


def parse_latency(text: str) -> float:
    """Milliseconds in "8ms", "0.5s", "800us"."""
    return with_unit(text, MILLISECONDS, "a latency such as 8ms or 800us")


def parse_memory(text: str) -> float:
    """MiB in "4096", "4096M", "8G"."""
    return with_unit(text, MEBIBYTES, "a size such as 4096M or 8G")


def parse_opset(text: str) -> tuple[int, int]:
    """(lowest, highest) in "17" or "13-20"."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 7 <= low <= high:
        raise ValueError("an opset such as 17 or a range such as 13-20 (7 at least)")
    return low, high


def parse_effects(text: str) -> frozenset[Effect]:
    """Effects in "approximate,narrowing"."""
    names = [n.strip().lower() for n in text.split(",") if n.strip()]
    known = {e.value: e for e in Effect if e is not Effect.EXACT}
    if any(n not in known for n in names):
        raise ValueError("approximate, narrowing or both with a comma between")
    return frozenset(known[n] for n in names)


DURATION = Parsed("duration", parse_duration)
LATENCY = Parsed("latency", parse_latency)
MEMORY = Parsed("size", parse_memory)
OPSET = Parsed("opset", parse_opset)
EFFECTS = Parsed("effects", parse_effects)
