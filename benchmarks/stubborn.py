"""Stubborn models, one route of torch.onnx after the other and then autofix: what each makes of every case.

usage: stubborn.py FOLDER ... [--blind] [--stock] [--only NAME] [--budget SECONDS] [--check]

A folder holds model files and, where there is one, INDEX.md with the kind of each. Every file that autofix claims to be right is
verified again in a fresh case process against the whole case: FALSE means that a claim was wrong. --blind hides get_more_inputs
from autofix, not from that verification. --stock tries the three stock routes too. --check compares with goals.toml, exit code 1 where one is missed.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tempfile
import time
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from autofix import AutofixError, Budget, CaseSpec, ExportConfig, Recipe, Settings, Target, repair
from autofix.isolate import CaseProcess, Limits
from autofix.testing import warm_up

LIMITS = Limits(seconds=120)


def kinds_of(folder: Path) -> dict[str, str]:
    """{case: kind} from the table in INDEX.md."""
    index = folder / "INDEX.md"
    return dict(re.findall(r"^\| (\w+) \| ([^|]+?) \|", index.read_text(), re.M)) if index.exists() else {}


def blind_copy(case: Path, folder: Path) -> Path:
    """The case without get_more_inputs."""
    text = case.read_text()
    lines = text.splitlines(keepends=True)
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.FunctionDef) and node.name == "get_more_inputs":
            del lines[node.lineno - 1 : node.end_lineno]
    copy = folder / case.name
    copy.write_text("".join(lines))
    return copy


def stock(case: Path) -> dict[str, str]:
    """What default export, trace and script come to: "ok" or the symptom."""
    found = {}
    with CaseProcess(CaseSpec(str(case)), Target(), limits=LIMITS, fork=True) as process:
        process.reference()
        for name, capture in (("default", "export"), ("trace", "trace"), ("script", "script")):
            trial, _ = process.attempt(Recipe(start=ExportConfig(capture=capture)))
            found[name] = "ok" if trial.diagnosis is None else trial.diagnosis.symptom
    return found


def verified(case: Path, file: Path) -> str:
    """Empty, or what is wrong with the file on the whole case."""
    with CaseProcess(CaseSpec(str(case)), Target(), limits=LIMITS, fork=True) as process:
        process.reference()
        answer = process.check(file)
    return "" if answer["ok"] else f"{answer['symptom']}: {answer['facts'].get('message', '')}"


def one(case: Path, blind: bool, budget: float) -> dict[str, object]:
    """autofix on one case: what it says, whether that is true, what it took."""
    with tempfile.TemporaryDirectory(prefix="stubborn-") as scratch:
        shown = blind_copy(case, Path(scratch)) if blind else case
        settings = Settings(output=Path(scratch) / "out", use_cache=False, budget=Budget(seconds=budget), latency_seconds=0, limits=LIMITS)
        started = time.monotonic()
        try:
            found = repair(CaseSpec(str(shown)), settings=settings, fork=True)
        except AutofixError as error:
            return {"autofix": "error", "why": str(error), "seconds": time.monotonic() - started}
        row: dict[str, object] = {"seconds": time.monotonic() - started, "trials": len(found.trials), "why": "", "fixes": []}
        if not found.ok or found.winner is None:
            near = found.nearest
            return row | {"autofix": "missed", "why": str(near.diagnosis) if near else found.stopped}
        why = verified(case, Path(scratch) / "out" / "model.onnx")
        return row | {"autofix": "FALSE" if why else "solved", "why": why, "fixes": [str(f) for f in found.winner.recipe.fixes]}


def goals_missed(totals: dict[str, dict[str, float]]) -> list[str]:
    """Which goals of goals.toml are missed."""
    goals = tomllib.loads((Path(__file__).parent / "goals.toml").read_text())["stubborn"]
    missed = []
    for folder, row in totals.items():
        least = goals.get(f"{folder}_solved_min", 0.0)
        if row["solved"] / row["cases"] < least:
            missed.append(f"{folder}: {row['solved']:.0f} of {row['cases']:.0f} solved, wanted {least:.0%}")
        if row["FALSE"] > goals["false_max"]:
            missed.append(f"{folder}: {row['FALSE']:.0f} false claims, wanted at most {goals['false_max']}")
        if row["controls_touched"] > 0:
            missed.append(f"{folder}: {row['controls_touched']:.0f} controls were not passed as they are")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--blind", action="store_true")
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    warm_up()
    rows = []
    print("| case | kind | default | trace | script | autofix | trials | seconds | fixes, or what stands in the way |")
    print("|---|---|---|---|---|---|---|---|---|")
    totals: dict[str, dict[str, float]] = {}
    for folder in options.folders:
        kinds = kinds_of(folder)
        total = totals.setdefault(folder.name, dict.fromkeys(("cases", "solved", "missed", "FALSE", "error", "controls_touched"), 0))
        for case in sorted(folder.glob("*.py")):
            if options.only not in case.stem or case.name.startswith("_"):
                continue
            row: dict[str, object] = {"folder": folder.name, "case": case.stem, "kind": kinds.get(case.stem, "")}
            if options.stock:
                row |= stock(case)
            row |= one(case.resolve(), options.blind, options.budget)
            rows.append(row)
            total["cases"] += 1
            total[str(row["autofix"])] += 1
            total["controls_touched"] += case.stem.startswith("ctl_") and (row["autofix"] != "solved" or bool(row["fixes"]))
            routes = " | ".join(str(row.get(name, "")) for name in ("default", "trace", "script"))
            fixes = row.get("fixes")
            told = "; ".join(map(str, fixes)) if isinstance(fixes, list) and fixes else str(row["why"])
            told = told.replace("|", "/").replace("\n", " ")[:160]
            print(
                f"| {row['case']} | {row['kind']} | {routes} | {row['autofix']} | {row.get('trials', '')} | {row['seconds']:.0f} | {told} |",
                flush=True,
            )
    for name, total in totals.items():
        routes = ", ".join(f"{r} {sum(row.get(r) == 'ok' for row in rows if row['folder'] == name)}" for r in ("default", "trace", "script"))
        stock_text = f" (stock: {routes})" if options.stock else ""
        counts = ", ".join(f"{total[k]:.0f} {k}" for k in ("missed", "error", "FALSE") if total[k])
        print(f"{name}: {total['solved']:.0f} of {total['cases']:.0f} solved{stock_text}; {counts or 'nothing missed'}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1, default=str))
    missed = goals_missed(totals) if options.check else []
    print("\n".join(missed), file=sys.stderr, end="\n" if missed else "")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
