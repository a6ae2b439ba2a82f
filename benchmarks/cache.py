"""Speed and safety of the cache. `python benchmarks/cache.py [--check] [--outcomes N] [--kills N] [--only NAME,...]`.

Prints a table and one last line; with --check exits 1 if a goal in benchmarks/goals.toml is missed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from autofix.browse import verify  # noqa: E402
from autofix.cache import Cache, CaseRecord  # noqa: E402
from autofix.exchange import merge_lines  # noqa: E402
from autofix.ranking import Ranking  # noqa: E402
from autofix.recipe import Fix, Level, Recipe  # noqa: E402
from autofix.rows import Row, new_row  # noqa: E402
from autofix.signatures import SYMPTOMS  # noqa: E402
from autofix.store import add_rows  # noqa: E402
from autofix.target import Target  # noqa: E402
from autofix.trial import Diagnosis, Stage, Trial, Verdict  # noqa: E402

ENVIRONMENT = {"torch": "2.13.0+cpu", "onnxruntime": "1.32.0", "python": "3.11.7"}
STRATEGIES = [f"strategy_{n}" for n in range(120)]
TARGET = Target()


def made_rows(count: int, seed: int, cases: int) -> Iterator[Row]:
    """Outcomes as a large team would have them: 4 versions, all symptoms, 120 strategies, 200 operators."""
    random_ = random.Random(seed)
    symptoms = list(SYMPTOMS)
    environments = [new_row("environment", {**ENVIRONMENT, "torch": f"2.{n}.0"}) for n in (10, 11, 12, 13)]
    target = new_row("target", TARGET.to_json())
    recipes = [new_row("recipe", Recipe((Fix(s, Level.MODULE, {"n": n}),)).to_json()) for s in STRATEGIES for n in range(4)]
    yield from [*environments, target, *recipes]
    stages = [s.name.lower() for s in Stage][2:]
    for _ in range(count):
        which = random_.randrange(len(recipes))
        version = random_.randrange(4)
        passed = random_.random() < 0.2
        symptom = random_.choice(symptoms)
        yield new_row(
            "outcome",
            {
                "case_id": f"{random_.randrange(cases):032x}",
                "environment_id": environments[version].id,
                "target_id": target.id,
                "recipe_id": recipes[which].id,
                "parent_id": Recipe().id,
                "origin_id": "",
                "added": [STRATEGIES[which // 4]],
                "cause_symptom": symptom,
                "cause_operator": f"aten.op{random_.randrange(200)}.default" if symptom == "unsupported-operator" else "",
                "cause_stage": random_.choice(stages[:4]),
                "symptom": "" if passed else random_.choice(symptoms),
                "operator": "",
                "stage": "done" if passed else random_.choice(stages[:-1]),
                "verdict": "pass" if passed else "fail",
                "capture": "export",
                "effect": "exact",
                "versions": f"2.{version + 10}|1.32",
                "ms": random_.randrange(100, 20000),
                "cpu_ms": random_.randrange(100, 20000),
            },
        )


def look_ups(cache: Cache, cases: int, repeats: int = 200) -> list[tuple[float, float]]:
    """(wall, processor) milliseconds of what one failed trial needs: a known recipe, and the rank of every strategy for a new diagnosis."""
    out = []
    for n in range(repeats):
        case_id = f"{random.Random(n).randrange(cases):032x}"
        diagnosis = Diagnosis(list(SYMPTOMS)[n % len(SYMPTOMS)], Stage.CONVERT, {"operator": f"aten.op{n % 200}.default"})
        started, cpu = time.perf_counter(), time.process_time()
        cache.known_recipe(case_id, ENVIRONMENT, TARGET)
        ranking = Ranking(cache.rates(), ENVIRONMENT)
        sorted(STRATEGIES, key=lambda s: -ranking.probability(s, diagnosis, case_id, "export", 0.3) / ranking.seconds(s, 1.0))
        out.append(((time.perf_counter() - started) * 1000, (time.process_time() - cpu) * 1000))
    return out


def scale(folder: Path, outcomes: int) -> dict[str, float]:
    """Merge and look-up at a number of outcomes. The least disturbed of three rounds is taken: other processes only ever add time."""
    cases, last, rounds = max(1, outcomes // 50), min(100_000, outcomes // 5), 3
    merges: list[tuple[float, float]] = []
    with Cache.open(folder / "big.db", seed=False) as cache:
        for part in range(0, outcomes - rounds * last, 100_000):
            add_rows(cache.connection, made_rows(min(100_000, outcomes - rounds * last - part), part, cases))
        for round_ in range(1, rounds + 1):
            lines = [row.line().encode() for row in made_rows(last, -round_, cases)]
            started, cpu = time.perf_counter(), time.process_time()
            merged = merge_lines(cache.connection, iter(lines))
            merges.append((len(lines) / (time.perf_counter() - started), len(lines) / (time.process_time() - cpu)))
            assert merged.added["outcome"] == last, merged
        started = time.perf_counter()
        assert not sum(merge_lines(cache.connection, iter(lines)).added.values())
        again = len(lines) / (time.perf_counter() - started)
    with Cache.open(folder / "big.db", seed=False) as cache:
        first = look_ups(cache, cases, 1)[0][0]
        measured = [look_ups(cache, cases) for _ in range(rounds)]
        times, cpu_times = (min((sorted(pair[which] for pair in round_) for round_ in measured), key=statistics.median) for which in (0, 1))
        count = cache.connection.execute("SELECT count(*) FROM outcomes").fetchone()[0]
    return {
        "outcomes": count,
        "lookup_ms_median": statistics.median(times),
        "lookup_ms_p99": times[int(len(times) * 0.99) - 1],
        "lookup_cpu_ms_p99": cpu_times[int(len(times) * 0.99) - 1],
        "lookup_ms_first": first,
        "merge_rows_per_s": max(wall for wall, _ in merges),
        "merge_rows_per_cpu_s": max(cpu for _, cpu in merges),
        "merge_again_rows_per_s": again,
        "file_mb": (folder / "big.db").stat().st_size / 1e6,
    }


def trial_of(case: str, number: int) -> tuple[CaseRecord, list[Trial]]:
    root = Trial(Recipe(), Stage.CONVERT, Verdict.FAIL, Diagnosis("unsupported-operator", Stage.CONVERT), seconds=number / 1000)
    recipe = Recipe((Fix("strategy_1", Level.MODULE, {"n": number}),))
    return CaseRecord(case, case), [root, Trial(recipe, Stage.DONE, Verdict.PASS, seconds=1.0, parent=root.recipe.id)]


def write_many(path: str, name: str, count: int) -> None:
    """The body of a writer process: prints each number once its outcomes are committed."""
    with Cache.open(Path(path), seed=False) as cache:
        for number in range(count):
            case, trials = trial_of(name, number)
            cache.record(case, ENVIRONMENT, TARGET, trials)
            if cache.problem:
                raise SystemExit(cache.problem)
            os.write(1, f"{number}\n".encode())


def writer(path: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "--write", str(path), name, str(count)], stdout=subprocess.PIPE)


def recorded(cache: Cache, name: str) -> set[int]:
    """Which numbers of `trial_of` are in the cache."""
    rows = cache.connection.execute(
        "SELECT json_extract(r.body, '$.fixes[0].params.n') FROM outcomes o JOIN recipes r ON r.id = o.recipe_id "
        "WHERE o.case_id = ? AND verdict = 'pass'",
        (name,),
    )
    return {n for (n,) in rows}


def together(folder: Path, writers: int = 8, count: int = 100) -> dict[str, float]:
    path = folder / "many.db"
    started = time.perf_counter()
    processes = [writer(path, f"case-{n}", count) for n in range(writers)]
    bad = [p for p in processes if p.communicate() and p.returncode != 0]
    seconds = time.perf_counter() - started
    with Cache.open(path, seed=False) as cache:
        lost = sum(count - len(recorded(cache, f"case-{n}")) for n in range(writers))
        faults = verify(cache.connection)
    return {
        "writers": writers,
        "writers_lost": lost + len(bad) * count,
        "writers_faults": len(faults),
        "writers_records_per_s": writers * count / seconds,
    }


def killed(folder: Path, kills: int) -> dict[str, float]:
    """kill -9 at a random moment of writing, over and over on one file."""
    path, lost, faults, committed = folder / "killed.db", 0, 0, 0
    random_ = random.Random(0)
    Cache.open(path, seed=False).close()
    for n in range(kills):
        name = f"kill-{n}"
        process = writer(path, name, 1_000_000)
        assert process.stdout
        process.stdout.readline()  # the process has started to write
        time.sleep(random_.random() * 0.05)
        os.kill(process.pid, signal.SIGKILL)
        said = [0] + [int(line) for line in process.stdout.read().split(b"\n")[:-1]]
        process.wait()
        with Cache.open(path, seed=False) as cache:
            committed += len(said)
            lost += len(set(said) - recorded(cache, name))
    with Cache.open(path, seed=False) as cache:
        faults = len(verify(cache.connection))
    return {"kills": kills, "kills_committed": committed, "kills_lost": lost, "kills_faults": faults}


def goals() -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return dict(tomllib.loads((ROOT / "benchmarks" / "goals.toml").read_text())["cache"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--outcomes", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--only", default="scale,writers,kills")
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_many(options.write[0], options.write[1], int(options.write[2]))
        return 0
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        only = options.only.split(",")
        if "scale" in only:
            figures |= scale(folder, options.outcomes)
        if "writers" in only:
            figures |= together(folder)
        if "kills" in only:
            figures |= killed(folder, options.kills)
    missed = []
    wanted = goals()
    print(f"{'figure':28} {'measured':>14}  goal")
    for key, value in figures.items():
        limits = [(sign, wanted[f"{key}_{word}"]) for sign, word in (("<=", "max"), (">=", "min")) if f"{key}_{word}" in wanted]
        goal = f"{limits[0][0]} {limits[0][1]:g}" if limits else ""
        met = not goal or (value <= float(goal[3:]) if goal[0] == "<" else value >= float(goal[3:]))
        if not met:
            missed.append(key)
        print(f"{key:28} {value:14,.2f}  {goal}{'' if met else '  MISSED'}")
    print(f"cache: {len(figures)} figures, goals missed: {', '.join(missed) or 'none'}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
