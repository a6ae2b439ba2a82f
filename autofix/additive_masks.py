"""Input sets for masks that are added to scores: real leaves whose entries are 0 where something counts, and hugely negative where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from autofix.values import LeafPlan, fresh_leaf

if TYPE_CHECKING:
    from autofix.inputs import Explorer

MASKED_BELOW = -1e4
"""Entries below this mean "does not count"."""


def additive_mask(plan: LeafPlan) -> bool:
    """Whether a leaf may be such a mask: it holds nothing but 0 and hugely negative entries, and has two axes or more."""
    if not plan.is_float or plan.example.is_complex() or plan.example.dim() < 2 or plan.example.numel() < 2:
        return False
    value = plan.example.detach().float()
    return bool(((value < MASKED_BELOW) | (value == 0)).all())


def additive_mask_sets(explorer: Explorer) -> None:
    """Two sets a mask: about half of each row masked, and a row all masked besides. What eager gives for that row, NaN or not, is its answer;
    a leaf counts as a mask only if the first of them leaves the outputs finite (a state of zeros would spread what it holds)."""
    for plan in explorer.plans:
        if explorer.big or not additive_mask(plan):
            continue
        own = plan.example[plan.example.float() < MASKED_BELOW]
        low = own.reshape(-1)[0].item() if own.numel() else float("-inf")
        for name, whole_row in ((f"half of {plan.name} masked", False), (f"a row of {plan.name} all masked", True)):
            leaves = [
                (p.name, masked_rows(p, low, whole_row, explorer.rng) if p is plan else fresh_leaf(p, explorer.sizes, "usual", explorer.rng))
                for p in explorer.plans
            ]
            one = explorer.attempt(name, "nonfinite", leaves, quiet=True)
            if one is None or (not whole_row and not all(bool(torch.isfinite(v).all()) for _, v in one.outputs or [] if v.is_floating_point())):
                break
            one.must = True


def masked_rows(plan: LeafPlan, low: float, whole_row: bool, rng: torch.Generator) -> Any:
    """Zeros with `low` at random places, never all of a row, but for the first where `whole_row`."""
    out = torch.zeros(plan.example.shape, dtype=plan.example.dtype)
    rows = out.view(-1, out.shape[-1])
    kept = torch.randint(0, rows.shape[1], (rows.shape[0], 1), generator=rng)
    masked = (torch.rand(rows.shape, generator=rng) < 0.5) & (torch.arange(rows.shape[1]) != kept)
    rows.masked_fill_(masked, low)
    if whole_row:
        rows[0] = low
    return out
