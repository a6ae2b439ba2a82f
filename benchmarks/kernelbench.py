"""KernelBench through autofix: which problems come out right and no slower than eager PyTorch.

usage: kernelbench.py FOLDER ... [--only TEXT] [--max-elements N] [--max-gflop X] [--budget SECONDS] [--json FILE] [--check]

A folder holds problems of the public convention (class Model, get_inputs, get_init_inputs), e.g. KernelBench/level1 of
github.com/ScalingIntelligence/KernelBench, which the user fetches. Its sizes are meant for large accelerators: where a problem's inputs,
outputs and parameters hold more than --max-elements numbers, or a call takes more than --max-gflop, the whole numbers at the top of the file are
halved, the largest first, as long as the model still runs; the column `shrunk` says by how much. --check compares with goals.toml, exit code 1
where a goal is missed.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import operator
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from autofix import AutofixError, Budget, CaseSpec, Settings, Target, repair
from autofix.isolate import Limits
from autofix.testing import warm_up

ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow}
LIMITS = Limits(seconds=180)
NOISE = 0.97
"""A problem whose median ratio lies above counts as not slower: two sessions of one file differ by as much."""


def written_numbers(text: str) -> Iterator[tuple[str, ast.expr, int]]:
    """(slot, expression, number) of each whole number above 1 that the top level of a file gives a name, alone or in a tuple, first to last."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
            parts = [(f"{name}[{k}]", v) for k, v in enumerate(value.elts)] if isinstance(value, ast.Tuple) else [(name, value)]
            for slot, part in parts:
                number = whole_number(part)
                if number is not None and number > 1 and part.lineno == part.end_lineno:
                    yield slot, part, number


def top_numbers(text: str) -> dict[str, int]:
    """The numbers of `written_numbers` by slot."""
    return {slot: number for slot, _, number in written_numbers(text)}


def whole_number(value: ast.expr) -> int | None:
    """The whole number that an expression of written numbers comes to, else None."""
    if isinstance(value, ast.Constant) and type(value.value) is int:
        return value.value
    if isinstance(value, ast.BinOp) and type(value.op) in ARITHMETIC:
        left, right = whole_number(value.left), whole_number(value.right)
        return None if left is None or right is None else ARITHMETIC[type(value.op)](left, right)
    return None


def with_numbers(text: str, numbers: Mapping[str, int]) -> str:
    """The file with other numbers in the slots."""
    lines = text.encode().splitlines(keepends=True)  # ast counts bytes
    for slot, part, _ in reversed(list(written_numbers(text))):
        if slot in numbers:
            line = lines[part.lineno - 1]
            lines[part.lineno - 1] = line[: part.col_offset] + str(numbers[slot]).encode() + line[part.end_col_offset :]
    return b"".join(lines).decode()


def cost_of(text: str) -> tuple[float, float] | None:
    """(numbers in inputs, outputs and parameters, GFLOP of a call), on tensors without data; None where the model does not run so."""
    import torch
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import FlopCounterMode

    scope: dict[str, Any] = {"__name__": "problem"}
    try:
        with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
            exec(compile(text, "problem", "exec"), scope)  # noqa: S102
            model = scope["Model"](*(scope["get_init_inputs"]() if "get_init_inputs" in scope else []))
            inputs = [x.to("meta") if isinstance(x, torch.Tensor) else x for x in scope["get_inputs"]()]
            result = model.eval()(*inputs)
    except Exception:
        return None
    held = [*tree_leaves(inputs), *tree_leaves(result), *model.parameters(), *model.buffers()]
    return float(sum(t.numel() for t in held if isinstance(t, torch.Tensor))), counter.get_total_flops() / 1e9


def shrunk(text: str, most: float, gflop: float) -> tuple[str, float]:
    """The file with numbers halved until a call fits, and the factor by which it holds less; the file as it is where nothing can be told."""
    first = cost_of(text)
    if first is None:
        return text, 1.0
    numbers, frozen, now = top_numbers(text), set[str](), first
    while now[0] > most or now[1] > gflop:
        free = sorted((n for n in numbers if n not in frozen and numbers[n] >= 4), key=lambda n: -numbers[n])
        # two that are equal may have to stay so
        equal = [[n for n in numbers if numbers[n] == size] for size in sorted({v for v in numbers.values() if v >= 4}, reverse=True)]
        for names in [[name] for name in free] + [group for group in equal if len(group) > 1]:
            tried = {**numbers, **{name: numbers[name] // 2 for name in names}}
            cost = cost_of(with_numbers(text, tried))
            if cost is not None and (cost[0] < now[0] or cost[1] < now[1]):
                numbers, now = tried, cost
                break
            frozen.update(names)
        else:
            break
    return with_numbers(text, numbers), first[0] / max(now[0], 1.0)


def shrunk_apart(text: str, most: float, gflop: float) -> tuple[str, float]:
    """`shrunk` in a process of its own."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(shrunk, (text, most, gflop))


def one(problem: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A row: shrunk, stock (ratio eager over ONNX Runtime of the plain export, None where it fails), ratio, correct, fixes, seconds."""
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as scratch:
        text, factor = shrunk_apart(problem.read_text(), options.max_elements, options.max_gflop)
        copy = Path(scratch) / f"problem_{problem.name}"
        copy.write_text(text)
        started = time.monotonic()
        row: dict[str, Any] = {"problem": problem.stem, "shrunk": round(factor, 1), "stock": None, "ratio": None, "correct": False, "fixes": []}
        settings = Settings(output=Path(scratch) / "out", use_cache=False, budget=Budget(seconds=options.budget), limits=LIMITS)
        try:
            found = repair(CaseSpec(str(copy)), Target(min_speedup=1.0), settings, fork=True)
        except AutofixError as error:
            return row | {"why": str(error).replace(str(scratch), ""), "seconds": time.monotonic() - started}
        row["seconds"] = time.monotonic() - started
        for trial in found.trials:
            if not trial.recipe.fixes and trial.latency:
                row["stock"] = trial.latency.get("speedup")
        if found.winner is None:
            return row | {"why": str(found.nearest.diagnosis) if found.nearest else found.stopped}
        latency = found.winner.latency or {}
        return row | {
            "ratio": latency.get("speedup"),
            "correct": True,
            "fixes": [str(f) for f in found.winner.recipe.fixes],
            "why": "" if found.ok else found.stopped,
        }


def is_good(row: Mapping[str, Any], column: str) -> bool:
    """Correct and not slower than eager."""
    return row[column] is not None and row[column] >= NOISE


def shown(ratio: float | None) -> str:
    """A ratio as text."""
    return "-" if ratio is None else f"{ratio:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--max-elements", type=float, default=4e6)
    parser.add_argument("--max-gflop", type=float, default=4.0)
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    problems = [p for folder in options.folders for p in sorted(folder.glob("*.py")) if options.only in p.stem]
    if not problems:
        parser.error("there is no problem in these folders")
    warm_up()
    print(f"Sizes: at most {options.max_elements:g} numbers and {options.max_gflop:g} GFLOP a call.\n")
    print("| problem | shrunk | stock ratio | autofix ratio | correct | seconds | fixes, or what stands in the way |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for problem in problems:
        row = one(problem.resolve(), options)
        rows.append(row)
        told = ("; ".join(row["fixes"]) or row.get("why") or "").replace("|", "/").replace("\n", " ")[:160]
        correct = "yes" if row["correct"] else "no"
        ratios = f"{shown(row['stock'])} | {shown(row['ratio'])}"
        print(f"| {row['problem']} | {row['shrunk']:g}x | {ratios} | {correct} | {row['seconds']:.0f} | {told} |", flush=True)
    good, stock = (sum(is_good(row, column) for row in rows) for column in ("ratio", "stock"))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    share = good / len(rows)
    print(f"\ncorrect and not slower than eager: {good} of {len(rows)} ({share:.0%}); stock export: {stock} ({stock / len(rows):.0%})")
    goal = tomllib.loads((Path(__file__).parent / "goals.toml").read_text())["kernelbench"]["not_slower_min"]
    if options.check and share < goal:
        print(f"wanted {goal:.0%}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
