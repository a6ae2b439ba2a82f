"""Latency of ten rows (eight models) against what else there is, all interleaved in one process per model.

    python benchmarks/latency.py [--only NAME,NAME] [--quick] [--seconds 15] [--bad] [--int8] [--peers NAME,NAME] [--check]

Rows: eager PyTorch; the stock dynamo export; the TorchScript export; that through onnxsim; through onnxruntime.transformers' optimizer; OpenVINO
on the stock file; torch.compile; and what `autofix --fastest` leaves. Process CPU time on one thread, shuffled rounds, ratios per round,
medians and quartiles.
--bad: autofix starts from a bad state (the exporter's optimiser off, a low graph level) and must end within 3 % of its healthy result.
--int8: `--allow approximate` under an error budget, against autofix's own float32 file.
Each model is measured in a process of its own. Peers that fail are listed with the reason.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import tomllib

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
ROWS = ("mlp", "lstm", "unet", "mobilenet", "resnet50", "deit_s", "gpt2", "bert_b1s32", "bert_b1s128", "bert_b8s128")
QUICK = ("mlp", "lstm", "unet", "mobilenet")
PEERS = ("dynamo", "torchscript", "onnxsim", "transformers", "openvino", "compile")
BAD = {
    "optimize=False": ({"optimize": False}, []),
    "level BASIC": ({}, [("graph_level", {"level": "BASIC"})]),
    "level DISABLE_ALL": ({}, [("graph_level", {"level": "DISABLE_ALL"})]),
}
CONVOLVES = ("unet", "mobilenet", "resnet50")
INT8 = {"lstm": 0.03, "resnet50": 0.05, "mobilenet": 0.05, "bert_b1s128": 0.05, "bert_b1s32": 0.05}
"""Error budgets of the 8-bit lane."""


def export_peer(name, model, args, folder):
    """The path of a peer's file; raises what the peer raises."""
    import onnx
    import torch

    path = str(folder / f"{name}.onnx")
    if name == "dynamo":
        torch.onnx.export(model, tuple(args), path, dynamo=True, verbose=False, external_data=True)
    elif name == "torchscript":
        torch.onnx.export(model, tuple(args), path, dynamo=False, opset_version=17)
    elif name == "onnxsim":
        import onnxsim

        onnx.save(onnxsim.simplify(onnx.load(str(folder / "torchscript.onnx")))[0], path)
    elif name == "transformers":
        from onnxruntime.transformers.optimizer import optimize_model

        optimize_model(str(folder / "torchscript.onnx"), model_type="bert", opt_level=0, use_gpu=False).save_model_to_file(path)
    return path


def peer_call(name, model, args, feed, folder):
    """A function that runs a peer once."""
    import torch

    from autofix.session import SessionSettings, open_session

    if name == "compile":
        compiled = torch.compile(model)
        return lambda: compiled(*args)
    if name == "openvino":
        session = open_session(str(folder / "dynamo.onnx"), SessionSettings(runtime="openvino"))
    else:
        session = open_session(export_peer(name, model, args, folder))
    names = [v.name for v in session.get_inputs()]
    values = dict(zip(names, feed, strict=True))
    return lambda: session.run(None, values)


def repaired(path, folder, target, start=None, after=None, budget=1500.0):
    """What autofix leaves for a model file, as a Repair.

    start: (ExportConfig fields, fixes) of a bad state to begin with. after: the recipe of a repair that is gone on from, with approximate
    strategies alone; its runtime is open again, since kernels for 8 bits are not the same everywhere. budget: seconds of the search.
    """
    from autofix.case import CaseSpec
    from autofix.isolate import CaseProcess, Limits
    from autofix.loader import load_strategies
    from autofix.racing import race
    from autofix.recipe import Recipe
    from autofix.search import Budget, Search, Silent
    from autofix.target import Effect, ExportConfig, Target

    registry = load_strategies()
    target = Target.from_json({**Target().to_json(), **target})
    first = []
    if start:
        config, fixes = start
        first = [Recipe(start=ExportConfig(**config)).plus(registry[n].fix(**p) for n, p in fixes)]
    if after is not None:
        first = [Recipe(tuple(f for f in after.fixes if f.strategy != "openvino_runtime"), after.start)]
        registry = {n: s for n, s in registry.items() if s.effect is Effect.APPROXIMATE or after.has(n)}
    process = CaseProcess(CaseSpec(str(path)), target, limits=Limits(seconds=600), folder=folder)
    with process:
        search = Search(process, process.reference(), registry, target, Budget(budget, 80), first=first)
        found = search.run()
        if found.winner is not None:
            race(process, found, search, 1.0, Silent())
    return found


def file_call(folder, feed):
    """A function that runs a trial's file once."""
    from autofix.session import SessionSettings, open_session

    settings = SessionSettings.from_json(json.loads((folder / "session.json").read_text()))
    session = open_session(str(folder / "model.onnx"), settings)
    values = dict(zip([v.name for v in session.get_inputs()], feed, strict=True))
    return lambda: session.run(None, values)


def measure_row(row, options):
    """All figures of one model, as JSON on stdout."""
    import torch

    from autofix.latency import keep_memory, time_rounds
    from autofix.loading import build_model, given_inputs, import_model_file

    warnings.filterwarnings("ignore")
    keep_memory()
    torch.set_num_threads(1)
    out = {"row": row, "failed": {}, "recipes": {}, "errors": {}}
    with tempfile.TemporaryDirectory(prefix="latency-") as scratch, torch.inference_mode():
        place = Path(scratch)
        ours = {"autofix": ({"fastest": True}, None)}
        if options.bad:
            ours |= {f"bad: {n}": ({"fastest": True}, b) for n, b in BAD.items() if n != "level BASIC" or row in CONVOLVES}
        if options.int8 and row in INT8:
            ours["int8"] = ({"fastest": True, "allow": ["approximate"], "max_error": INT8[row]}, None)
        folders, healthy = {}, None
        for name, (target, start) in ours.items():
            (place / name.replace(" ", "_")).mkdir()
            found = repaired(
                HERE / "models" / f"{row}.py", place / name.replace(" ", "_"), target, start, healthy if name == "int8" else None, options.budget
            )
            for trial in found.trials:
                took = f"{trial.latency['ort_ms']:.3f} ms" if trial.latency else ""
                gain = f"{trial.latency['gain']:.3f}x" if trial.latency and "gain" in trial.latency else ""
                why = trial.diagnosis.symptom if trial.diagnosis and not trial.latency else ""
                print(f"{row} {name}: {trial.recipe}: {took} {gain} {why} {trial.cpu_seconds:.0f} s", file=sys.stderr, flush=True)
            if found.winner is None:
                out["failed"][name] = found.stopped
                continue
            folders[name] = found.folders[found.winner.recipe.id]
            healthy = healthy or found.winner.recipe
            out["recipes"][name] = str(found.winner.recipe)
            errors = [r["error"] for r in found.winner.parity if r.get("error") is not None and r["origin"] != "generated"]
            out["errors"][name] = max(errors, default=0.0)
        module = import_model_file(str(HERE / "models" / f"{row}.py"))
        model = build_model(module)
        args, _ = given_inputs(module)
        feed = [a.numpy() for a in args]
        calls = {"eager": lambda: model(*args)}
        for name in [p for p in PEERS if p in options.peers]:
            try:
                with torch.inference_mode(False), torch.no_grad():
                    calls[name] = peer_call(name, model, args, feed, place)
                calls[name]()
            except Exception as error:
                calls.pop(name, None)
                out["failed"][name] = f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"
        for name, folder in folders.items():
            calls[name] = file_call(folder, feed)
        out["ms"] = time_rounds(calls, options.seconds, 1, least=9)
    print("\n" + json.dumps(out))


def table_line(out):
    """The Markdown lines of one model and its summary figures."""
    from autofix.elimination import quartiles

    ms = out["ms"]
    rounds = len(ms["eager"])
    peers = [p for p in PEERS if p in ms]
    middle = {n: quartiles(t)[1] for n, t in ms.items()}
    # the best peer is chosen on every other round and compared on those between: the luckiest of equal peers would look faster than it is
    best = min(peers, key=lambda p: quartiles(ms[p][::2])[1], default="eager")
    ms = {n: t[1::2] for n, t in ms.items()}
    lines, figures = [], {}
    for name in ms:
        to_eager = quartiles([e / t for e, t in zip(ms["eager"], ms[name], strict=True)])
        base = "autofix" if name == "int8" or name.startswith("bad") else best
        to_base = quartiles([b / t for b, t in zip(ms[base], ms[name], strict=True)])
        error = f", error {out['errors'][name]:.3f}" if out["errors"].get(name) else ""
        figures[name] = to_base
        lines.append(
            f"| {out['row']} | {name} | {middle[name]:.3f} | {to_eager[1]:.2f} ({to_eager[0]:.2f} to {to_eager[2]:.2f}) "
            f"| {to_base[1]:.3f} ({to_base[0]:.3f} to {to_base[2]:.3f}) of {base} | {out['recipes'].get(name, '')}{error} |"
        )
    lines += [f"| {out['row']} | {n} | failed | | | {why} |" for n, why in out["failed"].items()]
    return lines, figures, rounds


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models, with commas between")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}, without torch.compile")
    parser.add_argument("--seconds", type=float, default=15.0, help="of measuring a model; nine rounds at least")
    parser.add_argument("--budget", type=float, default=1500.0, help="seconds of each search of autofix")
    parser.add_argument("--bad", action="store_true", help="start from bad states as well; they must end beside the healthy result")
    parser.add_argument("--int8", action="store_true", help="the 8-bit lane as well, within its error budget")
    parser.add_argument("--check", action="store_true", help="exit 1 where a goal of goals.toml is missed")
    parser.add_argument("--trials", default="", metavar="FILE", help="append each trial, with what it gained, and messages of peers")
    parser.add_argument("--row", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.peers = [p for p in options.peers.split(",") if p and not (options.quick and p == "compile")]
    if options.row:
        measure_row(options.row, options)
        return 0
    goals = tomllib.loads((HERE / "goals.toml").read_text()).get("latency", {})
    rows = options.only.split(",") if options.only else QUICK if options.quick else ROWS
    print("| model | what | ms | x eager (quartiles) | x the base (quartiles) | recipe |\n|---|---|---|---|---|---|")
    worst, missed, done = 9.0, [], 0
    for row in rows:
        more = [f for f in ("--bad", "--int8") if getattr(options, f[2:])]
        command = [
            sys.executable,
            __file__,
            "--row",
            row,
            "--seconds",
            str(options.seconds),
            "--budget",
            str(options.budget),
            "--peers",
            ",".join(options.peers),
            *more,
        ]
        with open(options.trials or os.devnull, "a") as log:
            ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
        if ended.returncode:
            print(f"| {row} | failed | | | | {(ended.stdout.strip().splitlines() or [f'exit code {ended.returncode}'])[-1][:120]} |", flush=True)
            missed.append(f"{row} failed")
            continue
        lines, figures, _ = table_line(json.loads(ended.stdout.strip().splitlines()[-1]))
        print("\n".join(lines), flush=True)
        done += 1
        for name, figure in figures.items():
            limit = goals.get(f"{row}_int8_min") if name == "int8" else goals.get("to_best_peer_min") if name == "autofix" else None
            limit = goals.get("bad_start_min") if name.startswith("bad") else limit
            if limit is not None and figure[1] < limit:
                missed.append(f"{row}: {name} {figure[1]:.2f} < {limit}")
        worst = min(worst, figures.get("autofix", (9, 9, 9))[1])
    print(f"{done} of {len(rows)} models; autofix at worst {worst:.3f}x its best peer; missed: {'; '.join(missed) or 'nothing'}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
