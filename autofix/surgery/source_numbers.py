"""Numbers computed from sizes and values that stay in the graph. Pasted into rewritten files like source_runtime.py.

While a model is exported, a float computed from a size is a 0-d float64 tensor: the same IEEE double arithmetic as Python's,
so that int(0.9 * n) and int(n ** 0.5) give the same number in ONNX Runtime.
"""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
import math
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autofix.surgery.source_index import nested_tensor_of
from autofix.surgery.source_items import held_part
from autofix.surgery.source_merge import as_dtype, is_number
from autofix.surgery.source_rows import pad_rows
from autofix.surgery.source_runtime import is_tracing


def real_number(number: Any) -> Any:
    """A size, or a float that is computed with sizes, as a float64 tensor while exporting; anything else as it is.

    A float must be a tensor too: the exporter writes Python floats in single precision.
    """
    if isinstance(number, (torch.SymInt, torch.SymFloat)):
        return torch.scalar_tensor(number, dtype=torch.float64)
    return torch.tensor(number, dtype=torch.float64) if type(number) is float and is_tracing() else number


def item_of(value: torch.Tensor) -> Any:
    """value.item() of a whole number; the copy drops an offset into a larger tensor, which would have to be known."""
    return noted(as_dtype(value.reshape(()) if value.dim() else value, torch.int64).clone().item())


def noted(number: Any) -> Any:
    """The number; torch's own tests may take it, where it is a size, as they take a dynamic axis."""
    node = getattr(number, "node", None)
    if node is not None and getattr(node, "expr", None) is not None:
        known = node.shape_env.__dict__.setdefault("numbers_used_as_sizes", set())
        known.update(node.expr.free_symbols)
    return number


def whole_number(number: Any, signed: bool = False) -> Any:
    """int(number), kept in the graph. signed: it may be negative."""
    if not is_tracing() or not isinstance(number, (torch.Tensor, torch.SymInt, torch.SymFloat)):
        return int(number)
    if isinstance(number, torch.SymInt):
        return number
    value = number if isinstance(number, torch.Tensor) else torch.scalar_tensor(number, dtype=torch.float64)
    value = item_of(value)
    if not signed:
        torch._check(value >= 0)
    return value


def whole_round(number: Any) -> Any:
    """round(number): halves to even, as Python and torch.round do."""
    if isinstance(number, (torch.Tensor, torch.SymFloat)) and is_tracing():
        return whole_number(torch.round(number if isinstance(number, torch.Tensor) else real_number(number)))
    return number if isinstance(number, torch.SymInt) else round(number)


def real_math(name: str, *numbers: Any) -> Any:
    """math.name(*numbers), by torch's function in float64 where a number stands in the graph."""
    if not any(isinstance(n, (torch.Tensor, torch.SymInt, torch.SymFloat)) for n in numbers) or not is_tracing():
        return getattr(math, name)(*numbers)
    values = [real_number(n) if isinstance(n, (torch.SymInt, torch.SymFloat)) else n for n in numbers]
    values = [v.reshape(()).to(torch.float64) if isinstance(v, torch.Tensor) else v for v in values]
    if name in ("floor", "ceil", "trunc"):
        return whole_number(getattr(torch, name)(values[0]), signed=True)
    if name == "isqrt":
        root = torch.floor(torch.sqrt(values[0]))
        return whole_number(torch.where(root * root > values[0], root - 1, root))
    if name == "log" and len(values) == 2:
        return torch.log(values[0]) / (torch.log(values[1]) if isinstance(values[1], torch.Tensor) else real_number(math.log(values[1])))
    if name in ("log2", "log10"):  # exact at powers of the base, as in C, where a quotient of logarithms may fall just short
        value, base = values[0], 2.0 if name == "log2" else 10.0
        power = torch.log(value) / real_number(math.log(base))
        nearest = torch.round(power)
        return torch.where(torch.pow(torch.full_like(nearest, base), nearest) == value, nearest, power)
    if name == "prod":
        raise TypeError("math.prod of sizes is not rewritten")
    return getattr(torch, {"fabs": "abs", "fmod": "fmod", "pow": "pow"}.get(name, name))(*values)


def number_of(value: Any) -> Any:
    """value.item(): a whole number becomes a size, any other stays a 0-d tensor while exporting; a real one is a float64, as Python's
    are, so that it is compared with Python's numbers as they are and not as float32 rounds them."""
    if not is_tracing() or not isinstance(value, torch.Tensor):
        return value.item()
    if value.dtype.is_floating_point:
        return value.reshape(()).to(torch.float64)
    return item_of(value) if value.dtype is not torch.bool else value.reshape(())


def real_of(value: Any) -> Any:
    """float(value), as a 0-d tensor while exporting."""
    if isinstance(value, torch.Tensor) and is_tracing():
        return value.reshape(()).to(torch.float64)
    return real_number(value) if isinstance(value, (torch.SymInt, torch.SymFloat)) else float(value)


def index_of(value: Any) -> Any:
    """A 0-d tensor used as an index, an end of a slice or a size; anything else as it is."""
    if isinstance(value, torch.Tensor) and not value.dim() and is_tracing():
        return item_of(value)
    return value


def extreme_number(name: str, *numbers: Any) -> Any:
    """min or max of numbers that may be known only at run time."""
    values = list(numbers[0]) if len(numbers) == 1 else list(numbers)
    if not any(isinstance(v, (torch.Tensor, torch.SymInt)) for v in values) or not is_tracing():
        return (max if name == "max" else min)(values)
    pick = torch.maximum if name == "max" else torch.minimum
    held = [
        v.reshape(()) if isinstance(v, torch.Tensor) else torch.scalar_tensor(v, dtype=torch.int64 if not isinstance(v, float) else None)
        for v in values
    ]
    out = held[0]
    for v in held[1:]:
        out = pick(out, v)
    if any(isinstance(v, torch.Tensor) for v in values):
        return out
    size = noted(out.item())
    for v in values:
        torch._check(size >= v if name == "max" else size <= v)
    return size


def tensor_of(data: Any, **kwargs: Any) -> torch.Tensor:
    """torch.tensor(data) where data may hold sizes and tensors."""
    if getattr(data, "is_rows", False):
        return data.read().clone().to(**kwargs) if kwargs else data.read().clone()
    leaves = pytree.tree_leaves(data)
    if is_tracing() and not isinstance(data, torch.Tensor) and not all(is_number(v) and type(v) in (int, float, bool) for v in leaves):
        return nested_tensor_of(data, **kwargs)
    return torch.tensor(data, **kwargs)


def size_list(sizes: Any) -> Any:
    """sizes.tolist() of a tensor of sizes: whole numbers that are not negative, or numbers as 0-d tensors."""
    if not is_tracing():
        return sizes.tolist()
    if sizes.dim() and type(sizes.shape[0]) is not int:
        return sizes  # as many as only the graph knows: what loops over it goes through its rows
    if not sizes.dim():
        return number_of(sizes)
    if sizes.dim() > 1:
        return [size_list(s) for s in sizes]
    return [number_of(s) for s in sizes.unbind(0)]


def split_by(tensor: torch.Tensor, sizes: Any, dim: int = 0) -> Any:
    """torch.split(tensor, sizes.tolist(), dim) for a tensor of sizes."""
    if not is_tracing():
        return torch.split(tensor, sizes.tolist() if isinstance(sizes, torch.Tensor) else sizes, dim)
    count = sizes.shape[0]
    ends = sizes.cumsum(0)
    if type(count) is not int:
        raise TypeError("the number of pieces is known only at run time")
    out = []
    for i in range(count):
        start, length = noted((ends[i] - sizes[i]).item()), noted(sizes[i].item())
        torch._check(start >= 0)
        torch._check(length >= 0)
        torch._check(start + length <= tensor.shape[dim])
        out.append(tensor.narrow(dim, start, length))
    return tuple(out)


def padded_parts(parts: Any, batch_first: bool = False, padding_value: float = 0.0, **kwargs: Any) -> torch.Tensor:
    """torch.nn.utils.rnn.pad_sequence for parts whose lengths are known only at run time."""
    if getattr(parts, "is_rows", False) and not kwargs:
        return pad_rows(parts, batch_first, padding_value)
    parts = list(parts)
    if not is_tracing() or kwargs or all(type(p.shape[0]) is int for p in parts):
        return torch.nn.utils.rnn.pad_sequence(parts, batch_first=batch_first, padding_value=padding_value, **kwargs)
    longest = torch.stack([torch.scalar_tensor(p.shape[0], dtype=torch.int64) for p in parts]).max().item()
    noted(longest)
    torch._check(longest >= 0)
    rows = []
    for p in parts:
        room = longest - p.shape[0]
        torch._check(room >= 0)
        rows.append(torch.cat([p, p.new_full([room, *p.shape[1:]], padding_value)], 0).narrow(0, 0, longest))
    return torch.stack(rows, 0 if batch_first else 1)


def slice_ends(index: slice, size: Any) -> tuple[Any, Any]:
    """(start, length) of a slice whose ends may be known only at run time, as Python takes it: negative ends count from the back."""
    ends = []
    for end, default in ((index.start, 0), (index.stop, size)):
        if end is None:
            ends.append(torch.scalar_tensor(default, dtype=torch.int64))
        elif type(end) is int:
            ends.append(torch.scalar_tensor(end if end >= 0 else size + end, dtype=torch.int64))
        else:
            value = (
                as_dtype(end.reshape(()) if end.dim() else end, torch.int64)
                if isinstance(end, torch.Tensor)
                else torch.scalar_tensor(end, dtype=torch.int64)
            )
            ends.append(torch.where(value < 0, value + size, value))
    limit = torch.scalar_tensor(size, dtype=torch.int64)
    start = torch.minimum(ends[0].clamp(min=0), limit)
    length = torch.minimum(ends[1].clamp(min=0), limit) - start
    return start, length.clamp(min=0)


def cut_view(tensor: torch.Tensor, *index: Any) -> torch.Tensor:
    """tensor[index], where the ends of slices may be known only at run time; a view. Of a list of modules or tensors: a part of it."""
    if not isinstance(tensor, torch.Tensor):
        return held_part(tensor, index[0])
    if not is_tracing() or not any(isinstance(e, (torch.SymInt, torch.Tensor)) for i in index if isinstance(i, slice) for e in (i.start, i.stop)):
        return tensor[index if len(index) > 1 else index[0]]
    items = list(index)
    if Ellipsis in items:
        at, used = items.index(Ellipsis), sum(i is not None and i is not Ellipsis for i in items)
        items[at : at + 1] = [slice(None)] * (tensor.dim() - used)
    if not all(i is None or isinstance(i, (int, slice, torch.SymInt)) for i in items) or any(
        isinstance(i, slice) and i.step not in (None, 1) for i in items
    ):
        return tensor[index]
    dim = 0
    for item in items:
        if item is None:
            tensor = tensor.unsqueeze(dim)
        elif not isinstance(item, slice):
            tensor = tensor.select(dim, item)
            continue
        elif any(isinstance(e, (torch.SymInt, torch.Tensor)) for e in (item.start, item.stop)):
            size = tensor.shape[dim]
            first, count = slice_ends(item, size)
            length = noted(count.item())
            torch._check(length >= 0)
            torch._check(length <= size)
            start: Any = 0
            if isinstance(item.start, (torch.Tensor, torch.SymInt)) or item.start:
                start = noted(first.item())
                torch._check(start >= 0)
                torch._check(start + length <= size)
            tensor = tensor.narrow(dim, start, length)
        elif item != slice(None):
            tensor = torch.ops.aten.slice.Tensor(tensor, dim, item.start, item.stop, 1)
        dim += 1
    return tensor


def put_view(tensor: torch.Tensor, value: Any, *index: Any) -> None:
    """tensor[index] = value, where the ends of slices may be known only at run time."""
    if not is_tracing() or not any(isinstance(e, (torch.SymInt, torch.Tensor)) for i in index if isinstance(i, slice) for e in (i.start, i.stop)):
        tensor[index if len(index) > 1 else index[0]] = value
        return
    view = cut_view(tensor, *index)
    if isinstance(value, torch.Tensor):
        view.copy_(value)
    else:
        view.fill_(value)
