"""The source files that a recipe's source fixes rewrite: the user's own and library modules, before and after."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autofix.errors import NothingToDo
from autofix.rewrite import install_source


def source_names(sources: Mapping[str, str], main: str) -> dict[str, str]:
    """{absolute path: short name} of the user's files, the model file first: relative to the model file's folder where that is possible."""
    own = str(Path(main).resolve())
    base = Path(own).parent
    names: dict[str, str] = {}
    for path in sorted(sources, key=lambda p: p != own):
        try:
            names[path] = Path(path).resolve().relative_to(base).as_posix()
        except ValueError:
            names[path] = Path(path).name
    return names


def read_source(name: str, names: Mapping[str, str]) -> tuple[Any, str]:
    """(live module, text) of a user's file by short name, of a library module by dotted name, or of a library file by path."""
    for path, short in names.items():
        if short == name or path == name:
            for module in list(sys.modules.values()):
                file = getattr(module, "__file__", None)
                if isinstance(file, str) and str(Path(file).resolve()) == path:
                    return module, Path(path).read_text()
    if name.endswith(".py"):
        for module in list(sys.modules.values()):
            if getattr(module, "__file__", None) == name:
                return module, Path(name).read_text()
        raise NothingToDo(f"{name} is no source of this model")
    try:
        module = importlib.import_module(name)
        return module, inspect.getsource(module)
    except (ImportError, OSError, TypeError) as error:
        raise NothingToDo(f"the source of {name} can't be read: {error}") from error


def known_name(file: str, names: Mapping[str, str]) -> str:
    """The file that a fix names; a recipe from a model file of another name means this model's own file, which is the first."""
    if not file.endswith(".py") or file in names or file in names.values() or Path(file).is_absolute():
        return file
    return next(iter(names.values()), file)


def apply_source_fixes(recipe_fixes: tuple[Any, ...], strategies: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, tuple[Any, str, str]]:
    """Apply source-level fixes in order: {file: (module, old text, new text)}. Nothing is installed yet."""
    texts: dict[str, tuple[Any, str, str]] = {}
    for fix in recipe_fixes:
        params = dict(fix.params)
        file = known_name(str(params.pop("file")), names)
        if file not in texts:
            module, text = read_source(file, names)
            texts[file] = (module, text, text)
        module, old, current = texts[file]
        new = strategies[fix.strategy].apply(current, **params)
        if new == current:
            raise NothingToDo(f"{fix.strategy} left {file} as it is")
        texts[file] = (module, old, new)
    return texts


def install_rewritten(texts: Mapping[str, tuple[Any, str, str]], folder: Path) -> dict[str, str]:
    """Install rewritten files, keeping their text in `folder`; returns {path of the new text: file name}."""
    paths: dict[str, str] = {}
    for file, (module, old, new) in texts.items():
        path = folder / "rewritten" / (file.strip("/").replace("/", "_") if file.endswith(".py") else file + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(new)
        install_source(module, old, new, str(path))
        paths[str(path)] = file
    return paths


def original_lines(old: str, new: str) -> list[int]:
    """For each line of `new` the number of the line of `old` that it came from; the first of those that it replaces; 0 where it was added."""
    before, after = ([line.strip() for line in text.splitlines()] for text in (old, new))
    found = [0] * len(after)
    for tag, i, end, j, stop in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for k in range(j, stop):
            found[k] = i + 1 + (k - j) if tag == "equal" else i + 1 if tag == "replace" and end > i else 0
    return found


def original_place(places: list[tuple[str, int]], rewritten: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
    """(line, its text) in the untouched source, of the first of `places` (file, line) that was there. rewritten: {file: (old text, new text)}."""
    for file, line in places:
        old, new = rewritten.get(file, ("", ""))
        lines = original_lines(old, new)
        number = lines[line - 1] if 0 < line <= len(lines) else 0
        if number:
            return str(number), old.splitlines()[number - 1].strip()
    return None
