"""An exception of a stage, or a failed parity row -> Diagnosis. The patterns stand in one table, most specific first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from autofix.trial import Diagnosis, Stage

PATTERNS: tuple[tuple[str, frozenset[Stage], str], ...] = tuple(
    (symptom, frozenset(stages), pattern)
    for symptom, stages, pattern in (
        (
            "axis-specialized",
            (Stage.CAPTURE,),
            r"[Cc]onstraints violated|specialized it to be a constant|was inferred to be a constant|marked .* as dynamic but",
        ),
        ("axis-specialized", (Stage.CAPTURE,), r"Received user-specified .*dim|conflicting (?:ranges|constraints)|Failed to resolve .* dimension"),
        ("data-dependent-branch", (Stage.CAPTURE,), r"must be bool, not SymBool"),
        ("data-dependent-size", (Stage.CAPTURE,), r"must be (?:int|float|a number), not Sym(?:Int|Float)"),
        ("data-dependent-branch", (Stage.CAPTURE,), r"Could not guard on data-dependent expression (?:Eq|Ne)\(u\d+, (?:1|0)\).*unhinted.*\bbool\b"),
        (
            "data-dependent-size",
            (Stage.CAPTURE, Stage.CONVERT),
            r"Could not (?:guard on|extract specialized integer from) data-dependent expression|data-dependent (?:operator|symbolic)|GuardOnDataDependentSymNode|DataDependentOutputException|DynamicOutputShapeException|could not extract specialized integer",
        ),
        (
            "data-dependent-branch",
            (Stage.CAPTURE,),
            r"Dynamic control flow is not supported|[Dd]ata-dependent branching|data-dependent jump|Data-dependent assertion|dynamic control flow",
        ),
        (
            "opset-too-low",
            (Stage.CONVERT,),
            r"ONNX opset version (?P<has>\d+) is not supported.*?opset version (?P<needs>\d+)|Support for this operator was added in version (?P<needs2>\d+)|operator '(?P<operator>[\w:.]+)' to ONNX opset version (?P<has2>\d+) is not supported. Support .* version (?P<needs3>\d+)",
        ),
        (
            "unsupported-operator",
            (Stage.CONVERT,),
            r"No (?:ONNX function found|decompositions registered) for <OpOverload\(op='(?P<operator>[\w:.]+)', overload='(?P<overload>\w+)'\)>|No ONNX function found for (?P<operator2>[\w:.]+)|Exporting the operator '(?P<operator3>[\w:.]+)' to ONNX opset version \d+ is not supported|Unsupported: ONNX export of operator (?P<operator4>[\w:. ]+)|ONNX export failed on an operator with unrecognized namespace (?P<operator7>[\w:]+)|ONNX export (?:failed on|of operator) (?P<operator5>[\w:]+)|No (?:decomposition|Opset).* for (?P<operator6>(?:aten|prims)[\w:.]+)",
        ),
        (
            "unsupported-operator",
            (Stage.CONVERT,),
            r"Error when translating node .*?target ?= ?(?P<operator>[\w.]+)|FX Node: %?\w+ ?.*?call_function\[target=torch\.ops\.(?P<operator2>[\w.]+)\]",
        ),
        (
            "unsupported-operator",
            (Stage.CAPTURE, Stage.CONVERT),
            r"There was no fake impl registered for (?P<operator>[\w:.]+)|Unsupported FakeTensor.*operator (?P<operator2>[\w:.]+)|(?P<operator3>aten[.:]+[\w.]+).*(?:not implemented for|has no) .*[Mm]eta|Could not run '(?P<operator4>[\w:.]+)' with arguments from the '(?:Meta|SparseMeta|NestedTensorMeta|QuantizedMeta)",
        ),
        (
            "unsupported-input",
            (Stage.CAPTURE, Stage.CONVERT),
            r"Only (?:tuples, lists and Variables|tensors).*inputs|Unsupported input type|unsupported input type|Found the following unsupported inputs|Type '.*' is not supported as (?:an )?input",
        ),
        (
            "unsupported-output",
            (Stage.CAPTURE, Stage.CONVERT),
            r"It looks like one of the outputs with type|Only tuples, lists and Variables are supported as JIT (?:inputs/)?outputs|[Uu]nsupported output type|output .* is not a (?:Tensor|tensor)",
        ),
        (
            "unsupported-python",
            (Stage.CAPTURE,),
            r"torch\._dynamo|torch\.jit\.frontend|jit\.script|TorchScript|Python builtin|NotSupportedError|UnsupportedNodeError|[Cc]an't (?:call|convert|use)|numpy\(\)|not scriptable|Cannot call numpy|Expected a value of type|has no attribute|Unknown type name|Arguments for call are not valid|requires_grad|mutat",
        ),
        (
            "invalid-graph",
            (Stage.CHECK, Stage.RUN),
            r"Type Error: |INVALID_GRAPH|ShapeInferenceError|TypeInferenceError|ValidationError|This is an invalid model|INVALID_ARGUMENT|Type '(?P<dtype>tensor\(\w+\))' of input parameter",
        ),
        (
            "no-kernel",
            (Stage.CHECK, Stage.RUN),
            r"NOT_IMPLEMENTED.*?(?:implementation for|kernel for|operator) (?P<op_type>\w+)|Could not find an implementation for (?P<op_type2>\w+)\((?P<version>\d+)\) node with name '(?P<node>[^']*)'",
        ),
    )
)
"""(symptom, stages at which it counts, regular expression whose named groups become facts)."""

FALLBACK = {
    Stage.REWRITE: "apply-error",
    Stage.CAPTURE: "capture-error",
    Stage.CONVERT: "convert-error",
    Stage.CHECK: "invalid-graph",
    Stage.RUN: "run-error",
}


def error_chain(error: BaseException) -> list[BaseException]:
    """The error and what caused it, outermost first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return chain


def normal_operator(name: str, overload: str = "") -> str:
    """An operator as torch prints an OpOverload: `aten::lgamma` and `aten.lgamma` become `aten.lgamma.default`."""
    name = name.strip().replace("::", ".").removeprefix("torch.ops.")
    if overload:
        return f"{name}.{overload}"
    return name if name.count(".") >= 2 else f"{name}.default"


def match_patterns(text: str, stage: Stage) -> tuple[str, dict[str, str]]:
    """The first pattern that fits an error's text at a stage: (symptom, facts), ("", {}) where none does."""
    for symptom, stages, pattern in PATTERNS:
        if stage not in stages:
            continue
        found = re.search(pattern, text, re.DOTALL)
        if not found:
            continue
        facts = {re.sub(r"\d+$", "", k): v for k, v in found.groupdict().items() if v}
        if "operator" in facts:
            facts["operator"] = normal_operator(facts["operator"], facts.pop("overload", ""))
        return symptom, facts
    return "", {}


def source_line(error: BaseException, text: str, files: Mapping[str, str]) -> dict[str, str]:
    """file, line, function (and `code`, the line's text) of the user's source at fault, as far as it is known.

    files: {path in tracebacks: name of the file}. Looks through the chain's tracebacks, innermost error first, then
    through `File "...", line N` in the error's text; a library line is the last resort.
    """
    import linecache
    import traceback

    library: dict[str, str] = {}
    for one in reversed(error_chain(error)):
        frames = traceback.extract_tb(one.__traceback__)
        for frame in reversed(frames):
            if frame.filename in files:
                facts = {"file": files[frame.filename], "line": str(frame.lineno), "function": frame.name, "code": (frame.line or "").strip()}
                return {**facts, **library_line(frames[frames.index(frame) + 1 :])}
    text = "\n".join([text, *node_stacks(error)])
    hits = re.findall(r'File "([^"]+)", line (\d+)(?:, in (\S+))?', text)
    for path, line, function in reversed(hits):
        if path in files:
            return {"file": files[path], "line": line, "function": function, "code": linecache.getline(path, int(line)).strip()}
        if "site-packages/torch/" in path and "/onnx/" not in path and "/export/" not in path and not library:
            library = {"file": path, "line": line, "function": function}
    return library


def frames_of(error: BaseException) -> list[tuple[str, int]]:
    """(path, line) of every frame of an error and of its causes, the innermost first."""
    import traceback

    tracebacks = [traceback.extract_tb(one.__traceback__) for one in reversed(error_chain(error))]
    return [(frame.filename, frame.lineno or 0) for frames in tracebacks for frame in reversed(frames)]


def node_stacks(error: BaseException) -> list[str]:
    """The stack traces that torch.export kept with the fx nodes which an exporter's frames were working on."""
    found = []
    for one in error_chain(error):
        tb = one.__traceback__
        while tb is not None:
            node = tb.tb_frame.f_locals.get("node")
            trace = getattr(node, "meta", {}).get("stack_trace") if hasattr(node, "meta") else None
            if isinstance(trace, str):
                found.append(trace)
            tb = tb.tb_next
    return found


def library_line(frames: list[Any]) -> dict[str, str]:
    """The innermost frame below the user's that belongs to a library's model code, not to torch's own plumbing."""
    import sys

    from autofix.watch import PLUMBING

    for frame in reversed(frames):
        if any(p in frame.filename for p in PLUMBING):
            continue
        module = next((n for n, m in list(sys.modules.items()) if getattr(m, "__file__", None) == frame.filename), frame.filename)
        return {"library": module, "library_line": str(frame.lineno), "library_function": frame.name, "library_code": (frame.line or "").strip()}
    return {}


AXIS = re.compile(r"(?:L|inputs)\[['\"](?P<name>\w+)['\"]\](?:\[\d+\])?\.(?:size\(\)|shape)\[(?P<axis>\d+)\]")


def diagnose_error(error: BaseException, stage: Stage, files: Mapping[str, str], capture: str) -> Diagnosis:
    """What an exception at a stage means: symptom, operator, source line."""
    chain = error_chain(error)
    text = "\n".join(f"{type(e).__name__}: {e}" for e in chain)
    symptom, facts = match_patterns(text, stage)
    where = source_line(error, text, files)
    if not symptom and stage is Stage.CONVERT and "decompose" in text.lower():
        symptom = "decompose-error"
    if symptom == "data-dependent-size" and tests_a_value(where.get("library_code") or where.get("code", "")):
        symptom = "data-dependent-branch"
    if symptom == "axis-specialized":
        axes = sorted({f"{m['name']}:{m['axis']}" for m in AXIS.finditer(text)})
        if axes:
            facts["axis"] = ",".join(axes)
    facts.update(where)
    if "operator" in facts and "line" not in facts:
        facts.pop("file", None)
    facts["message"] = root_message(chain)
    facts["capture"] = capture
    return Diagnosis(symptom or FALLBACK.get(stage, "capture-error"), stage, facts)


def tests_a_value(code: str) -> bool:
    """Whether a source line is a statement of control flow."""
    return bool(re.match(r"(if|elif|while|assert)\b|.*\b(if|and|or|not|bool)\b", code))


def root_message(chain: list[BaseException], limit: int = 300) -> str:
    """One line that says what went wrong: of the innermost error that says something."""
    for error in reversed(chain):
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if lines:
            more = f" {lines[1]}" if lines[0].endswith(":") and len(lines) > 1 else ""
            text = f"{type(error).__name__}: {lines[0]}{more}"
            return text if len(text) <= limit else text[: limit - 1] + "…"
    return type(chain[0]).__name__


def no_progress(parent: Diagnosis | None, child: Diagnosis | None) -> bool:
    """Whether a fix left its parent's failure as it was: same symptom at the same place, or an earlier stage."""
    if parent is None or child is None:
        return False
    if child.symptom in ("nothing-to-do", "apply-error"):
        return True
    same = ("operator", "op_type", "line", "file", "axis", "output", "input_set", "node")
    return child.symptom == parent.symptom and child.stage <= parent.stage and all(parent.facts.get(k) == child.facts.get(k) for k in same)


def facts_from(values: Mapping[str, Any]) -> dict[str, str]:
    """Facts as strings, empty ones left out."""
    return {k: str(v) for k, v in values.items() if v not in (None, "", [], ())}
