"""What a trial can take over from its parent: the verified file, where the recipe only adds ONNX and runtime fixes to the parent's.

Capture and conversion, most of a trial's time, are skipped then; the file is verified on every input set as always.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofix.recipe import Level, Recipe

if TYPE_CHECKING:
    from autofix.attempt import Workpiece
    from autofix.frontier import Candidate
    from autofix.strategy import Strategy


def extends(recipe: Recipe, parent: Recipe) -> bool:
    """Whether a recipe is its parent with ONNX fixes after the parent's own, and any runtime fixes."""

    def keys(of: Recipe, levels: list[Level]) -> list[str]:
        return [f.key() for level in levels for f in of.at(level)]

    earlier = [level for level in Level if level < Level.ONNX]
    before = keys(parent, [Level.ONNX])
    same = recipe.start == parent.start and keys(recipe, earlier) == keys(parent, earlier)
    return same and keys(recipe, [Level.ONNX])[: len(before)] == before


def parent_file(candidate: Candidate, folders: Mapping[str, Path], registry: Mapping[str, Strategy]) -> dict[str, Any]:
    """{"parent": what `reused` needs} where a candidate's parent passes parity and its file can be taken over, else {}."""
    from autofix.trial import Stage

    parent = candidate.parent
    if parent is None or parent.stage < Stage.LATENCY or not extends(candidate.recipe, parent.recipe):
        return {}
    folder = folders.get(parent.recipe.id)
    if folder is None or not (folder / "model.onnx").exists():
        return {}
    from autofix.approximate import approximate_fixes

    if parent.recipe.at(Level.ONNX) and approximate_fixes(candidate.recipe, registry):
        return {}  # its exact part is verified first, on the file before any ONNX fix
    return {"parent": {"folder": str(folder), "recipe": parent.recipe.to_json(), "baked": list(parent.effect_evidence)}}


def reused(piece: Workpiece, parent: Mapping[str, Any]) -> Any:
    """The ModelProto made of the parent's file: its further ONNX fixes are applied, all runtime fixes noted. Where there are none of the former,
    the file itself is taken over too (`piece.saved`), and the proto is without its weights."""
    import onnx

    from autofix.approximate import apply_onnx_fixes
    from autofix.attempt import final_config
    from autofix.sources import source_names
    from autofix.trial import Stage

    folder = Path(parent["folder"])
    before = Recipe.from_json(parent["recipe"])
    piece.config = final_config(piece.recipe, piece.registry, piece.target)
    piece.files = dict(source_names(piece.case.sources, piece.case.spec.file))
    piece.baked = list(parent["baked"])
    piece.progress.enter(Stage.CONVERT)
    if (folder / "sources.json").exists():
        shutil.copyfile(folder / "sources.json", piece.folder / "sources.json")
    for apply, params in piece.fixes(Level.RUNTIME):
        piece.settings = apply(piece.settings, **params)
    piece.applied = len(before.at(Level.ONNX))
    piece.saved = len(piece.recipe.at(Level.ONNX)) == piece.applied
    if not piece.saved:
        return apply_onnx_fixes(piece, onnx.load(str(folder / "model.onnx")))
    for file in folder.glob("model.onnx*"):
        shutil.copyfile(file, piece.folder / file.name)  # onnx refuses weights in files with a second name
    return onnx.load(str(folder / "model.onnx"), load_external_data=False)
