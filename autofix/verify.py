"""Parity: every input set through the file, compared with the reference.

make_feed(reference_set, inputs) -> {ONNX input name: numpy array}
    inputs: the file's input names, or signature entries {"name", "source"}; a source `buffers.NAME` is fed the buffer's value before the call.
verify_sets(reference, run, target, signature, *, only=None, stop_early=False) -> Parity(rows, symptom, facts)
    run(feed) -> list of numpy arrays, in the order of signature["outputs"]; may raise.
    signature: {"inputs": [names or entries], "outputs": [names or entries]}; with "outputs" left out the reference's own names count.
    rows: plain dicts, one a set: set, origin, kind, advisory, resized, ok, rule, problem, output, message, max_abs, max_ratio, ratio64.
    symptom: "" when every set that counts passes, else the slug of the most telling failure, and its facts (strings).
With `max_error`, which an approximate recipe has, the error budget decides instead of tolerances (error_budget.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autofix.compare import as_array, check_output, comparison_failed
from autofix.error_budget import BUDGET_RULE, budget_of, check_budget, excused

if TYPE_CHECKING:
    from autofix.reference import Reference, ReferenceSet
    from autofix.target import Target


@dataclass(frozen=True)
class Parity:
    """What verify_sets found. `advisory` names failing sets that do not count against the file."""

    rows: list[dict[str, Any]]
    symptom: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    advisory: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Every set that counts passes."""
        return not self.symptom


def entry_parts(entry: Any) -> tuple[str, str]:
    """(ONNX name, source) of a name or a signature entry."""
    if isinstance(entry, dict):
        return str(entry["name"]), str(entry.get("source") or entry["name"])
    return str(entry), str(entry)


def make_feed(one: ReferenceSet, inputs: list[Any]) -> dict[str, Any]:
    """The feed of one set; raises KeyError for an input that is no leaf of forward's arguments."""
    from autofix.adapter import parameter_name

    leaves = dict(one.leaves)
    flat = {parameter_name(n): v for n, v in one.leaves}
    state = {"buffers." + n: v for n, v in one.state_before.items()}
    feed: dict[str, Any] = {}
    for entry in inputs:
        name, source = entry_parts(entry)
        for found in (state, leaves, flat):
            key = source if source in found else name
            if key in found:
                feed[name] = number_array(found[key])
                break
        else:
            raise KeyError(name)
    return feed


def number_array(value: Any) -> Any:
    """An input leaf as an array; Python numbers 0-d: bool, int64, float32."""
    import numpy as np

    if isinstance(value, bool):
        return np.asarray(value, dtype=np.bool_)
    if isinstance(value, int):
        return np.asarray(value, dtype=np.int64)
    if isinstance(value, float):
        return np.asarray(value, dtype=np.float32)
    return as_array(value)


def check_set(one: ReferenceSet, got: list[Any], outputs: list[Any] | None, target: Target, max_error: float | None = None) -> dict[str, Any]:
    """Compare all outputs of one set; the worst one's comparison, with `output` naming it."""
    expected: list[tuple[str, Any]] = [(n, v) for n, v in one.outputs]
    state = [(n, s) for n, s in map(entry_parts, outputs or []) if s.startswith("buffers.")]
    wanted = [(n, s) for n, s in map(entry_parts, outputs or []) if not s.startswith("buffers.")]
    if outputs is not None and [s for _, s in wanted] != [n for n, _ in expected]:
        return dict(comparison_failed("outputs", f"outputs {[s for _, s in wanted]}, PyTorch gives {[n for n, _ in expected]}"), output="")
    if len(got) != len(expected) + len(state):
        return dict(comparison_failed("outputs", f"{len(got)} outputs, PyTorch gives {len(expected) + len(state)}"), output="")
    values = dict(expected)
    anchors = dict(zip(values, one.outputs64 or [], strict=False))
    floors = dict(zip(values, one.noise or [], strict=False))
    ties = dict(zip(values, one.tied or [], strict=False))
    plan = [(n, values[n], anchors.get(n), floors.get(n)) for n in values]
    if outputs is not None:
        by_name = {p[0]: p for p in plan}
        plan = [(n, one.state_after[s[8:]], None, None) if s.startswith("buffers.") else by_name[s] for n, s in map(entry_parts, outputs)]
    results = [
        dict(
            check_output(value, out, anchor, floor, target.rtol, target.atol, one.kind == "magnitude", ties.get(name))
            if max_error is None
            else check_budget(value, out, max_error),
            output=name,
        )
        for (name, value, anchor, floor), out in zip(plan, got, strict=True)
    ]
    rank = {"dtype": 0, "shape": 1, "nan": 2, "inf": 2, "values": 3, "error": 3, "": 4}
    weakest = ["exact", "allclose", "float64", "noise", "tie", "float64, ill-conditioned", BUDGET_RULE]
    worst = min(results, key=lambda r: (rank[r["problem"]], -(r["ratio"] or 0)), default=None)
    if worst is None:
        return {"ok": True, "rule": "exact", "problem": "", "message": "", "output": "", "max_abs": 0.0, "ratio": 0.0, "ratio64": None}
    if worst["ok"]:
        worst = dict(worst, rule=max((r["rule"] for r in results), key=weakest.index))
        ratios = [r["ratio64"] for r in results if r["ratio64"] is not None]
        worst["ratio64"] = max(ratios) if ratios else None
    return worst


def session_is_right(session: Any, one: ReferenceSet, signature: dict[str, Any], target: Target) -> bool:
    """Whether what a session gives for one set passes; raises what running it raises."""
    got = list(session.run(None, make_feed(one, signature["inputs"])))
    return bool(check_set(one, got, signature.get("outputs"), target)["ok"])


def verify_sets(
    reference: Reference,
    run: Callable[[dict[str, Any]], list[Any]],
    target: Target,
    signature: dict[str, Any],
    *,
    only: set[str] | None = None,
    stop_early: bool = False,
    begin: Callable[[ReferenceSet], None] | None = None,
    max_error: float | None = None,
) -> Parity:
    """Run and compare the reference's sets (those in `only`, by name); see the module's docstring. `begin` is told of each."""
    from autofix.case import one_line

    rows: list[dict[str, Any]] = []
    for one in reference.sets:
        if only is not None and one.name not in only:
            continue
        if begin is not None:
            begin(one)
        row = {"set": one.name, "origin": one.origin, "kind": one.kind, "advisory": one.advisory, "resized": one.resized}
        try:
            feed = make_feed(one, signature["inputs"])
        except KeyError as error:
            check = dict(comparison_failed("inputs", f"input {error.args[0]!r} is no argument of forward"), output="")
        else:
            try:
                got = run(feed)
            except Exception as error:
                check = dict(comparison_failed("run", one_line(error)), output="")
            else:
                budget = None if max_error is None else budget_of(one.origin, one.kind, max_error)
                check = check_set(one, got, signature.get("outputs"), target, budget)
        rows.append(
            {**row, **{k: check[k] for k in ("ok", "rule", "problem", "output", "message", "max_abs", "ratio64")}, "max_ratio": check["ratio"]}
        )
        if max_error is not None:
            rows[-1]["error"] = check.get("error")
            rows[-1]["advisory"] = one.advisory or (not check["ok"] and excused(rows[-1]))
        if stop_early and not check["ok"] and not rows[-1]["advisory"]:
            break
    return conclude(rows, reference, signature)


def conclude(rows: list[dict[str, Any]], reference: Reference, signature: dict[str, Any]) -> Parity:
    """The most telling failure: on the example before other values before other sizes, values before NaN."""
    failed = [r for r in rows if not r["ok"] and not r["advisory"]]
    advisory = tuple(r["set"] for r in rows if not r["ok"] and r["advisory"])
    if not failed:
        return Parity(rows, advisory=advisory)
    sets = {s.name: s for s in reference.sets}
    lifted = {s[8:] for _, s in map(entry_parts, signature["inputs"]) if s.startswith("buffers.")}
    stale = {b for b in reference.facts.get("mutated_buffers", []) if b not in lifted}

    def weight(row: dict[str, Any]) -> tuple[Any, ...]:
        return (row["set"] != "given", row["problem"] in ("nan", "inf"), row["resized"], row["kind"] in ("empty", "nonfinite"))

    first = min(failed, key=weight)
    at_example = first["set"] == "given"
    where = "example" if at_example else "other-sizes" if first["resized"] else "other-values"
    one = sets[first["set"]]
    if first["problem"] == "inputs":
        symptom = "inputs-mismatch"
    elif first["problem"] == "outputs":
        symptom = "outputs-mismatch"
    elif first["problem"] == "dtype":
        symptom = "dtype-mismatch"
    elif first["problem"] == "error":
        symptom = "over-error-budget"
    elif stale and not at_example and changed_before(one, reference, stale):
        symptom = "mutated-buffers"
    elif first["problem"] == "run":
        symptom = "run-error" if at_example else f"run-error-at-{where}"
    elif first["problem"] == "shape" and at_example:
        symptom = "shape-mismatch"
    elif first["problem"] in ("nan", "inf") and (first["kind"] == "nonfinite" or not first["resized"]):
        symptom = "mismatch-nonfinite"
    else:
        symptom = f"mismatch-at-{where}"
    facts = {"input_set": first["set"], "output": first["output"], "message": f"{first['set']}: {first['output'] or 'file'}: {first['message']}"}
    if first["kind"]:
        facts["kind"] = first["kind"]
    if one.sizes:
        facts["sizes"] = ", ".join(f"{k}={v}" for k, v in one.sizes.items())
    facts["failed_sets"] = ", ".join(r["set"] for r in failed)
    if symptom == "over-error-budget":
        facts["error"] = f"{max(r['error'] for r in failed if r['problem'] == 'error'):.6g}"
    return Parity(rows, symptom, facts, advisory)


def changed_before(one: ReferenceSet, reference: Reference, names: set[str]) -> bool:
    """Whether some of these buffers differ, before this set's call, from their initial values."""
    import numpy as np

    start = reference.sets[0].state_before
    return any(
        n in start and not np.array_equal(as_array(start[n]), as_array(one.state_before[n]), equal_nan=False) for n in names if n in one.state_before
    )
