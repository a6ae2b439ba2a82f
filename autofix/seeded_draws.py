"""Models that draw random numbers, seeded before each call (`--random seeded`): what the seeded call draws becomes constants of the file.

That makes a narrower model: the same noise at each call, of the example's sizes. `seeded_draws` lists what is drawn, and refuses draws that move
with a dynamic axis: PyTorch's larger draws do not begin with its smaller ones, so no constant holds both.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from autofix.case import InputSet
from autofix.errors import CaseError
from autofix.loading import seed_all
from autofix.random_inputs import drawing_line, fresh_model, is_draw, resized_calls


class SeedsFirst:
    """A forward pre-hook that seeds PyTorch's, Python's and NumPy's generators."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, module: Any, args: Any) -> None:
        seed_all(self.seed)


def seed_draws(model: Any, seed: int) -> Any:
    """The model, which from now on starts each call from the same random state."""
    model.register_forward_pre_hook(SeedsFirst(seed))
    return model


@dataclass(frozen=True)
class Drawn:
    """One draw: the operator or the generator, its place in the person's file, and its shape."""

    operator: str
    file: str
    line: int
    shape: tuple[int, ...]


class DrawnLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The draws of one call, in order."""

    def __init__(self, files: frozenset[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.files, self.draws = files, list[Drawn]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if is_draw(func, args):
            first = out[0] if isinstance(out, tuple) else out
            self.draws.append(Drawn(str(func), *drawing_line(self.files), tuple(first.shape)))
        return out


def draws_of(build: Callable[[], Any], one: InputSet, files: frozenset[str], seed: int) -> list[Drawn]:
    """What one seeded call draws; Python's and NumPy's generators count as drawing where their state changes, under their own name."""
    model, first = fresh_model(build), SeedsFirst(seed)
    first(model, ())
    before = other_states()
    log = DrawnLog(files)
    with torch.no_grad(), log:
        seed_draws(model, seed)(*one.args, **one.kwargs)
    moved = [Drawn(name, "", 0, (hash(state),)) for name, state in other_states().items() if state != before.get(name)]
    return log.draws + moved


def other_states() -> dict[str, Any]:
    """{generator: its state} of Python's and NumPy's random numbers."""
    return {"random": random.getstate(), "numpy.random": pickle.dumps(numpy.random.get_state())}


def seeded_draws(
    build: Callable[[], Any], given: InputSet, axes: dict[str, dict[int, str]], files: frozenset[str], seed: int
) -> list[dict[str, Any]]:
    """[{operator, file, line, shape}] of the draws on the example, [] where nothing is drawn.

    CaseError, with the line, for a draw whose shape moves with a dynamic axis.
    """
    draws = draws_of(build, given, files, seed)
    if not draws:
        return []
    for symbol, _, size, one in resized_calls(build(), given, axes):
        try:
            more = draws_of(build, one, files, seed)
        except Exception:
            continue  # eager refuses this size
        if more != draws:
            moved = next((d for d, m in zip(draws, more, strict=False) if d != m), draws[-1])
            text = f"{moved.operator} can't be kept as a constant (--random seeded): what it draws moves with the dynamic axis {symbol!r}"
            text += f" (other draws at {symbol}={size})"
            raise CaseError(text, file=moved.file, line=moved.line)
    return [{"operator": d.operator, "file": d.file, "line": d.line, "shape": list(d.shape) if d.file or d.line else []} for d in draws]
