"""Indexing with numbers that are known only at run time. Pasted into rewritten files like source_runtime.py."""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
from typing import Any

import torch


def assign_view(tensor: torch.Tensor, index: Any, value: torch.Tensor) -> None:
    """tensor[index] = value for an index of numbers and slices, some of them known only at run time."""
    items = list(index) if isinstance(index, tuple) else [index]
    if any(isinstance(i, list) or (isinstance(i, torch.Tensor) and (i.dim() or i.dtype is torch.bool)) for i in items):
        tensor[tuple(map(whole_index, items))] = value
        return
    items = [i.item() if isinstance(i, torch.Tensor) else i for i in items]
    symbolic_view(tensor, tuple(items)).copy_(value)


def symbolic_view(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """tensor[index] for an index of numbers and slices, some of them known only at run time."""
    items = list(index) if isinstance(index, tuple) else [index]
    if any(isinstance(i, list) or (isinstance(i, torch.Tensor) and (i.dim() or i.dtype is torch.bool)) for i in items):
        return tensor[tuple(map(whole_index, items))]
    if Ellipsis in items:
        at, used = items.index(Ellipsis), sum(i is not None and i is not Ellipsis for i in items)
        items[at : at + 1] = [slice(None)] * (tensor.dim() - used)
    dim = 0
    for item in items:
        if item is None:
            tensor = tensor.unsqueeze(dim)
        elif isinstance(item, slice):
            if item != slice(None):
                tensor = symbolic_slice(tensor, dim, item)
        elif isinstance(item, torch.Tensor):
            tensor = tensor.index_select(dim, item.reshape(1).to(torch.int64)).squeeze(dim)
            continue
        else:
            tensor = tensor.select(dim, item)
            continue
        dim += 1
    return tensor


def has_size(index: Any) -> bool:
    """Whether an index holds a number that is known only at run time."""
    if isinstance(index, tuple):
        return any(map(has_size, index))
    if isinstance(index, slice):
        return any(isinstance(e, torch.SymInt) for e in (index.start, index.stop))
    return isinstance(index, torch.SymInt)


def symbolic_slice(tensor: torch.Tensor, dim: int, index: slice) -> torch.Tensor:
    """tensor.narrow for a slice of fixed length that surely lies inside (such as i : i + 1), else the slice as Python takes it."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    start, stop = index.start, index.stop
    if isinstance(start, torch.SymInt) and stop is not None and index.step in (None, 1):
        length = stop - start
        fixed = length if type(length) is int else int(length.node.expr) if length.node.expr.is_Integer else None
        if fixed is not None and fixed >= 0 and statically_known_true(start >= 0) and statically_known_true(stop <= tensor.shape[dim]):
            torch._check(start <= tensor.shape[dim])
            return tensor.narrow(dim, start, fixed)
    return torch.ops.aten.slice.Tensor(tensor, dim, start, stop, index.step or 1)


def whole_index(item: Any) -> Any:
    """A number among index tensors as an index tensor of one element."""
    if isinstance(item, torch.SymInt):
        return torch.scalar_tensor(item, dtype=torch.int64).reshape(1)
    return item.reshape(1) if isinstance(item, torch.Tensor) and not item.dim() and item.dtype is not torch.bool else item


def nested_tensor_of(data: Any, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    """torch.tensor(data) for nested lists that hold sizes or 0-d tensors, without leaving the graph."""
    if isinstance(data, (list, tuple)):
        return torch.stack([nested_tensor_of(d, dtype, device) for d in data]) if data else torch.zeros(0, dtype=dtype, device=device)
    if isinstance(data, torch.Tensor):
        return data.detach().clone().to(dtype=dtype, device=device)
    kind = dtype or (
        torch.bool if isinstance(data, (bool, torch.SymBool)) else torch.int64 if isinstance(data, (int, torch.SymInt)) else torch.get_default_dtype()
    )
    return torch.scalar_tensor(data, dtype=kind, device=device)
