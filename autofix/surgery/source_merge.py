"""Merging what two branches return: numbers, tensors of other sizes, containers. Pasted into rewritten files like source_runtime.py."""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
from typing import Any

import torch
from torch.utils import _pytree as pytree

UNSET: Any = type("Unset", (), {"__repr__": lambda self: "UNSET", "__bool__": lambda self: False})()
"""Stands for a local variable that has no value yet."""


def promoted_dtype(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """The dtype that holds both."""
    with torch._C.DisableTorchFunction():
        return a if a is b else torch.promote_types(a, b)


def number_dtype(value: Any) -> torch.dtype:
    """The dtype of a Python number or size."""
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    return torch.int64 if isinstance(value, (int, torch.SymInt)) else torch.float64


def is_number(value: Any) -> bool:
    """Whether a value is a Python number or a size."""
    return isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def is_same_constant(a: Any, b: Any) -> bool:
    """Whether two leaves are one Python constant that need not go through the branch."""
    if a is b and not isinstance(a, torch.Tensor):
        return True
    if isinstance(a, (torch.Tensor, torch.SymFloat, torch.SymBool)) or isinstance(b, (torch.Tensor, torch.SymFloat, torch.SymBool)):
        return False
    if isinstance(a, torch.SymInt) or isinstance(b, torch.SymInt):
        return str(a) == str(b) and not str(a).startswith("u")
    return type(a) is type(b) and bool(a == b)


def size_bound(value: Any, upper: bool) -> Any:
    """A known limit of a size, None where there is none."""
    if type(value) in (int, bool):
        return int(value)
    if isinstance(value, torch.SymInt):
        env = value.node.shape_env
        limits = env.bound_sympy(value.node.expr)
        edge = limits.upper if upper else limits.lower
        return int(edge) if edge.is_Integer and abs(int(edge)) < 2**40 else None
    return None


def upper_size(value: Any) -> Any:
    """The largest value that a size may have."""
    return size_bound(value, True)


def lower_size(value: Any) -> Any:
    """The smallest value that a size may have."""
    return size_bound(value, False)


def tell(holds: Any) -> None:
    """What surely holds wherever this code runs, told to what reasons about sizes; only of numbers that the graph itself makes."""
    if isinstance(holds, torch.SymBool) and any(str(s).startswith("u") for s in holds.node.expr.free_symbols):
        torch._check(holds)


def as_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor in a dtype; itself where it has it already."""
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def as_scalar(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """A number as a 0-d tensor."""
    return torch.scalar_tensor(value, dtype=torch.bool).to(dtype) if isinstance(value, torch.SymBool) else torch.scalar_tensor(value, dtype=dtype)


def merge_slot(a: Any, b: Any) -> Any:
    """How one leaf leaves a branch: "constant", "number" or "tensor" (flattened where its strides or sizes need that)."""

    class Slot:
        def __init__(self, a: Any, b: Any) -> None:
            self.value, self.flat, self.vary, self.shape, self.upper = a, False, (), (), ()
            filled = a is UNSET or b is UNSET
            if filled:
                a, b = (b, b) if a is UNSET else (a, a)
            if is_same_constant(a, b):
                self.kind, self.value = "constant", a
                return
            if is_number(a) and is_number(b):
                self.kind, self.dim = "number", 0
                self.dtype = promoted_dtype(number_dtype(a), number_dtype(b))
                self.integer = self.dtype is torch.int64
                self.low = lower_size(a) is not None and lower_size(b) is not None and min(lower_size(a), lower_size(b)) >= 0
                self.high = None if upper_size(a) is None or upper_size(b) is None else max(upper_size(a), upper_size(b))
                return
            tensors = [v for v in (a, b) if isinstance(v, torch.Tensor)]
            if not tensors or not all(isinstance(v, torch.Tensor) or is_number(v) for v in (a, b)):
                raise TypeError(f"the two paths give {type(a).__name__} and {type(b).__name__}, which can't be merged")
            self.kind, self.dim = "tensor", max(t.dim() for t in tensors)
            self.device = tensors[0].device
            if len(tensors) == 1:
                number = b if tensors[0] is a else a
                wide = number_dtype(number).is_floating_point and not tensors[0].dtype.is_floating_point
                self.dtype = torch.get_default_dtype() if wide else tensors[0].dtype
            else:
                self.dtype = promoted_dtype(a.dtype, b.dtype)
                if a.dim() != b.dim():
                    raise TypeError(f"the two paths give {a.dim()} and {b.dim()} dimensions, which can't be merged")
            x, y = (list(v.shape) if isinstance(v, torch.Tensor) else [1] * self.dim for v in (a, b))
            loose = [not is_same_constant(x[d], y[d]) or not str(x[d]).lstrip("s").isdigit() for d in range(self.dim)]
            self.vary = tuple(d for d in range(self.dim) if loose[d] or (filled and type(x[d]) is not int))
            self.shape = tuple(x)
            self.upper = tuple(None if upper_size(m) is None or upper_size(n) is None else max(upper_size(m), upper_size(n)) for m, n in zip(x, y))
            self.flat = self.dim > 1 and (bool(self.vary) or any(type(s) is not int for s in x[1:]))

        def pack(self, value: Any) -> list[torch.Tensor]:
            """The tensors that a branch returns for this leaf."""
            if self.kind == "constant":
                return []
            if value is UNSET:
                value = torch.zeros([s if type(s) is int else 1 for s in self.shape] if self.dim else [], dtype=self.dtype)
            if not isinstance(value, torch.Tensor):
                value = as_scalar(value, self.dtype)
                value = value.reshape([1] * self.dim)
            value = as_dtype(value, self.dtype)
            sizes = [torch.scalar_tensor(value.shape[d], dtype=torch.int64) for d in self.vary] if self.dim > 1 else []
            return [value.reshape(-1).clone() if self.flat else value.clone(memory_format=torch.contiguous_format), *sizes]

        def count(self) -> int:
            """The number of tensors that `pack` gives."""
            return 0 if self.kind == "constant" else 1 + (len(self.vary) if self.dim > 1 else 0)

        def unpack(self, tensors: list[torch.Tensor]) -> Any:
            """The leaf again, outside of the branches."""
            if self.kind == "constant":
                return self.value
            value = tensors[0]
            if self.kind == "number":
                if not self.integer:
                    return value
                number = value.item()
                if self.low:
                    torch._check(number >= 0)
                if self.high is not None:
                    torch._check(number <= self.high)
                return number
            if self.dim == 1:
                if self.vary and self.upper[0] is not None:
                    torch._check(value.shape[0] <= self.upper[0])
                return value
            sizes = list(self.shape)
            for d, size in zip(self.vary, tensors[1:]):
                sizes[d] = size.item()
                torch._check(sizes[d] >= 0)
                if self.upper[d] is not None:
                    torch._check(sizes[d] <= self.upper[d])
            return value.reshape(sizes) if self.flat else value

    return Slot(a, b)


def merge_results(a: Any, b: Any) -> tuple[Any, Any, list[Any]]:
    """How two results are flattened (`spec`), merged leaf by leaf (`slots`) and built again (`leaves`)."""
    shapes, slots = [], []
    is_leaf = lambda v: v is None or v is UNSET  # noqa: E731
    for x, y in zip(a, b):
        fx, sx = pytree.tree_flatten(x, is_leaf=is_leaf)
        fy, sy = pytree.tree_flatten(y, is_leaf=is_leaf)
        if x is UNSET and len(fy) != 1 or (x is UNSET and sx != sy):
            fx, sx = [UNSET] * len(fy), sy
        if y is UNSET and sx != sy:
            fy, sy = [UNSET] * len(fx), sx
        if sx != sy:
            raise TypeError(f"the two paths give containers of other shapes: {sx} and {sy}")
        shapes.append(sx)
        slots += [merge_slot(p, q) for p, q in zip(fx, fy)]

    def spec(values: Any) -> list[Any]:
        out: list[Any] = []
        for v, s in zip(values, shapes):
            out += [UNSET] * s.num_leaves if v is UNSET else pytree.tree_leaves(v, is_leaf=is_leaf)
        return out

    def leaves(flat: list[Any]) -> tuple[Any, ...]:
        out, at = [], 0
        for s in shapes:
            out.append(pytree.tree_unflatten(flat[at : at + s.num_leaves], s))
            at += s.num_leaves
        return tuple(out)

    return leaves, spec, slots
