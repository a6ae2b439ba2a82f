"""What the reports show of a repair, as plain data: the view that fixlog.md and report.html are rendered from."""

from __future__ import annotations

import itertools
import linecache
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofix.case import CaseSpec
from autofix.peak import peak_text
from autofix.recipe import Fix
from autofix.search import Repair
from autofix.signatures import SYMPTOMS
from autofix.slowness import slow_lines
from autofix.strategy import Strategy
from autofix.summary import headline as state_of
from autofix.summary import noise_lines, seeded_lines, state_lines
from autofix.target import Effect, Target
from autofix.trial import Trial

Registry = Mapping[str, Strategy]
MEANINGS = {
    Effect.EXACT: "same values, same inputs accepted",
    Effect.APPROXIMATE: "numbers move",
    Effect.NARROWING: "right for fewer inputs than the model takes",
}


def effect_of(trial: Trial, registry: Registry, facts: Mapping[str, Any]) -> Effect:
    """The effect of a trial's whole recipe, baked values and seeded draws included."""
    effects = [registry[f.strategy].effect_of(f) for f in trial.recipe.fixes if f.strategy in registry]
    return Effect.join([*effects, *([Effect.NARROWING] if trial.effect_evidence or seeded_lines(facts) else [])])


def conceded(trial: Trial, registry: Registry, facts: Mapping[str, Any]) -> list[str]:
    """What a recipe gives up, one line each; empty for an exact one."""
    lines = seeded_lines(facts)
    for fix in trial.recipe.fixes:
        effect = registry[fix.strategy].effect_of(fix) if fix.strategy in registry else Effect.EXACT
        if effect is not Effect.EXACT:
            lines.append(f"{fix} is {effect.value}: {purpose(fix, registry)}")
    return lines + [f"a value is baked in at {text}" for text in trial.effect_evidence]


def purpose(fix: Fix, registry: Registry) -> str:
    """The first line of a strategy's docstring."""
    strategy = registry.get(fix.strategy)
    return ((strategy.__doc__ or "").strip().partition("\n")[0] if strategy else "") or "(the strategy is not installed)"


def why_safe(fix: Fix, registry: Registry) -> str:
    """What a strategy's docstring says after "Why it is safe:", on one line."""
    doc = (registry[fix.strategy].__doc__ or "") if fix.strategy in registry else ""
    text = re.split(r"\n\s*\n", doc.partition("Why it is safe:")[2])[0]
    return " ".join(text.split())


def short_name(path: str, spec: CaseSpec) -> str:
    """A file as it is called in the log: relative to the model file's folder, or from site-packages on."""
    base = str(Path(spec.file).resolve().parent)
    if path.startswith(base + "/"):
        return path[len(base) + 1 :]
    return path.rpartition("site-packages/")[2] if "site-packages/" in path else path


def source_at(trial: Trial, found: Repair, spec: CaseSpec) -> dict[str, str] | None:
    """{where, code, function} of the source line at fault; of the first call of the operator at fault where no line is known."""
    facts = dict(trial.diagnosis.facts) if trial.diagnosis else {}
    if not facts.get("file"):
        facts |= operator_place(facts.get("operator", ""), dict(found.facts.get("operators", {})))
    file, line = facts.get("file", ""), facts.get("own_line") or facts.get("line", "")
    if not file or not line.isdigit():
        return None
    code = ""
    for path, text in dict(found.facts.get("sources", {})).items():
        if path == file or path.endswith("/" + file):
            lines = text.splitlines()
            code = lines[int(line) - 1].strip() if 0 < int(line) <= len(lines) else ""
    code = facts.get("own_code") or facts.get("code", "") or code or (linecache.getline(file, int(line)).strip() if Path(file).is_absolute() else "")
    return {"where": f"{short_name(file, spec)}:{line}", "code": code, "function": facts.get("function", "")}


def operator_place(operator: str, places: Mapping[str, str]) -> dict[str, str]:
    """{file, line} of the first call of an operator, whatever namespace and overload it is named with ("prims.erf_inv.default")."""

    def plain(name: str) -> str:
        parts = name.split(".")
        return (parts[1] if len(parts) > 1 else name).replace("_", "")

    for name, place in places.items():
        file, _, line = place.rpartition(":")
        if operator and file and plain(name) == plain(operator):
            return {"file": file, "line": line}
    return {}


def figure(value: Any, digits: int = 3) -> str:
    """A number for a table; a dash where it is missing."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "-"
    if value == 0:
        return "0"
    return f"{value:.{digits}g}" if math.isfinite(value) else str(value)


def parity_rows(trial: Trial) -> list[dict[str, str]]:
    """The parity table of a trial, as text."""
    rows = []
    for row in trial.parity:
        verdict = "right" if row.get("ok") else "differs, does not count" if row.get("advisory") else "differs"
        kind = " ".join(filter(None, [str(row.get("origin", "")), str(row.get("kind", "") or ""), "(other sizes)" if row.get("resized") else ""]))
        rows.append(
            {
                "set": str(row.get("set", "")),
                "kind": kind,
                "verdict": verdict,
                "rule": str(row.get("rule", "") or "-"),
                "output": str(row.get("output", "") or "-"),
                "max_abs": figure(row.get("max_abs")),
                "share": figure(row.get("max_ratio")),
                "float64": figure(row.get("ratio64")),
                "message": str(row.get("message", "") or ""),
            }
        )
    return rows


def trial_views(found: Repair, spec: CaseSpec, registry: Registry) -> list[dict[str, Any]]:
    """One entry a trial: what was tried and why, what happened, what was seen and concluded."""
    numbers: dict[str, int] = {}
    by_id: dict[str, Trial] = {}
    views = []
    for number, trial in enumerate(found.trials, 1):
        parent = by_id.get(trial.parent or "")
        numbers.setdefault(trial.recipe.id, number)
        by_id.setdefault(trial.recipe.id, trial)
        diagnosis = trial.diagnosis
        view = {
            "number": number,
            "title": tried(trial, parent),
            "recipe": str(trial.recipe),
            "why": reasons(trial, parent, numbers, found, registry),
            "verdict": trial.verdict.value,
            "ok": trial.ok,
            "stage": trial.stage.name.lower(),
            "seconds": f"{trial.seconds:.1f}",
            "symptom": diagnosis.symptom if diagnosis else "",
            "meaning": SYMPTOMS.get(diagnosis.symptom, "") if diagnosis else "",
            "message": " ".join(diagnosis.facts.get("message", "").split()) if diagnosis else "",
            "source": source_at(trial, found, spec),
            "details": details(trial),
            "notes": list(trial.notes),
            "evidence": list(trial.effect_evidence),
            "winner": found.winner is not None and trial.recipe.id == found.winner.recipe.id,
        }
        views.append(view)
    return views


def tried(trial: Trial, parent: Trial | None) -> str:
    """The heading of a trial: what its recipe adds to its parent's, or leaves out."""
    before = {f.key() for f in parent.recipe.fixes} if parent else set()
    now = {f.key() for f in trial.recipe.fixes}
    added = [str(f) for f in trial.recipe.fixes if f.key() not in before]
    dropped = [str(f) for f in (parent.recipe.fixes if parent else ()) if f.key() not in now]
    if not trial.recipe.fixes and not dropped:
        return "stock export"
    return " and ".join(filter(None, [", ".join(added), "without " + ", ".join(dropped) if dropped else ""])) or str(trial.recipe)


def reasons(trial: Trial, parent: Trial | None, numbers: Mapping[str, int], found: Repair, registry: Registry) -> list[str]:
    """Why a trial was made."""
    if parent is None:
        if not trial.recipe.fixes:
            return ["The stock export comes first."]
        return ["This recipe was known before the search began, from the cache or because it was asked for; it is verified again."]
    before = {f.key() for f in parent.recipe.fixes}
    added = [f for f in trial.recipe.fixes if f.key() not in before]
    at = f"trial {numbers[parent.recipe.id]}"
    if not added:
        return [f"Is each fix of {at} needed? One is left out."]
    lines = []
    for fix in added:
        strategy = registry.get(fix.strategy)
        symptom = parent.diagnosis.symptom if parent.diagnosis else "too-slow"
        chance = f"; its own estimate of success is {strategy.prior:.0%}" if strategy else ""
        lines.append(f"{at.capitalize()} showed {symptom}, which {fix.strategy} treats{chance}. {purpose(fix, registry)}")
    return lines


def details(trial: Trial) -> list[str]:
    """Further facts of a diagnosis that help a reader, `name: value`."""
    shown = ("operator", "op_type", "axis", "needs", "input_set", "sizes", "output", "failed_sets", "node", "signal")
    facts = trial.diagnosis.facts if trial.diagnosis else {}
    lines = [f"{name.replace('_', ' ')}: {facts[name]}" for name in shown if facts.get(name)]
    row = trial.latency or {}
    if "gain" in row:
        lines.append(f"raced: {row['ort_ms']:.3g} ms, {row['gain']:.2f}x as fast as the file before ({row['gain_q1']:.2f} to {row['gain_q3']:.2f})")
    elif "speedup" in row:
        lines.append(f"measured: {row['ort_ms']:.3g} ms, {row['speedup']:.2f}x eager ({row['speedup_q1']:.2f} to {row['speedup_q3']:.2f})")
    return lines + slow_lines(facts.get("slow", ""))


def latency_view(latency: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The latency table, as text: the row over all sessions, one line a session, what it was before, the part of the machine's peak."""
    if not latency or "speedup" not in latency:
        return None
    names = ("eager_ms", "ort_ms", "q1_ms", "q3_ms", "speedup", "speedup_q1", "speedup_q3", "control", "rounds", "threads", "before_ms")
    view: dict[str, Any] = {name: figure(latency.get(name), 4) for name in names}
    keys = ("ort_ms", "speedup", "speedup_q1", "speedup_q3", "control", "rounds")
    view["sessions"] = [{k: figure(one.get(k), 4) for k in keys} for one in latency.get("sessions", ())]
    return view | {"peak": peak_text(dict(latency))}


def target_lines(target: Target) -> list[str]:
    """The contract, in words."""
    lines = [f"opset {target.min_opset} to {target.max_opset}"]
    if target.rtol is not None or target.atol is not None:
        lines.append(f"rtol {target.rtol}, atol {target.atol}")
    if target.max_latency_ms is not None:
        lines.append(f"at most {target.max_latency_ms} ms")
    if target.min_speedup is not None:
        lines.append(f"at least {target.min_speedup}x eager PyTorch")
    if target.fastest:
        lines.append("as fast as the strategies make it")
    if target.max_error is not None:
        lines.append(f"approximate fixes: a relative error of at most {target.max_error}")
    return [*lines, "allowed: " + ", ".join(["exact", *sorted(e.value for e in target.allow)])]


def review_lines(trial: Trial, found: Repair, has_patch: bool, libraries: list[str], registry: Registry) -> list[str]:
    """What a reviewer should look at before the file is believed."""
    lines = []
    if has_patch:
        lines.append("fix.patch changes your source: read the diff below; `git apply fix.patch` in the model file's folder takes it over.")
    lines += [f"{name} is rewritten while the model is exported; the new functions stand in fix.py." for name in libraries]
    lines += [line[0].upper() + line[1:] + "." for line in state_lines(trial)]
    lines += [f"{text}: right on every input set that was tried, but the value is constant in the file." for text in trial.effect_evidence]
    for fix in trial.recipe.fixes:
        effect = registry[fix.strategy].effect_of(fix) if fix.strategy in registry else Effect.EXACT
        if effect is not Effect.EXACT:
            lines.append(f"{fix} is {effect.value}: {why_safe(fix, registry) or purpose(fix, registry)}")
    for row in trial.parity:
        if row.get("advisory") and not row.get("ok"):
            lines.append(f"Input set {row['set']!r} differs and does not count against the file: {row.get('message', '')}")
    dropped = [d for d in found.facts.get("dropped_sets", ()) if isinstance(d, Mapping)]
    lines += [f"Input set {d.get('set')!r} was dropped: {d.get('why')}" for d in dropped[:8]]
    shaky = [d for d in found.facts.get("ill_conditioned", ()) if isinstance(d, Mapping)]
    lines += [f"Input set {d.get('set')!r} is ill-conditioned: {d.get('why')}" for d in shaky]
    notes = [str(n) for n in [*found.facts.get("notes", ()), *trial.notes]]
    return lines + [n for n in notes if not n.endswith("it does not count")]


def fix_views(trial: Trial | None, registry: Registry) -> list[dict[str, str]]:
    """One entry a fix of a recipe."""
    views = []
    for fix in trial.recipe.fixes if trial else ():
        effect = registry[fix.strategy].effect_of(fix).value if fix.strategy in registry else "unknown"
        about = {"purpose": purpose(fix, registry), "safe": why_safe(fix, registry)}
        views.append({"text": str(fix), "level": fix.level.name.lower(), "effect": effect, **about})
    return views


def telling_hunks(patch: str, most: int = 120, run: int = 20) -> str:
    """A patch to read: where it is long, without the long runs of lines that are added and replace nothing; they stand in fix.patch."""
    if patch.count("\n") <= most:
        return patch
    shown: list[str] = []
    for sign, group in itertools.groupby(patch.splitlines(keepends=True), lambda line: line[:1] if not line.startswith(("---", "+++")) else ""):
        lines = list(group)
        replaces = bool(shown) and shown[-1].startswith("-")
        shown += [f"({len(lines)} lines are only added here; see fix.patch)\n"] if sign == "+" and len(lines) > run and not replaces else lines
    return "".join(shown)


def headline(found: Repair, registry: Registry) -> str:
    """The verdict in one sentence."""
    near = found.nearest
    if found.ok and found.winner is not None:
        what = f"Repaired by {found.winner.recipe}" if found.winner.recipe.fixes else "Nothing to repair: the stock export passes"
        return f"{what}. Effect: {effect_of(found.winner, registry, found.facts).value}."
    if near is None:
        return f"Not repaired: {found.stopped or 'no trial was made'}."
    return f"Not repaired: {found.stopped or 'the search ended'}. Nearest: {near.recipe}, which reached {near.stage.name.lower()}."


@dataclass(frozen=True)
class Extras:
    """What the reports tell beside the repair itself: the patch, rewritten library modules, whether there is a fix.py, versions."""

    version: str
    environment: Mapping[str, str]
    patch: str = ""
    libraries: tuple[str, ...] = ()
    script: bool = False
    problems: tuple[str, ...] = ()


def repair_view(spec: CaseSpec, found: Repair, registry: Registry, extras: Extras) -> dict[str, Any]:
    """Everything the templates show."""
    shown = found.winner if found.ok else found.nearest
    effect = effect_of(shown, registry, found.facts) if shown else Effect.EXACT
    numbers = [i for i, t in enumerate(found.trials, 1) if shown is not None and t.recipe.id == shown.recipe.id]
    trials = trial_views(found, spec, registry)
    review = review_lines(shown, found, bool(extras.patch), list(extras.libraries), registry) if shown else []
    return {
        "name": Path(spec.file).name,
        "file": str(Path(spec.file).resolve()),
        "case_id": found.case_id,
        "version": extras.version,
        "ok": found.ok,
        "state": state_of(found),
        "headline": headline(found, registry),
        "effect": effect.value,
        "effect_meaning": MEANINGS[effect],
        "conceded": conceded(shown, registry, found.facts) if shown and found.ok else [],
        "stopped": found.stopped,
        "seconds": f"{found.seconds:.1f}",
        "from_cache": found.from_cache,
        "target": target_lines(found.target),
        "trials": trials,
        "nearest": trials[numbers[0] - 1] if numbers else None,
        "number": numbers[0] if numbers else 0,
        "fixes": fix_views(shown, registry),
        "recipe": str(shown.recipe) if shown else "",
        "parity": parity_rows(shown) if shown else [],
        "latency": latency_view(shown.latency) if shown else None,
        "signature": (shown.signature or {}) if shown else {},
        "noise": noise_lines(found.facts),
        "review": [*review, *extras.problems],
        "offers": [{"fix": str(fix), "effect": e.value, "symptom": symptom, "purpose": purpose(fix, registry)} for fix, e, symptom in found.offers],
        "patch": telling_hunks(extras.patch),
        "script": extras.script,
        "environment": dict(extras.environment),
    }
