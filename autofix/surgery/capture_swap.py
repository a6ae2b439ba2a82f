"""Python functions swapped under every name they go by, for as long as a model is captured."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch


@contextlib.contextmanager
def swapped_functions(table: dict[Callable[..., Any], Callable[..., Any]]) -> Iterator[None]:
    """Make each Python function run its replacement's code, also where it was imported by name or stored.

    The code object is exchanged, so that references that were taken earlier are swapped too.
    """
    before = []
    for number, (function, replacement) in enumerate(table.items()):
        target: Any = function
        name = f"_autofix_swapped_{number}_{target.__name__}"
        scope: dict[str, Any] = {}
        exec(f"def stand_in(*args, **kwargs):\n    return {name}(*args, **kwargs)", scope)  # noqa: S102
        before.append((target, target.__code__, target.__defaults__, target.__kwdefaults__, name))
        target.__globals__[name] = replacement
        target.__defaults__ = target.__kwdefaults__ = None
        target.__code__ = scope["stand_in"].__code__
    try:
        yield
    finally:
        for target, code, defaults, keyword_defaults, name in before:
            target.__code__, target.__defaults__, target.__kwdefaults__ = code, defaults, keyword_defaults
            target.__globals__.pop(name, None)


def function_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is now, which a later swap does not reach."""
    import types

    target: Any = function
    made = types.FunctionType(target.__code__, target.__globals__, target.__name__, target.__defaults__, target.__closure__)
    made.__kwdefaults__ = target.__kwdefaults__
    return made


def flag_for_callers(function: Callable[..., bool]) -> Callable[..., bool]:
    """A version of a flag such as torch.onnx.is_in_onnx_export that says False to code outside of torch."""
    original = function_copy(function)

    def flag() -> bool:
        # Frame 0 is this function, frame 1 the stand-in that carries the flag's own name, frame 2 who asks.
        asking = sys._getframe(2).f_globals.get("__name__", "")
        inside = asking == "torch" or asking.startswith(("torch.", "autofix."))
        return original() if inside else False

    return flag


@contextlib.contextmanager
def eager_flags() -> Iterator[None]:
    """While active, a model that asks whether it is exported, compiled or traced hears no, as in eager PyTorch."""
    flags: list[Any] = [torch.onnx.is_in_onnx_export, getattr(torch.jit, "is_tracing"), getattr(torch.jit, "is_scripting")]  # noqa: B009
    flags += [f for f in (getattr(torch.compiler, n, None) for n in ("is_compiling", "is_dynamo_compiling", "is_exporting")) if f is not None]
    flags += [f for f in (getattr(torch._dynamo, n, None) for n in ("is_compiling",)) if f is not None]
    known: dict[Any, Any] = {f: flag_for_callers(f) for f in flags if hasattr(f, "__code__") and not f.__code__.co_freevars}
    with swapped_functions(known):
        yield
