"""Lists that grow in the graph, and how the variables of a loop are carried. Pasted into rewritten files like source_runtime.py."""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
from typing import Any

import torch

from autofix.surgery.source_items import row_of
from autofix.surgery.source_merge import UNSET, as_dtype, as_scalar, is_number, is_same_constant, number_dtype, promoted_dtype


def opened(value: Any) -> Any:
    """Lists that grew in the graph as plain containers of their tensor."""
    if getattr(value, "is_rows", False):
        return {"rows": value.data, "ragged": value.ragged, "sizes": value.sizes}
    if isinstance(value, (list, tuple)):
        return type(value)(opened(v) for v in value) if type(value) in (list, tuple) else value
    return value


def closed(value: Any) -> Any:
    """The inverse of `opened`."""
    if isinstance(value, dict) and set(value) == {"rows", "ragged", "sizes"}:
        return grown_rows(value["rows"], value["ragged"], sizes=value["sizes"])
    if type(value) in (list, tuple):
        return type(value)(closed(v) for v in value)
    return value


def grown_rows(data: Any, ragged: Any, blind: bool = False, sizes: Any = None) -> Any:
    """A list of tensors kept as one tensor: stacked along a new first axis, or (`ragged`) joined along that axis.

    blind: it may be appended to and not read (a turn that only counts). sizes: how long the joined tensors are.
    """

    class Rows:
        is_rows = True

        def __init__(self) -> None:
            self.data, self.ragged, self.blind, self.sizes = data, ragged, blind, sizes
            if ragged is not None and sizes is None:
                self.sizes = torch.zeros(0, dtype=torch.int64, device=data.device)

        def read(self) -> Any:
            if self.blind:
                raise TypeError("a list of unknown length is read while it grows")
            return self.data

        def append(self, item: Any) -> None:
            item = item if isinstance(item, torch.Tensor) else torch.scalar_tensor(item, dtype=self.data.dtype)
            new = item.unsqueeze(0) if self.ragged is None else item
            if self.ragged is not None:
                self.sizes = torch.cat([self.sizes, torch.scalar_tensor(item.shape[self.ragged], dtype=torch.int64).reshape(1)])
            self.data = torch.cat([self.data, new.to(self.data.dtype)], self.ragged or 0)

        def extend(self, items: Any) -> None:
            for item in items:
                self.append(item)

        def reverse(self) -> None:
            self.data = self[::-1].data

        def __iadd__(self, items: Any) -> Any:
            self.extend(items)
            return self

        def __reversed__(self) -> Any:
            return self[::-1]

        def __getitem__(self, index: Any) -> Any:
            if self.ragged is not None and not isinstance(index, slice):
                return ragged_item(self.read(), self.sizes, self.ragged, index)
            if self.ragged is not None:
                raise TypeError("a part is taken of a list of tensors of several sizes that grew in the graph")
            if not isinstance(index, slice):
                return self.read()[index]
            back = index == slice(None, None, -1)
            return grown_rows(self.read().flip(0) if back else self.read()[index], None)

        def __iter__(self) -> Any:
            raise TypeError("a list that grew in the graph has as many items as only the graph knows")

        def __bool__(self) -> bool:
            raise TypeError("whether a list that grew in the graph is empty is known only at run time")

    return Rows()


def ragged_item(data: torch.Tensor, sizes: torch.Tensor, axis: int, index: Any) -> torch.Tensor:
    """One of the tensors of these sizes that were joined along an axis."""
    length, end = row_of(sizes, index).item(), row_of(sizes.cumsum(0), index).item()
    torch._check(length >= 0)
    torch._check(end - length >= 0)
    torch._check(end <= data.shape[axis])
    return data.narrow(axis, end - length, length)


def even_lists(values: Any, *branches: Any) -> Any:
    """The variables of a branch with the lists that some branch lengthens as grown rows; None where there is no such list.

    branches: of each, what it returns and the copies of the variables that it worked on.
    """
    out = list(values)
    for i, value in enumerate(values):
        if type(value) is not list:
            continue
        longest = max((copies[i] for _, copies in branches), key=len)
        if any(len(copies[i]) != len(value) for _, copies in branches) and longest:
            out[i] = as_rows(value, longest)
        for (one, _), (two, copies) in zip(branches, branches[::-1]):
            for p, q in zip(one, two):
                if q is copies[i] and getattr(p, "is_rows", False) and out[i] is value:
                    out[i] = rows_like(p, value)
    return out if any(a is not b for a, b in zip(out, values)) else None


def rows_like(model: Any, items: list[Any]) -> Any:
    """Grown rows of the kind of others, with the items of a list."""
    shape = [0 if d == (model.ragged or 0) else n for d, n in enumerate(model.data.shape)]
    rows = grown_rows(torch.zeros(shape, dtype=model.data.dtype, device=model.data.device), model.ragged)
    for item in items:
        rows.append(item)
    return rows


def as_rows(items: list[Any], like: Any) -> Any:
    """A Python list as grown rows; `like` holds at least one element of the kind."""
    tensors = [v if isinstance(v, torch.Tensor) else torch.zeros((), dtype=torch.tensor(kind_of(v)).dtype) for v in like]
    dim = tensors[0].dim()
    free = [d for d in range(dim) if any(not is_same_constant(t.shape[d], tensors[0].shape[d]) or not _known(t.shape[d]) for t in tensors)]
    if len(free) > 1:
        raise TypeError("a list of tensors that differ along several axes can't be kept in the graph")
    if not free:
        shape = [0, *tensors[0].shape]
        start = torch.zeros(shape, dtype=tensors[0].dtype, device=tensors[0].device)
        rows = grown_rows(start, None)
    else:
        shape = [0 if d == free[0] else s for d, s in enumerate(tensors[0].shape)]
        rows = grown_rows(torch.zeros(shape, dtype=tensors[0].dtype, device=tensors[0].device), free[0])
    for item in items:
        rows.append(item)
    return rows


def kind_of(number: Any) -> Any:
    """A number of the kind of another that may be known only at run time."""
    return False if isinstance(number, (bool, torch.SymBool)) else 0 if isinstance(number, (int, torch.SymInt)) else 0.0


def _known(size: Any) -> bool:
    return type(size) is int or not any(str(s).startswith("u") for s in size.node.expr.free_symbols)


def stack_list(items: Any, dim: int = 0, **_: Any) -> torch.Tensor:
    """torch.stack for lists that may have grown in the graph."""
    if not getattr(items, "is_rows", False):
        return torch.stack(items, dim)
    if items.ragged is not None:  # what eager stacks is of one size, although nothing here says so
        data, at = items.read(), items.ragged
        each = (
            torch.scalar_tensor(data.shape[at], dtype=torch.int64)
            .div(torch.scalar_tensor(items.sizes.shape[0], dtype=torch.int64).clamp(min=1), rounding_mode="floor")
            .item()
        )
        torch._check(each >= 0)
        torch._check(each <= data.shape[at])
        shape = [*data.shape[:at], items.sizes.shape[0], each, *data.shape[at + 1 :]]
        return data.reshape(shape).movedim(at, dim)
    return items.read().movedim(0, dim) if dim else items.read()


def cat_list(items: Any, dim: int = 0, **_: Any) -> torch.Tensor:
    """torch.cat for lists that may have grown in the graph."""
    if not getattr(items, "is_rows", False):
        return torch.cat(items, dim)
    data = items.read()
    if items.ragged is not None:
        if dim % data.dim() != items.ragged:
            raise TypeError("tensors of several sizes can be joined along the axis that differs only")
        return data.clone()
    dim = dim % (data.dim() - 1)
    return data.movedim(0, dim).flatten(dim, dim + 1)


def as_list(items: Any) -> Any:
    """list() of what may be a list that grew in the graph, or the pieces of a tensor."""
    return items if getattr(items, "is_rows", False) or hasattr(items, "get") else list(items)


def pad_rows(items: Any, batch_first: bool, value: Any) -> torch.Tensor:
    """pad_sequence of a list that grew in the graph."""
    data, sizes = items.read(), items.sizes
    if items.ragged is None:
        return data if batch_first else data.transpose(0, 1)
    if items.ragged:
        raise TypeError("tensors that differ along another axis than the first can't be padded")
    longest = sizes.max().item()
    torch._check(longest >= 0)
    steps = torch.arange(longest)
    inside = steps < sizes[:, None]
    place = torch.where(inside, (sizes.cumsum(0) - sizes)[:, None] + steps, data.shape[0])
    filled = torch.cat([data, data.new_full([1, *data.shape[1:]], value)])  # what lies outside of a tensor is its last row
    out = filled.index_select(0, place.reshape(-1)).reshape(sizes.shape[0], longest, *data.shape[1:])
    return out if batch_first else out.transpose(0, 1)


def list_length(items: Any) -> Any:
    """len() that keeps sizes of tensors and of grown lists symbolic."""
    if getattr(items, "is_rows", False):
        return items.read().shape[0] if items.ragged is None else items.sizes.shape[0]
    if hasattr(items, "get") and hasattr(items, "count"):
        return items.count
    return items.shape[0] if isinstance(items, torch.Tensor) else len(items)


def loop_slot(first: Any, last: Any, changed: bool) -> Any:
    """How one leaf is carried through a loop: "fixed", "number" or "tensor"; `vary` are the axes whose size changes, `steady` those of
    them that get longer by the same in every turn."""

    class Slot:
        def __init__(self) -> None:
            self.first, self.vary, self.kind = first, (), "fixed"
            self.growth: dict[int, int] = {}
            self.caps: dict[int, Any] = {}
            self.steady: set[int] = set()
            self.low: Any = None
            if not changed:
                return
            if first is UNSET and is_number(last):
                self.first = 0
            if is_number(self.first) and is_number(last):
                self.kind, self.dtype = (
                    "number",
                    promoted_dtype(number_dtype(self.first), number_dtype(last)) if first is not UNSET else number_dtype(last),
                )
                return
            if not isinstance(last, torch.Tensor) or not (isinstance(first, torch.Tensor) or is_number(first) or first is UNSET):
                raise TypeError(f"a loop turns {type(first).__name__} into {type(last).__name__}")
            self.kind, self.dtype = "tensor", last.dtype
            if first is UNSET:
                self.first = torch.zeros([s if _known(s) else 0 for s in last.shape], dtype=last.dtype, device=last.device)
            elif is_number(first):
                if not all(_known(s) for s in last.shape):
                    raise TypeError("a loop turns a number into a tensor of unknown size")
                self.dtype = promoted_dtype(number_dtype(first), last.dtype) if last.dtype.is_floating_point else last.dtype
                self.first = as_scalar(first, last.dtype).expand(last.shape)
            else:
                self.dtype = promoted_dtype(first.dtype, last.dtype)
                if first.dim() != last.dim():
                    raise TypeError(f"a loop turns {first.dim()} dimensions into {last.dim()}")
            sizes = zip(self.first.shape, last.shape)
            self.vary = tuple(d for d, (m, n) in enumerate(sizes) if not is_same_constant(m, n))
            self.steady = set(self.vary)
            self.first = as_dtype(self.first, self.dtype)

    return Slot()
