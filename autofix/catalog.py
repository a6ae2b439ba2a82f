"""Strategies as text and plain data, for `autofix strategies` and `autofix explain`."""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from autofix.errors import UsageError
from autofix.loader import Registry
from autofix.signatures import SYMPTOMS
from autofix.strategy import Strategy


def first_line(strategy: Strategy) -> str:
    """What the strategy does, in a line."""
    return (inspect.getdoc(strategy) or "").partition("\n")[0]


def in_order(registry: Registry) -> list[Strategy]:
    """By level, then by name."""
    return sorted(registry.values(), key=lambda s: (s.level, s.name))


def strategy_rows(registry: Registry) -> list[dict[str, Any]]:
    """Plain data about every strategy."""
    return [
        {
            "name": s.name,
            "level": s.level.name.lower(),
            "effect": s.effect.value,
            "treats": list(s.treats),
            "prior": s.prior,
            "does": first_line(s),
            "file": s.file,
        }
        for s in in_order(registry)
    ]


def strategies_text(registry: Registry) -> str:
    """The list, a line each, grouped by level."""
    width = max((len(s.name) for s in registry.values()), default=0)
    lines: list[str] = []
    for strategy in in_order(registry):
        heading = strategy.level.name.lower()
        if heading not in lines:
            lines.append(heading)
        effect = "" if strategy.effect.value == "exact" else f" ({strategy.effect.value})"
        lines.append(f"  {strategy.name:<{width}}  {first_line(strategy)}{effect}")
    return "\n".join([*lines, f"{len(registry)} strategies; `autofix explain NAME` says more"])


def symptom_rows(registry: Registry) -> list[dict[str, Any]]:
    """Every symptom with the strategies that treat it."""
    return [
        {"symptom": s, "meaning": text, "strategies": sorted(n for n, one in registry.items() if s in one.treats)} for s, text in SYMPTOMS.items()
    ]


def symptoms_text(registry: Registry) -> str:
    """The symptoms, each with its meaning and how many strategies treat it."""
    width = max(map(len, SYMPTOMS))
    return "\n".join(f"{r['symptom']:<{width}}  {r['meaning']} ({len(r['strategies'])} strategies)" for r in symptom_rows(registry))


def explanation(name: str, registry: Registry) -> str:
    """All about one strategy; raises UsageError for a name that does not exist."""
    strategy = registry.get(name)
    if strategy is None:
        close = difflib.get_close_matches(name, [*registry, *SYMPTOMS], 3)
        if name in SYMPTOMS:
            treating = sorted(n for n, s in registry.items() if name in s.treats)
            return f"{name}: {SYMPTOMS[name]}\n  treated by: {', '.join(treating) or 'no strategy'}"
        raise UsageError(
            f"there is no strategy {name!r}; {'did you mean ' + ' or '.join(close) + '?' if close else '`autofix strategies` lists them'}"
        )
    lines = [f"{strategy.name}  ({strategy.level.name.lower()} level, {strategy.effect.value})", "", inspect.getdoc(strategy) or "", ""]
    lines += ["Treats:", *(f"  {s}: {SYMPTOMS[s]}" for s in strategy.treats), ""]
    if strategy.group:
        lines.append(f"One of the group {strategy.group!r}: a recipe holds one of them.")
    lines.append(f"Prior probability {strategy.prior:g}; {len(strategy.REPAIRS)} examples, {len(strategy.DECLINES)} cases where it declines.")
    lines.append(f"File: {strategy.file}")
    return "\n".join(lines)
