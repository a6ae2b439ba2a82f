"""autofix repairs PyTorch models that will not become good ONNX models, and proves it.

`repair("model.py")` does what the command line does; `load("model-autofix")` opens what it left. Importing autofix imports
neither torch nor onnxruntime.
"""

from __future__ import annotations

from autofix.case import CaseSpec
from autofix.errors import AutofixError, CacheError, CaseError, NothingToDo, StrategyError, UsageError
from autofix.isolate import Limits
from autofix.loaded import LoadedModel, load
from autofix.recipe import Fix, Level, Recipe
from autofix.repair import Settings, repair  # after this line `autofix.repair` is the function, not the module
from autofix.search import Budget, Repair
from autofix.target import Effect, ExportConfig, Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict

__version__ = "0.1.0"

__all__ = [
    "AutofixError",
    "Budget",
    "CacheError",
    "CaseError",
    "CaseSpec",
    "Diagnosis",
    "Effect",
    "ExportConfig",
    "Fix",
    "Level",
    "Limits",
    "LoadedModel",
    "NothingToDo",
    "Recipe",
    "Repair",
    "Settings",
    "Stage",
    "StrategyError",
    "Target",
    "Trial",
    "UsageError",
    "Verdict",
    "load",
    "repair",
]
