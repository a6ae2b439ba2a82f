"""What a row of the cache may look like: every field has a pattern, every number a range, every text a length.

Nothing here opens a file, and no text of a row is ever run, opened or formatted into SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from autofix.recipe import Level, Recipe
from autofix.target import CAPTURES, Effect, ExportConfig, Target
from autofix.trial import Stage, Verdict

KINDS = ("origin", "case", "environment", "target", "recipe", "search", "outcome", "retraction")
"""In the order of an export: what is referred to comes before what refers to it."""

OUTCOME_TEXTS = (
    "case_id",
    "environment_id",
    "target_id",
    "recipe_id",
    "parent_id",
    "origin_id",
    "cause_symptom",
    "cause_operator",
    "cause_stage",
    "symptom",
    "operator",
    "stage",
    "verdict",
    "capture",
    "effect",
    "versions",
)
OUTCOME_FIELDS = frozenset((*OUTCOME_TEXTS, "added", "ms", "cpu_ms"))

_ID = "[0-9a-f]{32}"
_SLUG = "[a-z][a-z0-9_-]{0,63}"
_OPERATOR = r"[A-Za-z0-9_.:<> -]{0,120}"
_STAGES = "|".join(s.name.lower() for s in Stage)
PATTERNS: dict[str, str] = {
    "case_id": r"[0-9A-Za-z_-]{1,64}",
    "environment_id": _ID,
    "target_id": _ID,
    "recipe_id": _ID,
    "parent_id": f"(?:{_ID})?",
    "origin_id": f"(?:{_ID})?",
    "outcome_id": _ID,
    "nearest_id": f"(?:{_ID})?",
    "family": _ID,
    "cause_symptom": f"(?:{_SLUG})?",
    "cause_operator": _OPERATOR,
    "cause_stage": f"(?:{_STAGES})?",
    "symptom": f"(?:{_SLUG})?",
    "operator": _OPERATOR,
    "stage": f"(?:{_STAGES})",
    "verdict": f"(?:{'|'.join(v.value for v in Verdict)})",
    "capture": _SLUG,
    "effect": f"(?:{'|'.join(e.value for e in Effect)})",
    "versions": r"[0-9?.]{1,20}\|[0-9?.]{1,20}",
    "strategies": r"[0-9a-f]{0,64}",
    "stopped": _SLUG,
}
_FIELD = {name: re.compile(pattern) for name, pattern in PATTERNS.items()}
_OUTCOME = re.compile("\n".join(PATTERNS[name] for name in OUTCOME_TEXTS))
NUMBERS = ("ms", "cpu_ms")
NAME = "[a-z][a-z0-9_]{0,63}"
_STRATEGY = re.compile(NAME)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,79}")
_PLACE = re.compile(r"^[/\\~]|^[A-Za-z]:[/\\]|(?:^|[/\\])\.\.(?:[/\\]|$)|://")


class Refused(ValueError):
    """A row that is not believed; the message is the reason, short and without the row's own text."""


def check_body(kind: str, body: dict[str, Any], *, foreign: bool = False) -> None:
    """Raises Refused where `body` is not a row of this kind; `foreign` rows may not name places on a disk either."""
    if kind == "outcome":
        _check_outcome(body)
    elif kind == "recipe":
        _check_recipe(body, foreign)
    else:
        _CHECKS[kind](body)


def portable(body: dict[str, Any]) -> bool:
    """Whether a recipe may leave this machine: it names no place on its disk and carries no text of many lines."""
    try:
        _check_recipe(body, True)
    except Refused:
        return False
    return True


def _check_outcome(body: dict[str, Any]) -> None:
    if body.keys() != OUTCOME_FIELDS:
        raise Refused("fields missing or unknown")
    try:
        good = _OUTCOME.fullmatch("\n".join([body[name] for name in OUTCOME_TEXTS]))
    except TypeError:
        raise Refused("wrong type") from None
    if not good:
        _fields(body, *OUTCOME_TEXTS)
        raise Refused("bad text")
    for name in ("ms", "cpu_ms"):
        _whole(body[name], 10**10)
    added = body["added"]
    if type(added) is not list or len(added) > 32:
        raise Refused("bad added")
    for strategy in added:
        if type(strategy) is not str or not _STRATEGY.fullmatch(strategy):
            raise Refused("bad strategy name")
    if sorted(set(added)) != added:
        raise Refused("bad added")


def _fields(body: dict[str, Any], *names: str) -> None:
    for name in names:
        value = body[name]
        if type(value) is not str:
            raise Refused("wrong type")
        if not _FIELD[name].fullmatch(value):
            raise Refused(f"bad {name}")


def _shape(body: dict[str, Any], *names: str) -> None:
    if body.keys() != set(names):
        raise Refused("fields missing or unknown")


def _text(value: object, limit: int) -> None:
    """Printable only: no control, bidirectional, zero-width or private characters."""
    if type(value) is not str:
        raise Refused("wrong type")
    if len(value) > limit:
        raise Refused("text too long")
    if not value.isprintable():
        raise Refused("unprintable text")


def _whole(value: object, limit: int) -> None:
    if type(value) is not int:
        raise Refused("wrong type")
    if not 0 <= value <= limit:
        raise Refused("number out of range")


def _check_origin(body: dict[str, Any]) -> None:
    _shape(body, "team", "user", "machine")
    for value in body.values():
        _text(value, 80)


def _check_case(body: dict[str, Any]) -> None:
    _shape(body, "case_id", "name", "modules", "symptom", *(("family",) if "family" in body else ()))
    _fields(body, "case_id", *(("family",) if "family" in body else ()))
    _text(body["name"], 200)
    _text(body["symptom"], 300)
    modules = body["modules"]
    if type(modules) is not dict or len(modules) > 500:
        raise Refused("bad modules")
    for name, count in modules.items():
        _text(name, 120)
        _whole(count, 10**7)


def _check_environment(body: dict[str, Any]) -> None:
    if len(body) > 40:
        raise Refused("too many versions")
    for name, value in body.items():
        if not _KEY.fullmatch(name):
            raise Refused("bad name")
        _text(value, 200)


def _check_target(body: dict[str, Any]) -> None:
    _data(body, 3, True)
    try:
        same = Target.from_json(body).to_json() == body
    except (TypeError, ValueError, KeyError):
        same = False
    if not same:
        raise Refused("bad target")
    for name, value in body.items():
        if name != "allow" and value is not None and type(value) not in (int, float):
            raise Refused("bad target")
    whole = [body.get(name, 1) for name in ("min_opset", "max_opset", "threads")]
    if any(type(value) is not int or value < 1 for value in whole) or whole[0] > whole[1] > 1 or whole[1] > 99:
        raise Refused("bad target")
    if any((body.get(name) or 0) < 0 for name in ("rtol", "atol", "max_latency_ms", "min_speedup", "max_error")):
        raise Refused("bad target")


def _check_search(body: dict[str, Any]) -> None:
    names = ("case_id", "environment_id", "target_id", "origin_id", "strategies", "stopped", "nearest_id", "stage", "symptom")
    _shape(body, *names, "trials")
    _fields(body, *names)
    _whole(body["trials"], 10**7)


def _check_retraction(body: dict[str, Any]) -> None:
    _shape(body, "outcome_id", "reason", "origin_id")
    _fields(body, "outcome_id", "origin_id")
    _text(body["reason"], 200)


def _check_recipe(body: dict[str, Any], foreign: bool) -> None:
    _shape(body, "start", "fixes")
    if type(body["fixes"]) is not list or len(body["fixes"]) > 64 or type(body["start"]) is not dict:
        raise Refused("bad recipe")
    _check_start(body["start"], foreign)
    levels = []
    for fix in body["fixes"]:
        if type(fix) is not dict or fix.keys() != {"strategy", "level", "params"}:
            raise Refused("bad fix")
        if type(fix["strategy"]) is not str or not _STRATEGY.fullmatch(fix["strategy"]):
            raise Refused("bad strategy name")
        if type(fix["level"]) is not str or fix["level"].upper() not in Level.__members__ or type(fix["params"]) is not dict:
            raise Refused("bad fix")
        _data(fix["params"], 6, foreign)
        levels.append(Level[fix["level"].upper()])
    recipe = Recipe.from_json(body)
    if levels != sorted(levels) or recipe.to_json() != body or len({f.key() for f in recipe.fixes}) != len(recipe.fixes):
        raise Refused("bad recipe")


def _check_start(start: dict[str, Any], foreign: bool) -> None:
    _data(start, 4, foreign)
    default = ExportConfig()
    for name, value in start.items():
        if name not in default.__dataclass_fields__:
            raise Refused("unknown field of start")
        wants = getattr(default, name)
        kind = int if name == "opset" else list if isinstance(wants, tuple) else type(wants)
        if type(value) is not kind:
            raise Refused("bad start")
    if start.get("capture", "export") not in CAPTURES or not 1 <= start.get("opset", 1) <= 99:
        raise Refused("bad start")
    for pair in start.get("flags", []):
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str:
            raise Refused("bad start")
    if not all(type(x) is str for name in ("lift_buffers", "script_modules") for x in start.get(name, [])):
        raise Refused("bad start")


def _data(value: Any, depth: int, foreign: bool) -> None:
    """Plain JSON within limits; of a foreign row also: one-line printable texts that name no place."""
    if depth < 0:
        raise Refused("nested too deeply")
    if type(value) is dict:
        for key, inner in value.items():
            if type(key) is not str or len(key) > 120 or not key.isprintable():
                raise Refused("bad name")
            _data(inner, depth - 1, foreign)
    elif type(value) is list:
        for inner in value:
            _data(inner, depth - 1, foreign)
    elif type(value) is str:
        if not foreign:
            return
        _text(value, 500)
        if _PLACE.search(value):
            raise Refused("names a place")
    elif type(value) in (int, float):
        if not abs(value) <= 2**53:  # nor NaN; a whole number of any length is compared, not converted
            raise Refused("number out of range")
    elif value is not None and type(value) is not bool:
        raise Refused("wrong type")


_CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "origin": _check_origin,
    "case": _check_case,
    "environment": _check_environment,
    "target": _check_target,
    "search": _check_search,
    "retraction": _check_retraction,
}
