"""What one turn of a loop does to its variables, found by trial turns that leave no trace. Pasted like source_runtime.py."""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
import contextlib
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autofix.surgery.source_merge import UNSET, as_dtype, is_number, tell, upper_size
from autofix.surgery.source_rows import as_rows, closed, loop_slot, opened, rows_like
from autofix.surgery.source_runtime import (
    as_flag,
    flag_tensor,
    note_results,
    quiet_sizes,
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


def expression(size: Any) -> Any:
    """A size as a term that can be reckoned with, without leaving a trace in the graph."""
    return size.node.expr if isinstance(size, torch.SymInt) else size


def lowest(first: Any, before: Any, after: Any) -> Any:
    """The first value of a number to which each turn adds a constant that is not negative: it never falls below it. None for others."""
    if type(first) is not int or not isinstance(before, torch.SymInt) or not isinstance(after, torch.SymInt):
        return None
    step = expression(after) - expression(before)
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
    """A stand-in for a carried leaf: a number without a value, a tensor whose changing axes have small sizes (shift: None: without a value)."""
    if slot.kind == "fixed":
        return slot.first
    if slot.kind == "number":
        return blank_number(turns, slot.low) if slot.dtype is torch.int64 else torch.zeros((), dtype=slot.dtype)
    sizes = [blank_number(None, 0) if shift is None and d in slot.vary else s for d, s in enumerate(slot.first.shape)]
    if shift is not None:
        sizes = [sum(map(ord, str(s))) % 5 + shift if d in slot.vary else s for d, s in enumerate(sizes)]
    return torch.zeros(sizes, dtype=slot.dtype, device=slot.first.device)


def plan_loop(test: Any, step: Any, values: list[Any], turns: Any) -> tuple[list[Any], Any, list[Any], bool, list[Any]]:
    """(variables, their structure, one slot a leaf, whether the loop may stop itself, what it reads), found by trial turns."""
    first = [free_number(v, None if i else 1, turns) if turns is not None and not i else v for i, v in enumerate(values)]
    _, new, _, _ = probe_turn(test, step, *flat_values(first))
    free = [free_number(a, b, turns if i == 0 else None) for i, (a, b) in enumerate(zip(values, new))]
    _, after, _, _ = probe_turn(test, step, *flat_values(free))
    lows = [lowest(a, b, c) for a, b, c in zip(values, free, after)]
    if any(low is not None for low in lows[1 if turns is not None else 0 :]):
        free = [free_number(a, b, turns if i == 0 else None, low) for i, (a, b, low) in enumerate(zip(values, new, lows))]
        _, after, _, _ = probe_turn(test, step, *flat_values(free))
    values = align_lists(values, after)
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
    stops, watches = as_flag(stop) is not False, [watch]
    if any(slot.vary for slot in slots):  # a test of a size that changes went one way only in these turns
        from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

        with contextlib.suppress(GuardOnDataDependentSymNode):  # the loop itself knows more about these sizes
            stop, watch = open_turn(test, step, slots, leaves, spec, turns)
            stops |= as_flag(stop) is not False
            watches.append(watch)
    return values, spec, slots, stops, watches


def open_turn(test: Any, step: Any, slots: list[Any], leaves: list[Any], spec: Any, turns: Any) -> tuple[Any, Any]:
    """One more trial turn, with sizes that have no value: corrects the slots, and gives (stop, what it reads)."""
    with quiet_sizes(scratch=True):
        trial = [trial_leaf(s, None, turns if i == 0 else None) for i, s in enumerate(slots)]
    stop, new, changed, watch = probe_turn(test, step, trial, spec)
    after, _ = flat_values(new)
    for i, (slot, now, b) in enumerate(zip(slots, trial, after)):
        if slot.kind == "fixed" and changed[i]:
            with quiet_sizes(scratch=True):
                found = loop_slot(slot.first, b, True)
            if found.kind != "fixed":
                slots[i] = loop_slot(leaves[i], b, True)
                slots[i].growth = dict.fromkeys(slots[i].vary)
        for d in slot.vary:
            if str(expression(b.shape[d]) - expression(now.shape[d])) != str(slot.growth[d]):
                slot.steady.discard(d)
    return stop, watch
