"""Loads strategies: the built-in folder, `--strategies` folders and entry points, all by one code path."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
import sys
import types
from collections.abc import Collection, Iterable
from pathlib import Path

from autofix.errors import StrategyError
from autofix.ids import text_id
from autofix.recipe import Fix, Recipe
from autofix.signatures import SYMPTOMS
from autofix.strategy import Strategy

Registry = dict[str, Strategy]


def builtin_folder() -> Path:
    """Where the shipped strategies are: beside the package in a checkout, inside it when installed."""
    here = Path(__file__).resolve().parent
    for folder in (here / "strategies", here.parent / "strategies"):
        if any(folder.glob("*/*.py")):
            return folder
    raise StrategyError("no built-in strategy was found; reinstall autofix")


def strategy_files(folder: Path) -> list[Path]:
    """The strategy files below a folder, sorted; names that begin with an underscore are left out."""
    return sorted(p for p in folder.rglob("*.py") if not p.name.startswith("_") and "__pycache__" not in p.parts)


def package_for(folder: Path) -> str:
    """A synthetic package whose `__path__` is the folder, so that files can import their neighbours; sys.path stays."""
    name = f"autofix_strategies_{text_id(str(folder))[:8]}"
    if name not in sys.modules:
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        sys.modules[name] = package
    return name


def load_file(path: Path, package: str) -> Strategy:
    """The one strategy in a file; raises StrategyError with what is missing."""
    name = f"{package}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise StrategyError(f"{path}: does not load: {type(error).__name__}: {error}") from error
    found = [
        c for c in vars(module).values() if inspect.isclass(c) and issubclass(c, Strategy) and c.__module__ == name and not inspect.isabstract(c)
    ]
    if len(found) != 1:
        raise StrategyError(f"{path}: holds {len(found)} complete strategies (with propose and apply); one file is one strategy")
    cls = found[0]
    problems = [
        text
        for bad, text in (
            (not inspect.getdoc(cls) or cls.__doc__ is None, "a docstring"),
            (not cls.treats, "`treats`"),
            (not cls.REPAIRS, "REPAIRS, at least one Example"),
            (not isinstance(inspect.getattr_static(cls, "apply"), staticmethod), "`apply` as a staticmethod"),
        )
        if bad
    ]
    if problems:
        raise StrategyError(f"{path}: the strategy lacks {', '.join(problems)}")
    unknown = [s for s in cls.treats if s not in SYMPTOMS]
    if unknown:
        raise StrategyError(f"{path}: treats unknown symptoms {', '.join(unknown)}; see `autofix strategies --symptoms`")
    strategy = cls()
    strategy.name, strategy.file = path.stem, str(path)
    return strategy


def load_strategies(folders: Iterable[Path] = (), builtin: bool = True, entry_points: bool = True, names: Collection[str] | None = None) -> Registry:
    """All strategies by name, or only those in `names`. A folder given later may not reuse a name: that raises StrategyError."""
    places = [builtin_folder()] if builtin else []
    if entry_points:
        from importlib.metadata import entry_points as find

        for point in find(group="autofix.strategies"):
            module = point.load()
            places += [Path(p) for p in getattr(module, "__path__", [])]
    for folder in folders:
        if not folder.is_dir():
            raise StrategyError(f"--strategies {folder}: no such folder")
        if not strategy_files(folder):
            raise StrategyError(f"--strategies {folder}: holds no strategy file")
        places.append(folder)
    registry: Registry = {}
    for folder in places:
        package = package_for(folder)
        for path in strategy_files(folder):
            if names is not None and path.stem not in names:
                continue
            strategy = load_file(path, package)
            if strategy.name in registry:
                raise StrategyError(f"{path}: the name {strategy.name} is taken by {registry[strategy.name].file}")
            registry[strategy.name] = strategy
    return registry


def check_recipe(recipe: Recipe, registry: Registry) -> None:
    """Raises StrategyError where a recipe names an unknown strategy, a wrong level or parameters that `apply` lacks."""
    for fix in recipe.fixes:
        check_fix(fix, registry)


def check_fix(fix: Fix, registry: Registry) -> None:
    """Raises StrategyError unless the fix names an installed strategy, its level and parameters that `apply` takes."""
    strategy = registry.get(fix.strategy)
    if strategy is None:
        raise StrategyError(f"the recipe names the strategy {fix.strategy!r}, which is not installed; `autofix strategies` lists them")
    if strategy.level != fix.level:
        raise StrategyError(f"{fix.strategy} acts on the {strategy.level.name.lower()} level, the recipe says {fix.level.name.lower()}")
    given = {k: v for k, v in fix.params.items() if not (fix.level.name == "SOURCE" and k == "file")}
    try:
        inspect.signature(strategy.apply).bind(None, **given)
    except TypeError as error:
        raise StrategyError(f"{fix.strategy} does not take these parameters: {error}") from error
