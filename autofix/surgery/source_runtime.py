"""Functions that a rewritten source file carries along: Python control flow that torch.export can capture.

The text of this file (from RUNTIME BEGINS on) is pasted into the rewritten module, so it stands alone: torch only. In eager
mode every function does exactly what the Python statement did; while a model is exported, tests on tensors and
sizes become torch.cond and counted or open loops torch.while_loop (ONNX If and Loop).
"""

from __future__ import annotations

# RUNTIME BEGINS
import contextlib
import math
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

UNSET: Any = type("Unset", (), {"__repr__": lambda self: "UNSET", "__bool__": lambda self: False})()
"""Stands for a local variable that has no value yet."""


def _tracing() -> bool:
    return bool(torch.compiler.is_exporting())


def _symbolic(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))


def _shape_env(fake: Any = None) -> Any:
    from torch._guards import detect_fake_mode

    mode = detect_fake_mode(fake)
    return mode.shape_env if mode is not None else None


class _Watch(TorchFunctionMode):  # type: ignore[misc]
    """Notes the tensors that a function reads from outside, and replaces them (and constants) by `table`."""

    def __init__(self, table: dict[Any, Any] | None = None) -> None:
        super().__init__()
        self.table = table
        self.seen: dict[int, torch.Tensor] = {}
        self.made: dict[int, torch.Tensor] = {}
        self.constants: dict[str, tuple[Any, ...]] = {}

    def _constant(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        key = repr((args, kwargs))
        if self.table is not None and key in self.table:
            return self.table[key]
        self.constants[key] = (args, kwargs)
        out = torch.tensor(*args, **kwargs)
        self.made[id(out)] = out
        return out

    def _index(self, index: Any) -> Any:
        if isinstance(index, tuple):
            return tuple(self._index(i) for i in index)
        if isinstance(index, list) and index and all(type(i) in (int, bool) for i in index):
            return self._constant((index,), {})
        return index

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        # A constant made inside a branch can't be lifted out of it by the exporter, so it is made outside and passed in.
        if func in (torch.tensor, torch.as_tensor) and not any(map(_symbolic, pytree.tree_leaves((args, kwargs)))):
            return self._constant(args, kwargs)
        if func in (torch.tensor, torch.as_tensor) and not isinstance(args[0], torch.Tensor):
            out = _tensor_of(args[0], **kwargs)
            self.made[id(out)] = out
            return out
        if func in (torch.Tensor.__setitem__, torch.Tensor.__getitem__):
            args = (args[0], self._index(args[1]), *args[2:])
        if func is torch.Tensor.__setitem__ and isinstance(args[2], (int, float, bool)):
            fill = torch.full((), args[2], dtype=args[0].dtype, device=args[0].device)
            self.made[id(fill)] = fill
            args = (args[0], args[1], fill)
        if self.table is not None:
            args, kwargs = pytree.tree_map(lambda v: self.table.get(id(v), v) if isinstance(v, torch.Tensor) else v, (args, kwargs))
            return func(*args, **kwargs)
        for v in pytree.tree_leaves((args, kwargs)):
            if isinstance(v, torch.Tensor) and id(v) not in self.made:
                self.seen[id(v)] = v
        out = func(*args, **kwargs)
        for v in pytree.tree_leaves(out):
            if isinstance(v, torch.Tensor) and id(v) not in self.seen:
                self.made[id(v)] = v
        return out


def _tensor_of(data: Any, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    """torch.tensor(data) for nested lists that hold sizes or 0-d tensors, without leaving the graph."""
    if isinstance(data, (list, tuple)):
        return torch.stack([_tensor_of(d, dtype, device) for d in data]) if data else torch.zeros(0, dtype=dtype, device=device)
    if isinstance(data, torch.Tensor):
        return data.detach().clone().to(dtype=dtype, device=device)
    kind = dtype or (torch.bool if isinstance(data, (bool, torch.SymBool)) else torch.int64 if isinstance(data, (int, torch.SymInt)) else torch.get_default_dtype())
    return torch.scalar_tensor(data, dtype=kind, device=device)


@contextlib.contextmanager
def _quiet(scratch: bool) -> Any:
    """Sizes inside a branch must not become conditions on the whole model; a scratch run leaves no trace at all."""
    import torch.fx.experimental._config as config
    from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

    with contextlib.ExitStack() as stack:
        stack.enter_context(config.patch(backed_size_oblivious=True))
        if scratch:
            stack.enter_context(disable_proxy_modes_tracing())
            env = _shape_env()
            if env is not None:
                stack.enter_context(env.ignore_fresh_unbacked_symbols())
        yield


def _scratch(fn: Any, args: Any) -> tuple[Any, _Watch]:
    """What `fn` returns for copies of `args`, and what it reads."""
    watch = _Watch()
    with _quiet(scratch=True), watch:
        out = fn(*pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, args))
    return out, watch


def _captured(watches: list[_Watch], own: list[Any]) -> tuple[list[Any], list[torch.Tensor]]:
    """Keys (id of a tensor, or text of a constant) and tensors that must be passed into a branch."""
    skip = {id(v) for v in own}
    keys: dict[Any, torch.Tensor] = {}
    for watch in watches:
        for key, tensor in watch.seen.items():
            if key not in skip and type(tensor).__name__ in ("FakeTensor", "Parameter", "Buffer", "Tensor", "FunctionalTensor"):
                keys[key] = tensor
        for text, (args, kwargs) in watch.constants.items():
            keys[text] = torch.tensor(*args, **kwargs)
    return list(keys), list(keys.values())


def _promoted(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    with torch._C.DisableTorchFunction():
        return a if a is b else torch.promote_types(a, b)


def _number_dtype(value: Any) -> torch.dtype:
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    return torch.int64 if isinstance(value, (int, torch.SymInt)) else torch.float64


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def _same(a: Any, b: Any) -> bool:
    """Whether two leaves are one Python constant that need not go through the branch."""
    if a is b and not isinstance(a, torch.Tensor):
        return True
    if isinstance(a, (torch.Tensor, torch.SymFloat, torch.SymBool)) or isinstance(b, (torch.Tensor, torch.SymFloat, torch.SymBool)):
        return False
    if isinstance(a, torch.SymInt) or isinstance(b, torch.SymInt):
        return str(a) == str(b) and not str(a).startswith("u")
    return type(a) is type(b) and bool(a == b)


def as_flag(test: Any) -> Any:
    """The truth value of `test` as Python would take it: a bool, a SymBool or a 0-d bool tensor."""
    if isinstance(test, torch.Tensor) and _tracing():
        return test.reshape(()).to(torch.bool) if test.dtype is not torch.bool or test.dim() else test
    if isinstance(test, (torch.SymInt, torch.SymFloat)):
        return test != 0
    return test if isinstance(test, torch.SymBool) else bool(test)


def flag_tensor(test: Any) -> torch.Tensor:
    """A truth value as a 0-d bool tensor."""
    if isinstance(test, torch.SymBool):
        return traced_if(test, lambda: (torch.ones((), dtype=torch.bool),), lambda: (torch.zeros((), dtype=torch.bool),))[0]
    return test if isinstance(test, torch.Tensor) else torch.full((), bool(test), dtype=torch.bool)


def all_of(*tests: Any) -> Any:
    """`a and b and ...` as a condition; each test is a function, called only where those before it hold."""
    flag = as_flag(tests[0]())
    if len(tests) == 1 or flag is False:
        return flag
    if flag is True:
        return all_of(*tests[1:])
    return traced_if(flag, lambda: (flag_tensor(all_of(*tests[1:])),), lambda: (torch.zeros((), dtype=torch.bool),))[0]


def none_of(test: Any) -> Any:
    """`not test` as a condition."""
    flag = as_flag(test)
    if isinstance(flag, torch.SymBool):
        return torch.sym_not(flag)
    return flag.logical_not() if isinstance(flag, torch.Tensor) else not flag


def any_of(*tests: Any) -> Any:
    """`a or b or ...` as a condition, evaluated as Python does."""
    return none_of(all_of(*[lambda t=t: none_of(t()) for t in tests]))


class _Slot:
    """How one leaf leaves a branch: "constant", "number" or "tensor" (flattened where its strides or sizes need that)."""

    def __init__(self, a: Any, b: Any) -> None:
        self.value, self.flat, self.vary, self.shape, self.upper = a, False, (), (), ()
        if a is UNSET or b is UNSET:
            a, b = (b, b) if a is UNSET else (a, a)
        if _same(a, b):
            self.kind, self.value = "constant", a
            return
        if _is_number(a) and _is_number(b):
            self.kind, self.dim = "number", 0
            self.dtype = _promoted(_number_dtype(a), _number_dtype(b))
            self.integer = self.dtype is torch.int64
            self.low = _lower(a) is not None and _lower(b) is not None and min(_lower(a), _lower(b)) >= 0
            self.high = None if _upper(a) is None or _upper(b) is None else max(_upper(a), _upper(b))
            return
        tensors = [v for v in (a, b) if isinstance(v, torch.Tensor)]
        if not tensors or not all(isinstance(v, torch.Tensor) or _is_number(v) for v in (a, b)):
            raise TypeError(f"the two paths give {type(a).__name__} and {type(b).__name__}, which can't be merged")
        self.kind, self.dim = "tensor", max(t.dim() for t in tensors)
        self.device = tensors[0].device
        if len(tensors) == 1:
            number = b if tensors[0] is a else a
            wide = _number_dtype(number).is_floating_point and not tensors[0].dtype.is_floating_point
            self.dtype = torch.get_default_dtype() if wide else tensors[0].dtype
        else:
            self.dtype = _promoted(a.dtype, b.dtype)
            if a.dim() != b.dim():
                raise TypeError(f"the two paths give {a.dim()} and {b.dim()} dimensions, which can't be merged")
        x, y = (list(v.shape) if isinstance(v, torch.Tensor) else [1] * self.dim for v in (a, b))
        self.vary = tuple(d for d in range(self.dim) if not _same(x[d], y[d]) or not str(x[d]).lstrip("s").isdigit())
        self.shape = tuple(x)
        self.upper = tuple(None if _upper(m) is None or _upper(n) is None else max(_upper(m), _upper(n)) for m, n in zip(x, y))
        self.flat = self.dim > 1 and (bool(self.vary) or any(type(s) is not int for s in x[1:]))

    def pack(self, value: Any) -> list[torch.Tensor]:
        """The tensors that a branch returns for this leaf."""
        if self.kind == "constant":
            return []
        if value is UNSET:
            value = torch.zeros([1] * self.dim, dtype=self.dtype)
        if not isinstance(value, torch.Tensor):
            value = _scalar(value, self.dtype)
            value = value.reshape([1] * self.dim)
        value = value.to(self.dtype)
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


def _scalar(value: Any, dtype: torch.dtype) -> torch.Tensor:
    return flag_tensor(value).to(dtype) if isinstance(value, torch.SymBool) else torch.scalar_tensor(value, dtype=dtype)


def _bound(value: Any, upper: bool) -> Any:
    if type(value) in (int, bool):
        return int(value)
    if isinstance(value, torch.SymInt):
        env = value.node.shape_env
        limits = env.bound_sympy(value.node.expr)
        edge = limits.upper if upper else limits.lower
        return int(edge) if edge.is_Integer and abs(int(edge)) < 2**40 else None
    return None


def _upper(value: Any) -> Any:
    return _bound(value, True)


def _lower(value: Any) -> Any:
    return _bound(value, False)


def traced_if(test: Any, then: Any, other: Any, *values: Any) -> Any:
    """`then(*values) if test else other(*values)`; both return tuples of equal length.

    `values` are the variables that the branches read and may change. Where the two branches give other sizes, types of numbers or
    dtypes, the merged value is a tensor (or size) that holds either.
    """
    flag = as_flag(test)
    if isinstance(flag, bool) or not _tracing():
        return then(*values) if flag else other(*values)
    from torch._higher_order_ops.cond import cond_op

    (a, watch_a), (b, watch_b) = _scratch(then, values), _scratch(other, values)
    leaves, spec, slots = _merge(a, b)
    operands, own = pytree.tree_flatten(values)
    moving = [i for i, v in enumerate(operands) if isinstance(v, (torch.Tensor, torch.SymInt))]
    keys, captured = _captured([watch_a, watch_b], [operands[i] for i in moving])

    def branch(fn: Any) -> Any:
        def run(*inner: Any) -> Any:
            full = list(operands)
            for i, v in zip(moving, inner):
                full[i] = v.clone() if isinstance(v, torch.Tensor) else v
            with _Watch(dict(zip(keys, inner[len(moving) :]))):
                out = spec(fn(*pytree.tree_unflatten(full, own)))
                return tuple(t for slot, v in zip(slots, out) for t in slot.pack(v))

        return run

    with _quiet(scratch=False):
        packed = list(cond_op(flag, branch(then), branch(other), (*[operands[i] for i in moving], *captured)))
    out = []
    for slot in slots:
        out.append(slot.unpack(packed[: slot.count()]))
        del packed[: slot.count()]
    return leaves(out)


def _merge(a: Any, b: Any) -> tuple[Any, Any, list[_Slot]]:
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
        slots += [_Slot(p, q) for p, q in zip(fx, fy)]

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
