"""Search for inputs on which a tensor test comes out the other way.

A test's margin (positive where it holds; see coverage.py) is differentiated with respect to the float inputs, and the inputs move along the gradient
until the margin changes its sign with some room. Numbers taken from tensors (item, float, int) are moved to both sides of the source's constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from autofix.coverage import Watch
from autofix.values import fresh_leaf

if TYPE_CHECKING:
    from autofix.eager import Leaves
    from autofix.inputs import Candidate, Explorer

STEPS = 5
"""Gradient steps per test."""


def flip_tests(explorer: Explorer, watch: Watch) -> None:
    """Try to see both outcomes of every test, and both sides of every number that decides a branch."""
    if not any(p.is_float for p in explorer.plans) or not explorer.half_seen:
        return
    tried: set[Any] = set()
    while keys := [k for k in unseen_tests(explorer) if k not in tried][: 2 if explorer.big else 8]:
        for key in keys:  # behind a test that has come out the other way there may be more of them
            flip_one(explorer, key)
        tried.update(keys)
        if explorer.big or explorer.spent:
            break
    if watch.numbers and explorer.half_seen and not explorer.big:
        for key in dict.fromkeys(k for k, _ in watch.numbers):
            move_number(explorer, key)


def tie_sets(explorer: Explorer) -> None:
    """For models that test values or take numbers from tensors: each float leaf filled with one constant of the source, so that the numbers
    taken from it (entries, means, extremes) are that constant as float32 holds it, and a test against it meets its tie."""
    kinds = {str(site.get("kind")) for site in explorer.facts["sites"]}
    floats = [p for p in explorer.plans if p.is_float and p.example.numel() and not p.example.is_complex()]
    if not floats or explorer.big or not kinds & {"bool", "item", "float"}:
        return
    for constant in dict.fromkeys([*explorer.floats[:5], *map(float, explorer.integers[:3])]):
        for group in [floats, *([p] for p in floats if len(floats) > 1)][:4]:
            chosen = {p.name for p in group}
            leaves = [
                (p.name, torch.full_like(p.example, constant) if p.name in chosen else fresh_leaf(p, explorer.sizes, "usual", explorer.rng))
                for p in explorer.plans
            ]
            where = "" if len(group) == len(floats) else f" {group[0].name}"
            one = explorer.attempt(f"all{where} {constant:g}", "values", leaves, quiet=True)
            if one is not None:
                one.must = True
                break


def unseen_tests(explorer: Explorer) -> list[tuple[str, int, int]]:
    """Places of tests that came out one way only."""
    seen: dict[tuple[str, int, int], set[bool]] = {}
    for *key, truth in sorted(explorer.outcomes):
        seen.setdefault((key[0], key[1], key[2]), set()).add(truth)
    return [key for key, truths in seen.items() if len(truths) == 1]


def starts(explorer: Explorer, key: tuple[str, int, int]) -> Iterator[Leaves]:
    """Where a search begins: the example, then sets that eager took, those first that came to the test, of moderate values."""
    yield explorer.eager.example

    def reach(one: Candidate) -> float:
        return max((float(v.detach().abs().max()) for _, v in one.leaves if isinstance(v, torch.Tensor) and v.numel()), default=0.0)

    reached = [c for c in explorer.candidates if c.watch is not None and any(o[:3] == key for o in c.watch.outcomes)]
    for one in [*sorted(reached, key=reach)[:2], *explorer.candidates[:2]]:
        yield one.leaves


def seen_both(explorer: Explorer, key: tuple[str, int, int]) -> bool:
    """Whether a test has come out both ways."""
    return (*key, True) in explorer.outcomes and (*key, False) in explorer.outcomes


def flip_one(explorer: Explorer, key: tuple[str, int, int]) -> None:
    """Newton-like steps on the margin nearest to zero at this place."""
    for leaves in starts(explorer, key):
        for step in range(STEPS):
            if explorer.spent or seen_both(explorer, key):
                return
            probe = Watch(explorer.files, trace=False, margins=True)
            try:
                floats = explorer.eager.call_for_gradients(leaves, probe)
            except Exception:
                break
            margins = [m for k, _, m in probe.tests if k == key and isinstance(m, torch.Tensor) and m.numel() == 1 and m.requires_grad]
            if not margins:
                break
            margin = min(margins, key=lambda m: abs(float(m.detach())))
            room = min((0.1 + 0.4 * step) * max(abs(float(margin.detach())), 1e-2), 1.0 + step)
            goal = -room if float(margin.detach()) > 0 else room
            _, kind, elements = probe.parts.get(id(margin), (margin, "", None))
            if (kind, float(margin.detach()) > 0) in (("all", False), ("any", True)):
                # every element has to move, each as far as it lacks; for that many the room is small, and none where they must be equal
                lack = (min(room, 0.01) * step + (-elements if kind == "all" else elements)).clamp(min=0)
                margin, goal = -lack.norm(), 0.0
            moved = move_towards(explorer, leaves, floats, margin, goal)
            if moved is None:
                break
            leaves = moved
            one = explorer.attempt(f"other outcome of the test at line {key[1]}", "values", leaves, quiet=True)
            if one is not None and one.features:
                one.must = seen_both(explorer, key)


def move_towards(explorer: Explorer, leaves: Leaves, floats: Leaves, value: Any, goal: float) -> Leaves | None:
    """The leaves after the step that takes `value` to `goal` if it were linear; None where it does not depend on them."""
    try:
        slopes = torch.autograd.grad(value.reshape(()), [v for _, v in floats], allow_unused=True)
    except RuntimeError:
        return None
    total = sum(float((g.double() ** 2).sum()) for g in slopes if g is not None)
    if not 1e-20 < total < 1e20:
        return None
    factor = (goal - float(value.detach())) / total
    plans = {p.name: p for p in explorer.plans}
    changes: dict[str, Any] = {}
    for (name, leaf), slope in zip(floats, slopes, strict=True):
        if slope is not None:
            new = leaf.detach() + factor * slope
            changes[name] = new.clamp(0, 1) if "unit" in plans[name].traits else new
    if not all(bool(torch.isfinite(v).all()) for v in changes.values()):
        return None
    return [(n, changes.get(n, v)) for n, v in leaves]


def move_number(explorer: Explorer, key: tuple[str, int, int]) -> None:
    """Move a number taken from a tensor to both sides of 0 and of the source's constants, and keep what takes a new branch."""
    goals = dict.fromkeys([0.0, *explorer.floats[:6], *map(float, explorer.integers[:6])])
    for constant in goals:
        for side in (0.01, -0.01, 0.2, -0.2):
            leaves = explorer.eager.example
            for _ in range(2):
                if explorer.spent or not explorer.half_seen:
                    return
                probe = Watch(explorer.files, trace=False, margins=True)
                try:
                    floats = explorer.eager.call_for_gradients(leaves, probe)
                except Exception:
                    return
                values = [v for k, v in probe.numbers if k == key and v.requires_grad]
                if not values:
                    return
                moved = move_towards(explorer, leaves, floats, values[0], constant + side * max(abs(constant), 1.0))
                if moved is None:
                    return
                leaves = moved
                one = explorer.attempt(f"number at line {key[1]} near {constant:g}", "values", leaves, quiet=True)
                if one is not None and one.features:
                    break
