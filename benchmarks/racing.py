"""Racing against exhaustive measuring, on round times of real files: does the race find the same winner, and in what part of the time?

usage: racing.py [--record] [--repeats N] [--times FILE] [--check]

--record exports candidate files of some models (exporters, levels, simplifiers), times every one in shuffled rounds and writes the times to
racing_times.json. Without it those times are used. A repeat draws rounds from them anew (with replacement, the same rounds for all files, as
neighbours on the machine slow all alike): exhaustive measuring takes ROUNDS of them for every file, the race (autofix/elimination.py) has a
quarter of that time. Same: the very same file wins; as good: one within TIE of it by all recorded rounds, which two sessions of one file differ by.
Beside it stands how often a second exhaustive measurement agrees with the first: nothing can agree more often. --check compares with goals.toml.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from autofix.elimination import Race

HERE = Path(__file__).parent
ROUNDS = 40
TIE = 1.02
RECORDED_ROUNDS = 120
MODELS = {
    "cnn": """
        self.body = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1, groups=32), nn.BatchNorm2d(32),
            nn.ReLU6(), nn.Conv2d(32, 64, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    def forward(self, x): return self.body(x)
def get_inputs(): return [torch.randn(1, 3, 96, 96)]
""",
    "encoder": """
        layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    def forward(self, x): return self.body(x)
def get_inputs(): return [torch.randn(1, 32, 128)]
""",
    "lstm": """
        self.body = nn.LSTM(64, 128, batch_first=True, bidirectional=True)
    def forward(self, x): return self.body(x)[0]
def get_inputs(): return [torch.randn(1, 40, 64)]
""",
    "mlp": """
        self.body = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))
    def forward(self, x): return self.body(x)
def get_inputs(): return [torch.randn(4, 64)]
""",
    "upsampler": """
        self.a, self.b = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 8, 3, padding=1)
    def forward(self, x):
        y = nn.functional.interpolate(self.a(x).relu(), scale_factor=2.0, mode="bicubic")
        return nn.functional.softplus(self.b(y)) + torch.cumsum(y[:, :8], -1)
def get_inputs(): return [torch.randn(1, 8, 48, 48)]
""",
}
"""Own plain definitions, one of each sort of load; bodies of `__init__` and what follows."""
HEAD = "import torch\nfrom torch import nn\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()"
Times = dict[str, dict[str, list[float]]]


def record(rounds: int) -> Times:
    """{model: {candidate: milliseconds a round}} of files that are right, the stock export first."""
    from autofix.case import CaseSpec
    from autofix.isolate import CaseProcess, Limits
    from autofix.loader import load_strategies
    from autofix.recipe import Fix, Level, Recipe
    from autofix.target import ExportConfig, Target
    from autofix.testing import warm_up

    warm_up()
    registry = load_strategies()
    found: Times = {}
    levels = [Fix("graph_level", Level.RUNTIME, {"level": name}) for name in ("EXTENDED", "BASIC", "DISABLE_ALL")]
    for name, text in MODELS.items():
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / f"{name}.py"
            file.write_text(HEAD + text)
            with CaseProcess(CaseSpec(str(file)), Target(), (), Limits(seconds=120), fork=True) as process:
                process.reference()
                folders = {}
                for capture in ("export", "trace"):
                    start = ExportConfig(capture=capture)
                    recipes = [Recipe(start=start), *(Recipe((fix,), start) for fix in levels), Recipe((registry["simplify"].fix(),), start)]
                    for recipe in recipes:
                        trial, folder = process.attempt(recipe)
                        if trial.ok:
                            folders[f"{capture}: {recipe}"] = folder
                _, answer, _ = process.ask("latency", files=[str(f) for f in folders.values()], seconds=0.5, rounds=rounds)
                assert answer is not None
                found[name] = {k: [round(v, 5) for v in ms] for k, ms in zip(folders, answer["files"], strict=True)}
                print(f"{name}: {len(folders)} files, {len(answer['eager'])} rounds", flush=True)
    return found


def drawn(times: dict[str, list[float]], rng: random.Random) -> dict[str, list[float]]:
    """Rounds drawn anew, the same for all files."""
    count = len(next(iter(times.values())))
    picks = [rng.randrange(count) for _ in range(ROUNDS)]
    return {name: [ms[i] for i in picks] for name, ms in times.items()}


def exhaustive(times: dict[str, list[float]]) -> str:
    """The file with the smallest median."""
    return min(times, key=lambda n: statistics.median(times[n]))


def raced(times: dict[str, list[float]], budget: float, seed: int) -> tuple[str, float]:
    """(the race's winner, the milliseconds that it took); every file has as many rounds to give as it asks for."""
    race = Race(list(times), budget, seed=seed)
    while not race.over:
        i = race.rounds
        now = {n: times[n][i % len(times[n])] for n in race.next_round()}
        race.record(now, sum(now.values()))
    return race.leader, race.spent


def compare(times: dict[str, list[float]], repeats: int, seed: int) -> dict[str, float]:
    """Shares over the repeats: the race's winner is the same, or as good; a second exhaustive measurement's; the part of the time."""
    rng = random.Random(seed)
    whole = {n: statistics.median(ms) for n, ms in times.items()}
    counts = dict.fromkeys(("same", "as_good", "twice", "twice_as_good", "time"), 0.0)
    for repeat in range(repeats):
        first, second = drawn(times, rng), drawn(times, rng)
        cost = sum(map(sum, first.values()))
        best, again = exhaustive(first), exhaustive(second)
        winner, spent = raced(drawn(times, rng), cost / 4, repeat)
        counts["same"] += winner == best
        counts["as_good"] += whole[winner] <= whole[best] * TIE
        counts["twice"] += again == best
        counts["twice_as_good"] += whole[again] <= whole[best] * TIE
        counts["time"] += spent / cost
    return {k: v / repeats for k, v in counts.items()}


def goals_missed(mean: dict[str, float]) -> list[str]:
    """Which goals of goals.toml are missed."""
    goals = tomllib.loads((HERE / "goals.toml").read_text())["racing"]
    missed = []
    if mean["as_good"] < goals["same_winner_min"]:
        missed.append(f"the same winner in {mean['as_good']:.1%}, wanted {goals['same_winner_min']:.0%}")
    if mean["time"] > goals["time_share_max"]:
        missed.append(f"{mean['time']:.1%} of the time, wanted at most {goals['time_share_max']:.0%}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=RECORDED_ROUNDS)
    parser.add_argument("--times", type=Path, default=HERE / "racing_times.json")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.record:
        options.times.write_text(json.dumps(record(options.rounds)) + "\n")
    recorded: dict[str, Any] = json.loads(options.times.read_text())
    print("| model | files | second over fastest | same file | as good (2 %) | two exhaustive: same | as good | time |")
    print("|---|---|---|---|---|---|---|---|")
    rows = []
    for seed, (name, times) in enumerate(recorded.items()):
        row = compare(times, options.repeats, seed)
        rows.append(row)
        first, second, *_ = sorted(statistics.median(ms) for ms in times.values())
        shares = " | ".join(f"{row[k]:.1%}" for k in ("same", "as_good", "twice", "twice_as_good", "time"))
        print(f"| {name} | {len(times)} | {second / first:.3f} | {shares} |")
    mean = {k: statistics.mean(r[k] for r in rows) for k in rows[0]}
    agree = f"two exhaustive measurements agree in {mean['twice_as_good']:.1%} and {mean['twice']:.1%}"
    print(
        f"racing: the same winner or one within 2 % in {mean['as_good']:.1%} of {options.repeats * len(rows)} repeats "
        f"(the very same file in {mean['same']:.1%}; {agree}), at {mean['time']:.1%} of the time"
    )
    missed = goals_missed(mean) if options.check else []
    print("\n".join(missed), file=sys.stderr, end="\n" if missed else "")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
