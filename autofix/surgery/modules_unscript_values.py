"""What the operators of a TorchScript graph do to numbers, lists and dicts, kept in the graph where an export is under way."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from autofix.surgery.source_items import loop_chunk, loop_split, loop_unbind
from autofix.surgery.source_merge import UNSET, is_number
from autofix.surgery.source_numbers import extreme_number, number_of, real_math, real_number, real_of, tensor_of, whole_number
from autofix.surgery.source_rows import as_list, cat_list, list_length, stack_list
from autofix.surgery.source_runtime import as_flag, flag_tensor, is_tracing, none_of


def scaled(a: Any, b: Any, alpha: Any = 1) -> tuple[Any, Any]:
    """The operands of add and sub, whose third argument is a factor."""
    return a, b if type(alpha) is int and alpha == 1 else b * alpha


def quotient(a: Any, b: Any, rounding: str | None = None) -> Any:
    """a / b of numbers, as the operators div and floor_divide take it."""
    if rounding == "floor":
        return a // b
    true = real_number(a) / real_number(b)
    return true if rounding is None else whole_number(torch.trunc(true) if isinstance(true, torch.Tensor) else true, signed=True)


NUMBERS: dict[str, Callable[..., Any]] = {
    "aten::add": lambda a, b, alpha=1: operator.add(*scaled(a, b, alpha)),
    "aten::sub": lambda a, b, alpha=1: operator.sub(*scaled(a, b, alpha)),
    "aten::rsub": lambda a, b, alpha=1: b - a * alpha,
    "aten::mul": operator.mul,
    "aten::div": quotient,
    "aten::floordiv": operator.floordiv,
    "aten::floor_divide": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::neg": operator.neg,
    "aten::abs": abs,
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
    "aten::__not__": none_of,
    "aten::floor": lambda a: real_math("floor", a),
    "aten::ceil": lambda a: real_math("ceil", a),
    "aten::sqrt": lambda a: real_math("sqrt", a),
    "aten::exp": lambda a: real_math("exp", a),
    "prim::min": lambda *n: extreme_number("min", *n),
    "prim::max": lambda *n: extreme_number("max", *n),
}
"""Operators of which every operand is a number; a real one may be a 0-d tensor."""


def put_item(held: Any, key: Any, value: Any) -> Any:
    """held[key] = value."""
    held[key] = value
    return held


def appended(items: Any, value: Any) -> Any:
    """items.append(value), and the list."""
    items.append(value)
    return items


def extended(items: Any, more: Any) -> Any:
    """items.extend(more), and the list."""
    items.extend(more)
    return items


LISTS: dict[str, Callable[..., Any]] = {
    "aten::__getitem__": operator.getitem,
    "aten::_set_item": put_item,
    "aten::append": appended,
    "aten::extend": extended,
    "aten::add_": operator.iadd,
    "aten::add": lambda a, b: [*a, *b],
    "aten::mul": lambda a, n: a * n,
    "aten::slice": lambda a, start=None, end=None, step=1: a[slice(None if step == -1 else start, None if step == -1 else end, step)],
    "aten::len": list_length,
    "aten::list": lambda a: list(a) if type(a) is list else as_list(a),
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::stack": stack_list,
    "aten::cat": cat_list,
    "aten::__contains__": lambda held, key: key in held,
    "aten::keys": lambda held: list(held.keys()),
    "aten::values": lambda held: list(held.values()),
    "aten::items": lambda held: list(held.items()),
    "aten::get": lambda held, key, default=None: held.get(key, default),
}
"""Operators whose first operand is a list, a tuple or a dict."""


PIECES: dict[str, Callable[..., Any]] = {"aten::unbind": loop_unbind, "aten::split": loop_split, "aten::chunk": loop_chunk}
"""Operators that cut a tensor into a list of tensors."""


def is_container(value: Any) -> bool:
    """Whether a value is a list, a tuple, a dict or stands for a list in the graph."""
    return isinstance(value, (list, tuple, dict)) or getattr(value, "is_rows", False) or (hasattr(value, "get") and hasattr(value, "count"))


def plain_result(kind: str, inputs: list[Any], types: list[str], pieces: bool) -> Any:
    """What an operator gives for numbers, sizes and containers; UNSET where it is one for tensors.

    types: the operands' types in the graph. pieces: the result may stand for as many tensors as only the graph knows.
    """
    first = inputs[0] if inputs else None
    if kind in ("aten::Bool", "aten::is_nonzero"):
        return as_flag(first)
    if kind in ("aten::Int", "aten::IntImplicit"):
        return whole_number(first, signed=True)
    if kind in ("aten::Float", "aten::FloatImplicit"):
        return real_of(first)
    if kind in ("aten::item", "aten::ScalarImplicit"):
        return number_of(first) if isinstance(first, torch.Tensor) else first
    if kind == "aten::size" and isinstance(first, torch.Tensor):
        return first.shape[inputs[1]] if len(inputs) > 1 else list(first.shape)
    if kind in ("aten::dim", "aten::numel", "aten::len") and isinstance(first, torch.Tensor):
        return first.shape[0] if kind == "aten::len" else getattr(first, kind[6:])()
    if kind in PIECES and pieces and isinstance(first, torch.Tensor):
        return PIECES[kind](*inputs)
    if kind in ("aten::tensor", "aten::as_tensor") and not isinstance(first, torch.Tensor):
        return tensor_of(first, **{k: v for k, v in zip(("dtype", "device"), inputs[1:], strict=False) if v is not None})
    if kind in ("aten::__is__", "aten::__isnot__"):
        return (first is inputs[1]) == (kind == "aten::__is__")
    if kind in ("aten::__and__", "aten::__or__") and all(t == "bool" for t in types):
        flags = [as_flag(v) for v in inputs]
        known = [f for f in flags if isinstance(f, bool)]
        if len(known) == 2 or not is_tracing():
            return all(flags) if kind == "aten::__and__" else any(flags)
        a, b = (flag_tensor(f) for f in flags)
        return torch.logical_and(a, b) if kind == "aten::__and__" else torch.logical_or(a, b)
    if is_container(first) and kind in LISTS:
        return LISTS[kind](*inputs)
    numbers = all(is_number(v) or t in ("int", "float", "bool", "number", "str") for v, t in zip(inputs, types, strict=True) if v is not None)
    if kind in NUMBERS and numbers:
        return NUMBERS[kind](*inputs)
    return UNSET
