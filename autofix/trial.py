"""Stage, Verdict, Diagnosis, Trial: what is known about one recipe that was tried."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from autofix.recipe import Recipe


class Stage(enum.IntEnum):
    """How far a trial came; a later stage is progress."""

    LOAD = 0
    REFERENCE = 1
    REWRITE = 2
    CAPTURE = 3
    CONVERT = 4
    CHECK = 5
    RUN = 6
    PARITY = 7
    DYNAMIC = 8
    LATENCY = 9
    DONE = 10


class Verdict(enum.Enum):
    """What a trial came to. crash, timeout and out_of_memory are kinds of fail."""

    PASS = "pass"
    SLOW = "slow"
    MISMATCH = "mismatch"
    FAIL = "fail"
    CRASH = "crash"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"


@dataclass(frozen=True)
class Diagnosis:
    """A symptom (a slug of signatures.py), the stage it showed at, and string facts.

    Usual facts: `message` (one line), `operator` (aten or prims name), `op_type` (ONNX), `file`, `line`, `function`
    (the user's source, or the library's where no user line is known), `axis`, `needs` (opset), `input_set`, `output`.
    """

    symptom: str
    stage: Stage
    facts: dict[str, str] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        return {"symptom": self.symptom, "stage": self.stage.name.lower(), "facts": self.facts}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Diagnosis:
        return cls(str(data["symptom"]), Stage[str(data["stage"]).upper()], {str(k): str(v) for k, v in data.get("facts", {}).items()})

    @property
    def where(self) -> str:
        """`file:line` of the source at fault, as the person wrote it, or an empty string."""
        return f"{self.facts['file']}:{self.line}" if "file" in self.facts and self.line else ""

    @property
    def line(self) -> str:
        """The line at fault in the person's own text: a source fix may have moved it (`line` in the facts counts in the rewritten text)."""
        return self.facts.get("own_line") or self.facts.get("line", "")

    @property
    def code(self) -> str:
        """The text of that line, where it is known."""
        return self.facts.get("own_code") or self.facts.get("code", "")

    def __str__(self) -> str:
        at = f" at {self.where}" if self.where else ""
        return f"{self.symptom}{at}: {self.facts.get('message', '')}".rstrip(": ")


@dataclass(frozen=True)
class Trial:
    """One recipe tried.

    parity and latency: the tables of verify.py and latency.py. seconds: wall time; cpu_seconds: the process's own.
    effect_evidence: what makes a green trial narrowing (a baked branch). probes: sizes at which a size test of the capture
    turns over and which no input set had; the search has them verified before it believes a green trial.
    """

    recipe: Recipe
    stage: Stage
    verdict: Verdict
    diagnosis: Diagnosis | None = None
    parity: tuple[dict[str, Any], ...] = ()
    latency: dict[str, Any] | None = None
    signature: dict[str, Any] | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mb: float = 0.0
    effect_evidence: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    parent: str | None = None
    probes: tuple[dict[str, Any], ...] = ()

    @property
    def ok(self) -> bool:
        """Every target passed."""
        return self.verdict is Verdict.PASS

    def to_json(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe.to_json(),
            "id": self.recipe.id,
            "parent": self.parent,
            "stage": self.stage.name.lower(),
            "verdict": self.verdict.value,
            "diagnosis": self.diagnosis.to_json() if self.diagnosis else None,
            "parity": list(self.parity),
            "latency": self.latency,
            "signature": self.signature,
            "seconds": round(self.seconds, 3),
            "cpu_seconds": round(self.cpu_seconds, 3),
            "peak_mb": round(self.peak_mb, 1),
            "effect_evidence": list(self.effect_evidence),
            "notes": list(self.notes),
            "probes": list(self.probes),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trial:
        return cls(
            recipe=Recipe.from_json(data["recipe"]),
            stage=Stage[str(data["stage"]).upper()],
            verdict=Verdict(data["verdict"]),
            diagnosis=Diagnosis.from_json(data["diagnosis"]) if data.get("diagnosis") else None,
            parity=tuple(data.get("parity", ())),
            latency=data.get("latency"),
            signature=data.get("signature"),
            seconds=float(data.get("seconds", 0)),
            cpu_seconds=float(data.get("cpu_seconds", 0)),
            peak_mb=float(data.get("peak_mb", 0)),
            effect_evidence=tuple(data.get("effect_evidence", ())),
            notes=tuple(data.get("notes", ())),
            parent=data.get("parent"),
            probes=tuple(data.get("probes", ())),
        )
