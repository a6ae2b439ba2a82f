"""Values that a run-time value picks: `a and b`, one of several modules, an entry of a dictionary. Pasted like source_runtime.py."""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
import re
from typing import Any

import torch

from autofix.surgery.source_merge import lower_size
from autofix.surgery.source_runtime import all_of, as_flag, flag_tensor, is_tracing, traced_if


def value_and(first: Any, second: Any) -> Any:
    """`first() and second()`: one of the two values, as Python picks it."""
    value = first()
    return traced_if(as_flag(value), lambda: (second(),), lambda: (value,))[0]


def value_or(first: Any, second: Any) -> Any:
    """`first() or second()`: one of the two values, as Python picks it."""
    value = first()
    return traced_if(as_flag(value), lambda: (value,), lambda: (second(),))[0]


def traced_choice(held: Any, index: Any) -> Any:
    """held[index] where the index of one of several modules or tensors may be known only at run time: one branch for each."""
    if isinstance(index, torch.Tensor) and not is_tracing():
        index = int(index)
    if not isinstance(index, (torch.Tensor, torch.SymInt)):
        return held[index]
    if hasattr(held, "keys"):
        return traced_key(held, index, lambda number: number)
    if isinstance(index, torch.Tensor):
        index = index.reshape(()).to(torch.int64)
    if isinstance(held, torch.Tensor):
        place = index if isinstance(index, torch.Tensor) else torch.scalar_tensor(index, dtype=torch.int64)
        place = torch.where(place < 0, place + held.shape[0], place)
        return held.index_select(0, place.reshape(1)).squeeze(0)
    if isinstance(index, torch.SymInt) and (lower_size(index) is None or lower_size(index) < 0):
        index = torch.scalar_tensor(index, dtype=torch.int64)
    return one_of(list(held), torch.where(index < 0, index + len(held), index) if isinstance(index, torch.Tensor) else index)


def traced_key(held: Any, number: Any, key: Any) -> Any:
    """held[key(number)] of a dictionary whose keys are made of whole numbers, where the number may be known only at run time."""
    if not isinstance(number, (torch.Tensor, torch.SymInt)) or (isinstance(number, torch.Tensor) and not is_tracing()):
        return held[key(int(number) if isinstance(number, torch.Tensor) and not number.dtype.is_floating_point else number)]
    found, place = numbered_entries(held, number, key)
    if not found:
        raise TypeError("no key of this dictionary is made of a whole number")
    return one_of(list(found.values()), place)


def traced_get(held: Any, number: Any, key: Any, default: Any = None) -> Any:
    """held.get(key(number), default) where the number may be known only at run time."""
    if not isinstance(number, (torch.Tensor, torch.SymInt)) or not is_tracing():
        return held.get(key(number), default)
    found, place = numbered_entries(held, number, key)
    if not found:
        return default
    present = flag_tensor(is_among(number, list(found)))
    return one_of([*found.values(), default], torch.where(present, place, len(found)))


def list_item(items: Any, index: Any) -> Any:
    """items[index] of a list that grows in the graph, or will once its loop is captured."""
    if not isinstance(items, (list, tuple)) or not isinstance(index, (torch.SymInt, torch.Tensor)):
        return items[index]
    return traced_choice(items, index)


def numbered_entries(held: Any, number: Any, key: Any) -> Any:
    """({n: held[key(n)]} of the whole numbers n that keys are made of, in order; which of them is the number, as a 0-d tensor)."""
    found = {}
    for name in held.keys():  # noqa: SIM118
        for digits in re.findall(r"-?\d+", str(name)):
            if key(int(digits)) == name:
                found[int(digits)] = held[name]
    value = number.reshape(()) if isinstance(number, torch.Tensor) else torch.scalar_tensor(number, dtype=torch.int64)
    numbers = sorted(found)
    place = torch.zeros((), dtype=torch.int64)
    for least in numbers[1:]:
        place = place + (value >= least).to(torch.int64)
    return {n: found[n] for n in numbers}, place


def is_among(value: Any, held: Any) -> Any:
    """`value in held` where the value may be known only at run time."""
    if not is_tracing() or not isinstance(value, (torch.Tensor, torch.SymInt)) or (isinstance(value, torch.Tensor) and value.numel() != 1):
        return value in held
    if isinstance(held, torch.Tensor):
        return (held == value).any()
    if isinstance(held, range) and len(held) > 8:
        first, last = (held[0], held[-1]) if held.step > 0 else (held[-1], held[0])
        return all_of(lambda: value >= first, lambda: value <= last, lambda: (value - first) % abs(held.step) == 0)
    number = value.reshape(()) if isinstance(value, torch.Tensor) else torch.scalar_tensor(value, dtype=torch.int64)
    found = torch.zeros((), dtype=torch.bool)
    for item in held:
        if isinstance(item, (torch.Tensor, torch.SymInt, int, float)):
            found = torch.logical_or(
                found, number == (item if isinstance(item, (torch.Tensor, int, float)) else torch.scalar_tensor(item, dtype=torch.int64))
            )
    return found


def one_of(items: list[Any], index: Any) -> Any:
    """items[index]: a tensor or number picked by branches; of modules and functions something that picks when it is called or read."""

    def pick(read: Any, low: int = 0, high: int = len(items)) -> Any:
        if high - low == 1:
            return read(items[low])
        middle = (low + high) // 2
        return traced_if(index < middle, lambda: (pick(read, low, middle),), lambda: (pick(read, middle, high),))[0]

    class Choice:
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return pick(lambda item: item(*args, **kwargs))

        def __getattr__(self, name: str) -> Any:
            return one_of([getattr(item, name) for item in items], index)

        def __getitem__(self, place: Any) -> Any:
            return one_of([item[place] for item in items], index)

    first = items[0]
    if isinstance(first, (torch.Tensor, int, float)):
        return first if all(item is first for item in items) else pick(lambda item: item)
    return first if all(item is first for item in items) else Choice()
