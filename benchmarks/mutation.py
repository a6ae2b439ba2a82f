"""Proof that the parity gate bites: faults are planted in good exports, and the gate has to find them.

usage: mutation.py [--models N] [--mutants N] [--only NAME] [--corpus FOLDER ...] [--seed N] [--bare] [--check] [--json FILE] [--misses]

Every model of mutation_models.py (and, with --corpus, every case that the stock export gets right) is exported by the stock route. A fault MATTERS
where it moves some output by more than the gate allows on some allowed input; that is decided on many inputs of the benchmark's own, other
sizes included, never on the gate's. The gate is what `autofix check MODEL FILE` does. Beside it, in the same table: allclose (1e-3, 1e-5) on the one
given input. Faults that ONNX Runtime refuses, or that do not run on the given input, count as trivial. Located: of the faults that the gate
caught by their values, those where localize.py names the changed node first. --bare takes the exporter's notes out of the files.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mutation_models as table
from mutants import mutants_of
from mutation_report import goals_missed, misses, percent, progress, summary, table_text
from mutation_truth import Truth, case_inputs, differs, make_truth, plainly_close, runner, try_nan

from autofix.target import Target

TRUTH_INPUTS = 72
SECONDS_PER_MODEL = 240
SECONDS_PER_MUTANT = 60


def in_child(work: Callable[[], Any], seconds: float) -> Any:
    """work() in a forked child; {"died": why} where it gives no answer."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            try:
                answer = work()
            except BaseException:
                answer = {"died": traceback.format_exc()[-1500:]}
            with os.fdopen(writer, "wb") as file:
                pickle.dump(answer, file)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    data, end = b"", time.monotonic() + seconds
    while True:
        ready = select.select([reader], [], [], max(end - time.monotonic(), 0))[0]
        if not ready:
            os.kill(pid, signal.SIGKILL)
            break
        part = os.read(reader, 1 << 20)
        if not part:
            break
        data += part
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        return pickle.loads(data)
    except (EOFError, pickle.UnpicklingError):
        return {"died": f"exit code {status}" if ready else "took too long"}


def try_mutant(case: Any, reference: Any, good: Any, mutant: Any, truth: Truth, folder: Path, target: Target) -> dict[str, Any]:
    """What becomes of one fault: trivial, or whether it matters, whether the gate and the usual test catch it, and what is named."""
    import onnx

    from autofix.checkfile import check_file

    row: dict[str, Any] = {"kind": mutant.kind, "text": mutant.text, "trivial": "", "matters": "", "caught": "", "baseline": False, "named": ""}
    inputs = [i.name for i in good.graph.input]
    try:
        changed = mutant.apply(good)
        onnx.checker.check_model(changed)
        run = runner(changed)
        row["baseline"] = not plainly_close(run, reference.sets[0], inputs)
    except Exception as error:
        return row | {"trivial": str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__}
    for feed, expected in zip(truth.feeds, truth.outputs, strict=True):
        row["matters"] = differs(run, feed, expected, target)
        if row["matters"]:
            break
    path = folder / "mutant.onnx"
    onnx.save(changed, str(path))
    answer = check_file(case, None, reference, path, target, folder)
    row["caught"] = answer["symptom"]
    row["why"] = answer["facts"].get("message", "")
    failing = answer["facts"].get("input_set")
    problem = next((r["problem"] for r in answer["rows"] if r["set"] == failing), "")
    if failing and problem in ("values", "nan", "inf", "shape") and answer["facts"].get("output") is not None:
        fault = answer["fault"]
        row["by_values"], row["named"], row["notes"] = True, str(fault.get("node", "")), answer["notes"]
        row["fault"] = {k: str(v) for k, v in fault.items()}
        row["right"] = row["named"] in mutant.nodes or row["named"].startswith("planted")
    return row


def chosen_mutants(mutants: list[Any], count: int, seed: str) -> list[Any]:
    """Up to `count`, as many kinds as there are first."""
    rng = random.Random(seed)
    order = list(mutants)
    rng.shuffle(order)
    turns: dict[str, int] = {}
    ranked = []
    for place, one in enumerate(order):
        turns[one.kind] = turns.get(one.kind, 0) + 1
        ranked.append((turns[one.kind], place, one))
    return [one for _, _, one in sorted(ranked, key=lambda r: r[:2])[:count]]


def stock_export(case: Any, reference: Any, bare: bool) -> Any:
    """The file of the stock route."""
    import torch

    from autofix.attempt import clamp_opset
    from autofix.export import export_model
    from autofix.program import CapturePlan
    from autofix.target import ExportConfig

    given = reference.sets[0]
    config = clamp_opset(ExportConfig(strict_fallback=True), Target())
    with torch.no_grad():
        proto, _ = export_model(case.build(), given.args, given.kwargs, case.axes, [n for n, _ in given.outputs], config, CapturePlan())
    if bare:
        for node in proto.graph.node:
            del node.metadata_props[:]
    return proto


def try_model(
    name: str, file: Path, draws: Callable[[Any], Iterator[list[Any]]], options: argparse.Namespace, model: table.Model | None = None
) -> dict[str, Any]:
    """One model in this process: its export, whether the gate takes it, and its faults."""
    import torch

    from autofix.case import CaseSpec, load_case
    from autofix.checkfile import check_file
    from autofix.localize import session_values
    from autofix.reference import load_reference, make_reference
    from autofix.verify import make_feed

    torch.set_num_threads(1)
    target, folder = Target(), file.parent
    started = time.process_time()
    case = load_case(CaseSpec(str(file)))
    make_reference(case, target, str(folder))
    reference = load_reference(str(folder))
    referenced = time.process_time()
    good = stock_export(case, reference, options.bare)
    path = folder / "good.onnx"
    path.write_bytes(good.SerializeToString())
    run = runner(good)
    inputs = [i.name for i in good.graph.input]
    exported = time.process_time()
    truth = make_truth(case, draws(case), run, target)
    answer = check_file(case, None, reference, path, target, folder)
    row: dict[str, Any] = {
        "model": name,
        "good": bool(truth.feeds) and not truth.wrong,
        "wrong": truth.wrong[:3],
        "truth": len(truth.feeds),
        "unsure": truth.unsure,
        "sets": len(reference.sets),
        "alarm": "" if answer["ok"] else f"{answer['symptom']}: {answer['facts'].get('message', '')}",
        "baseline_alarm": not plainly_close(run, reference.sets[0], inputs),
        "mutants": [],
    }
    if row["alarm"] and answer["facts"].get("kind") == "nonfinite":
        try_nan(case, truth, run, target)
        row["wrong"] += truth.wrong_on_nan[:3]
        row["good"] &= not truth.wrong_on_nan
    elif row["alarm"] and model is not None:  # is it wrong on fresh inputs of that kind too?
        sizes = {k: int(v) for k, _, v in (part.partition("=") for part in answer["facts"].get("sizes", "").split(", ")) if k}
        kind = answer["facts"].get("input_set", "")
        root = "" if "the root of" not in kind else "largest" if "largest" in kind else "smallest"
        found = make_truth(case, table.confirming_inputs(model, sizes, "integer" in kind, 24, options.seed + 2000, root), run, target).wrong
        row["wrong"] += found[:3]
        row["good"] &= not found
    if row["good"] and not row["alarm"]:
        _, values = session_values(str(path), make_feed(reference.sets[0], inputs))
        values |= make_feed(reference.sets[0], inputs)
        for mutant in chosen_mutants(mutants_of(good, values, options.seed), options.mutants, f"{name} {options.seed}"):
            tried = in_child(lambda m=mutant: try_mutant(case, reference, good, m, truth, folder, target), SECONDS_PER_MUTANT)
            if "died" in tried:
                tried = {
                    "kind": mutant.kind,
                    "text": mutant.text,
                    "trivial": tried["died"],
                    "matters": "",
                    "caught": "",
                    "baseline": False,
                    "named": "",
                }
            row["mutants"].append(tried)
    times = os.times()
    row["cpu"] = [referenced - started, exported - referenced, times.user + times.system + times.children_user + times.children_system - exported]
    return row


def subjects(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Path, Callable[[Any], Iterator[list[Any]]], table.Model | None]]:
    """(name, model file, what draws its truth inputs, the table's model where it is one)."""
    models = [m for m in table.all_models() if options.only in m.name]
    if options.models and options.models < len(models):
        models = random.Random(options.seed).sample(models, options.models)
    for model in models:
        home = folder / model.name
        home.mkdir()
        file = home / f"{model.name}.py"
        file.write_text(model.text)
        yield model.name, file, lambda case, m=model: table.truth_inputs(m, TRUTH_INPUTS, options.seed + 1000), model
    for corpus in options.corpus:
        for case in sorted(corpus.glob("*.py")):
            if options.only not in case.stem or case.name.startswith("_"):
                continue
            home = folder / f"case_{case.stem}"
            home.mkdir()
            file = home / case.name
            file.write_text(case.read_text())
            yield f"{corpus.name}/{case.stem}", file, lambda case: case_inputs(case, options.seed + 1000), None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=0, help="so many of the table's models, chosen by the seed; 0: all")
    parser.add_argument("--mutants", type=int, default=6, help="faults a model")
    parser.add_argument("--only", default="")
    parser.add_argument("--corpus", type=Path, nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--misses", action="store_true", help="list what was missed, named wrongly or reported without need")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    from autofix.testing import warm_up

    warm_up()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as scratch:
        for name, file, draws, model in subjects(options, Path(scratch)):
            row = in_child(lambda n=name, f=file, d=draws, m=model: try_model(n, f, d, options, m), SECONDS_PER_MODEL)
            rows.append({"model": name, **row})
            print(progress(rows[-1]), file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1, default=str))
    found = summary(rows)
    print(table_text(found))
    if options.misses:
        print("\n".join(misses(rows)))
    times = os.times()
    c = found["kinds"].get("all") or dict.fromkeys(("caught", "mattering", "right", "by_values", "baseline"), 0)
    print(
        f"mutation: {percent(c['caught'], c['mattering'])} caught (allclose {percent(c['baseline'], c['mattering'])}), "
        f"{percent(c['right'], c['by_values'])} located, {found['alarms']} false alarms on {found['good']} good exports, "
        f"{(times.user + times.system + times.children_user + times.children_system) / 60:.1f} CPU-minutes"
    )
    missed = goals_missed(found) if options.check else []
    print("\n".join(missed), file=sys.stderr, end="\n" if missed else "")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
