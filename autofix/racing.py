"""Latency after parity: measure the winner against eager; where a target is missed, race further fixes against it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autofix.frontier import Candidate
from autofix.isolate import CaseProcess
from autofix.search import Repair, Reporter, Search
from autofix.target import Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict

WORTH = 1.05
"""A gain under 5 % is within what one session differs from another (A/A controls of 0.92 to 1.09 were measured)."""
ROUNDS = 3


def meets(latency: dict[str, Any], target: Target) -> bool:
    """Whether a measured file passes the latency targets. The speedup's lower quartile must pass, not a lucky median."""
    if target.max_latency_ms is not None and latency["q3_ms"] > target.max_latency_ms:
        return False
    return target.min_speedup is None or latency["speedup_q1"] >= target.min_speedup


def measure(process: CaseProcess, found: Repair, trials: list[Trial], seconds: float) -> list[dict[str, Any]] | None:
    """Latency rows of these trials' files, interleaved in one process; None where the measuring process died."""
    folders = [str(found.folders[t.recipe.id]) for t in trials]
    _, answer, _ = process.ask("latency", files=folders, seconds=seconds)
    if answer is None or "error" in answer:
        return None
    shared = {k: answer[k] for k in ("eager_ms", "control", "rounds", "threads")}
    return [dict(shared, **row) for row in answer["files"]]


def profile(process: CaseProcess, found: Repair, trial: Trial) -> dict[str, str]:
    """The facts of profile.py for a trial's file; {} where the profiling process died (they only help the proposals)."""
    _, answer, _ = process.ask("profile", trial=str(found.folders[trial.recipe.id]))
    return dict(answer["facts"]) if answer is not None and "facts" in answer else {}


def race(process: CaseProcess, found: Repair, search: Search, seconds: float, reporter: Reporter) -> None:
    """Measure the winner; while a target is missed, try what strategies propose for "too-slow" and keep what is faster."""
    assert found.winner is not None
    reporter.stage("measuring latency")
    rows = measure(process, found, [found.winner], seconds)
    if rows is None:
        if found.target.wants_latency:
            found.winner = replace(
                found.winner,
                verdict=Verdict.SLOW,
                stage=Stage.LATENCY,
                diagnosis=Diagnosis("too-slow", Stage.LATENCY, {"message": "latency could not be measured"}),
            )
            found.stopped = "latency could not be measured"
        return
    found.winner = replace(found.winner, latency=rows[0])
    if found.target.wants_latency:
        for _ in range(ROUNDS):
            if meets(found.winner.latency or {}, found.target) or not improve(process, found, search, seconds, reporter):
                break
        if not meets(found.winner.latency or {}, found.target):
            found.winner = slow(found.winner, found.target)
            found.stopped = search.out_of_budget() or "no strategy makes it faster"
    replace_trial(found, found.winner)


def slow(trial: Trial, target: Target, facts: dict[str, str] | None = None) -> Trial:
    """The trial as one that misses its latency target."""
    row = trial.latency or {}
    wanted = [
        f"at most {target.max_latency_ms} ms" if target.max_latency_ms is not None else "",
        f"at least {target.min_speedup}x eager" if target.min_speedup is not None else "",
    ]
    message = f"{row['ort_ms']:.3g} ms (quartiles {row['q1_ms']:.3g} to {row['q3_ms']:.3g}), {row['speedup']:.2f}x eager"
    message += f"; wanted {' and '.join(filter(None, wanted))}"
    return replace(
        trial, verdict=Verdict.SLOW, stage=Stage.LATENCY, diagnosis=Diagnosis("too-slow", Stage.LATENCY, {"message": message, **(facts or {})})
    )


def replace_trial(found: Repair, trial: Trial) -> None:
    """Put the measured form of a trial in its place in the list."""
    found.trials = [trial if t.recipe.id == trial.recipe.id else t for t in found.trials]


def improve(process: CaseProcess, found: Repair, search: Search, seconds: float, reporter: Reporter) -> bool:
    """One round: attempt every proposal for "too-slow", time those that pass parity together, keep the best."""
    assert found.winner is not None
    reporter.stage("profiling by operator")
    base = slow(found.winner, found.target, profile(process, found, found.winner))
    entrants: list[Trial] = []
    candidates = [Candidate(search.extended(found.winner.recipe, fix, strategy), base, fix, strategy) for fix, strategy in search.proposals(base)]
    for candidate in sorted(candidates, key=search.frontier.rank, reverse=True):
        if search.out_of_budget() or candidate.recipe.id in search.frontier.seen:
            continue
        search.frontier.seen.add(candidate.recipe.id)
        search.begin(candidate)
        trial = search.finish(expand=False)
        if trial.ok:
            entrants.append(trial)
    if not entrants:
        return False
    reporter.stage(f"racing {len(entrants)} faster candidates")
    rows = measure(process, found, [found.winner, *entrants], seconds * 2)
    if rows is None:
        return False
    for trial, row in zip(entrants, rows[1:], strict=True):
        replace_trial(found, replace(trial, latency=row))
    best = min(range(1, len(rows)), key=lambda i: rows[i]["ort_ms"])
    if rows[0]["ort_ms"] < rows[best]["ort_ms"] * WORTH:
        return False
    replace_trial(found, replace(found.winner, latency=rows[0]))
    found.winner = replace(entrants[best - 1], latency=rows[best])
    return True
