"""Whether a deep copy of a model is a model of its own. `copy.deepcopy` copies no functions: a hook or a stored lambda that closes over the
model goes on reading and writing the original."""

from __future__ import annotations

import copy
import functools
from types import FunctionType
from typing import Any

import torch

DEEPEST = 4


def tied_to_original(value: Any, depth: int = 0) -> bool:
    """Whether `value` is, or holds, a function that closes over a module, a tensor or a container (or has one as a default value)."""
    if depth > DEEPEST:
        return False
    if isinstance(value, FunctionType):
        held = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        for cell in value.__closure__ or ():
            try:
                held.append(cell.cell_contents)
            except ValueError:  # the cell is still empty
                continue
        return any(isinstance(h, (torch.nn.Module, torch.Tensor, list, dict, set)) or tied_to_original(h, depth + 1) for h in held)
    if isinstance(value, functools.partial):
        return tied_to_original(value.func, depth + 1)
    if isinstance(value, dict):
        return any(tied_to_original(v, depth + 1) for v in value.values())
    if isinstance(value, (list, tuple, set)):
        return any(tied_to_original(v, depth + 1) for v in value)
    return False


def own_copy(model: torch.nn.Module) -> Any:
    """A deep copy that shares nothing with `model`; None where there is no such copy."""
    if any(tied_to_original(value) for module in model.modules() for value in vars(module).values()):
        return None
    try:
        return copy.deepcopy(model)
    except Exception:
        return None
