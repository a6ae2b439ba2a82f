"""Input sets whose whole numbers are those that the source names: tokens with a meaning of their own (a start, a stop, padding), step counts,
kinds. A test such as `ids[0, 0] == 101` or `step % 1000 == 999` hardly ever meets its number by chance.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import torch

from autofix.classes import constant_value, model_nodes
from autofix.values import LeafPlan, fresh_leaf

if TYPE_CHECKING:
    from autofix.inputs import Explorer

MOST_NUMBERS = 8
"""Numbers of the source that are tried, those of comparisons first."""


def named_integers(sources: dict[str, str], model: Any) -> list[int]:
    """Whole numbers of the source from -2^31 to 2^31, those in comparisons and in attributes that comparisons name first."""
    compared: list[int] = []
    others: list[int] = []

    def note(value: Any, found: list[int]) -> None:
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**31:
            found.append(value)

    names: set[str] = set()
    for node in model_nodes(sources):
        note(constant_value(node), others)
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                for part in ast.walk(side):
                    note(constant_value(part), compared)
                    names |= {part.attr} if isinstance(part, ast.Attribute) else {part.id} if isinstance(part, ast.Name) else set()
    for module in model.modules():
        if not type(module).__module__.startswith("torch."):
            for key, value in vars(module).items():
                note(value, compared if key in names else others)
    return list(dict.fromkeys([*(n for n in compared if n not in (0, 1)), *(n for n in others if n > 1)]))


def named_integer_sets(explorer: Explorer) -> None:
    """While some branch has shown one outcome only: each number, and its neighbours, in single integers; in tensors everywhere, at one place,
    or at the front with the next number at the end. Kept where they take a new branch."""
    plans = [p for p in explorer.plans if takes_numbers(p)]
    if not plans or explorer.big or not explorer.half_seen:
        return
    numbers = named_integers(explorer.eager.case.sources, explorer.eager.model)[:MOST_NUMBERS]
    for plan in plans:
        for number, following in zip(numbers, [*numbers[1:], *numbers[:1]], strict=True):
            for where, value in placed(plan, number, following, explorer):
                if explorer.spent or not explorer.half_seen:
                    return
                leaves = [(p.name, value if p is plan else fresh_leaf(p, explorer.sizes, "usual", explorer.rng)) for p in explorer.plans]
                one = explorer.attempt(f"{plan.name} {where}", "values" if plan.is_tensor else "numbers", leaves, quiet=True)
                if one is not None and one.branches:
                    one.must = True


def takes_numbers(plan: LeafPlan) -> bool:
    """Whether a leaf holds whole numbers that may be others than the example's."""
    if not plan.is_tensor:
        return isinstance(plan.example, int) and not isinstance(plan.example, bool)
    return not plan.is_float and not plan.is_bool and plan.role in ("tokens", "lengths", "index") and plan.example.numel() > 0


def placed(plan: LeafPlan, number: int, following: int, explorer: Explorer) -> list[tuple[str, Any]]:
    """[(where, the leaf's value)] with a number of the source in it."""
    if not plan.is_tensor:
        return [(f"{n}", n) for n in (number, number + 1, number - 1)]
    info = torch.iinfo(plan.example.dtype)
    if not all(info.min < n < info.max for n in (number, following)):
        return []
    shape = plan.shape(explorer.sizes)
    if plan.example.numel() == 1:
        return [(f"{n}", torch.full(shape, n, dtype=plan.example.dtype)) for n in (number, number + 1, number - 1)]
    usual = fresh_leaf(plan, explorer.sizes, "usual", explorer.rng)
    somewhere, ends = usual.clone(), usual.clone()
    somewhere.view(-1)[int(torch.randint(0, usual.numel(), (), generator=explorer.rng))] = number
    ends[..., 0] = number
    ends[..., -1] = following
    return [(f"all {number}", torch.full_like(usual, number)), (f"with one {number}", somewhere), (f"from {number} to {following}", ends)]
