"""What fix.py does: load the model, record what eager PyTorch gives, apply the repair, export, verify, write model.onnx.

The text of this file is copied into fix.py with what it needs of autofix; the repair itself stands there as a FixPlan.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from autofix.adapter import input_leaves, rebuild_value
from autofix.attempt import fixed_axes, opset_of, save_model
from autofix.calibration import VERIFIED_SAMPLES, calibrating, calibration_sets, feeds_of
from autofix.case import InputSet, one_line
from autofix.eager import Eager, ordered_call
from autofix.error_budget import OTHER_SIZES
from autofix.errors import NothingToDo
from autofix.export import export_model
from autofix.loading import build_model, import_model_file
from autofix.program import CapturePlan
from autofix.session import SessionSettings, open_session
from autofix.target import ExportConfig, Target
from autofix.verify import check_set, make_feed


class FixFailed(Exception):
    """The repair can't be reproduced; the message is one line."""


@dataclass(frozen=True)
class FixPlan:
    """A repair as the constants and functions at the top of fix.py.

    model_file: absolute path, and `beside`, the same from fix.py's folder. example_call(module, seed) gives (args, kwargs),
    sample_inputs(model, given) further sets. config, session, signature, target: the JSON forms of ExportConfig, SessionSettings, the
    log's signature and Target. axes: {input: {axis: symbol}}. fix_source(folder, module), fix_modules(model), fix_program(plan) and
    fix_onnx(proto) apply the fixes of their level. shapes: {input set: {input: shape, or the value of a number}} of the other sizes to
    verify, and of the captured example where it is not one of the file's own. float64: "yes", or why a float64 run tells nothing.
    fresh_each_call: forward leaves traces in the model. max_error: the error budget of an approximate repair, which decides on the values then.
    wrap_noise(model) and add_noise(build, sets), where there are noise inputs: the model that takes them, and the sets with what eager draws;
    for draws that are constants wrap_noise(model) seeds the model.
    """

    model_file: str
    beside: str
    class_name: str
    weights: str
    seed: int
    config: dict[str, Any]
    session: dict[str, Any]
    signature: dict[str, Any]
    target: dict[str, Any]
    axes: dict[str, dict[int, str]]
    float64: str
    mutated_buffers: list[str]
    fresh_each_call: bool
    example_call: Callable[[Any, int], tuple[list[Any], dict[str, Any]]]
    sample_inputs: Callable[[Any, InputSet], list[InputSet]]
    fix_source: Callable[[str, Any], None]
    fix_modules: Callable[[Any], Any]
    fix_program: Callable[[Any], Any]
    fix_onnx: Callable[[Any], Any]
    shapes: dict[str, dict[str, Any]] = field(default_factory=dict)
    max_error: float | None = None
    wrap_noise: Callable[[Any], Any] | None = None
    add_noise: Callable[[Any, list[InputSet]], list[InputSet]] | None = None


@dataclass
class FixSet:
    """One call and what the untouched model gave: what `check_set` and `make_feed` read."""

    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    leaves: list[tuple[str, Any]]
    outputs: list[tuple[str, Any]]
    outputs64: list[Any] | None
    noise: list[Any] | None
    state_before: dict[str, Any]
    state_after: dict[str, Any]
    origin: str = "given"
    kind: str = ""
    tied: list[Any] | None = None


@dataclass
class FixCase:
    """What `Eager` asks of a case."""

    build: Callable[[], Any]
    given: InputSet


def find_model_file(plan: FixPlan, named: str, script: str) -> str:
    """The model file: as named, where it was at the time of the repair, or beside this script."""
    here = os.path.dirname(os.path.abspath(script))
    tried = [named] if named else [plan.model_file, os.path.join(here, plan.beside), os.path.join(here, os.path.basename(plan.model_file))]
    for path in tried:
        if os.path.isfile(path):
            return os.path.abspath(path)
    raise FixFailed(f"there is no model file at {tried[0]}; name it: python {os.path.basename(script)} MODEL_FILE")


def resized_leaf(value: Any, wanted: Any) -> Any:
    """A leaf repeated or cut to another shape, axis by axis; a number becomes the wanted one.

    What rises along an axis (offsets, boundaries) still rises afterwards: operators that need that are undefined on anything else.
    """
    if not isinstance(value, torch.Tensor):
        return type(value)(wanted) if isinstance(wanted, (bool, int, float)) else value
    for axis, size in enumerate(wanted):
        if value.shape[axis] != size:
            if value.shape[axis] == 0:
                raise ValueError("an empty axis can't be repeated")
            rises = value.shape[axis] > 1 and not value.is_complex() and value.dtype != torch.bool and bool((value.diff(dim=axis) >= 0).all())
            value = value.index_select(axis, torch.arange(int(size)) % value.shape[axis])
            value = value.sort(dim=axis).values if rises else value
    return value


def input_sets(plan: FixPlan, module: Any) -> list[InputSet]:
    """The file's own input sets: the given one, then get_more_inputs."""
    args, kwargs = plan.example_call(module, plan.seed)
    sets = [InputSet("given", "given", args, kwargs)]
    more = list(module.get_more_inputs()) if hasattr(module, "get_more_inputs") else []
    for i, one in enumerate(more):
        sets.append(InputSet(f"more {i + 1}", "more", *(([], one) if isinstance(one, dict) else (list(one), kwargs))))
    return sets


def eager_set(plan: FixPlan, eager: Eager, one: InputSet, leaves: list[tuple[str, Any]] | None, chain: Any) -> FixSet:
    """Run the untouched model on one set, in float64 too where that can be; `leaves` replace the set's own.

    Raises ValueError where such other leaves sit on a knife edge: round-off decides what PyTorch itself gives.
    """
    from autofix.shake import shaken_change
    from autofix.ties import few_tied, tied_places

    template = ordered_call(eager.model.forward, one)
    own = leaves is None
    leaves = input_leaves(eager.model.forward, *template) if leaves is None else leaves
    call = eager.call(leaves, chain, template)
    wide = eager.call64(leaves, template, call.state_before) if plan.float64 == "yes" else None
    outputs64 = [v for _, v in wide] if wide is not None and len(wide) == len(call.outputs) else None
    change: Any = None
    if not plan.mutated_buffers and eager.pristine is not None and (outputs64 is None or not own):
        change, met = shaken_change(eager, leaves, call.outputs, template, draws=2)
        if not own and (change is None or met.ties):
            raise ValueError("round-off decides the outputs")
    args, kwargs = eager.arguments(leaves, template)
    noise = [v for _, v in change] if change and outputs64 is None else None
    tied = few_tied(tied_places(eager, leaves, call.outputs, template)) if own and not plan.mutated_buffers else None
    return FixSet(one.name, args, kwargs, list(leaves), call.outputs, outputs64, noise, call.state_before, call.state_after, one.origin, "", tied)


def eager_sets(plan: FixPlan, module: Any, build: Callable[[], Any]) -> list[FixSet]:
    """What eager PyTorch gives on the file's own sets and on other sizes of the dynamic axes; sizes that it refuses are left out."""
    own = input_sets(plan, module)
    if plan.add_noise is not None:

        def plain() -> Any:
            return build_model(module, plan.class_name, plan.weights, plan.seed)

        own = plan.add_noise(plain, own + plan.sample_inputs(plain(), own[0]))
    stand_in: Any = FixCase(build, own[0])
    eager = Eager(stand_in)
    own += plan.sample_inputs(eager.model, own[0]) if plan.add_noise is None else []
    own += calibration_sets(str(plan.target.get("calibration", "")), eager.model, own[0])[:VERIFIED_SAMPLES] if plan.max_error is not None else []
    eager.mutated_buffers, eager.fresh_each_call = list(plan.mutated_buffers), plan.fresh_each_call
    chain = eager.fresh() if plan.mutated_buffers else None
    found = [eager_set(plan, eager, one, None, chain) for one in own]
    chain = eager.fresh() if plan.mutated_buffers else None
    for name, shapes in plan.shapes.items():
        try:
            leaves = [(n, resized_leaf(v, shapes[n]) if n in shapes else v) for n, v in found[0].leaves]
            found.append(eager_set(plan, eager, replace(own[0], name=name, origin="generated"), leaves, chain))
        except Exception:
            continue  # the given inputs repeated to these sizes are no input that PyTorch itself is sure of
    return found


def resized_set(plan: FixPlan, given: FixSet, name: str) -> FixSet:
    """The given set at the sizes of a generated one, to capture with: not among the verified sets where round-off decides its outputs."""
    shapes = plan.shapes.get(name)
    if shapes is None:
        raise FixFailed(f"the input set {name!r}, which is captured, is not there")
    leaves = [(n, resized_leaf(v, shapes[n]) if n in shapes else v) for n, v in given.leaves]
    rest = iter([v for _, v in leaves])
    args, kwargs = rebuild_value(given.args, rest), rebuild_value(given.kwargs, rest)
    return replace(given, name=name, args=args, kwargs=kwargs, leaves=leaves, origin="generated")


def export_repaired(plan: FixPlan, model: Any, sets: list[FixSet]) -> Any:
    """Apply the module, program and ONNX fixes around the export; returns the ModelProto."""
    config = ExportConfig.from_json(plan.config)
    example = next((s for s in sets if s.name == config.example), None) or resized_set(plan, sets[0], config.example)
    outputs = [n for n, _ in example.outputs]
    with torch.no_grad():
        model = plan.fix_modules(model)
        capture = plan.fix_program(CapturePlan())
        proto, _ = export_model(model, copy.deepcopy(example.args), copy.deepcopy(example.kwargs), plan.axes, outputs, config, capture)
        feeds: list[dict[str, Any]] = []
        if plan.max_error is not None:
            given = InputSet("given", "given", list(sets[0].args), dict(sets[0].kwargs))
            real = [InputSet(s.name, "given", list(s.args), dict(s.kwargs)) for s in sets if s.name not in plan.shapes and s.origin != "calibration"]
            real += calibration_sets(str(plan.target.get("calibration", "")), model, given)
            feeds = feeds_of(model, real, [i.name for i in proto.graph.input])
        with calibrating(feeds):
            return plan.fix_onnx(proto)


def verify_file(plan: FixPlan, proto: Any, path: Path, sets: list[FixSet]) -> list[str]:
    """Check the file, names, opset, dynamic axes, and the values of every set; one line a set. Raises FixFailed."""
    import onnx

    target = Target.from_json(plan.target)
    if not target.min_opset <= opset_of(proto) <= target.max_opset:
        raise FixFailed(f"the file has opset {opset_of(proto)}, wanted {target.min_opset} to {target.max_opset}")
    onnx.checker.check_model(str(path))
    session = open_session(str(path), SessionSettings.from_json(plan.session), target.threads)
    for kind, have in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
        wanted = [entry["name"] for entry in plan.signature[kind]]
        if [v.name for v in have] != wanted:
            raise FixFailed(f"the file's {kind} are {[v.name for v in have]}, wanted {wanted}")
    if fixed := fixed_axes(plan.axes, proto):
        raise FixFailed(f"declared dynamic, fixed in the file: {', '.join(fixed)}")
    rows = []
    for one in sets:
        record: Any = one
        got = session.run(None, make_feed(record, plan.signature["inputs"]))
        row = check_set(record, list(got), plan.signature["outputs"], target, None if plan.max_error is None else fix_budget(one, plan))
        if not row["ok"]:
            raise FixFailed(f"input set {one.name!r}: output {row['output']!r}: {row['message']}")
        rows.append(f"  {one.name}: right ({row['rule']}, largest error {row['max_abs']:.3g})")
    return rows


def fix_budget(one: FixSet, plan: FixPlan) -> float:
    """What one set's outputs may err: the budget on the given inputs and samples, more at other sizes."""
    assert plan.max_error is not None
    return plan.max_error * (OTHER_SIZES if one.name in plan.shapes else 1.0)


def move_into_place(source: Path, output: Path, settings: dict[str, Any]) -> None:
    """Put the verified model, its weights file and session.json where they are wanted, each whole or not at all."""
    data = source.with_name(source.name + ".data")
    (source.parent / "session.json").write_text(json.dumps(SessionSettings.from_json(settings).to_json()))
    if data.exists():
        os.replace(data, output.with_name(data.name))
    os.replace(source, output)
    os.replace(source.parent / "session.json", output.with_name("session.json"))


def reproduce(plan: FixPlan, model_file: str, output: Path) -> list[str]:
    """The whole of it; returns one line per verified set."""
    torch.set_num_threads(int(plan.target.get("threads", 1)))
    module = import_model_file(model_file, plan.seed)

    def build() -> Any:
        model = build_model(module, plan.class_name, plan.weights, plan.seed)
        return model if plan.wrap_noise is None else plan.wrap_noise(model)

    sets = eager_sets(plan, module, build)  # before any source is rewritten
    plan.fix_source(os.path.dirname(model_file), module)
    model = build()  # hooks may be defined where it is built
    proto = export_repaired(plan, model, sets)
    if not output.parent.is_dir():
        raise FixFailed(f"there is no folder {output.parent}")
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".fix-") as scratch:
        path = Path(scratch) / output.name
        save_model(proto, path)
        rows = verify_file(plan, proto, path, sets)
        move_into_place(path, output, plan.session)
    return rows


def fix_main(plan: FixPlan, script: str) -> int:
    """The command line of fix.py; returns the exit code."""
    parser = argparse.ArgumentParser(prog=os.path.basename(script), description="Reproduce the repair: export, verify, write model.onnx.")
    parser.add_argument("model_file", nargs="?", default="", help=f"default: {plan.model_file}")
    parser.add_argument("--output", default="", help="default: model.onnx beside this script")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    options = parser.parse_args()
    output = Path(options.output or os.path.join(os.path.dirname(os.path.abspath(script)), "model.onnx")).absolute()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    try:
        rows = reproduce(plan, find_model_file(plan, options.model_file, script), output)
    except (FixFailed, NothingToDo) as error:
        print(f"{parser.prog}: not repaired: {error}", file=sys.stderr)
        return 1
    except (Exception, SystemExit) as error:
        if options.traceback:
            raise
        print(f"{parser.prog}: not repaired: {one_line(error)}", file=sys.stderr)
        return 1
    print(f"verified {output}")
    print("\n".join(rows))
    return 0


def text_digest(text: str) -> str:
    """The first 16 hex digits of a source's sha256."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]


def find_source_module(file: str, folder: str, main: Any) -> Any:
    """The live module of a rewritten file: the model file itself, a file beside it, or a library module by name."""
    import importlib

    if not file.endswith(".py"):
        return importlib.import_module(file)
    path = os.path.realpath(os.path.join(folder, file))
    for module in [main, *list(sys.modules.values())]:
        known = getattr(module, "__file__", None)
        if isinstance(known, str) and os.path.realpath(known) == path:
            return module
    if os.path.basename(file) == file and os.path.dirname(os.path.realpath(main.__file__)) == os.path.realpath(folder):
        return main  # the model file under another name
    raise FixFailed(f"the model does not import {file}")


def install_rewritten_source(file: str, module: Any, functions: dict[str, str], added: dict[str, str], originals: dict[str, str]) -> None:
    """Replace functions of a live module, after a look that the originals are still those that were repaired."""
    import ast

    from autofix.rewrite import function_units, install_functions, unit_source

    text = Path(module.__file__).read_text()
    units = function_units(ast.parse(text))
    for name, digest in originals.items():
        have = text_digest(unit_source(units[name], text)) if name in units else ""
        if have not in (digest, text_digest(functions[name])):
            raise FixFailed(f"{name} in {module.__file__} is no longer what was repaired; run autofix again")
    for part, units_of_part in (("added", added), ("rewritten", functions)):
        install_functions(module, f"<fix.py: {part} in {file}>", {name: source.removeprefix("\n") for name, source in units_of_part.items()})
