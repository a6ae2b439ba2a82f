"""What an attempt tells besides its verdict: the file's signature, what a failure points at, and the sizes at which it must still be verified."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofix.diagnose import facts_from
from autofix.sources import original_place
from autofix.trial import Diagnosis

if TYPE_CHECKING:
    from autofix.attempt import Workpiece


SIZE_SYMPTOMS = frozenset(
    {"axis-specialized", "axis-fixed", "mismatch-at-other-sizes", "run-error-at-other-sizes", "mismatch-at-other-values", "run-error-at-other-values"}
)
"""Symptoms whose cause is likely a size or a number that capture pinned down."""


def describe_signature(session: Any) -> dict[str, Any]:
    """The fixlog's `signature`: name, source, dtype and shape of inputs and outputs."""

    def row(value: Any) -> dict[str, Any]:
        dtype = value.type.removeprefix("tensor(").removesuffix(")")
        source = value.name.removesuffix(".after") if value.name.startswith("buffers.") else value.name
        return {
            "name": value.name,
            "source": source,
            "dtype": {"float": "float32", "double": "float64"}.get(dtype, dtype),
            "shape": list(value.shape),
        }

    return {"inputs": [row(v) for v in session.get_inputs()], "outputs": [row(v) for v in session.get_outputs()]}


def wanted_probes(piece: Workpiece, example: Any) -> tuple[dict[str, Any], ...]:
    """Sizes that no input set had and at which some size test of the capture goes the other way, with the test's place."""
    from autofix.adapter import parameter_name
    from autofix.inputs import symbol_sizes
    from autofix.watch import unseen_sizes

    if piece.watch is None or not piece.case.axes:
        return ()
    known = [symbol_sizes(piece.case.axes, one.leaves) for one in [example, *piece.reference.sets] if not one.advisory]
    axes = {parameter_name(name): named for name, named in piece.case.axes.items()}
    found = unseen_sizes(piece.watch, axes, known)
    return tuple(
        {"sizes": sizes, "file": piece.files.get(site.file, site.file), "line": site.line, "code": site.code, "expression": site.expression}
        for sizes, site in found
    )


def node_facts(proto: Any, message: str, files: Mapping[str, str]) -> dict[str, str]:
    """op_type and source line of the ONNX node that ONNX Runtime's message names; the exporter keeps stack traces with nodes."""
    found = re.search(r"[Nn]ame:? ?'([^']+)'|[Nn]ode ?\(([^)]+)\)", message)
    node = next((n for n in proto.graph.node if found and n.name == (found[1] or found[2])), None)
    if node is None:
        return {}
    facts = {"node": node.name, "op_type": node.op_type}
    for prop in node.metadata_props:
        if prop.key.endswith("stack_trace"):
            for path, line, function in re.findall(r'File "([^"]+)", line (\d+), in (\S+)', prop.value):
                if path in files:
                    facts |= {"file": files[path], "line": line, "function": function}
    return facts


def located(piece: Workpiece, path: Path, outcome: Any) -> dict[str, str]:
    """Facts about the operator that introduces the error, where it can be found."""
    if piece.program is None:
        return {}
    try:
        from autofix.localize import locate

        found = locate(path, piece.program, piece.reference, outcome)
    except Exception as error:  # localisation only helps the order of the search
        piece.notes.append(f"the operator at fault could not be located: {type(error).__name__}")
        return {}
    return facts_from(found or {})


def explained(piece: Workpiece, diagnosis: Diagnosis, path: Path, frames: list[tuple[str, int]]) -> Diagnosis:
    """A failure's diagnosis with what the file at `path`, the capture and the optimisers tell of its cause, and the person's own line.

    frames: (source file, line) of the error that was raised, outermost first.
    """
    facts = dict(diagnosis.facts)
    facts["message"] = facts.get("message", "").replace(f"Load model from {path} failed:", "").replace(str(path), path.name)
    if piece.proto is not None and "line" not in facts:
        facts = {**node_facts(piece.proto, facts["message"], piece.files), **facts}
    if piece.watch is not None and diagnosis.symptom in SIZE_SYMPTOMS and "line" not in facts:
        facts = {**piece.watch.facts(piece.files), **facts}
    if piece.near and diagnosis.symptom.startswith(("mismatch", "run-error")):
        facts["near_constants"] = ", ".join(map(str, piece.near))
    facts |= piece.blamed
    if piece.rewritten and facts.get("file", "") in piece.rewritten:
        own = original_place([*frames, (facts["file"], int(facts.get("line", "0")))], piece.rewritten)
        facts |= dict(zip(("own_line", "own_code"), own)) if own else {}
    return replace(diagnosis, facts=facts)
