"""autofix repairs PyTorch models that will not become good ONNX models, and proves it.

`repair("model.py")` does what the command line does; `load("model-autofix")` opens what it left. Importing autofix imports
neither torch nor onnxruntime.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autofix.case import CaseSpec
from autofix.errors import AutofixError, CacheError, CaseError, NothingToDo, StrategyError, UsageError
from autofix.isolate import Limits
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


def load(folder: str | Path, threads: int = 1) -> Any:
    """An onnxruntime.InferenceSession for the model.onnx in an output folder, opened with the session.json beside it.

    Raises UsageError where the folder holds no verified model.
    """
    import json

    from autofix.session import SessionSettings, open_session

    file = Path(folder) / "model.onnx"
    if not file.is_file():
        raise UsageError(f"{folder}: holds no model.onnx; was the model repaired?")
    beside = Path(folder) / "session.json"
    settings = SessionSettings.from_json(json.loads(beside.read_text())) if beside.is_file() else SessionSettings()
    return open_session(str(file), settings, threads)
