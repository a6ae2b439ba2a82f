"""Models whose stock export is slower than eager PyTorch: how fast autofix makes each, with parity.

usage: slow.py FOLDER ... [--only NAME] [--fastest] [--budget SECONDS] [--strategies DIR] [--json FILE] [--check]

Of each case: the stock torch.export file's speed against eager (a paired measurement, so 0.5 is twice as slow), that of the file that autofix
left, whether its loss is at least halved (the part of the time above eager's; a file that reaches eager has no loss), and whether a fresh
process finds the file right on the whole case. Where the stock file does not run or is wrong, the first one that is right stands for it.
--check compares with goals.toml, exit code 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from stubborn import LIMITS, kinds_of, verified

from autofix import AutofixError, Budget, CaseSpec, Settings, Target, repair
from autofix.testing import warm_up

REACHED = 0.97
"""A file within this of eager's speed has reached it: two sessions of one file differ by as much."""


def loss(speed: float) -> float:
    """The part of eager's time that a file takes beyond it; 0 where it is no slower."""
    return max(0.0, 1 / speed - 1)


def one(case: Path, target: Target, budget: float, strategies: tuple[Path, ...]) -> dict[str, Any]:
    """autofix on one case."""
    with tempfile.TemporaryDirectory(prefix="slow-") as scratch:
        out = Path(scratch) / "out"
        settings = Settings(out, strategies, use_cache=False, budget=Budget(seconds=budget, trials=60), limits=LIMITS)
        started = time.monotonic()
        try:
            found = repair(CaseSpec(str(case)), target, settings, fork=True)
        except AutofixError as error:
            return {"verdict": "error", "why": str(error), "seconds": time.monotonic() - started}
        row: dict[str, Any] = {"seconds": time.monotonic() - started, "trials": len(found.trials), "why": found.stopped, "fixes": []}
        stock = next((t for t in found.trials if not t.recipe.fixes), None)
        # measured anew beside the winner where it was replaced, so the two rows are of the same sessions or close
        row["stock"] = stock.latency["speedup"] if stock is not None and stock.latency and "speedup" in stock.latency else None
        if found.winner is None or not found.winner.latency:
            return row | {"verdict": "not right"}
        wrong = verified(case, written(case, found, out))
        speed = found.winner.latency["speedup"]
        if row["stock"] is None and "before_ms" in found.winner.latency:  # the stock file is wrong: the first one that is right
            row["stock"] = found.winner.latency["eager_ms"] / found.winner.latency["before_ms"]
        row |= {"speed": speed, "fixes": [str(f) for f in found.winner.recipe.fixes], "verdict": "FALSE" if wrong else "right"}
        row["why"] = wrong or found.stopped
        row["reached"] = not wrong and speed >= REACHED
        row["halved"] = not wrong and (speed >= REACHED or (row["stock"] is not None and loss(speed) <= loss(row["stock"]) / 2))
        return row


def written(case: Path, found: Any, out: Path) -> Path:
    """The winner's file: autofix leaves none behind where the target is missed, so it is written from the trial's recipe then."""
    if (out / "model.onnx").exists():
        return out / "model.onnx"
    settings = Settings(out, use_cache=False, limits=LIMITS, recipe=found.winner.recipe, latency_seconds=0)
    repair(CaseSpec(str(case)), replace(found.target, min_speedup=None), settings, fork=True)
    return out / "model.onnx"


def goals_missed(rows: list[dict[str, Any]]) -> list[str]:
    """Which goals of goals.toml are missed."""
    goals = tomllib.loads((Path(__file__).parent / "goals.toml").read_text())["slow"]
    shares = {"reached": share(rows, "reached"), "halved": share(rows, "halved")}
    missed = [f"{name}: {value:.0%}, wanted {goals[f'{name}_min']:.0%}" for name, value in shares.items() if value < goals[f"{name}_min"]]
    wrong = sum(r["verdict"] == "FALSE" for r in rows)
    return missed + ([f"{wrong} files are wrong"] if wrong > goals["false_max"] else [])


def share(rows: list[dict[str, Any]], name: str) -> float:
    """The part of the cases of which something holds."""
    return sum(bool(r.get(name)) for r in rows) / max(1, len(rows))


def number(value: Any) -> str:
    """A speed, or a dash."""
    return f"{value:.2f}" if isinstance(value, float) else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--fastest", action="store_true")
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--strategies", type=Path, action="append", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    target = Target(fastest=True) if options.fastest else Target(min_speedup=1.0)
    warm_up()
    rows = []
    print("| case | kind | stock x eager | autofix x eager | halved | parity | trials | seconds | fixes, or what stands in the way |")
    print("|---|---|---|---|---|---|---|---|---|")
    for folder in options.folders:
        kinds = kinds_of(folder)
        for case in sorted(folder.glob("*.py")):
            if options.only not in case.stem or case.name.startswith("_"):
                continue
            row = {"case": case.stem, "kind": kinds.get(case.stem, "")} | one(case.resolve(), target, options.budget, tuple(options.strategies))
            rows.append(row)
            told = ("; ".join(row["fixes"]) if row.get("fixes") else str(row["why"])).replace("|", "/").replace("\n", " ")[:160]
            cells = [case.stem, row["kind"], number(row.get("stock")), number(row.get("speed")), "yes" if row.get("halved") else "no"]
            cells += [row["verdict"], str(row.get("trials", "")), f"{row['seconds']:.0f}", told]
            print(f"| {' | '.join(cells)} |", flush=True)
    wrong = sum(r["verdict"] == "FALSE" for r in rows)
    print(
        f"slow: {share(rows, 'reached'):.0%} of {len(rows)} reach eager's speed, {share(rows, 'halved'):.0%} at least halve their loss; {wrong} FALSE"
    )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1, default=str))
    missed = goals_missed(rows) if options.check else []
    print("\n".join(missed), file=sys.stderr, end="\n" if missed else "")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
