"""The one loop that all rewritten loops come down to: while_loop over variables of any kind. Pasted like source_runtime.py."""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autofix.surgery.source_merge import UNSET, as_dtype, as_scalar, is_number, tell, upper_size
from autofix.surgery.source_rows import as_rows, closed, grown_rows, loop_slot, opened, rows_like
from autofix.surgery.source_runtime import (
    as_flag,
    as_operand,
    closed_sizes,
    flag_tensor,
    is_tracing,
    note_results,
    outside_reads,
    quiet_sizes,
    rebound,
    watch_reads,
)


def flat_values(values: Any) -> tuple[list[Any], Any]:
    """Leaves and structure of the variables of a loop; None and UNSET are leaves."""
    return pytree.tree_flatten(opened(list(values)), is_leaf=lambda v: v is None or v is UNSET)


def probe_turn(test: Any, step: Any, leaves: list[Any], spec: Any) -> tuple[Any, list[Any], list[bool], Any]:
    """One turn on copies, without a trace: (stop, values after it, which leaves it changed, what it read)."""
    watch = watch_reads()
    with quiet_sizes(scratch=True):
        now = [v.clone() if isinstance(v, torch.Tensor) else v for v in leaves]
    with quiet_sizes(scratch=True), watch:
        versions = [v._version if isinstance(v, torch.Tensor) else 0 for v in now]
        values = closed(pytree.tree_unflatten(now, spec))
        held_test(test, values)
        stop, *new = step(*values)
        after, _ = flat_values(new)
        note_results(watch, after)
        changed = [len(after) != len(now) or a is not b or (isinstance(b, torch.Tensor) and b._version != n) for a, b, n in zip(after, now, versions)]
    for v in now:
        watch.seen.pop(id(v), None)
    return stop, new, changed, watch


def held_test(test: Any, values: Any) -> None:
    """Make the test of a loop; in its body it holds."""
    flag = as_flag(test(*values))
    tell(flag)
    flag_tensor(flag)


def free_number(before: Any, after: Any, turns: Any = None, low: Any = None) -> Any:
    """A whole number that a turn changes, as one without a value; anything else as it is."""
    if type(before) is not int or before is after or not is_number(after):
        return before
    with quiet_sizes(scratch=True):
        return blank_number(turns, low)


def lowest(first: Any, before: Any, after: Any) -> Any:
    """The first value of a number to which each turn adds a constant that is not negative: it never falls below it. None for others."""
    if type(first) is not int or not isinstance(before, torch.SymInt) or not isinstance(after, torch.SymInt):
        return None
    step = after.node.expr - before.node.expr
    return first if step.is_Integer and step >= 0 else None


def blank_number(turns: Any, low: Any = None) -> Any:
    """A whole number without a value; one that counts turns lies between 0 and their number."""
    number = torch.ops.aten.alias(torch.zeros((), dtype=torch.int64)).item()
    if low is not None:
        torch._check(number >= low)
    if turns is not None:
        torch._check(number >= 0)
        torch._check(number < turns)
    return number


def align_lists(before: Any, after: Any) -> list[Any]:
    """The variables before a turn with lists that the turn lengthened turned into grown rows."""
    out = []
    for old, new in zip(before, after):
        if isinstance(old, list) and (getattr(new, "is_rows", False) or (isinstance(new, list) and len(new) != len(old))):
            out.append(rows_like(new, old) if getattr(new, "is_rows", False) else as_rows(old, new))
        elif old is UNSET and isinstance(new, (list, tuple, dict)):
            out.append(pytree.tree_map(lambda v: UNSET, new))
        else:
            out.append(old)
    return out


def trial_leaf(slot: Any, shift: int, turns: Any = None) -> Any:
    """A stand-in for a carried leaf: a number without a value, a tensor whose changing axes have small sizes."""
    if slot.kind == "fixed":
        return slot.first
    if slot.kind == "number":
        return blank_number(turns, slot.low) if slot.dtype is torch.int64 else torch.zeros((), dtype=slot.dtype)
    sizes = [sum(map(ord, str(s))) % 5 + shift if d in slot.vary else s for d, s in enumerate(slot.first.shape)]
    return torch.zeros(sizes, dtype=slot.dtype, device=slot.first.device)


def row_leaves(values: list[Any]) -> list[bool]:
    """For every leaf of the variables, whether it is the tensor of a grown list."""
    out: list[bool] = []
    for v in values:
        leaves, _ = flat_values([v])
        out += [bool(getattr(v, "is_rows", False) and isinstance(leaf, torch.Tensor)) for leaf in leaves]
    return out


def plan_loop(test: Any, step: Any, values: list[Any], turns: Any) -> tuple[list[Any], Any, list[Any], bool, Any]:
    """(variables, their structure, one slot a leaf, whether the loop may stop itself, what it reads), found by trial turns."""
    first = [free_number(v, None if i else 1, turns) if turns is not None and not i else v for i, v in enumerate(values)]
    stop, new, changed, watch = probe_turn(test, step, *flat_values(first))
    free = [free_number(a, b, turns if i == 0 else None) for i, (a, b) in enumerate(zip(values, new))]
    _, after, _, _ = probe_turn(test, step, *flat_values(free))
    lows = [lowest(a, b, c) for a, b, c in zip(values, free, after)]
    if any(low is not None for low in lows[1 if turns is not None else 0 :]):
        free = [free_number(a, b, turns if i == 0 else None, low) for i, (a, b, low) in enumerate(zip(values, new, lows))]
        _, after, _, _ = probe_turn(test, step, *flat_values(free))
    new = after
    values = align_lists(values, new)
    leaves, spec = flat_values(values)
    unbound = [f if type(v) is int else v for v, f in zip(values, free)]
    stop, new, changed, watch = probe_turn(test, step, *flat_values(unbound))
    after, spec_after = flat_values(new)
    if len(after) != len(leaves):
        raise TypeError("a container changes its shape in a loop")
    slots = [loop_slot(a, b, c) for a, b, c in zip(leaves, after, changed)]
    spread = [low for v, low in zip(values, lows) for _ in flat_values([v])[0]]
    for slot, low in zip(slots, spread):
        slot.low = low
    for _ in range(4):
        grown: list[dict[Any, Any]] = []
        for shift in (3, 5):
            with quiet_sizes(scratch=True):
                trial = [trial_leaf(s, shift, turns if i == 0 else None) for i, s in enumerate(slots)]
            stop, new, changed, watch = probe_turn(test, step, trial, spec)
            after, _ = flat_values(new)
            grown.append({})
            for i, (slot, now, b) in enumerate(zip(slots, trial, after)):
                for d in slot.vary:
                    top = upper_size(b.shape[d])
                    grown[-1][i, d] = None if top is None else top - now.shape[d]
                    if type(b.shape[d]) is not int:
                        slot.steady.discard(d)
        with quiet_sizes(scratch=True):
            fresh = [loop_slot(s.first if s.kind == "fixed" else t, b, c) for s, t, b, c in zip(slots, trial, after, changed)]
        stable = True
        for i, (slot, found) in enumerate(zip(slots, fresh)):
            wider = found.kind != "fixed" and (slot.kind == "fixed" or slot.dtype != found.dtype or set(found.vary) - set(slot.vary))
            if wider:
                stable = False
                if slot.kind == "fixed":
                    slots[i] = loop_slot(leaves[i], after[i], True)
                else:
                    slot.dtype, slot.vary = found.dtype, tuple(sorted({*slot.vary, *found.vary}))
                    slot.first = as_dtype(slot.first, slot.dtype) if isinstance(slot.first, torch.Tensor) else slot.first
        if stable:
            break
    for i, slot in enumerate(slots):
        for d in slot.vary:
            one, two = grown[0].get((i, d)), grown[1].get((i, d))
            halves = one is not None and two is not None and one <= 0 and two <= 0  # n // 2, say: less with every turn, but not by a fixed step
            slot.growth[d] = one if one == two else 0 if halves else None
    return values, spec, slots, as_flag(stop) is not False, watch


def count_rows(test: Any, step: Any, values: list[Any], bound: Any, counter: bool) -> list[Any]:
    """How long each grown list of `values` becomes: the loop run once with empty lists, only to count."""
    at = [i for i, v in enumerate(values) if getattr(v, "is_rows", False)]
    empty = [values[i].data.narrow(values[i].ragged or 0, 0, 0) for i in at]

    def counting(*now: Any) -> Any:
        plain, totals = list(now[: len(values)]), now[len(values) :]
        for i, blank in zip(at, empty):
            plain[i] = grown_rows(blank.clone(), values[i].ragged, blind=True)
        stop, *new = step(*plain)
        more = [n + new[i].data.shape[new[i].ragged or 0] for n, i in zip(totals, at)]
        for i in at:
            new[i] = None
        return (stop, *new, *more)

    start = [None if i in at else v for i, v in enumerate(values)]
    done = traced_loop(lambda *now: test(*now[: len(values)]), counting, (*start, *[0] * len(at)), bound, counter)
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

    values, spec, slots, stops, watch = plan_loop(test, step, list(values), bound if counter else None)
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
    keys, captured = outside_reads([watch], [])
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
            out = [flag_tensor(as_flag(stop)).clone()] if stops else []
            for slot, leaf in zip(slots, flat_values(new)[0]):
                out += pack_leaf(slot, leaf, table)
            return tuple(out)

    with quiet_sizes(scratch=False):
        done = while_loop_op(go, turn, tuple(state), tuple(extra))
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
