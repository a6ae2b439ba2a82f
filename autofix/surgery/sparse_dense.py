"""Sparse tensors as dense ones and nested tensors as lists, while a model is captured or run."""

from __future__ import annotations

import math
from typing import Any

import torch

SPARSE_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


HELD = "autofix_held"
"""Name of a dense stand-in's attribute: which places hold an entry."""


def sparse_is(value: Any) -> bool:
    """Whether a value is a sparse tensor."""
    return isinstance(value, torch.Tensor) and value.layout in SPARSE_LAYOUTS


def sparse_from_coordinates(indices: Any, values: Any, size: Any = None, **kwargs: Any) -> Any:
    """torch.sparse_coo_tensor, dense: entries with equal coordinates add up."""
    indices, values = torch.as_tensor(indices), torch.as_tensor(values)
    dtype = kwargs.get("dtype") or values.dtype
    if size is None:
        raise NotImplementedError("torch.sparse_coo_tensor without a size")
    dense, places = torch.zeros([*size], dtype=dtype), tuple(indices.unbind(0))
    made = dense.index_put(places, values.to(dtype), accumulate=True)
    if values.dim() == 1:  # zeros among the values are entries, too
        held: Any = torch.zeros([*size]).index_put(places, torch.ones_like(values, dtype=torch.float32), accumulate=True) > 0
        setattr(made, HELD, held)
    return made


def sparse_from_rows(crow_indices: Any, col_indices: Any, values: Any, size: Any = None, **kwargs: Any) -> Any:
    """torch.sparse_csr_tensor, dense: the row of entry e is the number of row ends at or before e."""
    if size is None:
        raise NotImplementedError("torch.sparse_csr_tensor without a size")
    crow, columns, entries = torch.as_tensor(crow_indices), torch.as_tensor(col_indices), torch.as_tensor(values)
    at = torch.arange(columns.shape[0])
    rows = (crow[1:].unsqueeze(0) <= at.unsqueeze(1)).sum(1)
    return sparse_from_coordinates(torch.stack([rows, columns.to(torch.int64)]), entries, size, **kwargs)


def sparse_matmul(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """torch.sparse.mm and its kin."""
    return torch.matmul(a, b)


def sparse_addmm(base: Any, a: Any, b: Any, *, beta: float = 1.0, alpha: float = 1.0) -> Any:
    """torch.sparse.addmm."""
    return base * beta + torch.matmul(a, b) * alpha


def sparse_sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """torch.sparse.sum."""
    return torch.sum(input, dtype=dtype) if dim is None else torch.sum(input, dim, dtype=dtype)


def held_places(x: Any) -> Any:
    """Where a dense stand-in has entries; without a record, where it is not zero."""
    held = getattr(x, HELD, None)
    return x != 0 if held is None else held


def over_entries(function: Any) -> Any:
    """torch.sparse.softmax or log_softmax from the dense function: over the entries alone; what is no entry stays 0."""

    def replacement(input: Any, dim: int, dtype: Any = None) -> Any:
        x, held = input if dtype is None else input.to(dtype), held_places(input)
        made = torch.where(held, function(torch.where(held, x, -math.inf), dim), 0.0)
        setattr(made, HELD, held)
        return made

    return replacement


def sparse_values(input: Any) -> Any:
    """The entries of a coalesced tensor."""
    return input[held_places(input)]


def sparse_indices(input: Any) -> Any:
    """Their coordinates [rank, entries]."""
    return held_places(input).nonzero().mT


def sparse_same(input: Any, *args: Any, **kwargs: Any) -> Any:
    """to_dense, coalesce, to_sparse of what is dense already."""
    return input


def sparse_overrides() -> dict[Any, Any]:
    """torch's functions on sparse tensors, with what they compute on dense ones."""
    table: dict[Any, Any] = {
        torch.sparse_coo_tensor: sparse_from_coordinates,
        torch.sparse_csr_tensor: sparse_from_rows,
        torch.sparse.mm: sparse_matmul,
        torch.smm: sparse_matmul,
        torch.hspmm: sparse_matmul,
        torch.sspaddmm: sparse_addmm,
    }
    for name in ("to_dense", "coalesce", "to_sparse", "to_sparse_csr", "to_sparse_coo"):
        method = getattr(torch.Tensor, name, None)
        if method is not None:
            table[method] = sparse_same
    for names, rule in ((("values", "_values"), sparse_values), (("indices", "_indices"), sparse_indices)):
        table |= {getattr(torch.Tensor, name): rule for name in names}
    return table


class SparseAsDenseMode(torch.overrides.TorchFunctionMode):
    """Runs functions on sparse tensors on dense stand-ins."""

    def __init__(self) -> None:
        super().__init__()
        self.table = sparse_overrides()
        self.names = {"_sparse_mm": sparse_matmul, "_sparse_addmm": sparse_addmm, "_sparse_sum": sparse_sum}
        self.names |= {"_sparse_softmax": over_entries(torch.softmax), "_sparse_log_softmax": over_entries(torch.log_softmax)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Swap the function if it is one of the table's."""
        rule: Any = self.table.get(func) or self.names.get(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {})) if rule is None else rule(*args, **(kwargs or {}))


def sparse_attributes_dense(model: Any) -> int:
    """Make sparse parameters, buffers and plain attributes of all modules dense; how many there were."""
    count = 0
    for module in model.modules():
        for store in (module._buffers, module._parameters, module.__dict__):
            for name, value in list(store.items()):
                if sparse_is(value):
                    dense = value.detach().to_dense()
                    store[name] = torch.nn.Parameter(dense, False) if store is module._parameters else dense
                    count += 1
                elif store is module.__dict__ and isinstance(value, (list, tuple)) and any(map(sparse_is, value)):
                    store[name] = type(value)(v.to_dense() if sparse_is(v) else v for v in value)
                    count += 1
    return count


class NestedItems:
    """A nested tensor as the list of its items; functions that work row by row are applied to each."""

    def __init__(self, items: Any) -> None:
        self.items = list(items)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Apply a function to the items one by one; other nested operands go along item by item."""
        kwargs = kwargs or {}
        count = next(len(a.items) for a in (*args, *kwargs.values()) if isinstance(a, NestedItems))
        made = []
        for i in range(count):
            pick = [a.items[i] if isinstance(a, NestedItems) else a for a in args]
            made.append(func(*pick, **{k: v.items[i] if isinstance(v, NestedItems) else v for k, v in kwargs.items()}))
        return NestedItems(made)

    is_nested = True

    def __getattr__(self, name: str) -> Any:
        method = getattr(torch.Tensor, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return NestedItems.__torch_function__(method, (), (self, *args), kwargs)

        return call

    def _operate(self, name: str, *args: Any) -> Any:
        return NestedItems.__torch_function__(getattr(torch.Tensor, name), (), (self, *args))

    def __add__(self, other: Any) -> Any:
        return self._operate("add", other)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        return self._operate("mul", other)

    __rmul__ = __mul__

    def __sub__(self, other: Any) -> Any:
        return self._operate("sub", other)

    def __truediv__(self, other: Any) -> Any:
        return self._operate("div", other)

    def __neg__(self) -> Any:
        return self._operate("neg")

    def __iter__(self) -> Any:
        return iter(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def unbind(self, dim: int = 0) -> Any:
        """The items."""
        return tuple(self.items)

    def size(self, dim: int | None = None) -> Any:
        """The number of items, or a size that all share."""
        if dim == 0:
            return len(self.items)
        if dim is None:
            raise NotImplementedError("the sizes of a nested tensor")
        return self.items[0].shape[dim - 1 if dim > 0 else dim]

    def values(self) -> Any:
        """The items one after the other, as the jagged layout keeps them."""
        return torch.cat(self.items)

    def offsets(self) -> Any:
        """Where each item begins among `values`, and their end."""
        counts = [torch.scalar_tensor(0, dtype=torch.int64), *(torch.scalar_tensor(item.shape[0], dtype=torch.int64) for item in self.items)]
        return torch.stack(counts).cumsum(0)

    def to_padded_tensor(self, padding: float, output_size: Any = None) -> Any:
        """See nested_padded."""
        return nested_padded(self, padding, output_size)


def nested_padded(nested: Any, padding: float, output_size: Any = None) -> Any:
    """torch.nested.to_padded_tensor: items stacked, filled up to the largest size of each axis."""
    items = nested.items
    rank = items[0].dim()
    sizes = []
    for axis in range(rank):
        size = items[0].shape[axis]
        for item in items[1:]:
            size = torch.sym_max(size, item.shape[axis])  # type: ignore[no-untyped-call]
        sizes.append(size if output_size is None else output_size[axis + 1])
    rows = []
    for item in items:
        for axis in range(rank):
            want, have = sizes[axis], item.shape[axis]
            if isinstance(want, int) and isinstance(have, int) and want == have:
                continue
            shape = list(item.shape)
            shape[axis] = want - have
            item = torch.cat([item, torch.full(shape, padding, dtype=item.dtype)], axis)
        rows.append(item)
    return torch.stack(rows)


def nested_made(items: Any, *, dtype: Any = None, **kwargs: Any) -> Any:
    """torch.nested.nested_tensor and as_nested_tensor."""
    return NestedItems([item if dtype is None else item.to(dtype) for item in items])
