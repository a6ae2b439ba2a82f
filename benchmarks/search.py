"""Replays recorded trials: what the learned order costs beside a fixed one and beside an oracle.

usage: search.py [RECORDED.jsonl] [--check] [--plot FILE.png] [--cases]

recorded.jsonl (made by record.py) holds, for every case, what each proposed fix came to and took. A replay is the real frontier and the real ranking
over these answers. Leave-one-project-out: a case is replayed with the outcomes of all cases but those of its own project. The cases are
independent models, so a project is one case together with its near twins (same failure of the stock export, same operator, most operators shared).
A second, harder table leaves out every case whose stock export fails with the same symptom at the same operator.
Cost is CPU-seconds (wall seconds where a trial ran into its time limit), stock export included, until the first right file.
A case counts that the stock export does not solve and that some recorded trial does.

the orders:
  oracle         knows the cheapest way to a right file
  learned        ranking.py with the other projects' outcomes
  priors         the strategies' own priors, nothing learned (the priors were set with these corpora in view)
  treating       fixed: what treats the symptom, in order of the strategies' files
  proposing      fixed: every strategy that proposes something for this model, whatever the symptom
  every strategy fixed: one list for all models; a strategy that has nothing to propose costs one more stock export (the only cost here
                 that is not measured)
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from autofix.frontier import Candidate, Frontier, Priors, Ranker
from autofix.ranking import Ranking, Rates, keys_of, minor_versions
from autofix.recipe import Fix, Level, Recipe
from autofix.trial import Diagnosis, Stage, Trial, Verdict

HERE = Path(__file__).parent
TWINS = 0.5
"""Two cases with the same failure are of one project when they share at least this part of their operators."""


@dataclass(frozen=True)
class Known:
    """Stands in for a strategy: what the frontier asks of one."""

    name: str
    prior: float
    cost: float


@dataclass(frozen=True)
class Recorded:
    """The whole recording."""

    strategies: dict[str, Known]
    environment: dict[str, str]
    cases: list[dict[str, Any]]


@dataclass(frozen=True)
class Spent:
    """What an order took for one case."""

    cost: float
    trials: int
    path: tuple[str, ...]
    solved: bool = True


def read(file: Path) -> Recorded:
    """The recording; its first line describes the strategies, in their order, and the versions."""
    head, *lines = map(json.loads, file.read_text().splitlines())
    strategies = {name: Known(name, prior, cost) for name, prior, cost in head["strategies"]}
    return Recorded(strategies, head["environment"], [line for line in lines if line["trials"]])


def cost_of(row: dict[str, Any]) -> float:
    """CPU-seconds; of a trial that hung, the seconds it hung."""
    return float(row["seconds"] if row["verdict"] == "timeout" else row["cpu"])


def diagnosis_of(row: dict[str, Any]) -> Diagnosis | None:
    return Diagnosis(row["symptom"], Stage[row["stage"].upper()], {"operator": row["operator"]}) if row["symptom"] else None


def countable(case: dict[str, Any]) -> bool:
    """Whether something had to be found and was."""
    return case["trials"][0]["verdict"] != "pass" and any(row["verdict"] == "pass" and row["treated"] for row in case["trials"])


def failure_of(case: dict[str, Any]) -> tuple[str, str]:
    return case["trials"][0]["symptom"], case["trials"][0]["operator"]


def same_project(one: dict[str, Any], other: dict[str, Any]) -> bool:
    a, b = set(one["operators"]), set(other["operators"])
    return one is other or (failure_of(one) == failure_of(other) and len(a & b) >= TWINS * len(a | b))


def same_failure(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one is other or failure_of(one) == failure_of(other)


def rates_of(cases: Iterable[dict[str, Any]], versions: str) -> Rates:
    """Counts as a cache holds them after these cases were recorded."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for case in cases:
        for row in case["trials"]:
            cause = diagnosis_of(case["trials"][row["parent"]]) if row["parent"] >= 0 and row["treated"] else None
            if cause is not None:
                for key in keys_of(cause, case["case"], case["trials"][row["parent"]]["capture"]):
                    count = counts[key, row["strategy"]]
                    for i, more in enumerate((1, round(10 * row["gain"]), round(1000 * cost_of(row)))):
                        count[i] += more
    by_key: dict[str, list[tuple[str, str, int, int, int]]] = defaultdict(list)
    for (key, strategy), (tries, gain, ms) in counts.items():
        by_key[key].append((strategy, versions, tries, gain, ms))
    return Rates(lambda key: by_key.get(key, []))


def mean_costs(cases: Iterable[dict[str, Any]]) -> dict[str, float]:
    """What a trial of each strategy takes in the mean: for the few proposals whose trial was not recorded, which count as failures."""
    found = defaultdict(list)
    for case in cases:
        for row in case["trials"]:
            found[row["strategy"]].append(cost_of(row))
    return {name: statistics.mean(costs) for name, costs in found.items()}


def replay(case: dict[str, Any], ranker: Ranker, recorded: Recorded, means: dict[str, float]) -> Spent:
    """The search's own loop over recorded answers."""
    rows = {row["recipe"]: row for row in case["trials"] if row["treated"]}
    frontier = Frontier(ranker, case["case"])
    frontier.add(Candidate(Recipe()))
    cost, path, idle, seen = 0.0, [], set(), set()
    while frontier and frontier.worthwhile():
        taken = frontier.pop()
        name = taken.strategy.name if taken.strategy else ""
        row = rows.get(taken.recipe.fixes[-1].params["recipe"]) if taken.recipe.fixes else case["trials"][0]
        if row is None and name in idle:
            continue  # the search drops a fix that has found nothing to do
        spent = cost_of(row) if row else means.get(name, 1.0)
        cost, path = cost + spent, [*path, name or "stock"]
        if row and row["verdict"] == "pass":
            return Spent(cost, len(path), tuple(path))
        if taken.parent and taken.parent.diagnosis:
            ranker.observe(name, taken.parent.diagnosis, case["case"], taken.capture, row["gain"] if row else 0.0, spent)
        if row is None:
            continue
        if row["symptom"] == "nothing-to-do" and row["stage"] == "rewrite":
            idle.add(name)
        trial = Trial(taken.recipe, Stage[row["stage"].upper()], Verdict(row["verdict"]), diagnosis_of(row))
        for strategy, place, recipe in row.get("proposed", ()):
            fix = Fix(strategy, Level.CONFIG, {"recipe": recipe})
            known: Any = recorded.strategies[strategy]
            if recipe not in seen:  # two ways may lead to one recipe
                seen.add(recipe)
                frontier.add(Candidate(Recipe((*taken.recipe.fixes, fix)), trial, fix, known, row["capture"], place))
    return Spent(cost, len(path), tuple(path), solved=False)


def oracle(case: dict[str, Any]) -> Spent:
    """The cheapest way from the stock export to a right file."""
    ways = []
    for row in case["trials"]:
        if row["verdict"] == "pass" and row["treated"]:
            chain = [row]
            while chain[-1]["parent"] >= 0:
                chain.append(case["trials"][chain[-1]["parent"]])
            ways.append(Spent(sum(map(cost_of, chain)), len(chain), tuple(r["strategy"] or "stock" for r in reversed(chain))))
    return min(ways, key=lambda way: way.cost)


def fixed(case: dict[str, Any], recorded: Recorded, untreated: bool, every: bool = False) -> Spent:
    """One order for all models: that of the strategies' files; the stock export first."""
    stock = case["trials"][0]
    tried: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in case["trials"]:
        if row["parent"] == 0 and (untreated or row["treated"]):
            tried[row["strategy"]].append(row)
    cost, path = cost_of(stock), ["stock"]
    for name in recorded.strategies:
        idle = [stock] if every and name not in tried else []
        for row in sorted(tried[name], key=lambda r: int(r["place"])) + idle:
            cost, path = cost + cost_of(row), [*path, name]
            if row["verdict"] == "pass":
                return Spent(cost, len(path), tuple(path))
    return Spent(cost, len(path), tuple(path), solved=False)


def orders(recorded: Recorded, same: Callable[[dict[str, Any], dict[str, Any]], bool]) -> dict[str, list[Spent]]:
    """What each order takes for each case that counts."""
    cases, means = [c for c in recorded.cases if countable(c)], mean_costs(recorded.cases)
    versions = minor_versions(recorded.environment)
    found: dict[str, list[Spent]] = defaultdict(list)
    for case in cases:
        others = rates_of((c for c in recorded.cases if not same(case, c)), versions)
        found["oracle"].append(oracle(case))
        found["learned"].append(replay(case, Ranking(others, recorded.environment), recorded, means))
        found["priors"].append(replay(case, Priors(), recorded, means))
        found["treating"].append(fixed(case, recorded, False))
        found["proposing"].append(fixed(case, recorded, True))
        found["every strategy"].append(fixed(case, recorded, True, every=True))
    return found


def table(title: str, found: dict[str, list[Spent]]) -> None:
    print(f"\n{title}\n\n| order | solved | CPU-s per solved case | over the oracle | over learned | trials, median | mean |")
    print("|---|---|---|---|---|---|---|")
    for name, spent in found.items():
        cost, trials = mean_cost(spent), [s.trials for s in spent if s.solved]
        over, under = cost / mean_cost(found["oracle"]), cost / mean_cost(found["learned"])
        median, mean = statistics.median(trials), statistics.mean(trials)
        print(f"| {name} | {len(trials)} of {len(spent)} | {cost:.2f} | {over:.2f} | {under:.2f} | {median:g} | {mean:.2f} |")


def mean_cost(spent: list[Spent]) -> float:
    """All that was spent, on cases that stay unsolved too, per solved case."""
    return sum(s.cost for s in spent) / sum(s.solved for s in spent)


def plot(found: dict[str, list[Spent]], file: Path) -> None:
    """Share of cases solved within a cost, by order. Needs matplotlib (the extra `bench`)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    _, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), width_ratios=(2, 1), layout="constrained")
    for name, spent in found.items():
        costs = sorted(s.cost if s.solved else float("inf") for s in spent)
        left.step(costs, [(i + 1) / len(costs) for i in range(len(costs))], where="post", label=name, lw=2.4 if name == "learned" else 1.4)
    left.set(xscale="log", xlabel="CPU-seconds until the first right file", ylabel="share of the cases", ylim=(0, 1.02), title="solved within a cost")
    left.grid(alpha=0.3)
    left.legend(loc="lower right")
    right.barh(list(found), [mean_cost(s) for s in found.values()], color="0.55")
    right.set(xlabel="CPU-seconds per solved case", title="mean cost")
    right.invert_yaxis()
    pyplot.savefig(file, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded", nargs="?", type=Path, default=HERE / "recorded.jsonl")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--cases", action="store_true", help="name the cases where the learned order takes more trials than the oracle")
    options = parser.parse_args()
    recorded = read(options.recorded)
    found = orders(recorded, same_project)
    counted = [c for c in recorded.cases if countable(c)]
    if options.cases:
        for case, best, learned in zip(counted, found["oracle"], found["learned"], strict=True):
            if learned.trials > best.trials:
                print(f"{case['case']}: {best.cost:.1f} s by {', '.join(best.path[1:])}; {learned.cost:.1f} s by {', '.join(learned.path[1:])}")
    kept = statistics.mean(sum(same_project(c, other) for other in counted) for c in counted)
    trials = sum(len(c["trials"]) for c in recorded.cases)
    print(f"{len(recorded.cases)} cases, {trials} trials recorded; {len(counted)} cases count; a project has {kept:.1f} of them in the mean")
    table("One project left out", found)
    harder = orders(recorded, same_failure)
    table("Every case with the same symptom at the same operator left out", harder)
    goals = tomllib.loads((HERE / "goals.toml").read_text())["search"]
    figures = {
        "learned_over_oracle": mean_cost(found["learned"]) / mean_cost(found["oracle"]),
        "fixed_over_learned": mean_cost(found["every strategy"]) / mean_cost(found["learned"]),
        "median_trials": statistics.median(s.trials for s in found["learned"]),
    }
    missed = [f"{k} {v:.2f}" for k, v in figures.items() if v > goals.get(f"{k}_max", v) or v < goals.get(f"{k}_min", v)]
    told = ", ".join(f"{k} {v:.2f}" for k, v in figures.items())
    print(f"\nsearch: {told}; goals missed: {', '.join(missed) or 'none'}")
    if options.plot:
        plot(found, options.plot)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
