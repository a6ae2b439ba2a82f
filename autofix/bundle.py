"""Flatten source text: entry functions and all that they need of autofix and of strategies, as one text that imports neither.

`Bundle(entries)` takes what it needs from the source files by name, statement by statement, formatting and comments kept; names that two
files use for different things are told apart; imports of anything else are gathered at the top.
"""

from __future__ import annotations

import ast
import keyword
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autofix.scopes import BUILTINS, Imported, Use
from autofix.sourcefile import BundleError, SourceFile, Unit, banner, import_edits, is_ours, name_span, read_source_file, strategy_text

STRATEGIES = "autofix.strategies."
"""Strategies are imported as `from autofix.strategies.NAME import NAME`, whatever folder their file is in."""


@dataclass(frozen=True)
class External:
    """A name that an import of something else binds."""

    name: str
    target: Imported


@dataclass(frozen=True)
class Ours:
    """A name that a unit of a source file binds."""

    module: str
    name: str


Meaning = External | Ours | None
"""What a global name stands for; None: a builtin."""


class Bundle:
    """One flattened text.

    entries: SourceFiles whose units are all taken, in this order before what they need. strategies: {name: file} of the strategies that may be
    imported. edit: changes the text of a module, given its name, before it is read. Raises BundleError where a name can't be followed.
    """

    def __init__(
        self, entries: Iterable[SourceFile], strategies: Mapping[str, str], edit: Callable[[str, str], str] = lambda module, text: text
    ) -> None:
        self.strategies, self.edit = dict(strategies), edit
        self.files: dict[str, SourceFile] = {}
        self.order: list[str] = []
        self.taken: dict[int, Unit] = {}
        self.externals: dict[External, None] = {}
        self.plain: set[str] = set()
        self.packages = Path(__file__).resolve().parent
        waiting: list[Unit] = []
        for entry in entries:
            self.files[entry.module] = entry
            self.order.append(entry.module)
            waiting += entry.units
        self.take(waiting)
        self.take_annotations()
        self.names = self.final_names()

    def file(self, module: str) -> SourceFile | None:
        """The source file of one of our modules, None where there is none of this name."""
        if module not in self.files:
            name = module.removeprefix(STRATEGIES)
            if module.startswith(STRATEGIES) and name in self.strategies:
                path = Path(self.strategies[name])
                self.files[module] = read_source_file(module, str(path), self.edit(module, strategy_text(path, name)))
            else:
                path = self.packages.joinpath(*module.split(".")[1:])
                path = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
                if not path.is_file():
                    return None
                self.files[module] = read_source_file(module, str(path), self.edit(module, path.read_text()))
            self.order.append(module)
        return self.files[module]

    def neighbour(self, file: SourceFile, target: Imported) -> Imported:
        """A relative import with its module's full name; a strategy's neighbours are looked for in its folder and those above."""
        if not target.level:
            return target
        if not file.module.startswith(STRATEGIES) and not file.module.startswith("neighbour:"):
            base = file.module.split(".")[: -target.level]
            return Imported(".".join([*base, *filter(None, [target.module])]), target.name)
        inner = target.module.split(".") if target.module else [target.name]
        for folder in list(Path(file.path).resolve().parents)[:3]:
            path = folder.joinpath(*inner).with_suffix(".py")
            if path.is_file():
                module = f"neighbour:{path}"
                if module not in self.files:
                    self.files[module] = read_source_file(module, str(path), path.read_text())
                    self.order.append(module)
                return Imported(module, target.name if target.module else "")
        raise BundleError(f"{file.path}: imports {'.'.join(inner)} from beside it, where there is no such file")

    def imported(self, file: SourceFile, name: str, target: Imported, use: Use) -> Meaning:
        """What an imported name stands for; `module.attribute` of one of our modules is the attribute."""
        if not is_ours(target.module, target.level) and not target.module.startswith("neighbour:"):
            return External(name, target)
        target = self.neighbour(file, target)
        inner = self.file(f"{target.module}.{target.name}") if target.name else self.file(target.module)
        if inner is not None and (not target.name or not self.has(target.module, target.name)):
            if use.attribute is None:
                raise BundleError(f"{file.path}:{getattr(use.node, 'lineno', 0)}: {name} is a whole module; import the names that are needed from it")
            return self.meaning(inner, use.attribute.attr, use)
        source = self.file(target.module)
        if source is None:
            raise BundleError(f"{file.path}: there is no module {target.module}")
        return self.meaning(source, target.name, use)

    def has(self, module: str, name: str) -> bool:
        """Whether a module binds a name."""
        file = self.file(module)
        return file is not None and (bool(file.binding(name)) or name in file.imports)

    def meaning(self, file: SourceFile, name: str, use: Use) -> Meaning:
        """What a global name of a file stands for; raises BundleError where nothing binds it."""
        if any(name in u.names for u in file.units):
            return Ours(file.module, name)
        if name in file.imports:
            return self.imported(file, name, file.imports[name], use)
        if name in BUILTINS:
            return None
        raise BundleError(f"{file.path}:{getattr(use.node, 'lineno', 0)}: {name} is not defined at the top level of {Path(file.path).name}")

    def of(self, unit: Unit, use: Use) -> Meaning:
        """What a use in a unit stands for."""
        if use.target is not None:
            return self.imported(unit.file, use.name, use.target, use)
        return self.meaning(unit.file, use.name, use)

    def take(self, waiting: list[Unit]) -> None:
        """Take these units and all that they need, annotations apart."""
        while waiting:
            unit = waiting.pop()
            if id(unit) in self.taken:
                continue
            self.taken[id(unit)] = unit
            for name in sorted(unit.names | unit.mutates):
                waiting += unit.file.binding(name)
            for use in unit.uses:
                if not use.annotation and not (use.store and use.name in unit.names):
                    waiting += self.need(unit, self.of(unit, use))

    def need(self, unit: Unit, meaning: Meaning) -> list[Unit]:
        """Note an import, or give the units that bind a name."""
        if isinstance(meaning, External):
            self.externals[meaning] = None
            root = meaning.target.module
            if not meaning.target.name and meaning.name == root:
                self.plain.update(p for p in unit.file.plain if p.partition(".")[0] == root)
            return []
        return self.files[meaning.module].binding(meaning.name) if meaning else []

    def take_annotations(self) -> None:
        """What annotations alone name: imports, and aliases that need nothing new of ours. Other names will read `Any`."""
        self.hidden_types: set[Ours] = set()
        changed = True
        while changed:
            changed = False
            for unit in list(self.taken.values()):
                for use in unit.uses:
                    meaning = self.of(unit, use) if use.annotation else None
                    if isinstance(meaning, External):
                        self.need(unit, meaning)
                    elif isinstance(meaning, Ours):
                        missing = [u for u in self.need(unit, meaning) if id(u) not in self.taken]
                        if missing and all(self.is_alias(u) for u in missing):
                            self.take(missing)
                            changed = True
        for unit in self.taken.values():
            for use in unit.uses:
                meaning = self.of(unit, use) if use.annotation else None
                if isinstance(meaning, Ours) and not any(id(u) in self.taken for u in self.need(unit, meaning)):
                    self.hidden_types.add(meaning)
        if self.hidden_types:
            self.externals[External("Any", Imported("typing", "Any"))] = None

    def is_alias(self, unit: Unit) -> bool:
        """Whether a unit is an assignment that needs no unit which is not taken."""
        if not isinstance(unit.node, (ast.Assign, ast.AnnAssign)):
            return False
        found = [self.of(unit, u) for u in unit.uses if not u.store]
        return not any(isinstance(m, Ours) and any(id(u) not in self.taken for u in self.files[m.module].binding(m.name)) for m in found)

    def final_names(self) -> dict[Meaning, str]:
        """A name for everything, unique, and hidden by no local name where it is used."""
        identifiers = {n for f in self.files.values() for n in f.identifiers}
        reserved: dict[str, Meaning] = dict.fromkeys([*BUILTINS, *keyword.kwlist, *keyword.softkwlist])
        names: dict[Meaning, str] = {}
        hidden = self.hidden_names()

        def choose(meaning: External | Ours, name: str, origin: str) -> None:
            free = name not in reserved and name not in hidden.get(meaning, ())
            number = 1
            while not free:
                origin_name = re.sub(r"\W", "_", origin) or "other"
                name = f"{meaning.name}_{origin_name}" + (f"_{number}" if number > 1 else "")
                number += 1
                free = name not in reserved and name not in identifiers
            reserved[name] = meaning
            names[meaning] = name

        for external in self.externals:
            choose(external, external.name, external.target.module.rpartition(".")[2])
        for module in sorted(self.order, key=lambda m: not m.startswith(STRATEGIES)):
            file = self.files[module]
            for unit in file.units:
                for name in sorted(unit.names) if id(unit) in self.taken else ():
                    if Ours(module, name) not in names:
                        choose(Ours(module, name), name, Path(file.path).stem)
        return names

    def hidden_names(self) -> dict[Meaning, set[str]]:
        """{what a name stands for: names that are local somewhere it is used under another name}."""
        hidden: dict[Meaning, set[str]] = {}
        for unit in self.taken.values():
            for use in unit.uses:
                meaning = self.of(unit, use)
                if meaning is not None and use.hidden:
                    hidden.setdefault(meaning, set()).update(use.hidden)
        return hidden

    def preferred_order(self) -> list[str]:
        """Entries, then strategies with what they need, then the rest; each file before what it needs."""
        needs: dict[str, list[str]] = {m: [] for m in self.order}
        for unit in self.taken.values():
            for use in unit.uses:
                meaning = None if use.annotation else self.of(unit, use)
                if isinstance(meaning, Ours) and meaning.module not in needs[unit.file.module]:
                    needs[unit.file.module].append(meaning.module)
        found = [m for m in self.order if not self.files[m].path]
        waiting = [m for m in self.order if not m.startswith(STRATEGIES)][::-1] + [m for m in self.order if m.startswith(STRATEGIES)][::-1]
        while waiting:
            module = waiting.pop()
            if module not in found:
                found.append(module)
            waiting += [m for m in reversed(needs.pop(module, [])) if m in needs]
        return found

    def ordered_files(self) -> list[SourceFile]:
        """The files in the preferred order, but for what must be defined before another file is loaded."""
        need: dict[str, set[str]] = {m: set() for m in self.order}
        for unit in self.taken.values():
            need[unit.file.module] |= {m for m in self.loaded_before(unit) if m != unit.file.module}
        left, done = self.preferred_order(), []
        while left:
            ready = [m for m in left if not need[m] & set(left)]
            if not ready:
                raise BundleError(f"these modules need each other while they are loaded: {', '.join(left)}")
            done.append(ready[0])
            left.remove(ready[0])
        return [self.files[m] for m in done]

    def loaded_before(self, unit: Unit) -> set[str]:
        """Modules of the names that a unit reads when it is loaded; with what these need in turn where it calls something."""
        modules: set[str] = set()
        seen: set[int] = set()
        waiting = [(unit, False)]
        while waiting:
            one, called = waiting.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            for use in one.uses:
                meaning = None if use.annotation or (use.deferred and not called) else self.of(one, use)
                if isinstance(meaning, Ours):
                    modules.add(meaning.module)
                    if unit.calls:
                        waiting += [(u, True) for u in self.files[meaning.module].binding(meaning.name)]
        return modules

    def unit_text(self, unit: Unit) -> str:
        """The lines of a unit with names as they are in the bundle and without imports of our own."""
        lines = unit.file.text.splitlines()
        replaced: dict[int, list[tuple[int, int, str]]] = {}
        for use in unit.uses:
            meaning = self.of(unit, use)
            if meaning is None:
                continue
            new = "Any" if meaning in self.hidden_types else self.names.get(meaning, use.name)
            node: ast.AST = use.node
            through = use.attribute is not None and isinstance(meaning, Ours) and meaning.name == use.attribute.attr and self.is_module(unit, use)
            if through and use.attribute is not None:
                node = use.attribute
            elif new == use.name:
                continue
            span = name_span(lines, node, use.name)
            if span is None:
                raise BundleError(
                    f"{unit.file.path}:{getattr(node, 'lineno', 0)}: {use.name} has to be renamed and stands in a place that can't be edited"
                )
            replaced.setdefault(span[0], []).append((span[1], span[2], new))
        edits = import_edits(unit.file, ast.Module([unit.node], []))
        out: list[str] = []
        for number in range(unit.first, unit.last + 1):
            line = lines[number - 1].encode()
            for start, end, new in sorted(set(replaced.get(number, ())), reverse=True):
                line = line[:start] + new.encode() + line[end:]
            text: str | None = edits[number] if number in edits else line.decode()
            if text is not None and not (text == "" and number - 1 in edits and edits[number - 1] is None):
                out.append(text)
        return "\n".join(out)

    def is_module(self, unit: Unit, use: Use) -> bool:
        """Whether the name of a use stands for one of our modules."""
        target = use.target or unit.file.imports.get(use.name)
        if target is None or use.name in {n for u in unit.file.units for n in u.names}:
            return False
        target = self.neighbour(unit.file, target)
        return not target.name or not self.has(target.module, target.name)

    def import_lines(self) -> list[str]:
        """The imports of everything that is not ours, standard library first."""
        whole: set[str] = {f"import {p}" for p in self.plain}
        some: dict[str, set[str]] = {}
        for external in self.externals:
            name, target = self.names[external], external.target
            if not target.name:
                if target.module not in {p.partition(".")[0] for p in self.plain} or name != target.module:
                    whole.add(f"import {target.module}" + (f" as {name}" if name != target.module else ""))
            else:
                some.setdefault(target.module, set()).add(target.name + (f" as {name}" if name != target.name else ""))
        lines = [*sorted(whole), *(f"from {m} import {', '.join(sorted(n))}" for m, n in sorted(some.items()))]
        standard = [line for line in lines if line.split()[1].partition(".")[0] in sys.stdlib_module_names]
        other = [line for line in lines if line not in standard]
        return [*standard, *([""] if standard and other else []), *other]

    def text(self, header: str = "") -> str:
        """The whole text; `header` stands above the imports."""
        parts = [header.rstrip(), "from __future__ import annotations", "\n".join(self.import_lines())]
        out = "\n\n".join(filter(None, parts)) + "\n"
        for file in self.ordered_files():
            units = [u for u in file.units if id(u) in self.taken]
            if units:
                out += "\n\n" + banner(file)
            for before, unit in zip([None, *units], units, strict=False):
                apart = "\n\n" if before is None or before.defines or unit.defines else ""
                out += apart + self.unit_text(unit) + "\n"
        return out
