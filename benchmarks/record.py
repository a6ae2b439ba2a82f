"""Records what every proposed fix comes to, also those that a search would not have tried, for the replays of search.py.

usage: record.py OUT.jsonl FOLDER ... [--blind] [--untreated] [--only NAME] [--trials N] [--seconds S] [--full]

For each case: the stock export; every fix proposed for its failure; then, level by level, what is proposed for the failures of those
that are not stuck, until --trials or --seconds are used up. A success is not built upon. --untreated also tries, on the stock failure, the first fix
of each strategy that has something to propose but does not treat the symptom: what a fixed order without a diagnosis would do.
The first line of OUT describes the strategies and versions; one line a case is added; cases that it has already are left out. A line holds
names of strategies, symptoms, operators, classes, times:
no source, no parameters, no paths (--full keeps the facts of each diagnosis, for study).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from stubborn import blind_copy, kinds_of

from autofix import AutofixError, Budget, CaseSpec, Recipe, Target
from autofix.diagnose import no_progress
from autofix.env import environment
from autofix.frontier import Candidate
from autofix.isolate import CaseProcess, Limits
from autofix.loader import load_strategies
from autofix.ranking import gain_of, operator_of
from autofix.search import DEAD_ENDS, Search
from autofix.testing import warm_up
from autofix.trial import Trial

LIMITS = Limits(seconds=120)


class Explorer(Search):
    """A search that does not stop at a success and does not rank: it tries what is proposed, level by level."""

    def explore(self, trials: int, seconds: float, untreated: bool, full: bool) -> list[dict[str, Any]]:
        """The tree as rows: each trial with its parent's number and, where it was built upon, all that was proposed after it."""
        rows: list[dict[str, Any]] = []
        started = time.monotonic()
        queue: deque[tuple[Candidate, int, bool]] = deque([(Candidate(Recipe()), -1, True)])
        seen = {Recipe().id}
        spare: list[tuple[Candidate, int, bool]] = []
        while queue and len(rows) < trials and time.monotonic() - started < seconds:
            candidate, parent, treated = queue.popleft()
            if candidate.added is None or candidate.added.key() not in self.frontier.discarded:
                self.begin(candidate)
                trial = self.finish(expand=False)
                rows.append(self.row(trial, candidate, parent, treated, full))
                if treated and self.worth_expanding(trial, candidate):
                    children = self.children(trial)
                    rows[-1]["proposed"] = [[c.added.strategy, c.place, c.recipe.id[:12]] for c in children if c.added]
                    queue += [(c, len(rows) - 1, True) for c in children if c.recipe.id not in seen]
                    seen |= {c.recipe.id for c in children}
                    if candidate.parent is None and untreated:
                        spare = [(c, 0, False) for c in self.others(trial) if c.recipe.id not in seen]
            if not queue and spare:
                queue, spare = deque(spare), []
        return rows

    def worth_expanding(self, trial: Trial, candidate: Candidate) -> bool:
        """Where the search too would go on."""
        before = candidate.parent.diagnosis if candidate.parent else None
        return trial.diagnosis is not None and not trial.ok and not no_progress(before, trial.diagnosis) and trial.diagnosis.symptom not in DEAD_ENDS

    def children(self, trial: Trial) -> list[Candidate]:
        """What the strategies that treat the failure propose."""
        capture = self.config_of(trial.recipe).capture
        return [Candidate(self.extended(trial.recipe, f, s), trial, f, s, capture, i) for i, (f, s) in enumerate(self.proposals(trial))]

    def others(self, trial: Trial) -> list[Candidate]:
        """The first fix of each strategy that does not treat the failure."""
        evidence, capture, found = self.evidence(trial), self.config_of(trial.recipe).capture, []
        for strategy in self.registry.values():
            if evidence.diagnosis.symptom not in strategy.treats and "too-slow" not in strategy.treats:
                fixes = [f for f in self.proposed(strategy, evidence) if self.target.allows(strategy.effect_of(f))]
                found += [Candidate(self.extended(trial.recipe, f, strategy), trial, f, strategy, capture, 0) for f in fixes[:1]]
        return found

    def row(self, trial: Trial, candidate: Candidate, parent: int, treated: bool, full: bool) -> dict[str, Any]:
        """One trial as plain data."""
        before = candidate.parent.diagnosis if candidate.parent else None
        stuck = no_progress(before, trial.diagnosis)
        row: dict[str, Any] = {
            "recipe": trial.recipe.id[:12],
            "parent": parent,
            "strategy": candidate.strategy.name if candidate.strategy else "",
            "place": candidate.place,
            "capture": self.config_of(trial.recipe).capture,
            "stage": trial.stage.name.lower(),
            "verdict": trial.verdict.value,
            "symptom": trial.diagnosis.symptom if trial.diagnosis else "",
            "operator": operator_of(trial.diagnosis) if trial.diagnosis else "",
            "gain": 0.0 if stuck else gain_of(trial, candidate.parent) if candidate.parent else 0.0,
            "stuck": stuck,
            "treated": treated,
            "seconds": round(trial.seconds, 3),
            "cpu": round(trial.cpu_seconds, 3),
        }
        if full and trial.diagnosis:
            row["facts"] = trial.diagnosis.facts
        return row


def recorded(case: Path, blind: bool, options: argparse.Namespace) -> dict[str, Any]:
    """One case's tree."""
    registry = load_strategies()
    with tempfile.TemporaryDirectory(prefix="record-") as scratch:
        shown = blind_copy(case, Path(scratch)) if blind else case
        started = time.monotonic()
        with CaseProcess(CaseSpec(str(shown)), Target(), limits=LIMITS, fork=True) as process:
            facts = process.reference()
            before = time.monotonic() - started
            explorer = Explorer(process, facts, registry, Target(), Budget(1e9, 10**9))
            rows = explorer.explore(options.trials, options.seconds, options.untreated, options.full)
            return {
                "modules": {name: len(paths) for name, paths in sorted(facts["modules"].items())},
                "operators": sorted(facts["operators"]),
                "before": round(before, 2),
                "trials": rows,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--blind", action="store_true")
    parser.add_argument("--untreated", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=150.0)
    options = parser.parse_args()
    if not options.out.exists():
        strategies = [[s.name, s.prior, s.cost] for s in load_strategies().values()]
        options.out.write_text(json.dumps({"strategies": strategies, "environment": environment()}) + "\n")
    have = {(r.get("folder"), r.get("case")) for r in map(json.loads, options.out.read_text().splitlines())}
    warm_up()
    for folder in options.folders:
        kinds = kinds_of(folder)
        for case in sorted(folder.glob("*.py")):
            if options.only not in case.stem or case.name.startswith("_") or (folder.name, case.stem) in have:
                continue
            line: dict[str, Any] = {"folder": folder.name, "case": case.stem, "kind": kinds.get(case.stem, "")}
            try:
                line |= recorded(case.resolve(), options.blind, options)
            except AutofixError as error:
                line |= {"error": str(error)[:200], "trials": []}
            with options.out.open("a") as out:
                out.write(json.dumps(line, sort_keys=True) + "\n")
            passed = [t["strategy"] or "stock" for t in line["trials"] if t["verdict"] == "pass"]
            print(
                f"{case.stem}: {len(line['trials'])} trials, {sum(t['seconds'] for t in line['trials']):.0f} s, right: {', '.join(passed)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
