"""The one loop that all rewritten loops come down to: while_loop over variables of any kind. Pasted like source_runtime.py."""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autofix.surgery.source_merge import as_dtype, as_scalar, is_same_constant
from autofix.surgery.source_plans import flat_values, held_test, plan_loop
from autofix.surgery.source_rows import closed, grown_rows
from autofix.surgery.source_runtime import (
    apart,
    as_flag,
    as_operand,
    closed_sizes,
    flag_tensor,
    is_tracing,
    outside_reads,
    quiet_sizes,
    rebound,
    watch_reads,
)


def row_leaves(values: list[Any]) -> list[bool]:
    """For every leaf of the variables, whether it is the tensor of a grown list."""
    out: list[bool] = []
    for v in values:
        leaves, _ = flat_values([v])
        out += [bool(getattr(v, "is_rows", False) and isinstance(leaf, torch.Tensor)) for leaf in leaves]
    return out


def row_parts(rows: Any) -> list[tuple[torch.Tensor, int]]:
    """(tensor, the axis along which it grows) of the tensors that a grown list is kept in."""
    return [(rows.data, rows.ragged or 0)] if rows.ragged is None else [(rows.data, rows.ragged), (rows.sizes, 0)]


def count_rows(test: Any, step: Any, values: list[Any], bound: Any, counter: bool) -> list[Any]:
    """How long the tensors of each grown list of `values` become: the loop run once with empty lists, only to count."""
    at = [i for i, v in enumerate(values) if getattr(v, "is_rows", False)]
    empty = [values[i].data.narrow(values[i].ragged or 0, 0, 0) for i in at]

    def counting(*now: Any) -> Any:
        plain, totals = list(now[: len(values)]), now[len(values) :]
        for i, blank in zip(at, empty):
            plain[i] = grown_rows(blank.clone(), values[i].ragged, blind=True)
        stop, *new = step(*plain)
        grown = [t.shape[d] for i in at for t, d in row_parts(new[i])]
        more = [n + size for n, size in zip(totals, grown)]
        for i in at:
            new[i] = None
        return (stop, *new, *more)

    start = [None if i in at else v for i, v in enumerate(values)]
    counted = sum(len(row_parts(values[i])) for i in at)
    done = traced_loop(lambda *now: test(*now[: len(values)]), counting, (*start, *[0] * counted), bound, counter)
    return list(done[len(values) :])


def traced_loop(test: Any, step: Any, values: Any, bound: Any, counter: bool = False) -> Any:
    """`while test(*values): stop, *values = step(*values)` until `stop` holds, as one while_loop.

    bound: most turns there can be, or None. counter: the first variable counts turns from 0 up to `bound`.
    Variables whose size changes are kept in buffers that hold their largest size.
    """
    if not is_tracing():
        stop: Any = False
        while not stop and test(*values):
            stop, *values = step(*values)
        return tuple(values)
    from torch._higher_order_ops.while_loop import while_loop_op

    values, spec, slots, stops, watches = plan_loop(test, step, list(values), bound if counter else None)
    if bound is None:  # every turn takes something away from a variable: there are no more turns than it is long
        bound = next((s.first.shape[d] for s in slots for d in s.vary if s.growth[d] is not None and s.growth[d] < 0), None)
    unknown = [s for s in slots if any(g is None or (g > 0 and bound is None) for g in s.growth.values())]
    rows = [s for s, path in zip(slots, row_leaves(values)) if path]
    if unknown and all(any(s is r for r in rows) for s in unknown):
        for slot, total in zip(rows, count_rows(test, step, values, bound, counter)):
            for d in slot.vary:
                torch._check(total >= 0)
                slot.caps[d] = slot.first.shape[d] + total
    for slot in slots:
        for d in slot.vary:
            if d in slot.caps:
                slot.steady.discard(d)
                continue
            size, growth = slot.first.shape[d], slot.growth[d]
            if growth is None or (growth > 0 and bound is None):
                raise TypeError(f"how large a variable of a loop may become is not known before it runs: {slot.first.shape} grows by {growth}")
            slot.caps[d] = size if growth <= 0 else size + growth * bound
            if not (counter and not stops and growth > 0 and d in slot.steady):
                slot.steady.discard(d)

    state: list[Any] = [torch.zeros((), dtype=torch.bool)] if stops else []
    for slot in slots:
        state += pack_leaf(slot, slot.first)
    reads = closed_sizes(test, closed_sizes(step, {}))
    for slot in slots:
        if slot.kind == "fixed" and isinstance(slot.first, torch.SymInt):
            reads[id(slot.first)] = slot.first
        for cap in slot.caps.values():
            if isinstance(cap, torch.SymInt):
                reads[id(cap)] = cap
    if isinstance(bound, torch.SymInt):
        reads[id(bound)] = bound
    keys, captured = outside_reads(watches, [])
    for slot in slots:
        if slot.kind == "fixed" and isinstance(slot.first, torch.Tensor) and id(slot.first) not in keys:
            keys.append(id(slot.first))
            captured.append(slot.first)
    names, extra = [*keys, *reads], [*captured, *map(as_operand, reads.values())]
    held = len(state)

    def variables(inner: Any, turns: Any = None) -> tuple[Any, Any]:
        table = dict(zip(names, inner[held:]))
        return table, closed(pytree.tree_unflatten(unpack_state(slots, list(inner[int(stops) : held]), table, turns), spec))

    def go(*inner: Any) -> Any:
        table, now = variables(inner)
        with watch_reads(table):
            flag = flag_tensor(as_flag(rebound(test, table)(*now)))
            return torch.logical_and(inner[0].logical_not(), flag) if stops else flag.clone()

    def turn(*inner: Any) -> Any:
        table, now = variables(inner, bound if counter else None)  # where the test is made, the counter may have reached its end
        with watch_reads(table):
            if not counter:
                with quiet_sizes(scratch=True):
                    held_test(rebound(test, table), now)
            stop, *new = rebound(step, table)(*now)
            if not stops and as_flag(stop) is not False:
                raise TypeError("a loop stops itself, which no trial turn did")
            out = [flag_tensor(as_flag(stop)).clone()] if stops else []
            for slot, before, leaf in zip(slots, flat_values(list(now))[0], flat_values(new)[0]):
                if slot.kind == "fixed" and leaf is not before and not is_same_constant(before, leaf):
                    raise TypeError("a loop changes a variable that no trial turn changed")
                out += pack_leaf(slot, leaf, table)
            return tuple(out)

    with quiet_sizes(scratch=False):
        done = while_loop_op(go, turn, tuple(state), tuple(apart(extra)))
    out = unpack_state(slots, list(done[int(stops) :]), {}, None, inside=False)
    return tuple(closed(pytree.tree_unflatten(out, spec)))


def pack_leaf(slot: Any, value: Any, table: Any = None) -> list[torch.Tensor]:
    """The tensors that carry one leaf: the value, filled up to its largest size, and its size along each changing axis."""
    if slot.kind == "fixed":
        return []
    if slot.kind == "number":
        return [as_dtype(value if isinstance(value, torch.Tensor) else as_scalar(value, slot.dtype), slot.dtype).reshape(()).clone()]
    value = as_dtype(value, slot.dtype)
    if value.dim() < slot.first.dim():
        value = value.expand(slot.first.shape)
    sizes = []
    for d in slot.vary:
        cap = (table or {}).get(id(slot.caps[d]), slot.caps[d])
        size = value.shape[d]
        sizes.append(torch.scalar_tensor(size, dtype=torch.int64))
        room = cap - size
        torch._check(room >= 0)
        value = torch.cat([value, value.new_zeros([room if i == d else n for i, n in enumerate(value.shape)])], d)
        if value.shape[d] is not cap:
            if "u" in str(cap):  # it is as long as that, which what is captured again does not know: a length that needs no proof
                value = value.index_select(d, torch.arange(cap, device=value.device))
            else:
                value = value.narrow(d, 0, cap)
    return [value.clone(memory_format=torch.contiguous_format), *sizes]


def unpack_state(slots: list[Any], tensors: list[torch.Tensor], table: Any, turns: Any, inside: bool = True) -> list[Any]:
    """The leaves from the tensors that carry them; `turns`: the first leaf counts from 0 to this; `inside`: of the loop, where a
    tensor is a copy and one that grows steadily is not yet as long as it becomes."""
    out: list[Any] = []
    for slot in slots:
        if slot.kind == "fixed":
            out.append(table.get(id(slot.first), slot.first) if not isinstance(slot.first, torch.Tensor) else slot.first)
            continue
        value: Any = tensors.pop(0)
        if slot.kind == "number" and slot.dtype is torch.int64:
            value = value.item()
            if slot.low is not None:
                torch._check(value >= slot.low)
            if turns is not None:
                torch._check(value >= 0)
                torch._check(value < table.get(id(turns), turns))
        for d in slot.vary:
            held = tensors.pop(0)
            if d in slot.steady and not inside:
                continue
            size = held.item()
            torch._check(size >= 0)
            torch._check(size <= table.get(id(slot.caps[d]), slot.caps[d]))
            value = value.narrow(d, 0, size)
        turns = None
        out.append(value.clone() if inside and isinstance(value, torch.Tensor) else value)
    return out
