"""Generated input sets: values, sizes and numbers that reveal faults without being told.

generate_sets(eager, first, watch, facts) -> (kept candidates, dropped [{set, why}], notes). Candidates come from classes of values
(values.py, classes.py), other sizes of the dynamic axes (sizes.py), other Python numbers, and a search for the outcome of every branch that
was not seen (flips.py). What eager refuses is dropped; of the rest a compact list is kept: one set a class and size, and whatever takes a new branch.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from autofix.additive_masks import additive_mask_sets
from autofix.case import one_line
from autofix.classes import class_leaf, past_range_integers, source_constants, wide_integers
from autofix.coverage import Watch, one_sided
from autofix.eager import Eager, EagerCall, Leaves
from autofix.flips import flip_tests, tie_sets
from autofix.magnitudes import magnitude_sets
from autofix.multiples import DIVIDERS, UNCHECKED, multiple_sets
from autofix.named_integers import named_integer_sets
from autofix.nonfinite import nan_of_nothing, nonfinite_sets
from autofix.sizes import size_sets
from autofix.values import VALUE_CLASSES, LeafPlan, fresh_leaf, make_plans

CLASS_NAMES = {
    "other": "other values",
    "negative": "negative values",
    "zeros": "zeros",
    "wide": "small to large magnitudes",
    "tiny": "tiny values",
    "ties": "ties and thresholds",
    "positive": "positive values",
    "shifted": "rows far up and down",
    "tenfold": "ten times larger",
    "far": "from -110 to 110",
}
MANY_ANSWERS = ("aten.linalg_eigh", "aten._linalg_eigh", "aten.linalg_svd", "aten._linalg_svd", "aten.linalg_qr", "aten.linalg_eig", "aten.geqrf")
"""Factorisations that have more than one right answer where values repeat."""


@dataclass
class Candidate:
    """A generated set that eager accepts. features: what it was the first to cover (see Watch.features); branches: those that no call took before."""

    name: str
    kind: str
    leaves: Leaves
    sizes: dict[str, int] = field(default_factory=dict)
    outputs: Leaves | None = None
    seconds: float = 0.0
    features: set[Any] = field(default_factory=set)
    branches: set[Any] = field(default_factory=set)
    advisory: bool = False
    must: bool = False
    watch: Any = None


def symbol_sizes(axes: dict[str, dict[int, str]], leaves: Leaves) -> dict[str, int]:
    """{symbol: size} as the leaves have them."""
    values = dict(leaves)
    return {
        symbol: int(values[name].shape[axis])
        for name, named in axes.items()
        if name in values
        for axis, symbol in named.items()
        if axis < values[name].dim()
    }


class Explorer:
    """Tries candidates on eager and keeps count of what they cover, within a budget of runs and seconds."""

    def __init__(self, eager: Eager, first: EagerCall, watch: Watch, facts: dict[str, Any]) -> None:
        from autofix.reference import is_big

        self.eager, self.facts = eager, facts
        self.files = frozenset(eager.case.sources)
        self.plans: list[LeafPlan] = make_plans(eager.example, eager.case.axes)
        self.sizes = symbol_sizes(eager.case.axes, eager.example)
        self.floats, self.integers = source_constants(eager.case.sources, eager.model)
        self.rng = torch.Generator().manual_seed(eager.case.spec.seed + 17)
        self.big = is_big(eager, first)
        cost = max(first.seconds, 1e-4)
        self.runs_left = 10 if self.big else int(min(160, max(40, 1.0 / (4 * cost))))
        self.deadline = time.process_time() + (30.0 if self.big else 4.0)  # of this process: others on the machine must not cost sets
        self.covered: set[Any] = set(watch.features())
        self.arcs: dict[Any, int] = dict(watch.arcs)
        self.outcomes: set[Any] = set(watch.outcomes)
        self.clean = all(not bool(torch.isnan(v).any()) for _, v in first.outputs if v.is_floating_point())
        self.candidates: list[Candidate] = []
        self.dropped: list[dict[str, str]] = []
        self.last_error = ""
        self.last_watch: Watch | None = None
        self.unwatchable = getattr(watch, "outputs", None) is None

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        return self.runs_left <= 0 or time.process_time() > self.deadline

    @property
    def half_seen(self) -> bool:
        """Whether some branch or test has shown one outcome only."""
        tested = {o[:-1] for o in self.outcomes}
        return bool(one_sided(self.arcs)) or len(self.outcomes) < 2 * len(tested)

    def leaves_of(self, make: Any) -> Leaves:
        """Leaves with each value made by make(plan)."""
        return [(p.name, make(p)) for p in self.plans]

    def attempt(self, name: str, kind: str, leaves: Leaves, *, margins: bool = False, quiet: bool = False) -> Candidate | None:
        """Run a candidate under a Watch; None (and listed, unless quiet) where eager refuses it. Adds what it covers."""
        if self.spent:
            return None
        if name in self.eager.skip:
            self.dropped.append({"set": name, "why": "eager itself hangs or crashes the process"})
            return None
        if self.eager.trying is not None:
            self.eager.trying.write_text(name)
        self.runs_left -= 1
        watch = Watch(self.files, trace=not self.big or bool(self.files), margins=margins)
        self.last_watch, self.last_error = watch, ""
        try:
            with nullcontext() if self.unwatchable else watch:
                call = self.eager.call(leaves)
        except Exception as error:
            self.last_error = one_line(error, 160)
            if self.unwatchable:
                from autofix.eager import forget_compiled_code

                forget_compiled_code()
            if not quiet:
                self.dropped.append({"set": name, "why": self.last_error})
            return None
        sizes = symbol_sizes(self.eager.case.axes, leaves)
        if (
            self.clean
            and kind not in ("nonfinite",)
            and 0 not in sizes.values()
            and any(v.is_floating_point() and bool(torch.isnan(v).any()) for _, v in call.outputs)
            and not nan_of_nothing(self.eager, leaves)
        ):
            self.last_error = "eager gives NaN there"
            if not quiet:
                self.dropped.append({"set": name, "why": self.last_error})
            return None
        features = watch.features()
        changed = {s: n for s, n in sizes.items() if self.sizes.get(s) != n}
        one = Candidate(name, kind, leaves, changed, outputs=call.outputs, seconds=call.seconds, features=features - self.covered, watch=watch)
        one.branches = watch.branches() - set(self.arcs) - self.outcomes
        self.covered |= features
        for arc, count in watch.arcs.items():
            self.arcs[arc] = self.arcs.get(arc, 0) + count
        self.outcomes |= watch.outcomes
        self.candidates.append(one)
        return one


def generate_sets(eager: Eager, first: EagerCall, watch: Watch, facts: dict[str, Any]) -> tuple[list[Candidate], list[dict[str, str]], list[str]]:
    """See the module's docstring."""
    explorer = Explorer(eager, first, watch, facts)
    facts["roles"] = {p.name: p.role for p in explorer.plans}
    facts["watch_changes_values"] = watch_differs(first, watch)
    value_sets(explorer)
    magnitude_sets(explorer)
    size_sets(explorer)
    number_sets(explorer)
    integer_sets(explorer)
    multiple_sets(explorer)
    nonfinite_sets(explorer)
    additive_mask_sets(explorer)
    tie_sets(explorer)
    named_integer_sets(explorer)
    flip_tests(explorer, watch)
    random_search(explorer)
    notes: list[str] = []
    unseen = sorted({f"{name.rpartition(':')[0].rpartition(':')[0]}:{line}" for name, line, _ in one_sided(explorer.arcs)})
    facts["one_sided_branches"] = unseen
    return compact(explorer), explorer.dropped[:40], notes


def watch_differs(first: EagerCall, watch: Watch) -> bool:
    """Whether the model takes another path while it is watched (attention fast paths do)."""
    from autofix.traces import same_tensor

    seen = getattr(watch, "outputs", None)
    return seen is None or not all(same_tensor(a, b) for (_, a), (_, b) in zip(first.outputs, seen, strict=False))


def value_sets(explorer: Explorer) -> None:
    """One set a class of values at the example's shapes."""
    many = any(any(o.startswith(t) for t in MANY_ANSWERS) for o in explorer.facts["operators"])
    classes = ("other", "negative", "zeros", "wide") if explorer.big else VALUE_CLASSES
    for kind in classes:
        if not any(p.is_tensor for p in explorer.plans):
            return
        leaves = explorer.leaves_of(lambda p, kind=kind: class_leaf(p, kind, explorer.sizes, explorer.floats, explorer.rng))
        one = explorer.attempt(CLASS_NAMES[kind], "values", leaves)
        if one is None and not explorer.spent:
            one = fewer_changes(explorer, kind)
        if one is not None:
            one.must = kind in ("other", "negative", "zeros", "wide", "tiny", "ties", "shifted", "far")
            one.advisory = many and kind in ("zeros", "ties", "tiny", "shifted", "wide")


def fewer_changes(explorer: Explorer, kind: str) -> Candidate | None:
    """Where a class is refused: with the example's integers, then with one leaf changed at a time."""
    changed = [p for p in explorer.plans if p.is_tensor]
    attempts: list[list[LeafPlan]] = (
        [[p for p in changed if p.is_float]] if any(not p.is_float for p in changed) and any(p.is_float for p in changed) else []
    )
    attempts += [[p] for p in changed] if len(changed) > 1 else []
    for n, plans in enumerate(attempts[:4]):
        names = {p.name for p in plans}
        leaves = [
            (p.name, class_leaf(p, kind, explorer.sizes, explorer.floats, explorer.rng) if p.name in names else p.example) for p in explorer.plans
        ]
        one = explorer.attempt(
            f"{CLASS_NAMES[kind]} in {', '.join(sorted(names))}" if n else f"{CLASS_NAMES[kind]}, same integers", "values", leaves, quiet=True
        )
        if one is not None:
            return one
    return None


def number_sets(explorer: Explorer) -> None:
    """Other values of Python numbers and of single integers: flags flipped, counts one more and one less, 1, 2x, 0; floats scaled."""
    for plan in explorer.plans:
        value = plan.example
        single = (
            plan.is_tensor and not plan.is_float and not plan.is_bool and value.numel() == 1 and not plan.axes and plan.role in ("tokens", "lengths")
        )
        if plan.is_tensor and not single:
            continue
        now = int(value) if single else value
        if isinstance(now, bool):
            choices: list[Any] = [not now]
        elif isinstance(now, int):
            choices = [
                c for c in dict.fromkeys([now + 1, *([0] if single else []), now - 1, 1, 2 * now, now + 2, 0]) if c != now and (c >= 0 or now < 0)
            ]
        else:
            choices = [now * 2.0, now * 0.5, 0.0, 1.0] if now else [1.0, 0.5]
        accepted = 0
        for choice in choices:
            new = torch.full_like(value, choice) if single else choice
            leaves = [(p.name, new if p is plan else fresh_leaf(p, explorer.sizes, "usual", explorer.rng)) for p in explorer.plans]
            one = explorer.attempt(f"{plan.name}={choice}", "numbers", leaves)
            if one is None:
                leaves = [(p.name, new if p is plan else p.example) for p in explorer.plans]
                one = explorer.attempt(f"{plan.name}={choice}", "numbers", leaves, quiet=True)
            if one is not None:
                accepted += 1
                one.must = accepted <= 3


def integer_sets(explorer: Explorer) -> None:
    """Integers past the observed range: of any size and sign where eager takes them for plain numbers, else up to the size of a table
    of the model that they may index."""
    open_leaves = [p for p in explorer.plans if p.is_tensor and not p.is_float and not p.is_bool and p.role == "tokens" and p.example.numel() > 1]
    if not open_leaves or explorer.big or any(name.startswith(UNCHECKED) for name in explorer.facts["operators"]):
        return
    tables = sorted(table_sizes(explorer.eager.model), reverse=True)
    makers = [("integers of any size", wide_integers), ("integers past the range seen", past_range_integers)]
    makers += [(f"integers up to {n - 1}", table_maker(n)) for n in tables[:4] if any(n > p.high + 1 for p in open_leaves)]
    groups = [open_leaves] + ([[p] for p in open_leaves] if len(open_leaves) > 1 else [])
    for group in groups:
        chosen = {p.name for p in group}
        where = "" if len(group) == len(open_leaves) else f" in {group[0].name}"
        accepted, wide = 0, False
        for name, make in makers:
            leaves = [
                (p.name, make(p, explorer.sizes, explorer.rng) if p.name in chosen else fresh_leaf(p, explorer.sizes, "usual", explorer.rng))
                for p in explorer.plans
            ]
            one = explorer.attempt(name + where, "values", leaves, quiet=True)
            if one is not None:
                one.must = True
                accepted += 1
                wide |= make is wide_integers
                if accepted == 2 or name.startswith("integers up to"):
                    break
        divides = any(name.startswith(DIVIDERS) for name in explorer.facts["operators"])
        if wide and len(group) == len(open_leaves) and not divides:
            return  # else one of them may be a divisor or an index, and another a plain number


def table_sizes(model: Any) -> set[int]:
    """Numbers of rows of the tables in a model: what `num_embeddings` says, and the leading sizes of two-dimensional buffers."""
    found = {int(m.num_embeddings) for m in model.modules() if isinstance(getattr(m, "num_embeddings", None), int)}
    return found | {int(b.shape[0]) for b in model.buffers() if b.dim() == 2 and b.layout == torch.strided}


def table_maker(count: int) -> Any:
    """A maker of integers that index a table of `count` rows."""

    def make(plan: LeafPlan, sizes: dict[str, int], rng: torch.Generator) -> Any:
        top = min(count - 1, torch.iinfo(plan.example.dtype).max)
        return torch.randint(0, top + 1, plan.shape(sizes), generator=rng).to(plan.example.dtype)

    return make


def random_search(explorer: Explorer) -> None:
    """While some branch has shown one outcome only: further random values at several scales and sizes."""
    if explorer.big:
        return
    misses = 0
    scales = (1.0, 3.0, 0.3, 10.0, 0.01, -1.0, -3.0, 30.0)
    pool = [c.sizes for c in explorer.candidates if c.kind == "sizes"] or [{}]
    turn = 0
    while explorer.half_seen and not explorer.spent and misses < 24:
        scale = scales[turn % len(scales)]
        sizes = {**explorer.sizes, **(pool[turn % len(pool)] if turn % 2 else {})}
        turn += 1

        def make(plan: LeafPlan, scale: float = scale, sizes: dict[str, int] = sizes) -> Any:
            value = fresh_leaf(plan, sizes, "usual", explorer.rng)
            if plan.is_float and "unit" in plan.traits:
                return value ** (abs(scale) if abs(scale) > 0.05 else 6.0) if not value.is_complex() else value
            return (value * scale).to(value.dtype) if plan.is_float else value

        one = explorer.attempt(f"random {turn}", "values" if sizes == explorer.sizes else "sizes", explorer.leaves_of(make), quiet=True)
        misses = 0 if one is not None and one.features else misses + 1


def compact(explorer: Explorer) -> list[Candidate]:
    """The candidates worth keeping: the musts, then whatever covers something new, newest branches first, up to a limit."""
    limit = 7 if explorer.big else 16
    musts = [c for c in explorer.candidates if c.must]
    extra = [c for c in explorer.candidates if not c.must and new_branches(c)]
    kept = musts + sorted(extra, key=lambda c: -len(new_branches(c)))[: max(limit - len(musts), 4)]
    order = {id(c): i for i, c in enumerate(explorer.candidates)}
    names: dict[str, int] = {}
    for one in sorted(kept, key=lambda c: order[id(c)]):
        names[one.name] = names.get(one.name, 0) + 1
        if names[one.name] > 1:
            one.name = f"{one.name} ({names[one.name]})"
        one.watch = None
    return sorted(kept, key=lambda c: (c.kind == "empty", order[id(c)]))


def new_branches(one: Candidate) -> set[Any]:
    """The features that are a new branch, a new outcome, or another number of turns of a loop."""
    return one.features
