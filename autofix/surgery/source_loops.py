"""Loops whose number of turns is known only at run time, as while_loop. Pasted into rewritten files like source_runtime.py."""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
from typing import Any

import torch
from torch.utils import _pytree as pytree

from autofix.surgery.source_items import counted_items, loop_items
from autofix.surgery.source_runtime import (
    any_of,
    as_flag,
    flag_tensor,
    is_tracing,
    none_of,
    quiet_sizes,
    traced_if,
    watch_reads,
)
from autofix.surgery.source_whiles import traced_loop


def traced_for(items: Any, step: Any, *values: Any) -> tuple[Any, ...]:
    """`for item in items: stop, *values = step(item, *values)`, until `stop` holds; returns the values."""
    items = loop_items(items)
    if hasattr(items, "keep"):
        pairs = list(zip(items.items, items.keep))

        def kept(pair: Any, *now: Any) -> Any:
            return traced_if(pair[1], lambda *now: step(pair[0], *now), lambda *now: (False, *now), *now)

        return traced_for(pairs, kept, *values)
    if isinstance(items, range) and len(items) > 2 and is_tracing() and _stops_in_graph(step, items[0], values):
        counted = counted_items(len(items), lambda i, items=items: items.start + i * items.step)
        try:
            return traced_for(counted, step, *values)
        except TypeError:  # variables that change their size: one turn after the other
            if len(items) > 64:
                raise
    if hasattr(items, "count") and hasattr(items, "get"):
        get, count = items.get, items.count

        def turn(i: Any, *now: Any) -> Any:
            stop, *new = step(get(i), *now)
            return (stop, i + 1, *new)

        return traced_loop(lambda i, *now: i < count, turn, (0, *values), count, counter=True)[1:]
    stop: Any = False
    for item in items:
        if stop is True:
            break
        if stop is False:
            stop, *new = step(item, *values)
            stop, values = as_flag(stop), tuple(new)
        else:
            stop, *new = traced_if(stop, lambda *now: (True, *now), lambda *now, item=item: step(item, *now), *values)
            values = tuple(new)
    return values


def traced_while(test: Any, step: Any, *values: Any, bound: Any = None) -> tuple[Any, ...]:
    """`while test(*values): stop, *values = step(*values)`, until `stop` holds. `bound`: a known limit on the number of turns."""
    turns = 0
    while True:
        flag = as_flag(test(*values))
        if flag is False:
            return values
        if flag is not True or turns == 48 or (is_tracing() and _ends_in_graph(test, step, values)):
            return traced_loop(test, step, values, None if bound is None else bound - turns)
        stop, *new = step(*values)
        values, turns = tuple(new), turns + 1
        if as_flag(stop) is True:
            return values


def any_item(items: Any, test: Any = as_flag) -> Any:
    """any(test(item) for item in items): tests are made until one holds."""
    items = loop_items(items)
    if not hasattr(items, "get"):
        held = list(items)
        return any_of(*[lambda item=item: test(item) for item in held]) if held else False

    def step(item: Any, found: Any) -> Any:
        flag = flag_tensor(as_flag(test(item)))
        return flag, flag

    return traced_for(items, step, torch.zeros((), dtype=torch.bool))[0]


def all_item(items: Any, test: Any = as_flag) -> Any:
    """all(test(item) for item in items): tests are made until one fails."""
    return none_of(any_item(items, lambda item: none_of(test(item))))


def _stops_in_graph(step: Any, item: Any, values: Any) -> bool:
    """Whether only the graph knows if a turn is the last one."""
    with quiet_sizes(scratch=True), watch_reads():
        return not isinstance(as_flag(step(item, *pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, values))[0]), bool)


def _ends_in_graph(test: Any, step: Any, values: Any) -> bool:
    """Whether, after one more turn, only the graph knows if the loop goes on."""
    with quiet_sizes(scratch=True), watch_reads():
        stop, *new = step(*pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, values))
        return not isinstance(as_flag(stop), bool) or not isinstance(as_flag(test(*new)), bool)
