"""The stages of one recipe, in order: rewrite, capture, convert, check, run, parity, dynamic. Runs in a trial's own process.

`attempt` never raises for the model's faults: whatever happens becomes a Trial.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autofix.approximate import OVER, apply_onnx_fixes, approximate_fixes, fallback_facts, passed_mark
from autofix.attempt_facts import describe_signature, explained, located, wanted_probes
from autofix.case import Case
from autofix.diagnose import diagnose_error, frames_of
from autofix.errors import NothingToDo
from autofix.exporter_passes import exporter_facts
from autofix.optimizers import optimizer_facts
from autofix.recipe import Level, Recipe
from autofix.session import SessionSettings, open_session
from autofix.strategy import Strategy
from autofix.target import DEFAULT_OPSET, ExportConfig, Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict

LARGE_FILE = 100_000_000
"""Bytes above which weights go to model.onnx.data, which ONNX Runtime maps into memory: whoever opens the file holds the weights once, not
three times. Protobuf's own limit is 2 GiB."""


class StageFailed(Exception):
    """Ends an attempt with a verdict and a diagnosis."""

    def __init__(self, verdict: Verdict, diagnosis: Diagnosis) -> None:
        super().__init__(str(diagnosis))
        self.verdict, self.diagnosis = verdict, diagnosis


@dataclass
class Progress:
    """Where an attempt stands; kept in a file, so that a crash can be placed."""

    path: Path
    stage: Stage = Stage.REWRITE
    detail: str = ""

    def enter(self, stage: Stage, detail: str = "") -> None:
        """Note the stage (and e.g. the input set) that begins."""
        self.stage, self.detail = stage, detail
        self.path.write_text(json.dumps({"stage": stage.name.lower(), "detail": detail}))


@dataclass
class Workpiece:
    """What the stages hand on."""

    case: Case
    model: Any
    reference: Any
    recipe: Recipe
    registry: Mapping[str, Strategy]
    target: Target
    folder: Path
    progress: Progress
    config: ExportConfig = ExportConfig()
    settings: SessionSettings = SessionSettings()
    files: dict[str, str] = field(default_factory=dict)
    rewritten: dict[str, tuple[str, str]] = field(default_factory=dict)
    baked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    parity: list[dict[str, Any]] = field(default_factory=list)
    signature: dict[str, Any] | None = None
    blamed: dict[str, str] = field(default_factory=dict)
    program: Any = None
    raw: Any = None
    watch: Any = None
    near: list[float] = field(default_factory=list)
    proto: Any = None
    applied: int = 0
    saved: bool = False

    def fixes(self, level: Level) -> list[tuple[Callable[..., Any], dict[str, Any]]]:
        """(apply, params) of the fixes of one level, without those ONNX fixes that the file had already."""
        done = self.applied if level is Level.ONNX else 0
        return [(self.registry[f.strategy].apply, f.params) for f in self.recipe.at(level)[done:]]

    @property
    def max_error(self) -> float | None:
        """The error budget, where the recipe is approximate and there is one: it decides in place of the tolerances then."""
        return self.target.max_error if approximate_fixes(self.recipe, self.registry) else None


def clamp_opset(config: ExportConfig, target: Target) -> ExportConfig:
    """The config with its opset, or the capture mode's default, moved into the target's range."""
    wanted = config.opset or DEFAULT_OPSET[config.capture]
    return replace(config, opset=min(max(wanted, target.min_opset), target.max_opset))


def final_config(recipe: Recipe, registry: Mapping[str, Strategy], target: Target) -> ExportConfig:
    """The recipe's config after its config fixes, as it is exported. A recipe without fixes does what torch.onnx.export
    does: strict capture where non-strict fails."""
    config = recipe.start
    for fix in recipe.at(Level.CONFIG):
        config = registry[fix.strategy].apply(config, **fix.params)
    if not recipe.fixes and config.capture == "export":
        config = replace(config, strict_fallback=True)
    return clamp_opset(config, target)


def rewrite(piece: Workpiece) -> Any:
    """Apply config, source and module fixes; returns the CapturePlan of the program fixes."""
    from autofix.program import CapturePlan
    from autofix.rewrite import reaches_built_models
    from autofix.sources import apply_source_fixes, install_rewritten, source_names

    piece.config = final_config(piece.recipe, piece.registry, piece.target)
    names = source_names(piece.case.sources, piece.case.spec.file)
    piece.files = dict(names)
    source_fixes = piece.recipe.at(Level.SOURCE)
    if source_fixes:
        texts = apply_source_fixes(source_fixes, piece.registry, names)
        piece.files.update(install_rewritten(texts, piece.folder))
        piece.rewritten = {f: (old, new) for f, (_, old, new) in texts.items()}
        if any(reaches_built_models(old, new) for old, new in piece.rewritten.values()):
            piece.model = piece.case.build()  # what it holds was defined by the old text
        (piece.folder / "sources.json").write_text(
            json.dumps({f: {"module": m.__name__, "old": old, "new": new} for f, (m, old, new) in texts.items()})
        )
    for apply, params in piece.fixes(Level.MODULE):
        piece.model = apply(piece.model, **params)
    plan = CapturePlan()
    for apply, params in piece.fixes(Level.PROGRAM):
        plan = apply(plan, **params) or plan
    return plan


def example_set(piece: Workpiece) -> Any:
    """The reference set that is captured."""
    for one in piece.reference.sets:
        if one.name == piece.config.example:
            return one
    return piece.reference.sets[0]


def export(piece: Workpiece, plan: Any) -> Any:
    """Capture and convert; returns the ModelProto."""
    from autofix.export import export_model
    from autofix.surgery.capture_exact_matches import watch_near_matches
    from autofix.watch import watch_sizes

    example = example_set(piece)

    def captured(program: Any) -> None:
        piece.program = program
        piece.progress.enter(Stage.CONVERT)

    def unoptimized(raw: Any) -> None:
        piece.raw = raw

    piece.progress.enter(Stage.CAPTURE)
    outputs = [name for name, _ in example.outputs]
    with watch_sizes(piece.files) as piece.watch, watch_near_matches() as piece.near:
        proto, piece.baked = export_model(
            piece.model, example.args, example.kwargs, piece.case.axes, outputs, piece.config, plan, captured, unoptimized
        )
    piece.progress.enter(Stage.CONVERT)
    for apply, params in piece.fixes(Level.RUNTIME):
        piece.settings = apply(piece.settings, **params)
    return apply_onnx_fixes(piece, proto)


def save_model(proto: Any, path: Path) -> None:
    """Write the model whole, with its weights beside it where it is large."""
    import onnx

    large = proto.ByteSize() > LARGE_FILE
    onnx.save(proto, str(path), save_as_external_data=large, location=path.name + ".data")


def opset_of(proto: Any) -> int:
    """The default domain's opset."""
    return max([int(o.version) for o in proto.opset_import if o.domain in ("", "ai.onnx")], default=0)


def check(piece: Workpiece, proto: Any, path: Path) -> None:
    """onnx.checker, the opset range, input and output names; raises StageFailed."""
    import onnx

    piece.progress.enter(Stage.CHECK)
    version = opset_of(proto)
    if not piece.target.min_opset <= version <= piece.target.max_opset:
        wanted = str(piece.target.max_opset if version > piece.target.max_opset else piece.target.min_opset)
        facts = {
            "message": f"the exporter wrote opset {version}, wanted {piece.target.min_opset} to {piece.target.max_opset}",
            "has": str(version),
            "needs": wanted,
        }
        raise StageFailed(Verdict.FAIL, Diagnosis("opset-not-reached", Stage.CHECK, facts | {"capture": piece.config.capture}))
    expected_in = [i["name"] for i in piece.reference.facts["inputs"]] + ["buffers." + b for b in piece.config.lift_buffers]
    if piece.config.numbers == "baked":
        expected_in = [n for n in expected_in if n in {i.name for i in proto.graph.input}]
    found_in = [i.name for i in proto.graph.input]
    if found_in != expected_in:
        facts = {"message": f"the file's inputs are {found_in}, forward's are {expected_in}"}
        raise StageFailed(Verdict.FAIL, Diagnosis("inputs-mismatch", Stage.CHECK, facts))
    onnx.checker.check_model(str(path))


def run_and_verify(piece: Workpiece, proto: Any, path: Path, max_error: float | None) -> None:
    """Open the file in its runtime, run every input set, compare (under the error budget, if any); raises StageFailed."""
    from autofix.verify import verify_sets

    piece.progress.enter(Stage.RUN, "load")
    try:
        session = open_session(str(path), piece.settings, piece.target.threads)
    except Exception:
        piece.blamed = optimizer_facts(str(path), piece.settings, piece.target, None, piece.reference.sets[0], lambda session: True)
        raise
    piece.signature = describe_signature(session)

    def run(feed: Mapping[str, Any]) -> list[Any]:
        return list(session.run(None, dict(feed)))

    def begin(one: Any) -> None:
        stage = Stage.DYNAMIC if one.resized else Stage.RUN if one.name == "given" else Stage.PARITY
        piece.progress.enter(stage, one.name)

    # a generated set with other Python numbers says nothing where the person allowed them to be baked
    baked = piece.config.numbers == "baked"
    only = {s.name for s in piece.reference.sets if not (baked and s.kind == "numbers")}
    outcome = verify_sets(piece.reference, run, piece.target, piece.signature, only=only, begin=begin, max_error=max_error)
    piece.parity = outcome.rows
    piece.notes += [f"{name} differs; it does not count" for name in outcome.advisory]
    piece.notes += [f"{r['set']}: {r['message']}" for r in outcome.rows if r["ok"] and r["rule"] == "tie" and not r["advisory"]]
    if outcome.symptom:
        stage = Stage.RUN if outcome.symptom == "run-error" else Stage.DYNAMIC if outcome.symptom.endswith("sizes") else Stage.PARITY
        verdict = Verdict.FAIL if outcome.symptom.startswith("run-error") else Verdict.MISMATCH
        facts = dict(outcome.facts) | {"capture": piece.config.capture}
        if outcome.symptom == OVER:
            facts.update(fallback_facts(piece, float(facts["error"])))
        else:
            one = piece.reference.named(outcome.facts["input_set"])
            piece.blamed = optimizer_facts(str(path), piece.settings, piece.target, piece.signature, one) or exporter_facts(piece, one)
            if verdict is Verdict.MISMATCH and "optimizers" not in piece.blamed:
                facts.update(located(piece, path, outcome))
        raise StageFailed(verdict, Diagnosis(outcome.symptom, stage, facts))
    carried = ", ".join(piece.reference.facts.get("carried_attributes", ()))
    if carried and not piece.config.first_call:
        facts = {"message": f"{carried}: kept from call to call; register_buffer makes it state that can be handed in and out", "attributes": carried}
        raise StageFailed(Verdict.MISMATCH, Diagnosis("carried-state", Stage.PARITY, facts))
    piece.progress.enter(Stage.DYNAMIC)
    fixed = fixed_axes(piece.case.axes, proto)
    if fixed:
        facts = {"message": f"declared dynamic, fixed in the file: {', '.join(fixed)}", "axis": ",".join(fixed), "capture": piece.config.capture}
        raise StageFailed(Verdict.MISMATCH, Diagnosis("axis-fixed", Stage.DYNAMIC, facts))


def fixed_axes(axes: Mapping[str, Mapping[int, str]], proto: Any) -> list[str]:
    """`input:axis` of every declared dynamic axis that has a fixed size in the file."""
    inputs = {i.name: i for i in proto.graph.input}
    out = []
    for name, declared in axes.items():
        for axis in declared:
            dims = inputs[name].type.tensor_type.shape.dim if name in inputs else []
            if axis < len(dims) and dims[axis].HasField("dim_value"):
                out.append(f"{name}:{axis}")
    return out


def attempt(
    case: Case,
    model: Any,
    reference: Any,
    recipe: Recipe,
    registry: Mapping[str, Strategy],
    target: Target,
    folder: Path,
    parent: Mapping[str, Any] | None = None,
) -> Trial:
    """Try one recipe. Leaves model.onnx, session.json and (for source fixes) sources.json in `folder`. parent: see reuse.py."""
    import torch

    from autofix.reuse import reused

    progress = Progress(folder / "progress.json")
    piece = Workpiece(case, model, reference, recipe, registry, target, folder, progress)
    progress.enter(Stage.REWRITE)
    path = folder / "model.onnx"
    verdict, diagnosis = Verdict.PASS, None
    frames: list[tuple[str, int]] = []
    try:
        with torch.no_grad():
            proto = piece.proto = reused(piece, parent) if parent else export(piece, rewrite(piece))
        if not piece.saved:
            save_model(proto, path)
        (folder / "session.json").write_text(json.dumps(piece.settings.to_json()))
        check(piece, proto, path)
        run_and_verify(piece, proto, path, piece.max_error)
        if not approximate_fixes(recipe, registry):
            passed_mark(folder, recipe).touch()
        progress.enter(Stage.DONE)
    except StageFailed as stop:
        verdict, diagnosis = stop.verdict, stop.diagnosis
    except NothingToDo as stop:
        verdict, diagnosis = Verdict.FAIL, Diagnosis("nothing-to-do", progress.stage, {"message": str(stop)})
    except MemoryError:
        verdict, diagnosis = Verdict.OUT_OF_MEMORY, Diagnosis("out-of-memory", progress.stage, {"message": "the process ran out of memory"})
    except (Exception, SystemExit) as error:
        if progress.stage is Stage.CAPTURE and type(error).__module__.startswith("torch.onnx"):
            progress.enter(Stage.CONVERT)  # the TorchScript exporter captures and converts in one call
        verdict, diagnosis = Verdict.FAIL, diagnose_error(error, progress.stage, piece.files, piece.config.capture)
        frames = [(piece.files[path], line) for path, line in frames_of(error) if path in piece.files]
        if progress.stage in (Stage.CHECK, Stage.RUN) and not piece.blamed:
            piece.blamed = exporter_facts(piece, None)
    if diagnosis is not None:
        diagnosis = explained(piece, diagnosis, path, frames)
    stage = diagnosis.stage if diagnosis else Stage.DONE
    probes = wanted_probes(piece, example_set(piece)) if verdict is Verdict.PASS else ()
    baked, notes = tuple(piece.baked), tuple(piece.notes)
    return Trial(recipe, stage, verdict, diagnosis, tuple(piece.parity), None, piece.signature, effect_evidence=baked, notes=notes, probes=probes)
