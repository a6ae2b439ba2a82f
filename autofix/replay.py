"""Reads a recipe back: from a fixlog.json, with its case and target, or bare."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from autofix.case import CaseSpec
from autofix.errors import UsageError
from autofix.recipe import Recipe


def read_recipe(file: Path) -> tuple[Recipe, dict[str, Any]]:
    """(the recipe, the fix log it stood in or {}); raises UsageError with what the file lacks."""
    try:
        data = json.loads(file.read_text())
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(f"{file}: {error}") from error
    if not isinstance(data, dict) or not ("recipe" in data or "fixes" in data):
        raise UsageError(f"{file}: holds neither a fix log nor a recipe")
    log = data if "recipe" in data else {}
    if log and not isinstance(log["recipe"], dict):
        raise UsageError(f"{file}: no recipe passed, so there is none to replay")
    try:
        return Recipe.from_json(log["recipe"] if log else data), log
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{file}: the recipe can't be read: {error!r}") from error


def logged_case(file: Path, log: dict[str, Any]) -> CaseSpec:
    """The case that a fix log is about; raises UsageError where it does not say."""
    case = log.get("case")
    known = {f.name for f in fields(CaseSpec)}
    spec = case.get("spec", case) if isinstance(case, dict) else {}
    if not isinstance(spec, dict) or "file" not in spec:
        raise UsageError(f"{file}: names no model file; give it as the second argument")
    found = CaseSpec.from_json({k: v for k, v in spec.items() if k in known})
    if not Path(found.file).exists():
        raise UsageError(f"{file}: its model file {found.file} is not there; give it as the second argument")
    return found
