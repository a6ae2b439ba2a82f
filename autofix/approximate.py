"""Approximate recipes in a trial: exact parity first, then the error budget, and the nodes to leave in float32 where it breaks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofix.recipe import Fix, Level, Recipe
from autofix.target import Effect

if TYPE_CHECKING:
    from autofix.attempt import Workpiece
    from autofix.search import Search
    from autofix.strategy import Strategy
    from autofix.trial import Trial

OVER = "over-error-budget"
APPROXIMATE_MARK = "approximate"
"""An empty file in the folder of a trial whose recipe is approximate."""
FALLBACKS = 3
"""How often nodes go back to float32 for one approximate fix. Each time the choice starts from the error that was measured."""
TRIED_ON = 3
"""Real input sets on which the nodes to keep are chosen."""


def approximate_fixes(recipe: Recipe, registry: Mapping[str, Strategy]) -> list[Fix]:
    """The fixes of a recipe that move numbers."""
    return [f for f in recipe.fixes if registry[f.strategy].effect_of(f) is Effect.APPROXIMATE]


def exact_part(recipe: Recipe, registry: Mapping[str, Strategy]) -> Recipe:
    """The recipe without the fixes that move numbers."""
    lossy = {f.key() for f in approximate_fixes(recipe, registry)}
    return Recipe(tuple(f for f in recipe.fixes if f.key() not in lossy), recipe.start)


def passed_mark(folder: Path, recipe: Recipe) -> Path:
    """The empty file beside the trials' folders that says that an exact recipe passed parity in this process."""
    return folder.parent / f"passed-{recipe.id}"


def apply_onnx_fixes(piece: Workpiece, proto: Any) -> Any:
    """Apply the ONNX fixes; those of an approximate recipe after its exact part has passed parity. Raises StageFailed where that fails."""
    import onnx

    from autofix.attempt import run_and_verify, save_model

    if not approximate_fixes(piece.recipe, piece.registry):
        for apply, params in piece.fixes(Level.ONNX):
            proto = apply(proto, **params)
        return proto
    (piece.folder / APPROXIMATE_MARK).touch()
    exact = exact_part(piece.recipe, piece.registry)
    if piece.max_error is not None and not passed_mark(piece.folder, exact).exists():
        plain = type(proto)()
        plain.CopyFrom(proto)
        for fix in exact.at(Level.ONNX):
            plain = piece.registry[fix.strategy].apply(plain, **fix.params)
        path = piece.folder / "exact.onnx"
        save_model(plain, path)
        run_and_verify(piece, plain, path, None)
        passed_mark(piece.folder, exact).touch()
    lossy = {f.key() for f in approximate_fixes(piece.recipe, piece.registry)}
    from autofix.calibration import calibrating, feeds_of

    sets = [s for s in piece.case.sets if s.origin != "calibration"] + piece.case.calibration
    for fix in piece.recipe.at(Level.ONNX):
        strategy = piece.registry[fix.strategy]
        if fix.key() in lossy and piece.max_error is not None and hasattr(strategy, "nodes_to_keep"):
            save_model(proto, before_path(piece.folder))
            proto = onnx.load(str(before_path(piece.folder)))  # where the file is large, saving has moved the weights out of `proto`
        with calibrating(feeds_of(piece.model, sets, [i.name for i in proto.graph.input])):
            proto = strategy.apply(proto, **fix.params)
    return proto


def before_path(folder: Path) -> Path:
    """The model as it was before its approximate fix."""
    return folder / "before.onnx"


def fallback_facts(piece: Workpiece, error: float) -> dict[str, str]:
    """Facts for a recipe over its budget: `keep`, a JSON list of values (by name) whose nodes must stay in float32 for the rest to
    keep within it, and `kept_share`, their part of the arithmetic; {} where no fix can leave nodes out or none would be left."""
    import onnx

    from autofix.verify import make_feed

    fixes = [f for f in approximate_fixes(piece.recipe, piece.registry) if hasattr(piece.registry[f.strategy], "nodes_to_keep")]
    if not fixes or piece.max_error is None or piece.signature is None or not before_path(piece.folder).exists():
        return {}
    strategy: Any = piece.registry[fixes[-1].strategy]
    outputs = [str(o["source"]) for o in piece.signature["outputs"]]
    runs = []
    for one in [s for s in piece.reference.sets if s.origin != "generated"][:TRIED_ON]:
        expected = {**dict(one.outputs), **{"buffers." + n: v for n, v in one.state_after.items()}}
        runs.append((make_feed(one, piece.signature["inputs"]), [expected[name] for name in outputs]))
    model = onnx.load(str(before_path(piece.folder)))
    keep, share = strategy.nodes_to_keep(model, runs, piece.max_error, error, **fixes[-1].params)
    return {"keep": json.dumps(keep), "kept_share": f"{share:.3f}"} if keep else {}


def within_budget(search: Search, trial: Trial) -> Trial:
    """A trial that is over its error budget, followed by trials with more nodes in float32; returns the last of them."""
    from autofix.frontier import Candidate

    for _ in range(FALLBACKS):
        if trial.diagnosis is None or trial.diagnosis.symptom != OVER or search.out_of_budget():
            break
        proposed = [(search.extended(trial.recipe, fix, strategy), fix, strategy) for fix, strategy in search.proposals(trial)]
        fresh = [p for p in proposed if p[0].id not in search.frontier.seen]
        if not fresh:
            break
        recipe, fix, strategy = fresh[0]
        search.frontier.seen.add(recipe.id)
        search.begin(Candidate(recipe, trial, fix, strategy))
        trial = search.finish(expand=False)
    return trial
