"""CapturePlan: what program-level strategies add to the capture and conversion of a model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class CapturePlan:
    """Filled by ProgramStrategy.apply, used by export.py.

    overrides: torch function (the callable itself, e.g. torch.linalg.solve or torch.Tensor.median) -> replacement with the same
        call signature, swapped in by a TorchFunctionMode while the model is captured (torch.export non-strict, trace; for
        strict, script and draft they have no effect). Inside a replacement the other overrides are active too.
    decompositions: operator name ("aten.lgamma.default", "prims.lgamma.default", "mylib.op.default") -> torch function with the operator's schema;
        used when the exported program is decomposed (torch.export routes).
    translations: operator name -> onnxscript function with the operator's schema (torch.export routes).
    symbolics: TorchScript name ("aten::lgamma") -> symbolic function(g, *args) (trace, script, mixed).
    contexts: context-manager factories active while the model is captured and converted.
    passes: ExportedProgram -> ExportedProgram, before decomposition (torch.export routes).
    """

    overrides: dict[Callable[..., Any], Callable[..., Any]] = field(default_factory=dict)
    decompositions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    translations: dict[str, Callable[..., Any]] = field(default_factory=dict)
    symbolics: dict[str, Callable[..., Any]] = field(default_factory=dict)
    contexts: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=list)
    passes: list[Callable[[Any], Any]] = field(default_factory=list)
