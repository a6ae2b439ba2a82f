"""`autofix locate`: the first operator of an .onnx file that gives what PyTorch does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from autofix.cli import progress
from autofix.errors import CaseError, UsageError
from autofix.options import FILE, case_options, case_spec, make_limits, make_target, model_argument, no_policy_option, output_options, target_options

LABEL = 9


@click.command("locate")
@model_argument
@click.argument("file", metavar="[FILE.onnx]", type=FILE, required=False)
@case_options
@target_options
@no_policy_option
@output_options
def locate(model: str, file: Path | None, as_json: bool, quiet: bool, **options: Any) -> int:
    """Name the first operator that errs, in FILE.onnx or in the stock export of MODEL.

    Exit code 0: nothing differs; 1: something differs; 2: bad usage, or no file to look into.
    """
    from autofix.isolate import CaseProcess
    from autofix.recipe import Recipe

    if file is not None and not file.is_file():
        raise UsageError(f"{file}: no such file")
    spec = case_spec(model, **{k: options[k] for k in ("inputs", "dynamic", "weights", "samples", "seed", "random")})
    with progress(quiet) as reporter:
        reporter.stage(f"loading {spec.file}")
        with CaseProcess(spec, make_target(**options), (), make_limits(options["timeout"], options["memory"])) as process:
            reporter.stage("running the model in eager PyTorch")
            facts = process.reference()
            if file is None:
                reporter.stage("exporting")
                trial, folder = process.attempt(Recipe())
                path = folder / "model.onnx"
                if not path.exists():
                    raise CaseError(f"{spec.file}: the stock export gives no file to look into: {trial.diagnosis}")
            else:
                path = file.resolve()
            reporter.stage("comparing intermediate values")
            answer = process.check(path)
    code = 0 if answer["ok"] else 1
    name = str(file) if file is not None else f"the stock export of {Path(spec.file).name}"
    if as_json:
        kept = {k: answer[k] for k in ("ok", "symptom", "facts", "fault", "notes")}
        click.echo(json.dumps({"file": str(file or ""), **kept, "exit_code": code}, indent=2))
    else:
        click.echo(locate_text(answer, name, facts.get("sources", {})))
    return code


def locate_text(answer: Mapping[str, Any], name: str, sources: Mapping[str, str]) -> str:
    """What was found, for the terminal."""
    if answer["ok"]:
        return f"nothing differs: {name}"
    fault = answer["fault"]
    rows = [("because", f"{answer['symptom']}: {answer['facts'].get('message', '')}")]
    if fault.get("node"):
        rows.append(("node", f"{fault['node']} ({fault['op_type']})"))
    if fault.get("operator"):
        rows.append(("operator", str(fault["operator"])))
    if fault.get("file"):
        rows.append(("source", source_text(str(fault["file"]), int(fault["line"]), sources)))
    if "error_after" in fault:
        before, after = (v if isinstance(v, str) else f"{v:.2g}" for v in (fault.get("error_before", 0.0), fault["error_after"]))
        rows.append(("error", f"{before} before, {after} after, relative to the largest value"))
    if fault.get("cause"):
        guilty = str(fault.get("optimizers", "")).replace(",", ", ") or "its graph optimiser"
        rows.append(("cause", f"{fault['cause']}: the file is right in ONNX Runtime without {guilty}"))
    if fault:
        rows.append(("took", f"{fault['seconds']:.2g} s"))
    rows += [("note", note) for note in answer["notes"][:4]]
    return "\n".join([f"{'located' if fault else 'not located'}: {name}", *(f"  {label:<{LABEL}} {text}" for label, text in rows)])


def source_text(file: str, line: int, sources: Mapping[str, str]) -> str:
    """`model.py:11: the line`, by the full or the short name of a file."""
    text = next((t for path, t in sources.items() if path == file or path.endswith("/" + file)), "")
    lines = text.splitlines()
    return f"{Path(file).name}:{line}" + (f": {lines[line - 1].strip()}" if 0 < line <= len(lines) else "")
