"""Other sizes of the dynamic axes: 1, 2, primes, larger than the example, thresholds of the source, 0; and what sizes must satisfy together."""

from __future__ import annotations

import math
import re
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from autofix.named_integers import named_integers
from autofix.values import LeafPlan, fresh_leaf

if TYPE_CHECKING:
    from autofix.inputs import Candidate, Explorer

NEVER_EMPTY = re.compile(
    r"(n_?)?(b|bs|bsz|batch|batch_?size|batches|seq|seq_?len\w*|sequence\w*|s|t|l|time|steps?|len|length\w*|src\w*|tgt\w*|h|w|d|height|width|depth|frames|samples|channels?)(_?\d+)?",
    re.I,
)
"""Symbols that by convention count at least one; only the others are tried at size 0."""
ARITHMETIC = re.compile(r"\bmath\.|\*\*\s*\(?[0-9.]*[./]|\b(?:sqrt|log2|ceil|floor)\b|\bround\(|\bint\(")
"""Source text that computes with numbers that are not whole: what it makes of a size may be off by one where the exact result is whole."""
EDGES = (4, 8, 9, 10, 16, 20, 25, 32, 36, 64, 100)
"""Powers, squares and round numbers: sizes whose logarithm, root or share is whole."""
MOST_ELEMENTS = 2_000_000
LARGEST_NAMED = 1024
"""The largest number of the source that is tried as a size."""


def size_sets(explorer: Explorer) -> None:
    """Try sizes; marks as `must` the sets that every case should be checked on."""
    base = explorer.sizes
    if not base:
        return
    symbols = list(base)
    primes = [3, 5, 7, 11, 13, 17, 19, 23]
    apart = {s: next(p for p in primes[i % 4 :] + primes if p != base[s]) for i, s in enumerate(symbols)}
    plans: list[tuple[str, dict[str, int], bool]] = [
        ("coprime sizes", apart, True),
        ("larger sizes", {s: n + n // 2 + 1 if explorer.big else 2 * n + 1 for s, n in base.items()}, True),
        ("all sizes 1", dict.fromkeys(symbols, 1), True),
    ]
    if len(symbols) > 1 and explorer.arcs:  # a test for equal sizes shows little where all are 1
        plans.append(("equal sizes", dict.fromkeys(symbols, next(k for k in (4, 6, 9) if set(base.values()) != {k})), True))
    if len(symbols) > 1 and not explorer.big:
        for symbol in symbols:
            plans.append((f"{symbol}=1", {symbol: 1}, False))
            plans.append((f"{symbol}={2 * base[symbol] + 1}", {symbol: 2 * base[symbol] + 1}, False))
    for name, sizes, must in plans:
        one = try_sizes(explorer, name, {**base, **sizes})
        if one is not None:
            one.must = must and bool(one.sizes)
    for symbol in symbols:
        if not any(c.sizes.get(symbol, 0) > 1 and c.must for c in explorer.candidates):
            constrained_sizes(explorer, symbol)
    if not explorer.big:
        threshold_sizes(explorer)
        rounding_sizes(explorer)
        further_sizes(explorer)
        edge_sizes(explorer)
        empty_sizes(explorer)
        growing_sizes(explorer)


def try_sizes(explorer: Explorer, name: str, sizes: dict[str, int], *, kind: str = "sizes", quiet: bool = False) -> Candidate | None:
    """Inputs at these sizes: like the example, then the example tiled, then with integers that fit every axis."""
    if elements(explorer.plans, sizes) > max(MOST_ELEMENTS, 8 * elements(explorer.plans, explorer.sizes)) or explorer.spent:
        return None
    why = ""
    modes = ["usual", "tiled"]
    if any(p.is_tensor and not p.is_float and not p.is_bool for p in explorer.plans):
        modes.append("small")
    for mode in modes:
        wanted = dict(sizes)
        grids = {p.name: grid_rows(p, wanted, explorer) for p in explorer.plans if p.role == "grid"}
        leaves = explorer.leaves_of(lambda p, m=mode, w=wanted, g=grids: g[p.name] if p.name in g else fresh_leaf(p, w, m, explorer.rng))
        one = explorer.attempt(name, kind, leaves, quiet=True)
        if one is not None:
            return one
        why = why or explorer.last_error
    if not quiet and why:
        explorer.dropped.append({"set": name, "why": why})
    return None


def grid_rows(plan: LeafPlan, sizes: dict[str, int], explorer: Explorer) -> Any:
    """Rows of factors whose products add up to the size of the tied axis: the size follows the rows."""
    symbol, before = plan.tied
    shape = plan.shape(sizes)
    if not symbol:
        columns = torch.randperm(shape[1], generator=explorer.rng)
        return plan.example[:, columns] if list(plan.example.shape) == shape else plan.example
    out = torch.randint(1, max(2, int(plan.high)) + 1, shape, generator=explorer.rng).to(plan.example.dtype)
    sizes[symbol] = int(out.long().prod(-1).sum())
    return out


def elements(plans: list[LeafPlan], sizes: dict[str, int]) -> int:
    """Number of input elements at these sizes."""
    return sum(math.prod(p.shape(sizes)) for p in plans if p.is_tensor)


def constrained_sizes(explorer: Explorer, symbol: str) -> None:
    """A symbol that no set has moved yet: alone, in steps that keep divisibility or squares, with axes of equal size, or as a sum or multiple."""
    base = explorer.sizes
    n = base[symbol]
    root = math.isqrt(n)
    alone = [n + 1, 2 * n, 3 * n, n // 2 if n % 2 == 0 else 0, n + 2, n + 4, n + 8, max(n - 1, 0), max(n - 2, 0)]
    if root * root == n and n > 1:
        alone = [(root + 1) ** 2, (root - 1) ** 2, (root + 2) ** 2, *alone]
    trials: list[dict[str, int]] = [{symbol: k} for k in alone if k > 0 and k != n]
    twins = [s for s in base if s != symbol and base[s] == n]
    others = [s for s in base if s != symbol]
    related: list[dict[str, int]] = []
    for k in (2 * n + 1, n + 1, 2 * n, 1):
        if twins:
            related.append({symbol: k, **dict.fromkeys(twins, k)})
        for s in others:
            if base[s] != n and base[s] % n == 0 and n > 1:
                related.append({symbol: k, s: k * (base[s] // n)})
            elif n % base[s] == 0 and base[s] > 1 and base[s] != n:
                related.append({symbol: (base[s] + 1) * (n // base[s]), s: base[s] + 1})
            for r in others:
                if r != s and base[r] == base[s] + n:
                    related.append({symbol: k, r: base[s] + k})
                if r < s and n == base[s] + base[r]:
                    related.append({symbol: 2 * base[s] + 1 + base[r], s: 2 * base[s] + 1})
    accepted = 0
    for sizes in (related[:6] + trials)[:14]:
        name = ", ".join(f"{s}={k}" for s, k in sizes.items())
        one = try_sizes(explorer, name, {**base, **sizes}, quiet=True)
        if one is not None:
            one.must = accepted < 2
            accepted += 1
            if accepted >= 3:
                return
    if not accepted:
        explorer.dropped.append({"set": f"other sizes of {symbol}", "why": explorer.last_error or "none was tried"})


def threshold_sizes(explorer: Explorer) -> None:
    """Sizes just at and past integer constants of the source, large ones only where they are compared with something; kept where they take a
    new branch."""
    base = explorer.sizes
    named = named_integers(explorer.eager.case.sources, explorer.eager.model)[:8]
    constants = [c for c in explorer.integers if c <= 64][:8] + [c for c in named if 64 < c <= LARGEST_NAMED][:3]
    for symbol in base:
        for c in constants:
            for size in (c + 1, c):
                if explorer.half_seen and size != base[symbol]:
                    try_sizes(explorer, f"{symbol}={size}", {**base, symbol: size}, quiet=True)


def rounding_sizes(explorer: Explorer) -> None:
    """For models that resize: sizes n at which floor(i * (n / m)) and floor(i / (m / n)) in float32 pick other source pixels, for target sizes m
    that the source names. PyTorch computes the first, ONNX Runtime the second."""
    if not any("upsample_nearest" in name for name in explorer.facts["operators"]):
        return
    f = np.float32
    found: list[int] = []
    for m in (c for c in explorer.integers if c <= 512):
        steps = np.arange(m, dtype=np.float32)
        pairs = (n for n in range(3, 96) if (np.floor(steps * f(n / m)) != np.floor(steps / f(m / n))).any())
        found += [n for _, n in zip(range(2), pairs, strict=False)]
    for symbol, n in explorer.sizes.items():
        for size in dict.fromkeys(found):
            if size != n and not symbol.startswith("b"):
                one = try_sizes(explorer, f"{symbol}={size}", {**explorer.sizes, symbol: size}, quiet=True)
                if one is not None:
                    one.must = True


def further_sizes(explorer: Explorer) -> None:
    """A few more sizes, for parities and for loops that turn more often: one more, double, quadruple."""
    base = explorer.sizes
    for name, sizes in (
        ("sizes one more", {s: n + 1 for s, n in base.items()}),
        ("much larger sizes", {s: 4 * n + 3 for s, n in base.items()}),
        ("half sizes", {s: max(1, n // 2) for s, n in base.items()}),
    ):
        one = try_sizes(explorer, name, {**base, **sizes}, quiet=True)
        if one is not None and name == "sizes one more":
            one.must = bool(one.sizes)


EMPTY_TEST = re.compile(r"(?:shape\[|size\(|len\(|numel\()[^\n]*?(?:[=!]=\s*0\b|<\s*1\b|>\s*0\b|<=\s*0\b)")
"""A size that is compared with 0."""


def edge_sizes(explorer: Explorer) -> None:
    """For source that takes roots, logarithms or shares: sizes at which these are whole, of all axes at once or, where that is refused,
    of each alone."""
    if not any(ARITHMETIC.search(text) for text in explorer.eager.case.sources.values()):
        return
    base = explorer.sizes
    for size in EDGES:
        for group in (list(base), *([s] for s in base if len(base) > 1)):
            one = try_sizes(explorer, ", ".join(f"{s}={size}" for s in group), {**base, **dict.fromkeys(group, size)}, quiet=True)
            if one is not None:
                one.must = bool(one.sizes)
                break


def growing_sizes(explorer: Explorer) -> None:
    """While some branch has shown one outcome only: ever larger sizes, of each axis alone and of all together, for tests of a length, an
    area or a count against a limit far from the example. Of a size that takes a new branch the smallest that does is kept (bisection)."""
    base = explorer.sizes
    groups = [*([s] for s in base), *([list(base)] if len(base) > 1 else [])]
    for factor in (8, 24, 72, 216):
        for group in groups:
            if not explorer.half_seen or explorer.spent:
                return
            sizes = {s: factor * base[s] + 1 for s in group}
            one = try_sizes(explorer, ", ".join(f"{s}={n}" for s, n in sizes.items()), {**base, **sizes}, quiet=True)
            if one is not None and one.branches:
                smallest_sizes(explorer, one, group)
    for first, second in list(permutations(base, 2))[:4]:  # tests of a ratio
        for factor in (2, 8, 24):
            sizes = {first: factor * base[first] + 1, second: 12 * factor * base[second] + 1}
            if explorer.half_seen and not explorer.spent:
                one = try_sizes(explorer, ", ".join(f"{s}={n}" for s, n in sizes.items()), {**base, **sizes}, quiet=True)
                if one is not None and one.branches:
                    one.must = True


def smallest_sizes(explorer: Explorer, one: Candidate, group: list[str]) -> None:
    """Bisect between the example and a candidate that takes new branches; the smallest that still does becomes a `must` in its place."""
    low, high, best = dict(explorer.sizes), {**explorer.sizes, **one.sizes}, one
    for _ in range(12):
        middle = {**explorer.sizes, **{s: (low[s] + high[s]) // 2 for s in group}}
        if explorer.spent or middle in (low, high):
            break
        now = try_sizes(explorer, ", ".join(f"{s}={middle[s]}" for s in group), middle, quiet=True)
        if now is not None and one.branches <= now.watch.branches():
            high, best = middle, now
        else:
            low = middle
    if best is not one:
        one.features = set()
    best.must = True


def empty_sizes(explorer: Explorer) -> None:
    """Size 0 of each axis that may count nothing: detections, points, nodes; not batch or time, but for recurrent layers, which take ONNX
    Runtime's whole process down. It counts against a file where the symbol leads its tensors (a list of things) or where forward takes
    another path there; elsewhere it is advisory, and left out where it would end the process. A source that tests sizes for 0 means
    them to occur, whatever the axis is called."""
    tested = any(EMPTY_TEST.search(text) for text in explorer.eager.case.sources.values())
    recurrent = any(name in explorer.facts["modules"] for name in ("LSTM", "GRU", "RNN"))
    for symbol in explorer.sizes:
        leads = all(axis == 0 for plan in explorer.plans for axis, s in plan.axes.items() if s == symbol)
        if not tested and (not leads if recurrent else NEVER_EMPTY.fullmatch(symbol)):
            continue
        one = try_sizes(explorer, f"{symbol}=0", {**explorer.sizes, symbol: 0}, kind="empty")
        if one is not None and one.sizes.get(symbol) == 0:  # else integers have tied it to another size
            one.must, one.advisory = True, not (leads or tested or one.features)
