"""Turns every strategy's REPAIRS and DECLINES into checks; `python -m autofix.testing FILE...` runs those of single files.

For each Example: the baseline (its `start` fixes alone) shows the symptom, `propose` offers the fix, and the recipe with the fix
passes on every input set. An Example without symptom passes as it is. Each of DECLINES yields nothing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autofix.errors import AutofixError, StrategyError
from autofix.loader import Registry, builtin_folder, load_strategies, strategy_files
from autofix.recipe import Recipe
from autofix.strategy import Evidence, Example, Strategy
from autofix.target import Target
from autofix.trial import Diagnosis, Trial

LATENCY_SYMPTOM = "too-slow"
"""Examples of this symptom are not timed: the baseline must pass parity, and so must the fix."""
TRIED = 3
"""Where an Example does not say which fix cures it, one of the first few that are proposed must."""


@dataclass(frozen=True)
class Check:
    """One Example or one of DECLINES of a strategy."""

    strategy: str
    kind: str  # "REPAIRS" or "DECLINES"
    index: int

    def __str__(self) -> str:
        return f"{self.strategy}.{self.kind}[{self.index}]"


class CheckFailed(AssertionError):
    """What a check found wrong, in one or a few lines."""


def checks_of(strategy: Strategy) -> list[Check]:
    """Every check of a strategy."""
    repairs = [Check(strategy.name, "REPAIRS", i) for i in range(len(strategy.REPAIRS))]
    return repairs + [Check(strategy.name, "DECLINES", i) for i in range(len(strategy.DECLINES))]


def registry_for(folders: Iterable[Path] = (), names: Iterable[str] | None = None) -> Registry:
    """The strategies with these names and those that their examples start with; all of them without names."""
    folders = list(folders)
    if names is None:
        return load_strategies(folders)
    wanted = set(names)
    while True:
        registry = load_strategies(folders, names=wanted)
        missing = wanted - set(registry)
        if missing:
            raise StrategyError(f"there is no strategy named {', '.join(sorted(missing))}")
        started = {f.strategy for s in registry.values() for e in s.REPAIRS for f in e.start}
        if started <= wanted:
            return registry
        wanted |= started


def warm_up() -> None:
    """Import torch and the exporter once in this process, which is then forked for every check."""
    import gc

    import torch

    from autofix.worker import warm_exporter

    torch.set_num_threads(1)
    warm_exporter()
    gc.freeze()


def run_check(check: Check, registry: Registry, folders: Iterable[Path] = ()) -> None:
    """Run one check in this warmed-up process; raises CheckFailed with what is wrong."""
    strategy = registry[check.strategy]
    if check.kind == "DECLINES":
        check_declines(strategy, strategy.DECLINES[check.index])
    else:
        check_example(strategy, strategy.REPAIRS[check.index], registry, folders, f"{check.strategy}_{check.index}")


def check_declines(strategy: Strategy, declined: Diagnosis | Evidence) -> None:
    """The search must get no fix from this strategy here."""
    evidence = Evidence(declined) if isinstance(declined, Diagnosis) else declined
    if evidence.diagnosis.symptom not in strategy.treats:
        return
    offered = list(strategy.propose(evidence, Target()))
    if offered:
        raise CheckFailed(f"must decline {evidence.diagnosis}, yet proposes {', '.join(map(str, offered))}")


def check_example(strategy: Strategy, example: Example, registry: Registry, folders: Iterable[Path], stem: str) -> None:
    """See the module's docstring."""
    from autofix.case import CaseSpec
    from autofix.isolate import CaseProcess, Limits
    from autofix.search import Search

    target = Target.from_json({**Target().to_json(), **example.target})
    with tempfile.TemporaryDirectory(prefix="autofix-example-") as scratch:
        file = Path(scratch) / f"{stem}.py"
        file.write_text(example.model)
        with CaseProcess(CaseSpec(str(file)), target, folders, Limits(seconds=120), fork=True) as process:
            search = Search(process, process.reference(), registry, target)

            def attempt(recipe: Recipe, raw: bool = False) -> Trial:
                trial, folder = process.attempt(recipe)
                search.by_id[recipe.id] = trial
                logs[recipe.id] = folder / "log.txt"
                return trial if raw else search.concede(trial)

            logs: dict[str, Path] = {}
            recipe = Recipe().plus(example.start)
            baseline = attempt(recipe)
            if not example.symptom:
                if not baseline.ok:
                    raise CheckFailed(f"needs no fix, yet {recipe} gives {told(baseline, logs)}")
                return
            baseline = as_shown(baseline, example, logs)
            evidence = search.evidence(baseline)
            if example.symptom not in strategy.treats:
                raise CheckFailed(f"`treats` lacks the symptom {example.symptom}")
            proposed = list(strategy.propose(evidence, target))
            chosen = [f for f in proposed if f.params == example.fix] if example.fix else proposed
            if not chosen:
                wanted = f" with {example.fix}" if example.fix else ""
                raise CheckFailed(f"no fix{wanted} is proposed for {baseline.diagnosis}; proposed: {', '.join(map(str, proposed)) or 'nothing'}")
            problems = []
            for fix in chosen[:TRIED]:
                if not target.allows(strategy.effect_of(fix)):
                    problems.append(f"the example's target must allow the effect {strategy.effect_of(fix).value}")
                    continue
                repaired = attempt(search.extended(recipe, fix, strategy), raw=True)
                if not repaired.ok:
                    problems.append(f"{repaired.recipe} does not repair it: {told(repaired, logs)}")
                elif not search.concede(repaired).ok:
                    problems.append(f"{repaired.recipe} passes, yet bakes in a value: {'; '.join(repaired.effect_evidence)}")
                else:
                    return
            raise CheckFailed("\n".join(problems))


def as_shown(baseline: Trial, example: Example, logs: dict[str, Path]) -> Trial:
    """The baseline, if it shows what the example says."""
    if example.symptom == LATENCY_SYMPTOM and baseline.ok:
        from autofix.trial import Stage

        return Trial(baseline.recipe, Stage.LATENCY, baseline.verdict, Diagnosis(LATENCY_SYMPTOM, Stage.LATENCY), baseline.parity)
    if baseline.diagnosis is None or baseline.diagnosis.symptom != example.symptom:
        raise CheckFailed(f"the baseline must show {example.symptom}; {baseline.recipe} gives {told(baseline, logs)}")
    return baseline


def told(trial: Trial, logs: dict[str, Path]) -> str:
    """A trial in words, with its facts and the end of its process's log."""
    if trial.diagnosis is None:
        return f"a {trial.verdict.value}"
    facts = {k: v for k, v in trial.diagnosis.facts.items() if k not in ("message", "file", "line")}
    lines = [f"{trial.verdict.value} at {trial.stage.name.lower()}, {trial.diagnosis}", f"  facts: {facts}"]
    lines += [f"  {note}" for note in trial.notes]
    log = logs.get(trial.recipe.id)
    if log is not None and log.exists():
        lines += [f"  log: {line[:200]}" for line in log.read_text(errors="replace").splitlines()[-6:]]
    return "\n".join(lines)


def run_all(registry: Registry, names: Iterable[str], folders: Iterable[Path], say: Callable[[str], None]) -> tuple[int, int]:
    """Run every check of these strategies, saying one line each; returns (checks, failures)."""
    count = failed = 0
    for check in (c for name in names for c in checks_of(registry[name])):
        started = time.monotonic()
        problem = ""
        try:
            run_check(check, registry, folders)
        except (CheckFailed, AutofixError) as error:
            problem = str(error)
        count += 1
        failed += bool(problem)
        say(f"{'FAIL' if problem else 'ok':4} {time.monotonic() - started:5.1f} s  {check}{': ' + problem if problem else ''}")
    return count, failed


def named_files(paths: Iterable[str]) -> Iterator[Path]:
    """The strategy files among files and folders."""
    for path in map(Path, paths):
        yield from strategy_files(path) if path.is_dir() else [] if path.name.startswith("_") else [path]


def main(paths: list[str]) -> int:
    """Run the checks of strategy files (or folders); 0 when all pass, 1 when some fail, 2 for files that do not load."""
    try:
        files = [f.resolve() for f in named_files(paths)]
        if not files:
            raise StrategyError("name at least one strategy file or folder")
        foreign = sorted({f.parent for f in files if not f.is_relative_to(builtin_folder().resolve())})
        registry = registry_for(foreign, {f.stem for f in files})
    except AutofixError as error:
        print(error, file=sys.stderr)
        return 2
    warm_up()
    count, failed = run_all(registry, [f.stem for f in files], foreign, lambda line: print(line, flush=True))
    print(f"{count} checks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
