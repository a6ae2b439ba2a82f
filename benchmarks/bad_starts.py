"""Models in a form that exports badly beside the same models in a healthy form: does autofix bring the one to the other's speed?

    python benchmarks/bad_starts.py [--only NAME,NAME] [--seconds 4] [--check]

The healthy form is the stock export at ONNX Runtime's default settings. Each pair has the same weights, so the values are the same too. Process CPU
time on one thread, shuffled rounds, ratios a round, medians and quartiles. For bad settings of the ten models see `latency.py --bad`.
"""

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import tomllib

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

WORDS = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(6000, 192))
        self.up, self.down = nn.Linear(192, 768), nn.Linear(768, 192)

    def forward(self, ids):
        x = {look}
        return x + self.down(F.gelu(self.up(x)))


def get_inputs():
    return [torch.randint(0, 6000, (2, 64))]


dynamic_shapes = {{"ids": {{0: "batch", 1: "time"}}}}
"""
IMAGES = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layers, width = [], 3
        for size in (32, 64, 64, 64):
            layers += [nn.Conv2d(width, size, 3, 2 if width == 3 else 1, 1, bias=False), nn.BatchNorm2d(size), nn.ReLU()]
            width = size
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


def get_inputs():
    return [torch.randn(1, 3, 64, 64)]


dynamic_shapes = {"x": {0: "batch"}}
"""
TIED = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(6000, 192))
        self.norm = nn.LayerNorm(192)

    def forward(self, ids):
        return self.norm(self.table[ids]) @ self.table.t()


def get_inputs():
    return [torch.randint(0, 6000, (1, 8))]
"""
HEALTHY = WORDS.format(look="self.table[ids]")
PAIRS = {
    "one_hot @ table": (HEALTHY, WORDS.format(look="F.one_hot(ids, 6000).float() @ self.table"), {}, []),
    "ids == arange @ table": (HEALTHY, WORDS.format(look="(ids.unsqueeze(-1) == torch.arange(6000)).float() @ self.table"), {}, []),
    "ones scattered @ table": (
        HEALTHY,
        WORDS.format(look="torch.zeros(*ids.shape, 6000).scatter(-1, ids.unsqueeze(-1), 1.0) @ self.table"),
        {},
        [],
    ),
    "table.gather, expanded": (
        HEALTHY,
        WORDS.format(look="self.table.expand(ids.shape[0], -1, -1).gather(1, ids.unsqueeze(-1).expand(-1, -1, 192))"),
        {},
        [],
    ),
    "Conv + BN, exporter's optimiser off": (IMAGES, IMAGES, {"optimize": False}, []),
    "Conv + BN, level BASIC": (IMAGES, IMAGES, {}, [("graph_level", {"level": "BASIC"})]),
    "tied weights, level DISABLE_ALL": (TIED, TIED, {}, [("graph_level", {"level": "DISABLE_ALL"})]),
}
"""{name: (healthy source, bad source, ExportConfig fields and fixes that the bad form starts with)}."""


def bad_call(found, feed):
    """The file that first passed parity: the bad form as it was."""
    from latency import file_call

    first = next(t for t in found.trials if t.parity and all(row["ok"] for row in t.parity))
    return file_call(found.folders[first.recipe.id], feed)


def measured(pair, seconds):
    """({what: [ms a round]}, recipe) of one pair: healthy, bad and repaired."""
    from latency import file_call, repaired

    from autofix.latency import keep_memory, time_rounds
    from autofix.loading import given_inputs, import_model_file

    keep_memory()
    healthy, bad, config, fixes = pair
    with tempfile.TemporaryDirectory(prefix="bad-starts-") as scratch:
        place = Path(scratch)
        for name, source in (("healthy", healthy), ("bad", bad)):
            (place / name).mkdir()
            (place / f"{name}.py").write_text(source)
        stock = repaired(place / "healthy.py", place / "healthy", {}, None)
        found = repaired(place / "bad.py", place / "bad", {"fastest": True}, (config, fixes) if config or fixes else None)
        if stock.winner is None or found.winner is None:
            raise RuntimeError(f"not exported: {stock.stopped}; {found.stopped}")
        args, _ = given_inputs(import_model_file(str(place / "healthy.py")))
        feed = [a.numpy() for a in args]
        calls = {"healthy": file_call(stock.folders[stock.winner.recipe.id], feed), "bad": bad_call(found, feed)}
        calls["repaired"] = file_call(found.folders[found.winner.recipe.id], feed)
        calls["control"] = file_call(stock.folders[stock.winner.recipe.id], feed)
        return time_rounds(calls, seconds, 1, least=15), found.winner.recipe


def main():
    """The command line."""
    import torch

    from autofix.elimination import quartiles, ratios

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"pairs, with commas between; of {', '.join(PAIRS)}")
    parser.add_argument("--seconds", type=float, default=4.0, help="of measuring a pair; 15 rounds at least")
    parser.add_argument("--check", action="store_true", help="exit 1 where a repaired form is below latency.bad_start_min of goals.toml")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    least = tomllib.loads((HERE / "goals.toml").read_text())["latency"]["bad_start_min"]
    names = [n for n in PAIRS if not options.only or any(part.strip() in n for part in options.only.split(","))]
    print("| bad form | healthy ms | bad, x healthy | repaired, x healthy (quartiles) | A/A | recipe |\n|---|---|---|---|---|---|")
    missed = []
    for name in names:
        try:
            ms, recipe = measured(PAIRS[name], options.seconds)
        except Exception as error:
            print(f"| {name} | failed: {type(error).__name__}: {str(error)[:100]} | | | | |", flush=True)
            missed.append(name)
            continue
        shares = {what: quartiles(ratios(ms["healthy"], ms[what])) for what in ("bad", "repaired", "control")}
        q1, middle, q3 = shares["repaired"]
        line = f"| {name} | {quartiles(ms['healthy'])[1]:.3f} | {shares['bad'][1]:.4f} | {middle:.3f} ({q1:.3f} to {q3:.3f})"
        print(f"{line} | {shares['control'][1]:.3f} | {recipe} |", flush=True)
        missed += [name] if middle < least else []
    print(
        f"{len(names) - len(missed)} of {len(names)} bad forms repaired to {least} of the healthy one's speed; missed: {', '.join(missed) or 'none'}"
    )
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
