"""Verify an existing .onnx file against its model, whoever exported it. Runs in a child of the case process."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autofix.case import Case, one_line
from autofix.session import SessionSettings, open_session
from autofix.target import Target


def check_file(case: Case, model: Any, reference: Any, file: Path, target: Target, folder: Path) -> dict[str, Any]:
    """Check opset, structure, every input set and the dynamic axes of `file`.

    Returns plain data: ok, symptom ("" where all is well), facts, rows (as verify_sets gives them), fixed_axes, opset, signature, notes,
    fault (the first operator that errs, as localize.py gives it, with the seconds that it took to find; empty where none does).
    A fixlog.json and a session.json beside the file say what its inputs stand for and how it is to be opened.
    """
    import onnx

    from autofix.attempt import fixed_axes, opset_of
    from autofix.verify import verify_sets

    found: dict[str, Any] = {
        "ok": False,
        "symptom": "",
        "facts": {},
        "rows": [],
        "fixed_axes": [],
        "opset": 0,
        "signature": {},
        "fault": {},
        "notes": [],
    }

    def wrong(symptom: str, message: str) -> dict[str, Any]:
        return found | {"symptom": symptom, "facts": {"message": message}}

    try:
        proto = onnx.load(str(file), load_external_data=False)
        onnx.checker.check_model(str(file))
        session = open_session(str(file), settings_beside(file), target.threads)
    except Exception as error:  # protobuf, onnx and onnxruntime each have errors of their own
        return wrong("invalid-graph", one_line(error))
    found["opset"] = opset_of(proto)
    if not target.min_opset <= found["opset"] <= target.max_opset:
        return wrong("opset-not-reached", f"the file has opset {found['opset']}, wanted {target.min_opset} to {target.max_opset}")
    signature, problem = match_signature(file, session, reference, found["notes"])
    if problem:
        return wrong("inputs-mismatch", problem)
    found["signature"] = {"inputs": signature["inputs"], "outputs": [v.name for v in session.get_outputs()]}

    def run(feed: dict[str, Any]) -> list[Any]:
        return list(session.run(None, feed))

    parity = verify_sets(reference, run, target, signature)
    found["rows"] = parity.rows
    found["notes"] += [f"{name} differs; it does not count" for name in parity.advisory]
    carried = ", ".join(reference.facts.get("carried_attributes", ()))
    found["notes"] += [f"{carried}: forward keeps state there; each call of the file is the first call of a new model"] if carried else []
    sources = {i["source"]: i["name"] for i in signature["inputs"]}
    axes = {sources[name]: declared for name, declared in case.axes.items() if name in sources}
    found["fixed_axes"] = fixed_axes(axes, proto)
    if parity.symptom:
        found["fault"] = fault_of(case, model, reference, file, proto, parity, found, target)
        return found | {"symptom": parity.symptom, "facts": dict(parity.facts)}
    if found["fixed_axes"]:
        return wrong("axis-fixed", f"declared dynamic, fixed in the file: {', '.join(found['fixed_axes'])}")
    return found | {"ok": True}


def fault_of(case: Case, model: Any, reference: Any, file: Path, proto: Any, parity: Any, found: dict[str, Any], target: Target) -> dict[str, Any]:
    """The first operator that errs on the most telling set; where the file does not run there, the node that ONNX Runtime names."""
    from autofix.attempt_facts import node_facts
    from autofix.localize import locate_fault
    from autofix.sources import source_names

    start = time.perf_counter()
    name = parity.facts["input_set"]
    problem = next(r["problem"] for r in parity.rows if r["set"] == name)
    if problem in ("inputs", "outputs", "dtype"):
        return {}
    if problem == "run":
        fault: dict[str, Any] = dict(node_facts(proto, parity.facts["message"], source_names(case.sources, case.spec.file)))
    else:
        try:
            built = replace(case, build=lambda: model) if model is not None and not reference.facts.get("mutated_buffers") else case
            fault = dict(locate_fault(built, str(file), reference.named(name), found["signature"]) or {})
        except Exception as error:  # the verdict stands without it
            found["notes"].append(f"the operator at fault could not be located: {one_line(error)}")
            return {}
    if fault.get("cause") == "graph-optimization":
        from autofix.optimizers import optimizer_facts

        fault |= optimizer_facts(str(file), settings_beside(file), target, found["signature"], reference.named(name))
    if fault.get("error_after") == float("inf"):
        fault["error_after"] = "beyond measure"
    return fault | {"input_set": name, "seconds": round(time.perf_counter() - start, 3)} if fault else {}


def settings_beside(file: Path) -> SessionSettings:
    """The session.json beside a file that autofix left, else the defaults."""
    try:
        return SessionSettings.from_json(json.loads((file.parent / "session.json").read_text()))
    except (OSError, ValueError):
        return SessionSettings()


def match_signature(file: Path, session: Any, reference: Any, notes: list[str]) -> tuple[dict[str, Any], str]:
    """({"inputs": [{name, source}], "outputs": ... or left out}, what does not fit).

    By the fixlog.json beside the file, else by name, else in order where the numbers are equal.
    """
    names = [v.name for v in session.get_inputs()]
    outputs = [v.name for v in session.get_outputs()]
    logged = logged_signature(file)
    if [i.get("name") for i in logged.get("inputs", [])] == names and [o.get("name") for o in logged.get("outputs", [])] == outputs:
        return {"inputs": logged["inputs"], "outputs": logged["outputs"]}, ""
    leaves = [i["name"] for i in reference.facts["inputs"]]
    wanted = [o["name"] for o in reference.facts["outputs"]]
    if outputs != wanted:
        notes.append(f"the outputs {outputs} are taken in order for {wanted}")
    if set(names) <= set(leaves):
        missing = [n for n in leaves if n not in names]
        if missing:
            notes.append(f"the file has no input for {', '.join(missing)}")
        return {"inputs": [{"name": n, "source": n} for n in names]}, ""
    if len(names) == len(leaves):
        notes.append(f"the inputs {names} are taken in order for {leaves}")
        return {"inputs": [{"name": n, "source": s} for n, s in zip(names, leaves, strict=True)]}, ""
    return {}, f"the file's inputs are {names}, forward's are {leaves}"


def logged_signature(file: Path) -> Mapping[str, Any]:
    """The signature in the fixlog.json beside the file, or nothing."""
    try:
        log = json.loads((file.parent / "fixlog.json").read_text())
        return dict(log.get("signature") or {})
    except (OSError, ValueError, AttributeError):
        return {}
