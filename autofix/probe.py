"""Further reference sets at sizes where a capture's own size tests turn over, and a file's parity on them.

Runs in a child forked from the case process, never in a trial's: the model must be untouched there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autofix.case import Case, InputSet
from autofix.target import Target


def size_name(sizes: dict[str, int]) -> str:
    """The set's name."""
    return "sizes " + ", ".join(f"{k}={v}" for k, v in sizes.items())


def add_sets(case: Case, folder: Path, wanted: list[dict[str, int]]) -> list[Any]:
    """Reference sets at these sizes, kept beside the reference for the trials to come; what eager refuses is left out."""
    import torch

    from autofix.eager import Eager
    from autofix.reference import finish_set
    from autofix.values import fresh_leaf, make_plans

    torch.set_num_threads(1)
    eager = Eager(case)
    plans = make_plans(eager.example, case.axes)
    rng = torch.Generator().manual_seed(case.spec.seed + 29)
    made = []
    for sizes in wanted:
        leaves = [(p.name, fresh_leaf(p, sizes, "usual", rng)) for p in plans]
        try:
            call = eager.call(leaves)
        except Exception:  # a size that eager itself refuses is no size of the model
            continue
        record, ill = finish_set(eager, InputSet(size_name(sizes), "generated", [], {}), leaves, call, None, anchor=True, kind="sizes")
        if not ill:
            made.append(record)
    if made:
        number = len(list(folder.glob("extra-*.pt")))
        torch.save([dict(vars(s)) for s in made], folder / f"extra-{number:02d}.pt")
    return made


def probe_file(
    case: Case, reference_folder: Path, trial_folder: Path, signature: dict[str, Any], wanted: list[dict[str, int]], target: Target
) -> dict[str, Any]:
    """Parity of a trial's model.onnx on new sets at these sizes: {"rows", "symptom", "facts"}."""
    from autofix.approximate import APPROXIMATE_MARK
    from autofix.reference import Reference, load_reference
    from autofix.session import SessionSettings, open_session
    from autofix.verify import verify_sets

    made = add_sets(case, reference_folder, wanted)
    if not made:
        return {"rows": [], "symptom": "", "facts": {}}
    reference = load_reference(str(reference_folder))
    settings = SessionSettings.from_json(json.loads((trial_folder / "session.json").read_text()))
    session = open_session(str(trial_folder / "model.onnx"), settings, target.threads)
    names = {s.name for s in made}
    whole = Reference(reference.sets, reference.facts)
    lossy = (trial_folder / APPROXIMATE_MARK).exists()
    outcome = verify_sets(
        whole, lambda feed: list(session.run(None, feed)), target, signature, only=names, max_error=target.max_error if lossy else None
    )
    return {"rows": outcome.rows, "symptom": outcome.symptom, "facts": outcome.facts}
