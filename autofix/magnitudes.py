"""Input sets near the square root of the largest and of the smallest number of their dtype: where squares overflow or vanish inside a formula.

Variances, deviations, norms and cosines square their operand; PyTorch adds most of these squares up in a wider type, an export may not.
A set on which PyTorch itself overflows inside (float64 stays within the dtype's range) says nothing about the file: `overflows_inside`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from autofix.multiples import DIVIDERS
from autofix.values import LeafPlan, fresh_leaf

if TYPE_CHECKING:
    from autofix.eager import Leaves
    from autofix.inputs import Explorer

KEPT_RANGE = {"unit", "binary", "whole", "sums to one", "constant"}
"""Leaves with such traits are probabilities, flags or counts: they stay as they are."""


KINDS = {
    "huge": "near the root of the largest number",
    "minute": "near the root of the smallest number",
    "beyond": "past the root of the largest number",
}


MOST_PLACES = 2.0**31
"""Reals from here on do not fit every kind of integer."""
LARGEST_QUOTIENT = 2.0**24
"""float32 holds every whole number up to here."""


def magnitude_of(dtype: torch.dtype, kind: str) -> float:
    """The magnitude of a kind: "huge" is 0.6 times the square root of the largest number, "beyond" 8 times it (half precision only, where such
    values are ordinary), "minute" the square root of the smallest normal one."""
    limits = torch.finfo(dtype)
    return math.sqrt(limits.tiny) if kind == "minute" else {"huge": 0.6, "beyond": 8.0}[kind] * math.sqrt(limits.max)


def scaled_leaf(plan: LeafPlan, magnitude: float, sizes: dict[str, int], rng: torch.Generator) -> Any:
    """A fresh leaf of that mean magnitude, signs and order as usual."""
    value = fresh_leaf(plan, sizes, "usual", rng)
    real, limits = value.double(), torch.finfo(value.dtype)
    scale = float(real.abs().mean()) or 1.0
    return (real / scale * magnitude).clamp(limits.min, limits.max).to(value.dtype)


def magnitude_sets(explorer: Explorer) -> None:
    """All open float leaves at once, or one of them at a time where eager refuses that; a tenth where eager overflows inside."""
    leaves = [p for p in explorer.plans if p.is_float and p.example.numel() and not p.example.is_complex() and not p.traits & KEPT_RANGE]
    if explorer.big or not leaves:
        return
    half = all(p.example.dtype == torch.float16 for p in leaves)
    groups = [leaves] + ([[p] for p in leaves[:3]] if len(leaves) > 1 else [])
    for kind, name in KINDS.items():
        if kind == "beyond" and not half:
            continue
        shares = (1.0, 0.1) if kind == "huge" else (1.0,)
        any(taken(explorer, name, kind, share, group, len(group) < len(leaves)) for group in groups for share in shares)


def taken(explorer: Explorer, name: str, kind: str, share: float, group: list[LeafPlan], alone: bool) -> bool:
    """Whether eager takes a set with the leaves of `group` at this magnitude, and does not overflow inside."""
    chosen = {p.name for p in group}

    def make(plan: LeafPlan) -> Any:
        if plan.name not in chosen:
            return fresh_leaf(plan, explorer.sizes, "usual", explorer.rng)
        return scaled_leaf(plan, share * magnitude_of(plan.example.dtype, kind), explorer.sizes, explorer.rng)

    leaves = explorer.leaves_of(make)
    one = explorer.attempt(name + (f", {group[0].name}" if alone else "") + ("" if share == 1 else f" ({share})"), "magnitude", leaves, quiet=True)
    if one is None or overflows_inside(one.outputs or [], explorer.eager.call64(leaves)):
        return False
    reach = PlacesInReach()  # type: ignore[no-untyped-call]
    with reach:
        explorer.eager.call(leaves)
    one.must, one.advisory = reach.kept, not reach.kept
    return reach.kept


class PlacesInReach(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`kept`: no real number beyond the integers became one, as a cast or a coordinate of grid_sample (what comes out is left open by C), and no
    quotient was so large that float32 does not hold its last digit, on which a remainder hangs (as in `multiple_sets`)."""

    kept = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        far = str(func).startswith(DIVIDERS) and is_large_quotient(*args[:2])
        out = func(*args, **(kwargs or {}))
        self.kept &= not (far and isinstance(out, torch.Tensor) and out.is_floating_point())
        name = str(func).split(".")[1] if "." in str(func) else str(func)
        grid = "grid_sampler" in name
        if grid or (name in ("_to_copy", "copy_") and isinstance(out, torch.Tensor) and not (out.is_floating_point() or out.is_complex())):
            source = args[2] if grid and name.endswith("_backward") else args[1] if grid or name == "copy_" else args[0]
            if grid or (out.dtype != torch.bool and source.is_floating_point()):
                self.kept &= bool((source.abs() < MOST_PLACES).all())
        return out


def is_large_quotient(top: Any, step: Any) -> bool:
    """Whether a quotient of two operands, tensors or numbers, has digits that float32 does not hold."""
    ratio = torch.as_tensor(top).detach().double() / torch.as_tensor(step).detach().double()
    return bool((ratio.abs() > LARGEST_QUOTIENT).any())


def overflows_inside(outputs: Leaves, wide: Leaves | None) -> bool:
    """Whether a float32 run gives infinity or NaN where the float64 run stays within the dtype's range; without one, anywhere."""
    for place, (_, value) in enumerate(outputs):
        if not value.is_floating_point():
            continue
        odd = ~torch.isfinite(value)
        if wide is not None and len(wide) == len(outputs) and wide[place][1].shape == value.shape:
            odd &= wide[place][1].double().abs() <= torch.finfo(value.dtype).max
        if bool(odd.any()):
            return True
    return False
