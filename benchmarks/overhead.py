"""What autofix costs: CPU time of a run without repair against a plain script, of a further trial, and memory on BERT-base.

usage: overhead.py [--rounds N] [--skip-bert] [--check]

CPU times are those of the whole process tree and are compared within one run, the plain script and autofix in turns. Memory is the tree's
proportional set size (shared pages counted once), sampled. --check compares with goals.toml, exit code 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ENV = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
SMALL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 8))

    def forward(self, x):
        return self.layers(x).softmax(-1)


def get_inputs():
    return [torch.randn(4, 32)]


dynamic_shapes = {"x": {0: "batch"}}
"""
PLAIN = """
import sys, torch, onnxruntime
import small
model, inputs = small.Model().eval(), tuple(small.get_inputs())
torch.onnx.export(model, inputs, "plain.onnx", dynamo=True, dynamic_shapes=small.dynamic_shapes)
onnxruntime.InferenceSession("plain.onnx").run(None, {"x": inputs[0].numpy()})
"""


def cpu_of(command: list[str], folder: Path) -> float:
    """CPU-seconds of a command and all its descendants."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=ENV, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def no_repair(rounds: int, folder: Path) -> dict[str, float]:
    """A model that needs no repair, against the plain script."""
    autofix = [sys.executable, "-m", "autofix.cli", "small.py", "--no-cache", "--quiet"]
    plain = [sys.executable, "-c", PLAIN]
    times = [(cpu_of(plain, folder), cpu_of(autofix, folder)) for _ in range(rounds)]
    return {
        "plain_cpu_s": statistics.median(p for p, _ in times),
        "autofix_cpu_s": statistics.median(a for _, a in times),
        "no_repair_ratio": statistics.median(a / p for p, a in times),
    }


def further_trial(folder: Path) -> dict[str, float]:
    """CPU-seconds of torch.export trials after the first."""
    from autofix import CaseSpec, ExportConfig, Recipe, Target
    from autofix.isolate import CaseProcess

    with CaseProcess(CaseSpec(str(folder / "small.py")), Target()) as process:
        process.reference()
        process.attempt(Recipe())
        starts = [ExportConfig(optimize=False), ExportConfig(axes="auto"), ExportConfig(optimize=False, axes="auto"), ExportConfig(opset=19)]
        trials = [process.attempt(Recipe(start=start))[0] for start in starts]
    assert all(t.ok for t in trials), trials
    return {"further_trial_cpu_s": statistics.median(t.cpu_seconds for t in trials)}


def tree_mb(process: psutil.Process) -> float:
    """Proportional set size of a process and its descendants, MiB."""
    total = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 2**20


def bert_memory(folder: Path) -> dict[str, float]:
    """Peak memory of autofix on BERT-base, of the tree and of the controller alone."""
    command = [sys.executable, "-m", "autofix.cli", str(HERE / "models" / "bert.py"), "--no-cache", "--quiet", "--output", str(folder / "bert")]
    peak = controller = 0.0
    with subprocess.Popen(command, cwd=folder, env=ENV, stdout=subprocess.PIPE, text=True) as running:
        process = psutil.Process(running.pid)
        while running.poll() is None:
            try:
                peak = max(peak, tree_mb(process))
                controller = max(controller, process.memory_info().rss / 2**20)
            except psutil.Error:
                break
            time.sleep(0.2)
        print((running.stdout.read() if running.stdout else "").strip(), file=sys.stderr)
    weights = 109_482_240 * 4 / 2**20  # parameters of BertConfig(), float32
    return {"bert_weights_mb": weights, "bert_peak_mb": peak, "bert_peak_over_goal": peak / (3 * weights + 1536), "controller_mb": controller}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip-bert", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    ENV["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent), ENV.get("PYTHONPATH", "")]))
    goals = tomllib.loads((HERE / "goals.toml").read_text())["overhead"]
    with tempfile.TemporaryDirectory(prefix="overhead-") as scratch:
        folder = Path(scratch)
        (folder / "small.py").write_text(SMALL)
        found = no_repair(options.rounds, folder) | further_trial(folder)
        if not options.skip_bert:
            found |= bert_memory(folder)
    missed = 0
    print("| measure | found | goal | |")
    print("|---|---|---|---|")
    for name, value in found.items():
        goal = goals.get(f"{name}_max")
        state = "" if goal is None else "met" if value <= goal else "missed"
        missed += state == "missed"
        print(f"| {name} | {value:.2f} | {'' if goal is None else f'at most {goal:g}'} | {state} |")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
