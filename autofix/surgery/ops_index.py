"""Single whole numbers in tensors used as indices: gathered and scattered in the graph, where a capture would ask for their values.

`x[i]` with a 0-d integer tensor is a selection, as with a Python int: the axis goes away, and the rest of the index is basic indexing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def is_single_index(value: Any) -> bool:
    """Whether an index is a 0-d tensor of whole numbers."""
    return isinstance(value, Tensor) and value.ndim == 0 and not value.dtype.is_floating_point and value.dtype != torch.bool


def split_index(x: Tensor, index: Any) -> tuple[tuple[Any, ...], list[tuple[int, Tensor]]] | None:
    """(the basic index that leaves the selected axes whole, [(axis after it, index tensor)]); None where other tensors index too."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if not any(is_single_index(p) for p in parts):
        return None
    if any(isinstance(p, (list, bool)) or (isinstance(p, Tensor) and not is_single_index(p)) for p in parts):
        return None
    if any(p is Ellipsis for p in parts):
        place = next(k for k, p in enumerate(parts) if p is Ellipsis)
        used = sum(p is not None and p is not Ellipsis for p in parts)
        parts[place : place + 1] = [slice(None)] * (x.ndim - used)
    basic: list[Any] = []
    chosen: list[tuple[int, Tensor]] = []
    axis = 0
    for part in parts:
        if is_single_index(part):
            chosen.append((axis, part))
            part = slice(None)
        basic.append(part)
        axis += part is None or isinstance(part, slice)
    return tuple(basic), chosen


def nonnegative(index: Tensor, size: Any) -> Tensor:
    """[index] with an index from the end counted from the start, int64."""
    index = index.reshape(1).to(torch.int64)
    return torch.where(index < 0, index + size, index)


def take_single(original: Callable[..., Any]) -> Callable[..., Any]:
    """Tensor.__getitem__."""

    def getitem(x: Tensor, index: Any) -> Any:
        split = split_index(x, index)
        if split is None:
            return original(x, index)
        basic, chosen = split
        out = original(x, basic)
        for axis, at in reversed(chosen):
            out = out.index_select(axis, nonnegative(at, out.shape[axis])).squeeze(axis)
        return out

    return getitem


def put_single(original: Callable[..., Any], take: Callable[..., Any]) -> Callable[..., Any]:
    """Tensor.__setitem__."""

    def setitem(x: Tensor, index: Any, value: Any) -> None:
        split = split_index(x, index)
        if split is None:
            original(x, index, value)
            return
        basic, chosen = split
        view = take(x, basic)
        kept = [n for k, n in enumerate(view.shape) if k not in {axis for axis, _ in chosen}]
        new = value.to(x.dtype) if isinstance(value, Tensor) else torch.full((), value, dtype=x.dtype)
        while new.ndim > len(kept):  # leading axes of size 1, as assignment allows
            new = new.squeeze(0)
        new = new.expand(kept)
        put_along(view, chosen, new)

    return setitem


def put_along(view: Tensor, chosen: list[tuple[int, Tensor]], new: Tensor) -> None:
    """Write `new`, which lacks the chosen axes, into the view at these places."""
    axis, at = chosen[-1]
    place = nonnegative(at, view.shape[axis])
    if len(chosen) > 1:  # the slice at the last index, changed and put back
        inner = view.index_select(axis, place).squeeze(axis).clone()
        put_along(inner, chosen[:-1], new)
        new = inner
    view.index_copy_(axis, place, new.unsqueeze(axis))


def index_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Replacements of the two item methods."""
    take, put = torch.Tensor.__getitem__, torch.Tensor.__setitem__
    return {take: take_single(take), put: put_single(put, take)}
