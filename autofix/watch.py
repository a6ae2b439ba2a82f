"""Watches a capture for the places where a symbolic size became a Python value: there a size or a branch is baked in.

torch.export accepts most of these silently (as guards that no one checks at run time), so they are the lines to look at when a
file is right for the example's sizes only.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

PLUMBING = ("/torch/fx/", "/torch/_subclasses/", "/torch/_export/", "/torch/_dynamo/", "/torch/utils/", "/torch/_ops.py", "/torch/overrides.py", "/torch/export/")
PLUMBING += ("/torch/_tensor.py", "/torch/__init__.py", "/torch/_refs/", "/torch/_prims", "/torch/_meta_registrations.py", "/torch/_higher_order_ops/", "/torch/_decomp/")
PLUMBING += ("/torch/nn/modules/module.py", "/torch/onnx/", "/torch/jit/", "/torch/_functorch/", "/autofix/", "/contextlib.py")
"""Parts of file names whose frames say nothing about the model."""


@dataclass(frozen=True)
class Site:
    """One place. kind: int, float or bool; `expression` is the symbolic expression that was pinned down."""

    kind: str
    expression: str
    file: str
    line: int
    function: str
    user: bool

    @property
    def code(self) -> str:
        """The line's text."""
        return linecache.getline(self.file, self.line).strip()


@dataclass
class Watch:
    """What a capture pinned down, in order, each place once."""

    sites: dict[tuple[str, str, int], Site] = field(default_factory=dict)

    def facts(self, files: Mapping[str, str]) -> dict[str, str]:
        """file, line, function, code of the most telling site (ints before floats before tests, the user's own lines
        first) and `pinned`, all of them."""
        order = {"int": 0, "float": 1, "bool": 2}
        ranked = sorted(self.sites.values(), key=lambda s: (not s.user, order[s.kind]))
        if not ranked:
            return {}
        best = ranked[0]
        pinned = "; ".join(f"{files.get(s.file, s.file)}:{s.line} {s.kind}({s.expression})" for s in ranked[:8])
        return {"file": files.get(best.file, best.file), "line": str(best.line), "function": best.function, "code": best.code, "expression": best.expression, "pinned": pinned}


def model_frame(files: Mapping[str, str]) -> tuple[Any, bool]:
    """(the innermost frame in a user's file, True), else (the innermost that is not plumbing, False), else (None, False)."""
    frame: Any = sys._getframe(2)
    library = None
    while frame is not None:
        name = frame.f_code.co_filename
        if name in files:
            return frame, True
        if library is None and not any(p in name for p in PLUMBING) and name.endswith(".py") and "site-packages/torch/" in name:
            library = frame
        frame = frame.f_back
    return library, False


@contextlib.contextmanager
def watch_sizes(files: Mapping[str, str]) -> Iterator[Watch]:
    """Record every symbolic expression that is turned into an int, float or bool while the context is open."""
    from torch.fx.experimental.sym_node import SymNode

    watch = Watch()
    originals = {name: getattr(SymNode, name) for name in ("guard_int", "guard_float", "guard_bool") if hasattr(SymNode, name)}

    def wrapped(name: str, original: Any) -> Any:
        kind = name.removeprefix("guard_")

        def guard(self: Any, file: str, line: int) -> Any:
            if getattr(self, "constant", None) is None and getattr(self, "expr", None) is not None and self.expr.free_symbols:
                frame, user = model_frame(files)
                if frame is not None:
                    site = Site(kind, str(self.expr)[:120], frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, user)
                    watch.sites.setdefault((kind, site.file, site.line), site)
            return original(self, file, line)

        return guard

    for name, original in originals.items():
        setattr(SymNode, name, wrapped(name, original))
    try:
        yield watch
    finally:
        for name, original in originals.items():
            setattr(SymNode, name, original)
