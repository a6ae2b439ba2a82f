"""Target, the immutable contract that a repair must meet, and ExportConfig, where a recipe starts."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields
from typing import Any

CAPTURES = ("export", "strict", "draft", "trace", "script", "mixed")
"""Capture modes: torch.export non-strict, strict and draft; TorchScript trace and script; script only the
submodules with control flow and trace the rest."""


DEFAULT_OPSET = {"export": 20, "strict": 20, "draft": 20, "trace": 17, "script": 17, "mixed": 17}
"""Opset per capture mode where none is asked for: torch 2.13's own default for torch.export routes; 17 for TorchScript,
the last opset that its symbolics cover without gaps."""


class Effect(enum.Enum):
    """What a fix does to the meaning of the model."""

    EXACT = "exact"  # same values, same inputs accepted
    APPROXIMATE = "approximate"  # numbers move: fp16, int8, tanh-GELU
    NARROWING = "narrowing"  # right for fewer inputs: a fixed axis, a baked branch

    @staticmethod
    def join(effects: list[Effect]) -> Effect:
        """The effect of several fixes together: narrowing outweighs approximate outweighs exact."""
        for effect in (Effect.NARROWING, Effect.APPROXIMATE):
            if effect in effects:
                return effect
        return Effect.EXACT


@dataclass(frozen=True)
class Target:
    """What must hold for a repair to count. No trial may loosen it.

    `rtol`/`atol` are None where the defaults per dtype apply (see verify.py). Latencies are milliseconds. fastest: go on until no
    strategy makes it faster. max_error: relative root-mean-square error that approximate fixes may bring. calibration: absolute path of a
    file with real inputs (.npz, .pt) for those that need some, or an empty string.
    """

    min_opset: int = 11
    max_opset: int = 24
    rtol: float | None = None
    atol: float | None = None
    max_latency_ms: float | None = None
    min_speedup: float | None = None
    allow: frozenset[Effect] = frozenset()
    threads: int = 1
    max_error: float | None = None
    fastest: bool = False
    calibration: str = ""

    def allows(self, effect: Effect) -> bool:
        """Whether a recipe with this effect may be used."""
        return effect is Effect.EXACT or effect in self.allow

    @property
    def wants_latency(self) -> bool:
        """Whether the search goes on after parity: a latency target is set, or the fastest is wanted."""
        return self.fastest or self.max_latency_ms is not None or self.min_speedup is not None

    def to_json(self) -> dict[str, Any]:
        """Plain data, with `allow` as a sorted list. Younger fields only where they are set, so that ids stay the same."""
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        data["allow"] = sorted(e.value for e in self.allow)
        return {k: v for k, v in data.items() if v or k not in ("fastest", "calibration")}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Target:
        """The inverse of `to_json`."""
        known = {f.name for f in fields(cls)}
        kept = {k: v for k, v in data.items() if k in known}
        kept["allow"] = frozenset(Effect(e) for e in data.get("allow", ()))
        return cls(**kept)


@dataclass(frozen=True)
class ExportConfig:
    """How a model is captured and converted.

    capture: one of CAPTURES. opset: None means the exporter's default, moved into the target's range.
    optimize: the exporter's own graph optimiser; without_passes: its rules and passes that are left out (exporter_passes.py).
    axes: how dynamic axes are declared to torch.export, "named" (torch.export.Dim; the exporter must prove them) or "auto"
    (Dim.AUTO; what came out is checked in the file).
    example: name of the input set that is captured. numbers: "inputs" (Python numbers become 0-d inputs) or "baked".
    lift_buffers: buffers that forward changes, made further inputs and outputs. script_modules: submodules that
    "mixed" capture scripts. strict_fallback: strict capture where non-strict fails, as torch.onnx.export does.
    first_call: each call of the file may be the first call of a new model, though forward keeps state in plain attributes.
    """

    capture: str = "export"
    opset: int | None = None
    optimize: bool = True
    fold_constants: bool = True
    axes: str = "named"
    example: str = "given"
    numbers: str = "inputs"
    lift_buffers: tuple[str, ...] = ()
    script_modules: tuple[str, ...] = ()
    strict_fallback: bool = False
    without_passes: tuple[str, ...] = ()
    first_call: bool = False
    flags: tuple[tuple[str, Any], ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Only what differs from the defaults, so that ids stay the same when a field is added."""
        default = ExportConfig()
        out: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value != getattr(default, f.name):
                out[f.name] = [list(v) if isinstance(v, tuple) else v for v in value] if isinstance(value, tuple) else value
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ExportConfig:
        """The inverse of `to_json`."""
        kept = dict(data)
        for name in ("lift_buffers", "script_modules", "without_passes"):
            if name in kept:
                kept[name] = tuple(kept[name])
        if "flags" in kept:
            kept["flags"] = tuple((k, v) for k, v in kept["flags"])
        return cls(**kept)
