"""What a rewritten `for` runs over: ranges, rows, chunks whose number is known only at run time. Pasted like source_runtime.py."""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
import types
from typing import Any

import torch

from autofix.surgery.source_merge import tell


def counted_items(count: Any, get: Any) -> Any:
    """`count` items; `get(i)` gives one, and so does an index."""

    class Items(types.SimpleNamespace):
        def __getitem__(self, i: Any) -> Any:
            if i == slice(None, None, -1):
                return reversed(self)
            return self.get(self.count + i if type(i) is int and i < 0 else i)

        def __reversed__(self) -> Any:
            return counted_items(count, lambda i: get(count - 1 - i))

        def __iter__(self) -> Any:
            raise TypeError("only the graph knows how many pieces there are")

    return Items(count=count, get=get)


def held_part(held: Any, part: slice) -> Any:
    """held[part] of a list of modules or tensors; where only the graph knows the ends, all of it with a flag for each item."""
    ends = [part.start, part.stop]
    if not any(isinstance(e, (torch.Tensor, torch.SymInt)) for e in ends) or not torch.compiler.is_exporting():
        return held[slice(*[int(e) if isinstance(e, torch.Tensor) else e for e in ends])]
    items = list(held)
    first, last = (
        torch.scalar_tensor(default if e is None else e, dtype=torch.int64) if not isinstance(e, torch.Tensor) else e.reshape(())
        for e, default in zip(ends, (0, len(items)))
    )
    first, last = (torch.where(e < 0, e + len(items), e) for e in (first, last))
    keep = [torch.logical_and(first <= k, last > k) for k in range(len(items))]
    return types.SimpleNamespace(items=items, keep=keep, offset=part.start)


def as_size(value: Any) -> Any:
    """A number that may be a tensor, as a Python int or a size."""
    return (
        value.clone().item()
        if isinstance(value, torch.Tensor) and torch.compiler.is_exporting()
        else int(value)
        if isinstance(value, torch.Tensor)
        else value
    )


def row_of(tensor: torch.Tensor, i: Any, dim: int = 0) -> torch.Tensor:
    """tensor.select(dim, i) for an index that is known only at run time."""
    if type(i) is int:
        return tensor.select(dim, i)
    return tensor.index_select(dim, torch.scalar_tensor(i, dtype=torch.int64).reshape(1)).squeeze(dim)


def loop_items(items: Any) -> Any:
    """A list or range of items, or counted items where their number is symbolic."""
    if getattr(items, "is_rows", False) and items.ragged is not None:
        return counted_items(items.sizes.shape[0], items.__getitem__)
    if getattr(items, "is_rows", False):
        items = items.data
    if isinstance(items, torch.Tensor):
        return loop_unbind(items)
    return items


def loop_range(*args: Any) -> Any:
    """range() whose ends may be sizes or tensors."""
    ends = [as_size(a) for a in args]
    if all(type(a) in (int, bool) for a in ends):
        return range(*ends)
    start, stop, step = (0, ends[0], 1) if len(ends) == 1 else (*ends, 1) if len(ends) == 2 else tuple(ends)
    if type(step) is not int:
        raise TypeError("a range whose step is known only at run time can't be captured")
    span = stop - start if step > 0 else start - stop

    def number(i: Any) -> Any:
        value = start + i * step
        tell(value <= stop - 1 if step > 0 else value >= stop + 1)
        return value

    return counted_items(torch.sym_max(0, (span + abs(step) - 1) // abs(step)), number)


def loop_enumerate(items: Any, start: int = 0) -> Any:
    """enumerate() over items whose number may be symbolic."""
    inner = loop_items(items)
    if hasattr(inner, "keep"):
        if inner.offset is not None:
            raise TypeError("the first of a list's items that count is known only at run time")
        return types.SimpleNamespace(items=list(enumerate(inner.items, start)), keep=inner.keep, offset=None)
    if not hasattr(inner, "get"):
        return list(enumerate(inner, start))
    get = inner.get
    return counted_items(inner.count, lambda i: (i + start, get(i)))


def loop_zip(*sequences: Any) -> Any:
    """zip() over items whose number may be symbolic."""
    inner = [loop_items(s) for s in sequences]
    if not any(hasattr(s, "get") for s in inner):
        return list(zip(*inner))
    if not all(hasattr(s, "get") for s in inner):
        fixed = [s if hasattr(s, "get") else torch.stack(list(s)) for s in inner]
        inner = [s if hasattr(s, "get") else counted_items(len(s), lambda i, s=s: row_of(s, i)) for s in fixed]
    gets = [s.get for s in inner]
    counts = [s.count if hasattr(s, "get") else len(s) for s in inner]
    count = counts[0]
    for c in counts[1:]:
        count = count if str(c) == str(count) else torch.sym_min(count, c)
    return counted_items(count, lambda i: tuple(g(i) for g in gets))


def loop_reversed(items: Any) -> Any:
    """reversed() over items whose number may be symbolic."""
    inner = loop_items(items)
    return reversed(inner) if hasattr(inner, "get") else list(reversed(list(inner)))


def loop_unbind(tensor: torch.Tensor, dim: int = 0) -> Any:
    """tensor.unbind(dim) for an axis of symbolic size."""
    count = tensor.shape[dim]
    if type(count) is int:
        return list(tensor.unbind(dim))
    return counted_items(count, lambda i: row_of(tensor, i, dim))


def loop_split(tensor: torch.Tensor, size: Any, dim: int = 0) -> Any:
    """tensor.split(size, dim) where the number of pieces is symbolic."""
    count = tensor.shape[dim]
    size = as_size(size)
    if isinstance(size, (list, tuple)) or (type(count) is int and type(size) is int):
        return list(tensor.split(size, dim))

    def piece(i: Any) -> torch.Tensor:
        length = torch.sym_min(size, count - i * size)
        torch._check(length >= 0)
        torch._check(i * size + length <= count)
        return tensor.narrow(dim, i * size, length)

    return counted_items(torch.sym_max(1, (count + size - 1) // size), piece)


def loop_chunk(tensor: torch.Tensor, chunks: int, dim: int = 0) -> Any:
    """tensor.chunk(chunks, dim) where the number of pieces is symbolic."""
    count = tensor.shape[dim]
    if type(count) is int:
        return list(tensor.chunk(chunks, dim))
    return loop_split(tensor, (count + chunks - 1) // chunks, dim)
