"""Watches a capture for the places where a symbolic size became a Python value: there a size or a branch is baked in.

torch.export accepts most of these silently (as guards that no one checks at run time), so they are the lines to look at when a
file is right for the example's sizes only.
"""

from __future__ import annotations

import contextlib
import linecache
import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Any

PLUMBING: tuple[str, ...] = (
    "/torch/fx/",
    "/torch/_subclasses/",
    "/torch/_export/",
    "/torch/_dynamo/",
    "/torch/utils/",
    "/torch/_ops.py",
    "/torch/overrides.py",
    "/torch/export/",
)
PLUMBING += (
    "/torch/_tensor.py",
    "/torch/__init__.py",
    "/torch/_refs/",
    "/torch/_prims",
    "/torch/_meta_registrations.py",
    "/torch/_higher_order_ops/",
    "/torch/_decomp/",
)
PLUMBING += (
    "/torch/nn/modules/module.py",
    "/torch/onnx/",
    "/torch/jit/",
    "/torch/_compile.py",
    "/torch/_jit_internal.py",
    "/torch/_functorch/",
    "/autofix/",
    "/contextlib.py",
)
"""Parts of file names whose frames say nothing about the model."""


@dataclass(frozen=True, eq=False)
class Site:
    """One place. kind: int, float or bool; `expression` is the symbolic expression that was pinned down."""

    kind: str
    expression: str
    file: str
    line: int
    function: str
    user: bool
    test: Any = field(default=None, compare=False)  # the sympy expression, and which input axis each of its symbols is
    symbols: dict[Any, tuple[str, int]] = field(default_factory=dict, compare=False)
    library: str = ""  # "module:line" where it happened in an installed model's code that the person's line calls

    @property
    def code(self) -> str:
        """The line's text."""
        return linecache.getline(self.file, self.line).strip()


PROBED_SIZES = (*range(1, 66), 100, 127, 128, 129, 200, 255, 256, 257, 511, 512, 513, 1000, 1023, 1024, 1025)
"""Sizes tried, smallest first, to find one that turns a size test over."""
LARGEST_NAMED = 4096
"""Up to this size a number in a size test is tried as a size."""
EVERY_SIZE = range(66, 1025)
"""Where none of these turns a test of the person's own over: tried one by one, as long as SCAN_SECONDS last."""
SCAN_SECONDS = 1.5


def source_axes(shape_env: Any, symbols: Any) -> dict[Any, tuple[str, int]]:
    """{symbol: (parameter, axis)} of the backed symbols whose source is an axis of an input; axis -1: a Python int input."""
    found: dict[Any, tuple[str, int]] = {}
    table = getattr(shape_env, "var_to_sources", None) or {}
    for symbol in symbols:
        for source in table.get(symbol, ()):
            base = getattr(source, "base", None)
            name = getattr(base if base is not None else source, "local_name", None)
            if name is not None:
                found[symbol] = (name, int(source.idx) if base is not None else -1)
                break
    return found


def sizes_named(test: Any, others: list[int]) -> list[int]:
    """Sizes at and beside the numbers of a size test, their multiples, roots and quotients by the other sizes: where it may turn over."""
    found: set[int] = set()
    for c in {abs(int(n)) for n in test.atoms() if n.is_Integer}:
        centres = [c, 2 * c, 3 * c, math.isqrt(c), *(c // m for m in others if m > 1)]
        found |= {n + d for n in centres for d in (-1, 0, 1)}
    return sorted(n for n in found if 0 < n <= LARGEST_NAMED)


def unseen_sizes(
    watch: Watch, axes: Mapping[str, Mapping[int, str]], known: list[dict[str, int]], limit: int = 6
) -> list[tuple[dict[str, int], Site]]:
    """(sizes {declared symbol: size}, the test) at which a size test of the capture would go the other way than on every known set.

    axes: dynamic axes by parameter name. known: the declared symbols' sizes on each verified set, the example's first.
    A test that one of the known sets turns over, with no size of 1 in it, has been verified on both sides already.
    """
    wanted: list[tuple[dict[str, int], Site]] = []
    end = time.process_time() + SCAN_SECONDS
    for site in watch.sites.values():
        if site.kind != "bool" or not site.symbols or len(site.symbols) != len(site.test.free_symbols):
            continue
        names: dict[Any, Any] = {s: axes.get(parameter, {}).get(axis) for s, (parameter, axis) in site.symbols.items()}
        if None in names.values():
            continue

        def outcome(sizes: Mapping[str, int], site: Site = site, names: Mapping[Any, Any] = names) -> bool | None:
            try:
                return bool(site.test.subs({s: sizes[n] for s, n in names.items()}))
            except ZeroDivisionError:  # such as n // (m // 3) at m = 2: the model divides by zero there itself
                return None

        try:
            tried = [*known, *(w for w, _ in wanted)]
            seen = {None, *(outcome(sizes) for sizes in tried)}
            telling = {None, *(outcome(sizes) for sizes in tried if min(sizes.values()) > 1)}
            if len(telling) > 2:
                continue
            # at size 1 the two ways of a test often agree: larger ones first, then 1 where neither way has been seen there
            larger = [n for n in PROBED_SIZES if n > 1 and min(known[0].values()) > 1]
            several = list(dict.fromkeys(names.values()))
            named = sizes_named(site.test, [known[0][n] for n in several] if len(several) > 1 else [])
            trials: Iterator[dict[str, int]] = ({**known[0], n: size} for sizes in (larger, named, PROBED_SIZES) for n in several for size in sizes)
            if len(several) > 1:
                trials = chain(trials, ({**known[0], **dict.fromkeys(several, size)} for size in (*named, *larger)))
            if site.user:
                trials = chain(trials, takewhile(lambda _: time.process_time() < end, ({**known[0], n: s} for n in several for s in EVERY_SIZE)))
            found = next((t for t in trials if outcome(t) not in (telling if min(t.values()) > 1 else seen)), None)
        except (TypeError, KeyError, ValueError):
            continue
        if found is not None:
            wanted.append((found, site))
        if len(wanted) >= limit:
            break
    return wanted


@dataclass
class Watch:
    """What a capture pinned down, in order, each place once."""

    sites: dict[tuple[str, str, int, str], Site] = field(default_factory=dict)

    def facts(self, files: Mapping[str, str]) -> dict[str, str]:
        """file, line, function, code of the most telling site (ints before floats before tests, the user's own lines
        first) and `pinned`, all of them."""
        order = {"int": 0, "float": 1, "bool": 2}
        ranked = sorted(self.sites.values(), key=lambda s: (not s.user, order[s.kind]))
        if not ranked:
            return {}
        best = ranked[0]
        pinned = "; ".join(f"{files.get(s.file, s.file)}:{s.line} {s.kind}({s.expression})" for s in ranked[:8])
        return {
            "file": files.get(best.file, best.file),
            "line": str(best.line),
            "function": best.function,
            "code": best.code,
            "expression": best.expression,
            "pinned": pinned,
            "library_pinned": "; ".join(dict.fromkeys(s.library for s in ranked if s.library)),
        }


def model_frame(files: Mapping[str, str]) -> tuple[Any, bool, str]:
    """(the innermost frame in a user's file, True), else (the innermost that is not plumbing, False), else (None, False); and the innermost
    place in an installed package other than torch, "module:line"."""
    frame: Any = sys._getframe(2)
    library, place = None, ""
    while frame is not None:
        name = frame.f_code.co_filename
        if name in files:
            return frame, True, place
        if not place and "/site-packages/" in name and not any(p in name for p in (*PLUMBING, "/site-packages/torch/")):
            place = f"{frame.f_globals.get('__name__', '')}:{frame.f_lineno}"
        if library is None and not any(p in name for p in PLUMBING) and name.endswith(".py") and "site-packages/torch/" in name:
            library = frame
        frame = frame.f_back
    return library, False, place


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
                frame, user, place = model_frame(files)
                if frame is not None:
                    text, code = str(self.expr)[:120], frame.f_code
                    key = (kind, code.co_filename, frame.f_lineno, text + place)
                    if key not in watch.sites:
                        symbols = source_axes(self.shape_env, self.expr.free_symbols)
                        watch.sites[key] = Site(kind, text, code.co_filename, frame.f_lineno, code.co_name, user, self.expr, symbols, place)
            return original(self, file, line)

        return guard

    for name, original in originals.items():
        setattr(SymNode, name, wrapped(name, original))
    try:
        yield watch
    finally:
        for name, original in originals.items():
            setattr(SymNode, name, original)
