"""Strategy, the plug-in interface: one file, one strategy, with the examples that are its tests.

`propose` runs in the controller, which has neither torch nor the user's code: it sees plain data only and must be
cheap. `apply` runs in a trial's own process. It is a static method without `self`, and whatever it needs it imports from
`autofix.*` inside the function or calls at the top level of its own file, because fix.py is made of that source text.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from autofix.recipe import Fix, Level, Recipe
from autofix.target import Effect, ExportConfig, Target
from autofix.trial import Diagnosis, Trial


@dataclass(frozen=True)
class Example:
    """A small model that shows a symptom, and the fix that cures it.

    `model` is the text of a model file. `start` holds fixes that come before (for a second fault). `target` are
    Target fields that differ from the defaults. With `symptom` empty the model needs no fix at all: a near miss,
    where the strategy must not be needed.
    """

    model: str
    symptom: str
    fix: dict[str, Any] = field(default_factory=dict)
    start: tuple[Fix, ...] = ()
    target: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """What a strategy may look at when it proposes.

    facts (see reference.py `collect_facts`), all plain JSON: `modules` {class name: [module paths]}, `operators` {aten name: "file:line"},
    `sites` [{file, line, function, kind, ...}] where a tensor became a Python value, `inputs` [leaf signature with `name`, `dtype`,
    `shape`, `axes`], `parameters` (forward's), `mutated_buffers`, `random_operators`, `sources` {file: text} of the user's files.
    """

    diagnosis: Diagnosis
    recipe: Recipe = Recipe()
    config: ExportConfig = ExportConfig()
    facts: dict[str, Any] = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()

    def fact(self, name: str, default: str = "") -> str:
        """A fact of the diagnosis."""
        return self.diagnosis.facts.get(name, default)

    @property
    def operators(self) -> dict[str, str]:
        """The aten operators that eager ran (e.g. "aten.lgamma.default") on the example and on other sets, each with the first source line."""
        return {**self.facts.get("operators_elsewhere", {}), **self.facts.get("operators", {})}

    @property
    def modules(self) -> dict[str, list[str]]:
        """Module class names, short, e.g. "LSTM", each with the paths of its instances."""
        return dict(self.facts.get("modules", {}))


class Strategy(abc.ABC):
    """Proposes and applies fixes for the symptoms it treats. The name is the file's stem.

    prior: probability, before any evidence, that a proposed fix cures the symptom. cost: expected seconds beyond a plain trial.
    group: strategies of one group exclude each other in a recipe (capture modes): the newest replaces the others.
    """

    level: ClassVar[Level]
    treats: ClassVar[tuple[str, ...]] = ()
    effect: ClassVar[Effect] = Effect.EXACT
    prior: ClassVar[float] = 0.3
    cost: ClassVar[float] = 0.0
    group: ClassVar[str] = ""
    REPAIRS: ClassVar[tuple[Example, ...]] = ()
    DECLINES: ClassVar[tuple[Diagnosis | Evidence, ...]] = ()
    name: str = ""
    file: str = ""

    @abc.abstractmethod
    def propose(self, evidence: Evidence, target: Target) -> Iterator[Fix]:
        """Fixes that may cure `evidence.diagnosis`, most promising first. Only plain data may be used."""

    @staticmethod
    @abc.abstractmethod
    def apply(artifact: Any, **params: Any) -> Any:
        """The changed artifact. Raises NothingToDo where there is nothing to change."""

    def fix(self, **params: Any) -> Fix:
        """A Fix of this strategy; `params` must be JSON."""
        return Fix(self.name, self.level, params)

    def effect_of(self, fix: Fix) -> Effect:
        """The effect of one fix; override where it depends on the parameters."""
        return self.effect


class ConfigStrategy(Strategy):
    """apply(config: ExportConfig, **params) -> ExportConfig."""

    level = Level.CONFIG


class SourceStrategy(Strategy):
    """apply(text: str, **params) -> str: the new text of the source file that `params["file"]` names.

    `file` is the user's file as the facts name it, or an importable module such as "torch.nn.functional"; the engine
    reads it, calls apply with the other parameters, and installs the functions that changed.
    """

    level = Level.SOURCE


class ModuleStrategy(Strategy):
    """apply(model: torch.nn.Module, **params) -> torch.nn.Module; may change the model in place."""

    level = Level.MODULE


class ProgramStrategy(Strategy):
    """apply(plan: CapturePlan, **params) -> CapturePlan; see program.py."""

    level = Level.PROGRAM


class OnnxStrategy(Strategy):
    """apply(model: onnx.ModelProto, **params) -> onnx.ModelProto."""

    level = Level.ONNX


class RuntimeStrategy(Strategy):
    """apply(settings: SessionSettings, **params) -> SessionSettings; see session.py."""

    level = Level.RUNTIME
