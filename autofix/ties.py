"""Places of the outputs that hang on how equal entries are ordered, where PyTorch does not say (torch.sort without stable=True, topk).

tied_places(eager, leaves, outputs, ...) -> [a boolean tensor for each output]: the places that change when equal entries are put in other orders
    (first first, last first, two random ones); None where nothing is sorted, or other orders change a shape or do not run.
x86 processors with AVX-512 sort in an order of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from autofix.eager import Eager, Leaves

SORTS = frozenset(("aten.sort.default", "aten.sort.stable", "aten.argsort.default", "aten.argsort.stable"))
SORTING = SORTS | {"aten.topk.default"}
FIRST, LAST = 0, 1
ORDERS = (FIRST, LAST, 2, 3)
MOST_TIED = 0.1
"""Share of an output's places that may be tied; more of them, and nothing would be left to hold a file to."""


def sort_arguments(name: str, args: Any, kwargs: Any) -> tuple[int, bool, bool]:
    """(dim, descending, stable) of a sort's call."""
    given = dict(kwargs or {})
    if name.endswith(".default"):
        given |= dict(zip(("dim", "descending"), args[1:], strict=False))
    return int(given.get("dim", -1)), bool(given.get("descending", False)), bool(given.get("stable") or False)


def ordered_entries(x: torch.Tensor, dim: int, descending: bool, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, indices) of a sort that puts the first of equal entries first (seed 0), the last (1), or whichever comes first in a random order."""
    if seed == FIRST or not x.dim():
        values, indices = torch.sort(x, dim=dim, descending=descending, stable=True)
        return values, indices
    places = torch.arange(x.shape[dim]).flip(0)
    if seed != LAST:
        places = torch.randperm(x.shape[dim], generator=torch.Generator().manual_seed(seed))
    values, indices = torch.sort(x.index_select(dim, places), dim=dim, descending=descending, stable=True)
    return values, places[indices]


def has_own_order(name: str, args: Any, kwargs: Any, out: Any) -> bool:
    """Whether a sort that need not be stable left equal entries in another order than a stable one would."""
    dim, descending, stable = sort_arguments(name, args, kwargs)
    if stable or not isinstance(args[0], torch.Tensor):
        return False
    indices = out if isinstance(out, torch.Tensor) else out[1]
    return not torch.equal(indices, ordered_entries(args[0], dim, descending, FIRST)[1])


class TieOrder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Orders equal entries as ordered_entries does in sorts that need not be stable, and in topk; `met` tells whether there were any."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seed, self.met = seed, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        self.met |= name in SORTING
        if name in SORTS:
            dim, descending, stable = sort_arguments(name, args, kwargs)
            if not stable:
                values, indices = ordered_entries(args[0], dim, descending, self.seed)
                return indices if "argsort" in name else (values, indices)
        if name == "aten.topk.default" and args[0].dim():
            given = dict(zip(("k", "dim", "largest", "sorted"), args[1:], strict=False)) | dict(kwargs or {})
            dim, count = int(given.get("dim", -1)), int(given["k"])
            values, indices = ordered_entries(args[0], dim, bool(given.get("largest", True)), self.seed)
            return values.narrow(dim, 0, count), indices.narrow(dim, 0, count)
        return func(*args, **(kwargs or {}))


def tied_places(
    eager: Eager, leaves: Leaves, outputs: Leaves, template: Any = None, state: dict[str, torch.Tensor] | None = None
) -> list[torch.Tensor] | None:
    """See the module's docstring. state: the values of buffers that forward changes, before the call."""
    from autofix.shake import model_in_state

    places = [torch.zeros(v.shape, dtype=torch.bool) for _, v in outputs]
    for seed in ORDERS:
        try:
            model = model_in_state(eager, state) if state else None
            with TieOrder(seed) as order:
                other = eager.call(leaves, model, template).outputs
        except Exception:  # a model that does not run under a mode is held to what it gave
            return None
        if not order.met:
            return None
        if [v.shape for _, v in other] != [v.shape for _, v in outputs]:
            return None
        for place, (_, a), (_, b) in zip(places, outputs, other, strict=True):
            place |= (a != b) & ~((a != a) & (b != b))
    return places


def few_tied(places: list[torch.Tensor] | None) -> list[torch.Tensor] | None:
    """The places, without those of outputs that have too many of them."""
    if places is None:
        return None
    return [p if float(p.sum()) <= MOST_TIED * p.numel() else torch.zeros_like(p) for p in places]
