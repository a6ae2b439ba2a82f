"""The output folder: model.onnx and session.json where repaired, fixlog.json, fixlog.md, report.html, fix.py, fix.patch.

Every file is written whole or not at all: all are made in a hidden folder first and moved into place one by one. Files that an earlier run
left and that no longer hold are removed; files that are not ours are never touched.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autofix.case import CaseSpec
from autofix.env import environment
from autofix.errors import AutofixError
from autofix.notebook import Extras, conceded, effect_of, repair_view
from autofix.search import Repair
from autofix.strategy import Strategy
from autofix.trial import Trial

SCHEMA = 1
"""Of fixlog.json; raised when a field changes its meaning or goes."""
MODEL_FILES = ("model.onnx.data", "model.onnx", "session.json")
OUR_FILES = (*MODEL_FILES, "fix.py", "fix.patch", "fixlog.md", "report.html", "fixlog.json")


def write_folder(output: Path, spec: CaseSpec, found: Repair, registry: Mapping[str, Strategy]) -> None:
    """Write the output folder of a repair; raises AutofixError with one line where that can't be done."""
    stage: Path | None = None
    try:
        ours = earlier_run(output)
        output.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".autofix-", dir=output))
        fill_stage(stage, output.resolve(), spec, found, registry)
        for name in OUR_FILES:
            if (stage / name).exists():
                os.replace(stage / name, output / name)
            elif ours:
                (output / name).unlink(missing_ok=True)
    except OSError as error:
        raise AutofixError(f"the output folder {output} can't be written: {error.strerror or error}") from error
    finally:
        if stage is not None:
            shutil.rmtree(stage, ignore_errors=True)


def earlier_run(output: Path) -> bool:
    """Whether the folder holds the log of an earlier run of ours."""
    try:
        log = json.loads((output / "fixlog.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(log, dict) and "schema" in log and "autofix" in log


def fill_stage(stage: Path, output: Path, spec: CaseSpec, found: Repair, registry: Mapping[str, Strategy]) -> None:
    """Make every file of the folder in `stage`."""
    from autofix import __version__

    patch, script, problem = "", "", ""
    libraries: list[str] = []
    if found.ok and found.winner is not None:
        folder = found.folders[found.winner.recipe.id]
        copy_model(folder, stage)
        sources = read_json(folder / "sources.json")
        patch, libraries = source_diff(sources, spec)
        script, problem = make_script(found.winner, folder, output, spec, found, registry, sources, __version__)
    if patch:
        (stage / "fix.patch").write_text(patch)
    if script:
        (stage / "fix.py").write_text(script)
    (stage / "fixlog.json").write_text(json.dumps(clean(log_data(spec, found, registry, __version__)), indent=1, allow_nan=False) + "\n")
    extras = Extras(__version__, environment(), patch, tuple(libraries), bool(script), (problem,) if problem else ())
    view = repair_view(spec, found, registry, extras)
    (stage / "fixlog.md").write_text(render("fixlog.md.j2", view))
    (stage / "report.html").write_text(render("report.html.j2", view))


def copy_model(folder: Path, stage: Path) -> None:
    """The verified file of a trial, with its weights file and its session settings."""
    if not (folder / "model.onnx").is_file():
        raise AutofixError(f"the verified file {folder / 'model.onnx'} is gone; run again")
    for name in MODEL_FILES:
        if (folder / name).exists():
            shutil.copyfile(folder / name, stage / name)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, {} where there is no such file."""
    with contextlib.suppress(OSError, ValueError):
        data = json.loads(path.read_text())
        return dict(data)
    return {}


def make_script(
    winner: Trial, folder: Path, output: Path, spec: CaseSpec, found: Repair, registry: Mapping[str, Strategy], sources: dict[str, Any], version: str
) -> tuple[str, str]:
    """(the text of fix.py, "") or ("", why there is none): a verified model is kept even then."""
    from autofix.script import script_text
    from autofix.sourcefile import BundleError

    try:
        text = script_text(
            spec,
            winner.recipe,
            found.facts,
            found.target,
            winner.signature or {"inputs": [], "outputs": []},
            read_json(folder / "session.json"),
            sources,
            registry,
            output,
            effect=effect_of(winner, registry, found.facts).value,
            conceded=conceded(winner, registry, found.facts),
            version=version,
        )
    except (BundleError, KeyError) as error:
        return "", f"fix.py could not be written: {error}"
    return text, ""


def is_user_file(name: str, spec: CaseSpec) -> bool:
    """Whether a rewritten file is one below the model file's folder, as against a module of a library."""
    return name.endswith(".py") and not os.path.isabs(name) and (Path(spec.file).resolve().parent / name).is_file()


def source_diff(sources: Mapping[str, Any], spec: CaseSpec) -> tuple[str, list[str]]:
    """(a unified diff of the user's files for `git apply` in the model file's folder, names of rewritten library modules)."""
    parts: list[str] = []
    libraries: list[str] = []
    for name, entry in sources.items():
        if not is_user_file(name, spec):
            libraries.append(name)
            continue
        old, new = str(entry["old"]), str(entry["new"])
        if b"\r\n" in (Path(spec.file).resolve().parent / name).read_bytes():
            old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        lines = difflib.unified_diff(split_lines(old), split_lines(new), f"a/{name}", f"b/{name}")
        parts += [line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines]
    return "".join(parts), libraries


def split_lines(text: str) -> list[str]:
    """Lines as git counts them: ended by a line feed alone."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def log_data(spec: CaseSpec, found: Repair, registry: Mapping[str, Strategy], version: str) -> dict[str, Any]:
    """The fields of fixlog.json; see "fixlog.json" in the README."""
    winner = found.winner if found.ok else None
    near = found.nearest
    shown = winner or near
    case = {"id": found.case_id, "name": spec.stem, **spec.to_json(), "file": str(Path(spec.file).resolve())}
    case["axes"] = {str(leaf["name"]): leaf["axes"] for leaf in found.facts.get("inputs", ()) if leaf.get("axes")}
    return {
        "schema": SCHEMA,
        "autofix": version,
        "case": case,
        "target": found.target.to_json(),
        "verdict": "pass" if winner else near.verdict.value if near else "fail",
        "effect": effect_of(winner, registry, found.facts).value if winner else None,
        "conceded": conceded(winner, registry, found.facts) if winner else [],
        "recipe": winner.recipe.to_json() if winner else None,
        "signature": shown.signature if shown else None,
        "parity": list(shown.parity) if shown else [],
        "latency": shown.latency if shown else None,
        "trials": [trial.to_json() for trial in found.trials],
        "nearest": near.recipe.id if near else None,
        "offers": [{"fix": fix.to_json(), "effect": effect.value, "symptom": symptom} for fix, effect, symptom in found.offers],
        "environment": environment(),
        "stopped": found.stopped,
        "from_cache": found.from_cache,
        "seconds": round(found.seconds, 3),
        "input_sets": list(found.facts.get("input_sets", ())),
        "dropped_sets": list(found.facts.get("dropped_sets", ())),
        **{name: list(found.facts[name]) for name in ("noise_inputs", "seeded_draws") if found.facts.get(name)},
    }


def clean(value: Any) -> Any:
    """Plain data that JSON can hold: NaN and infinities as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    return value


def render(template: str, view: Mapping[str, Any]) -> str:
    """A template of the templates folder, filled in; HTML is escaped."""
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    html = template.endswith(".html.j2")
    env = jinja2.Environment(autoescape=html, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, loader=loader)
    env.undefined = jinja2.StrictUndefined
    env.filters["cell"] = lambda text: str(text).replace("|", "\\|")
    return env.get_template(template).render(view)
