"""Constants in the exporter's rewrite rules, matched exactly: onnxscript takes x + 1e-9 for x + 0 and 1.00001 x for x."""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

MATCHING_MODULES = ("onnxscript.rewriter._matcher", "onnxscript.rewriter._ir_utils")
"""Where onnxscript compares a graph's constants with those of its patterns: math.isclose, 1e-5 relative, 1e-8 absolute."""


def is_rounded(value: Any, wanted: Any) -> bool:
    """Whether a constant is `wanted`, or `wanted` in one of the narrower float types."""
    import numpy as np

    if value == wanted:
        return True
    with np.errstate(over="ignore"):
        return any(value == float(kind(wanted)) for kind in (np.float32, np.float16))


@contextlib.contextmanager
def constants_compared(close: Callable[..., bool]) -> Iterator[None]:
    """Let onnxscript's rules compare constants by `close(value, wanted, rel_tol=, abs_tol=)`; nothing changes where a version does it elsewhere."""
    import importlib

    patched = []
    for name in MATCHING_MODULES:
        with contextlib.suppress(ImportError):
            module: Any = importlib.import_module(name)
            before = getattr(module, "math", None)
            if hasattr(before, "isclose"):
                stand_in = types.ModuleType("math")
                stand_in.__dict__.update(math.__dict__ | {"isclose": close})
                module.math = stand_in
                patched.append((module, before))
    try:
        yield
    finally:
        for module, before in patched:
            module.math = before


@contextlib.contextmanager
def exact_matches() -> Iterator[None]:
    """Rules of the exporter's optimiser fire on the very constants that they name, not on what is near."""

    def close(value: Any, wanted: Any, **tolerances: float) -> bool:
        return is_rounded(value, wanted)

    with constants_compared(close):
        yield


@contextlib.contextmanager
def watch_near_matches() -> Iterator[list[float]]:
    """The constants that rules took for others while the context lasted."""
    near: list[float] = []

    def close(value: Any, wanted: Any, **tolerances: float) -> bool:
        same = math.isclose(value, wanted, **tolerances)
        if same and not is_rounded(value, wanted) and value not in near:
            near.append(value)
        return same

    with constants_compared(close):
        yield near
