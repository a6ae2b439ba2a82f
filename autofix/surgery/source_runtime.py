"""Functions that a rewritten source file carries along: Python control flow that torch.export can capture.

The text of this file (from RUNTIME BEGINS on) is pasted into the rewritten module, so it stands alone: torch only. In eager
mode every function does exactly what the Python statement did; while a model is exported, tests on tensors and
sizes become torch.cond and counted or open loops torch.while_loop (ONNX If and Loop).
"""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
import contextlib
import types
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from autofix.surgery.source_index import assign_view, has_size, nested_tensor_of, symbolic_view
from autofix.surgery.source_merge import merge_results
from autofix.surgery.source_rows import closed, even_lists, list_length, opened


def is_tracing() -> bool:
    """Whether a model is being exported."""
    return bool(torch.compiler.is_exporting())


def is_symbolic(value: Any) -> bool:
    """Whether a value stands for something in the graph."""
    return isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))


def current_shape_env(fake: Any = None) -> Any:
    """The environment of symbolic sizes, None outside of tracing."""
    from torch._guards import detect_fake_mode

    mode = detect_fake_mode(fake)
    return mode.shape_env if mode is not None else None


def watch_reads(table: dict[Any, Any] | None = None) -> Any:
    """A mode that notes the tensors read from outside (`seen`), or replaces them, and constants, by those of `table`."""

    class Watch(TorchFunctionMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = table
            self.seen: dict[int, torch.Tensor] = {}
            self.versions: dict[int, int] = {}
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
            if isinstance(index, slice):
                return slice(*[self._end(e) for e in (index.start, index.stop, index.step)])
            return index

        def _end(self, end: Any) -> Any:
            if not isinstance(end, torch.Tensor):
                return end
            if self.table is None and id(end) not in self.made:
                self.seen[id(end)] = end
            return (self.table or {}).get(id(end), end).item()

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            # A constant made inside a branch can't be lifted out of it by the exporter, so it is made outside and passed in.
            if func in (torch.tensor, torch.as_tensor) and not any(map(is_symbolic, pytree.tree_leaves((args, kwargs)))):
                return self._constant(args, kwargs)
            if func in (torch.tensor, torch.as_tensor) and not isinstance(args[0], torch.Tensor):
                out = nested_tensor_of(args[0], **kwargs)
                self.made[id(out)] = out
                return out
            if func in (torch.Tensor.__setitem__, torch.Tensor.__getitem__):
                args = (args[0], self._index(args[1]), *args[2:])
                if any(isinstance(i, torch.Tensor) and not i.dim() and i.dtype is not torch.bool for i in pytree.tree_leaves(args[1])):
                    func = symbolic_view if func is torch.Tensor.__getitem__ else assign_view
            if func in (torch.Tensor.__setitem__, assign_view) and isinstance(args[2], (int, float, bool)):
                fill = torch.full((), args[2], dtype=args[0].dtype, device=args[0].device)
                self.made[id(fill)] = fill
                args = (args[0], args[1], fill)
            if func in (torch.Tensor.__setitem__, torch.Tensor.__getitem__) and has_size(args[1]):
                func = assign_view if func is torch.Tensor.__setitem__ else symbolic_view
            if self.table is not None:
                args, kwargs = pytree.tree_map(lambda v: self.table.get(id(v), v) if isinstance(v, torch.Tensor) else v, (args, kwargs))
                return func(*args, **kwargs)
            for v in pytree.tree_leaves((args, kwargs)):
                if isinstance(v, torch.Tensor) and id(v) not in self.made:
                    self.seen[id(v)] = v
                    self.versions.setdefault(id(v), v._version)
            out = func(*args, **kwargs)
            for v in pytree.tree_leaves(out):
                if isinstance(v, torch.Tensor) and id(v) not in self.seen:
                    self.made[id(v)] = v
            return out

    return Watch()


@contextlib.contextmanager
def quiet_sizes(scratch: bool) -> Any:
    """Sizes inside a branch must not become conditions on the whole model; a scratch run leaves no trace at all."""
    import torch.fx.experimental._config as config
    from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

    with contextlib.ExitStack() as stack:
        stack.enter_context(config.patch(backed_size_oblivious=True))
        if scratch:
            stack.enter_context(disable_proxy_modes_tracing())
            env = current_shape_env()
            if env is not None:
                stack.enter_context(env.ignore_fresh_unbacked_symbols())
        yield


def scratch_run(fn: Any, args: Any) -> tuple[Any, Any, list[Any]]:
    """What `fn` returns for copies of `args`, what it reads, and the copies."""
    watch = watch_reads()
    with quiet_sizes(scratch=True), watch:
        copies = closed(pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, opened(list(args))))
        out = fn(*copies)
        note_results(watch, opened(list(out)))
    return out, watch, copies


def note_results(watch: Any, out: Any) -> None:
    """Tensors that a branch returns untouched count as read."""
    for v in pytree.tree_leaves(out):
        if isinstance(v, torch.Tensor):
            v.view_as(v)


def outside_reads(watches: list[Any], own: list[Any]) -> tuple[list[Any], list[torch.Tensor]]:
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


def as_operand(value: Any) -> Any:
    """What a branch or loop can be handed in place of a number: a truth value or a float of sizes goes in as a 0-d tensor."""
    if isinstance(value, torch.SymBool):
        return torch.scalar_tensor(value, dtype=torch.bool)
    return torch.scalar_tensor(value, dtype=torch.float64) if isinstance(value, torch.SymFloat) else value


def apart(values: list[Any]) -> list[Any]:
    """What a branch or loop is handed, with copies of tensors that share their memory with one before them: the exporter takes none such."""
    seen: set[int] = set()
    out = []
    for v in values:
        place = v.untyped_storage()._cdata if isinstance(v, torch.Tensor) else id(v)
        out.append(v.clone() if isinstance(v, torch.Tensor) and place in seen else v)
        seen.add(place)
    return out


def cell_values(fn: Any) -> list[Any]:
    """What a function reads from enclosing functions, and its defaults."""
    found = list(fn.__defaults__ or ()) + list((fn.__kwdefaults__ or {}).values())
    for cell in fn.__closure__ or ():
        with contextlib.suppress(ValueError):
            found.append(cell.cell_contents)
    return found


def closed_sizes(fn: Any, found: dict[int, Any]) -> dict[int, Any]:
    """Sizes that a function (and the functions it closes over) reads from enclosing functions, by id."""
    for value in cell_values(fn) if isinstance(fn, types.FunctionType) else ():
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, (torch.SymInt, torch.SymBool, torch.SymFloat)):
                found[id(leaf)] = leaf
            elif isinstance(leaf, types.FunctionType) and leaf is not fn:
                closed_sizes(leaf, found)
    return found


def rebound(fn: Any, table: dict[Any, Any]) -> Any:
    """The function with the sizes it closes over replaced by those of `table`."""
    if not isinstance(fn, types.FunctionType) or not closed_sizes(fn, {}):
        return fn

    def swap(leaf: Any) -> Any:
        return rebound(leaf, table) if isinstance(leaf, types.FunctionType) and leaf is not fn else table.get(id(leaf), leaf)

    cells = []
    for cell in fn.__closure__ or ():
        try:
            cells.append(types.CellType(pytree.tree_map(swap, cell.cell_contents)))
        except ValueError:
            cells.append(cell)
    defaults = pytree.tree_map(swap, fn.__defaults__) if fn.__defaults__ else None
    new = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, defaults, tuple(cells))
    new.__kwdefaults__ = pytree.tree_map(swap, fn.__kwdefaults__) if fn.__kwdefaults__ else None
    return new


def as_flag(test: Any) -> Any:
    """The truth value of `test` as Python would take it: a bool, a SymBool or a 0-d bool tensor."""
    if getattr(test, "is_rows", False):
        return list_length(test) > 0
    if isinstance(test, torch.Tensor) and is_tracing():
        return test.reshape(()).to(torch.bool) if test.dtype is not torch.bool or test.dim() else test
    if isinstance(test, (torch.SymInt, torch.SymFloat)):
        return test != 0
    return test if isinstance(test, torch.SymBool) else bool(test)


def flag_tensor(test: Any) -> torch.Tensor:
    """A truth value as a 0-d bool tensor."""
    if isinstance(test, torch.SymBool):
        return torch.scalar_tensor(test, dtype=torch.bool)
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


def traced_if(test: Any, then: Any, other: Any, *values: Any) -> Any:
    """`then(*values) if test else other(*values)`; both return tuples of equal length.

    `values` are the variables that the branches read and may change. Where the two branches give other sizes, types of numbers or
    dtypes, the merged value is a tensor (or size) that holds either.
    """
    flag = as_flag(test)
    if isinstance(flag, bool) or not is_tracing():
        return then(*values) if flag else other(*values)
    from torch._higher_order_ops.cond import cond_op

    (a, watch_a, then_lists), (b, watch_b, other_lists) = scratch_run(then, values), scratch_run(other, values)
    even = even_lists(values, (a, then_lists), (b, other_lists))
    if even is not None:
        return traced_if(flag, then, other, *even)
    leaves, spec, slots = merge_results(opened(list(a)), opened(list(b)))
    operands, own = pytree.tree_flatten(opened([as_operand(v) for v in values]))
    moving = [i for i, v in enumerate(operands) if isinstance(v, (torch.Tensor, torch.SymInt))]
    keys, captured = outside_reads([watch_a, watch_b], [operands[i] for i in moving])
    written = [k for k in keys if any(k in w.versions and w.seen[k]._version != w.versions[k] for w in (watch_a, watch_b))]
    targets = [captured[keys.index(k)] for k in written]
    if not written and not any(slot.count() for slot in slots):
        return tuple(closed(leaves([slot.unpack([]) for slot in slots])))
    sizes = closed_sizes(then, closed_sizes(other, {}))
    names = [*keys, *sizes]
    captured += map(as_operand, sizes.values())

    def branch(fn: Any) -> Any:
        def run(*inner: Any) -> Any:
            full = list(operands)
            for i, v in zip(moving, inner):
                full[i] = v.clone() if isinstance(v, torch.Tensor) else v
            table = dict(zip(names, inner[len(moving) :]))
            table.update({k: table[k].clone() for k in written})
            with watch_reads(table):
                out = spec(opened(list(rebound(fn, table)(*closed(pytree.tree_unflatten(full, own))))))
                packed = [t for slot, v in zip(slots, out) for t in slot.pack(v)]
                return (*packed, *[table[k].clone() for k in written])

        return run

    with quiet_sizes(scratch=False):
        packed = list(cond_op(flag, branch(then), branch(other), tuple(apart([*[operands[i] for i in moving], *captured]))))
    out = []
    for slot in slots:
        out.append(slot.unpack(packed[: slot.count()]))
        del packed[: slot.count()]
    for target, new in zip(targets, packed):  # what a branch wrote in place, such as a buffer
        target.copy_(new)
    return tuple(closed(list(leaves(out))))
