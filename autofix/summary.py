"""The summary of a repair: what fits a screen, and the same as plain data for `--json`."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autofix.peak import peak_text
from autofix.recipe import Recipe
from autofix.search import Repair
from autofix.strategy import Strategy
from autofix.target import Effect
from autofix.trial import Diagnosis, Trial

LABEL = 11
SHOWN_FILES = ("model.onnx", "model.onnx.data", "session.json", "fixlog.md", "report.html", "fixlog.json", "fix.py", "fix.patch")


def headline(found: Repair) -> str:
    """The verdict in two or three words."""
    if found.ok and found.winner is not None:
        return "repaired" if found.winner.recipe.fixes else "nothing to repair"
    return "interrupted" if found.stopped == "interrupted" else "too slow" if found.winner is not None else "not repaired"


def summary_text(found: Repair, file: str, registry: Mapping[str, Strategy], output: Path, width: int = 0) -> str:
    """The summary for the terminal; 24 lines at most."""
    width = width or min(shutil.get_terminal_size().columns, 140)
    trials = f"{len(found.trials)} trial{'s' if len(found.trials) != 1 else ''}"
    known = ", from the cache and verified again" if found.from_cache else ", as another model of its family" if found.from_family else ""
    rows = [("", f"{headline(found)}: {Path(file).name} ({trials}, {found.seconds:.1f} s{known})")]
    if not found.ok:
        rows.append(("stopped", found.stopped))
    rows += fault_rows(found)
    rows += winner_rows(found, found.winner, registry) if found.winner is not None else nearest_rows(found)
    rows += offer_rows(found)
    rows += [("note", problem) for problem in found.problems[:2]]
    rows.append(("files", files_line(output)))
    lines: list[str] = []
    for label, text in rows:
        if not label:
            lines.append(text)
            continue
        wrapped = textwrap.wrap(text, max(width - LABEL - 2, 30), break_on_hyphens=False)[:3] or [""]
        lines += [f"  {label if i == 0 else '':<{LABEL - 2}} {part}" for i, part in enumerate(wrapped)]
    return "\n".join(lines)


def fault_rows(found: Repair) -> list[tuple[str, str]]:
    """What the stock export came to, with the source line."""
    stock = next((t for t in found.trials if not t.recipe.fixes), None)
    if stock is None or stock.diagnosis is None or stock is found.nearest:
        return []
    return [("fault", f"stock export: {stock.diagnosis.symptom}{place(stock.diagnosis, found)}")]


def place(diagnosis: Diagnosis, found: Repair) -> str:
    """` at file:line: the line's text`, as far as it is known."""
    if not diagnosis.where:
        operator = diagnosis.facts.get("operator") or diagnosis.facts.get("op_type", "")
        return f" ({operator})" if operator else ""
    name, line = diagnosis.facts["file"], int(diagnosis.line)
    text = diagnosis.code or source_line(name, line, found.facts.get("sources", {}))
    return f" at {Path(name).name}:{line}" + (f": `{text}`" if text else "")


def source_line(name: str, line: int, sources: Mapping[str, str]) -> str:
    """One line of a user's file, by absolute path or by short name."""
    for path, text in sources.items():
        if path == name or path.endswith("/" + name):
            lines = text.splitlines()
            return lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return ""


def winner_rows(found: Repair, winner: Trial, registry: Mapping[str, Strategy]) -> list[tuple[str, str]]:
    """Effect, recipe, parity and latency of the winner."""
    rows = [("effect", effect_line(winner, registry, found.facts))]
    rows += [("recipe" if i == 0 else " ", f"{i + 1}. {fix}") for i, fix in enumerate(winner.recipe.fixes[:6])]
    if not winner.recipe.fixes:
        rows.append(("recipe", "none: the stock export passes"))
    rows += [("noise" if i == 0 else " ", line) for i, line in enumerate(noise_lines(found.facts))]
    rows += [("state" if i == 0 else " ", line) for i, line in enumerate(state_lines(winner)[:4])]
    rows.append(("parity", parity_line(winner)))
    if winner.latency and "speedup" in winner.latency:
        row = winner.latency
        speed = f"{row['ort_ms']:.3g} ms, eager PyTorch {row['eager_ms']:.3g} ms: {row['speedup']:.2f}x"
        speed += f" (quartiles {row['speedup_q1']:.2f} to {row['speedup_q3']:.2f})"
        rows.append(("latency", speed))
        if "before_ms" in row:
            rows.append((" ", f"the file that first passed parity took {row['before_ms']:.3g} ms"))
        if winner.ok and peak_text(row):
            rows.append((" ", peak_text(row)))
    if not winner.ok and winner.diagnosis is not None:
        rows.append(("missed", winner.diagnosis.facts.get("message", winner.diagnosis.symptom)))
    return rows


def noise_lines(facts: Mapping[str, Any]) -> list[str]:
    """What each noise input must hold (`--random inputs`), and which draw of forward it stands for."""
    lines = []
    for one in facts.get("noise_inputs", ()):
        lines.append(f"input {one['name']}: {one['holds']}, drawn anew for each run (for {one['operator']}{place_text(one)})")
    return lines


def seeded_lines(facts: Mapping[str, Any]) -> list[str]:
    """What is drawn once and for all (`--random seeded`): the model is narrower for it."""
    lines = []
    for one in facts.get("seeded_draws", ()):
        shape = f" of shape {list(one['shape'])}" if one["shape"] else ""
        lines.append(f"{one['operator']}{place_text(one)}: the same noise at each call, drawn once and kept as a constant{shape}")
    return lines


def place_text(draw: Mapping[str, Any]) -> str:
    """` at FILE:LINE` of a draw; nothing where that is not known."""
    return f" at {Path(draw['file']).name}:{draw['line']}" if draw["file"] else ""


def state_lines(trial: Trial) -> list[str]:
    """Which inputs and outputs of the file carry a buffer that forward changes."""
    after = {str(o["source"]): str(o["name"]) for o in (trial.signature or {}).get("outputs", ())}
    held = [(str(i["source"]), str(i["name"])) for i in (trial.signature or {}).get("inputs", ()) if str(i["source"]).startswith("buffers.")]
    return [
        f"forward changes the buffer {source.removeprefix('buffers.')}: feed {name} its value, then what {after.get(source, 'the output')} gave last"
        for source, name in held
    ]


def effect_line(winner: Trial, registry: Mapping[str, Strategy], facts: Mapping[str, Any]) -> str:
    """The recipe's effect, and what is conceded with it."""
    effects = {f: registry[f.strategy].effect_of(f) for f in winner.recipe.fixes if f.strategy in registry}
    joined = Effect.join([*effects.values(), *([Effect.NARROWING] if winner.effect_evidence or seeded_lines(facts) else [])])
    if joined is Effect.EXACT:
        return "exact: same values, same inputs accepted"
    conceded = [f"{f.strategy} is {e.value}" for f, e in effects.items() if e is not Effect.EXACT]
    drawn = [f"{one['operator']}{place_text(one)}" for one in facts.get("seeded_draws", ())]
    conceded += [f"the same noise at each call, of the example's sizes ({', '.join(drawn)})"] if drawn else []
    conceded += [f"baked in: {text}" for text in winner.effect_evidence[:2]]
    return f"{joined.value}: {'; '.join(conceded)}"


def parity_line(trial: Trial) -> str:
    """How many input sets pass, and the worst of them."""
    rows = [r for r in trial.parity if not r.get("advisory")]
    if not rows:
        return "not reached"
    passed = sum(bool(r.get("ok")) for r in rows)
    worst = max(rows, key=lambda r: (not r.get("ok"), number(r.get("max_ratio"))))
    text = f"{passed} of {len(rows)} input sets pass; worst: {worst['set']}"
    if worst.get("ok"):
        tied = sum(bool(r.get("rule") == "tie") for r in rows)
        more = f"; in {tied} of them equal entries are ordered otherwise" if tied else ""
        return f"{text}, {number(worst.get('max_abs')):.2g} absolute, {number(worst.get('max_ratio')):.2g} of what is tolerated{more}"
    return f"{text}, {worst.get('message', '')}"


def number(value: Any) -> float:
    """A number that may be missing."""
    return float(value) if isinstance(value, (int, float)) else 0.0


def nearest_rows(found: Repair) -> list[tuple[str, str]]:
    """What came nearest, and why it does not count."""
    near = found.nearest
    if near is None:
        return []
    rows = [("nearest", f"{near.recipe}: reached {near.stage.name.lower()}")]
    if near.diagnosis is not None:
        rows.append(("because", f"{near.diagnosis.symptom}{place(near.diagnosis, found)}"))
        if near.diagnosis.facts.get("message"):
            rows.append((" ", near.diagnosis.facts["message"]))
    shaky = [d for d in found.facts.get("ill_conditioned", ()) if isinstance(d, Mapping)]
    if shaky and near.diagnosis is not None:
        rows.append(("model", f"ill-conditioned: no export can be held to its numbers; on {shaky[0].get('set')!r} {shaky[0].get('why')}"))
    if near.parity:
        rows.append(("parity", parity_line(near)))
    return rows


def offer_rows(found: Repair) -> list[tuple[str, str]]:
    """What `--allow` would add to the search, where nothing else helped."""
    if found.ok or not found.offers:
        return []
    rows = []
    for effect in (Effect.APPROXIMATE, Effect.NARROWING):
        fixes = [str(fix) for fix, e, _ in found.offers if e is effect]
        if fixes:
            rows.append(("offer", f"--allow {effect.value} would also try {', '.join(fixes[:4])}{' and more' if len(fixes) > 4 else ''}"))
    return rows


def files_line(output: Path) -> str:
    """Where the files are."""
    names = [n for n in SHOWN_FILES if (output / n).exists()]
    return f"{shortest(output)}/: {', '.join(names)}" if names else "none were written"


def shortest(path: Path) -> str:
    """The path relative to the current folder where it lies below it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def summary_json(found: Repair, output: Path, exit_code: int) -> dict[str, Any]:
    """The fix log with what the command itself adds: exit code, offers, where the files are."""
    log: dict[str, Any] = {}
    try:
        log = json.loads((output / "fixlog.json").read_text())
    except (OSError, ValueError):
        log = {"recipe": (found.winner.recipe if found.winner else Recipe()).to_json()}
    log.update(
        ok=found.ok,
        exit_code=exit_code,
        headline=headline(found),
        stopped=found.stopped,
        seconds=round(found.seconds, 3),
        from_cache=found.from_cache,
        from_family=found.from_family,
        known_hopeless=found.known_hopeless.to_json() if found.known_hopeless else None,
        offers=[{"fix": fix.to_json(), "effect": effect.value, "symptom": symptom} for fix, effect, symptom in found.offers],
        problems=found.problems,
        output=str(output),
        files=[n for n in SHOWN_FILES if (output / n).exists()],
    )
    return log


def check_text(answer: Mapping[str, Any], file: Path) -> str:
    """What `autofix check` found out, for the terminal."""
    lines = [f"{'right' if answer['ok'] else 'not right'}: {file}" + (f" (opset {answer['opset']})" if answer["opset"] else "")]
    if not answer["ok"]:
        lines.append(f"  {'because':<{LABEL - 2}} {answer['symptom']}: {answer['facts'].get('message', '')}")
    failed = [r for r in answer["rows"] if not r["ok"] and not r["advisory"]]
    counted = [r for r in answer["rows"] if not r["advisory"]]
    if counted:
        lines.append(f"  {'parity':<{LABEL - 2}} {len(counted) - len(failed)} of {len(counted)} input sets pass")
    lines += [f"  {'':<{LABEL - 2}} {r['set']}: {r['message']}" for r in failed[:8]]
    fault = answer.get("fault", {})
    if fault.get("node"):
        where = f" at {Path(fault['file']).name}:{fault['line']}" if fault.get("file") else ""
        operator = f", {fault['operator']}" if fault.get("operator") else ""
        lines.append(f"  {'located':<{LABEL - 2}} {fault['node']} ({fault['op_type']}{operator}){where}")
    lines += [f"  {'note':<{LABEL - 2}} {note}" for note in answer["notes"][:6]]
    return "\n".join(lines)
