"""Models that draw random numbers, seeded before each call (`--random seeded`): what the seeded call draws becomes constants of the file.

That makes a narrower model: the same noise at each call, of the example's sizes. `seeded_draws` lists what is drawn, and refuses draws that move
with a dynamic axis: PyTorch's larger draws do not begin with its smaller ones, so no constant holds both.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field
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


OTHER_GENERATORS = ("random", "numpy.random")
OTHER_SEEDS = 4
"""So many other seeds tell a draw from one that the model itself seeds, which is the same under every seed."""


@dataclass(frozen=True)
class Drawn:
    """One draw: the operator or the generator, its place in the person's file, its shape, and a hash of what was drawn."""

    operator: str
    file: str
    line: int
    shape: tuple[int, ...]
    value: int = field(compare=False)


class DrawnLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The draws of one call, in order."""

    def __init__(self, files: frozenset[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.files, self.draws = files, list[Drawn]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if is_draw(func, args):
            first = out[0] if isinstance(out, tuple) else out
            value = hash(first.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
            self.draws.append(Drawn(str(func), *drawing_line(self.files), tuple(first.shape), value))
        return out


def draws_of(build: Callable[[], Any], one: InputSet, files: frozenset[str], seed: int) -> list[Drawn]:
    """What one seeded call draws; Python's and NumPy's generators count as drawing where their state changes, under their own name."""
    model, first = fresh_model(build), SeedsFirst(seed)
    first(model, ())
    before = other_states()
    log = DrawnLog(files)
    with torch.no_grad(), log:
        seed_draws(model, seed)(*one.args, **one.kwargs)
    after = {name: hash(state) for name, state in other_states().items() if state != before[name]}
    return log.draws + [Drawn(name, "", 0, (), value) for name, value in after.items()]


def other_states() -> dict[str, Any]:
    """{generator: its state} of Python's and NumPy's random numbers."""
    return dict(zip(OTHER_GENERATORS, (random.getstate(), pickle.dumps(numpy.random.get_state())), strict=True))


def seeded_draws(
    build: Callable[[], Any], given: InputSet, axes: dict[str, dict[int, str]], files: frozenset[str], seed: int
) -> list[dict[str, Any]]:
    """[{operator, file, line, shape}] of the draws on the example, [] where nothing is drawn but what the model seeds itself.

    CaseError, with the line, for a draw whose shape moves with a dynamic axis.
    """
    draws = draws_of(build, given, files, seed)
    others = [draws_of(build, given, files, seed + more) for more in range(1, 1 + OTHER_SEEDS)] if draws else []
    free = [d for i, d in enumerate(draws) if any(len(o) != len(draws) or o[i].value != d.value for o in others)]
    if not free:
        return []
    for symbol, _, size, one in resized_calls(build(), given, axes):
        try:
            more = draws_of(build, one, files, seed)
        except Exception:
            continue  # eager refuses this size
        moves = [d for d, m in zip(draws, more, strict=False) if d != m or (d.operator in OTHER_GENERATORS and d.value != m.value)]
        if moves or len(more) != len(draws):
            moved = (moves or draws)[0]
            text = f"{moved.operator} can't be kept as a constant (--random seeded): what it draws moves with the dynamic axis {symbol!r}"
            text += f" (other draws at {symbol}={size})"
            raise CaseError(text, file=moved.file, line=moved.line)
    return [{"operator": d.operator, "file": d.file, "line": d.line, "shape": list(d.shape)} for d in free]
