"""`--inputs FILE`: real inputs, recorded by the person, as further input sets.

.npz: arrays named as forward's input leaves (`x`, `cache.0.key`) are one set; with a group before a slash (`day1/x`) several.
.pt: a list of input lists, one list or tuple of inputs, a dict by parameter name, or a list of such dicts (loaded with weights_only).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autofix.adapter import bind_arguments, input_leaves, rebuild_value
from autofix.case import InputSet, one_line
from autofix.errors import CaseError


def sample_sets(file: str, model: Any, given: InputSet) -> list[InputSet]:
    """The sets of a file of samples; raises CaseError where it can't be read or does not fit forward."""
    path = Path(file)
    try:
        calls = npz_calls(path, model, given) if path.suffix == ".npz" else saved_calls(path)
    except CaseError:
        raise
    except Exception as error:  # NumPy, zipfile and torch each have errors of their own
        raise CaseError(f"the samples can't be read: {one_line(error)}", file=file) from error
    if not calls:
        raise CaseError("holds no samples", file=file)
    sets = []
    for i, (args, kwargs) in enumerate(calls):
        try:
            bind_arguments(model.forward, args, kwargs)
        except TypeError as error:
            raise CaseError(f"sample {i + 1} does not fit forward: {error}", file=file) from error
        sets.append(InputSet(f"sample {i + 1}", "sample", args, kwargs))
    return sets


def saved_calls(path: Path) -> list[tuple[list[Any], dict[str, Any]]]:
    """The calls in a .pt file."""
    import torch

    data = torch.load(str(path), map_location="cpu", weights_only=True)
    if isinstance(data, dict):
        return [([], data)]
    if isinstance(data, torch.Tensor):
        return [([data], {})]
    if all(isinstance(one, dict) for one in data):
        return [([], one) for one in data]
    if all(isinstance(one, (list, tuple)) for one in data):
        return [(list(one), {}) for one in data]
    return [(list(data), {})]


def npz_calls(path: Path, model: Any, given: InputSet) -> list[tuple[list[Any], dict[str, Any]]]:
    """The calls in a .npz file: the given call with the leaves that the file names in its place."""
    import numpy as np
    import torch

    groups: dict[str, dict[str, Any]] = {}
    with np.load(str(path), allow_pickle=False) as arrays:
        for key in arrays.files:
            group, _, name = key.rpartition("/")
            groups.setdefault(group, {})[name] = arrays[key]
    leaves = input_leaves(model.forward, given.args, given.kwargs)
    calls = []
    for named in groups.values():
        unknown = sorted(set(named) - {n for n, _ in leaves})
        if unknown:
            raise CaseError(f"names {', '.join(unknown)}; forward's inputs are {', '.join(n for n, _ in leaves)}", file=str(path))
        values = [as_leaf(named[n], old, torch) if n in named else old for n, old in leaves]
        rest = iter(values)
        calls.append((rebuild_value(given.args, rest), rebuild_value(given.kwargs, rest)))
    return calls


def as_leaf(array: Any, old: Any, torch: Any) -> Any:
    """An array as the kind of leaf that the given call has there."""
    return torch.from_numpy(array.copy()) if isinstance(old, torch.Tensor) else array.item()
