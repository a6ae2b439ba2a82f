"""Values for one input leaf: what role its integers play, and fresh values of a given shape that keep to that role.

LeafPlan describes a leaf of the example; fresh_leaf(plan, shape, sizes, mode, rng) makes a new one. Modes: "usual" (like the example),
"tiled" (the example's own entries, repeated), "small" (integers that fit every dynamic axis); see VALUE_CLASSES for what reveals faults.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0)
"""Values at which tests and roundings decide; constants of the source come on top."""
VALUE_CLASSES = ("other", "negative", "zeros", "wide", "tiny", "ties", "positive", "shifted", "tenfold", "far")


@dataclass
class LeafPlan:
    """One leaf of the example. `tied` is (symbol or "", size) of the axis that the integers refer to, for roles that have one."""

    name: str
    example: Any
    axes: dict[int, str]
    role: str
    tied: tuple[str, int] = ("", 0)
    low: float = 0.0
    high: float = 0.0
    traits: set[str] = field(default_factory=set)

    @property
    def is_tensor(self) -> bool:
        """Whether the leaf is a tensor (else a Python number)."""
        return isinstance(self.example, torch.Tensor)

    @property
    def is_float(self) -> bool:
        """Whether it holds real or complex numbers."""
        return self.is_tensor and (self.example.is_floating_point() or self.example.is_complex())

    @property
    def is_bool(self) -> bool:
        """Whether it is a boolean tensor."""
        return self.is_tensor and self.example.dtype is torch.bool

    @property
    def is_mask(self) -> bool:
        """Whether it says which entries count: boolean, or 0 and 1."""
        return self.is_bool or self.role == "mask"

    def shape(self, sizes: dict[str, int]) -> list[int]:
        """The leaf's shape at these sizes of the symbols."""
        return [sizes.get(self.axes.get(i, ""), int(n)) for i, n in enumerate(self.example.shape)]


def make_plans(leaves: list[tuple[str, Any]], axes: dict[str, dict[int, str]]) -> list[LeafPlan]:
    """Plans of the example's leaves; roles of integers are inferred from values, names and the sizes of axes."""
    plans = []
    for name, value in leaves:
        plan = LeafPlan(name, value, axes.get(name, {}), "number")
        if plan.is_tensor:
            describe_tensor(plan, leaves, axes)
        plans.append(plan)
    return plans


def describe_tensor(plan: LeafPlan, leaves: list[tuple[str, Any]], axes: dict[str, dict[int, str]]) -> None:
    """Fill in role, range and traits of a tensor."""
    value = plan.example
    if value.numel() == 0:
        plan.role, plan.high = "float" if plan.is_float else "tokens", 1.0
        return
    if plan.is_bool:
        plan.role = "mask"
        return
    real = torch.view_as_real(value) if value.is_complex() else value
    flat = real.detach().reshape(-1).to(torch.float64)
    flat = flat[torch.isfinite(flat)] if plan.is_float else flat
    if flat.numel() == 0:
        flat = torch.zeros(1, dtype=torch.float64)
    plan.low, plan.high = float(flat.min()), float(flat.max())
    if plan.is_float:
        plan.role = "float"
        whole = bool((flat == flat.round()).all())
        conditions = {
            "binary": bool(((flat == 0) | (flat == 1)).all()) and plan.high == 1,
            "whole": whole and plan.high > 1,
            "unit": plan.low >= 0 and plan.high <= 1 and plan.high > 0,
            "nonnegative": plan.low >= 0 and plan.high > 0,
            "constant": plan.low == plan.high,
        }
        plan.traits = {k for k, v in conditions.items() if v}
        if value.dim() and value.shape[-1] > 2 and not value.is_complex():
            steps = value.detach().double().diff(dim=-1)
            if bool((steps >= 0).all()) and plan.high > plan.low:
                plan.traits.add("ascending")
            elif bool((steps <= 0).all()) and plan.high > plan.low:
                plan.traits.add("descending")
            if plan.low >= 0 and bool(torch.allclose(value.detach().double().sum(-1), torch.ones(1, dtype=torch.float64), atol=1e-4)):
                plan.traits.add("sums to one")
        return
    plan.role, plan.tied = integer_role(plan, leaves, axes)


def all_axes(leaves: list[tuple[str, Any]], axes: dict[str, dict[int, str]], but: str) -> list[tuple[str, int]]:
    """(symbol or "", size) of every axis of the other tensors, dynamic ones first."""
    found = [(axes.get(n, {}).get(i, ""), int(s)) for n, v in leaves if n != but and isinstance(v, torch.Tensor) for i, s in enumerate(v.shape)]
    return sorted(dict.fromkeys(found), key=lambda a: a[0] == "")


def integer_role(plan: LeafPlan, leaves: list[tuple[str, Any]], axes: dict[str, dict[int, str]]) -> tuple[str, tuple[str, int]]:
    """(role, tied axis) of an integer tensor; names only decide between what the values allow."""
    value, name = plan.example.detach().to(torch.int64), plan.name.rpartition(".")[2].lower()
    others = all_axes(leaves, axes, plan.name)
    own = {(s, int(value.shape[i])) for i, s in plan.axes.items()}
    low, high = int(value.min()), int(value.max())
    is_row = value.dim() == 1

    def named(*words: str) -> bool:
        return any(w in name for w in words)

    if is_row and low == 0 and value.numel() > 1 and int(value[0]) == 0 and bool((value.diff() >= 0).all()):
        if named("offset", "ptr", "cu_", "seqlens", "split", "starts"):
            ends = [a for a in others if a[1] == int(value[-1])] if named("ptr", "cu_", "seqlens") else []
            longest = [a for a in others if a[1] >= high and a not in own]
            if ends or longest:
                return ("offsets to the end" if ends else "offsets"), (ends or longest)[0]
        if not bool((value == torch.arange(value.numel())).all()) and named("batch", "segment", "seg", "group", "graph"):
            return "segments", ("", 0)
    if value.dim() and value.shape[-1] > 1 and bool((value == torch.arange(value.shape[-1])).all()):
        return "positions", ("", 0)
    if low >= 0 and value.dim() == 2 and value.shape[1] in (2, 3) and low > 0 and not named("ids", "tok", "mask"):
        total = int(value.prod(-1).sum())
        for axis in others:
            if axis[1] == total and axis not in own and total > 1:
                return "grid", axis
    counts = named("count", "size", "len", "split", "num", "n_", "sect")
    if is_row and value.numel() > 1 and low >= 0 and (low > 0 or counts):
        for axis in others:
            if axis[1] == int(value.sum()) and axis not in own and axis[1] > 1 and (axis[0] or counts) and not named("ids", "label", "mask"):
                return "partition", axis
    if low >= 0 and high <= 1 and (value.dim() > 1 or named("mask", "valid", "pad")) and (high == 1 or named("mask", "valid", "pad", "type")):
        return "mask", ("", 0)
    if low >= 0 and named("len", "valid", "n_") and not named("ids"):
        for axis in others:
            if axis[1] >= high and axis not in own and axis[1] > 1:
                return "lengths", axis
    if low >= 0 and named("index", "idx", "edge", "src", "dst", "parent", "gather"):
        for axis in others:
            if axis[0] and axis[1] > high and axis not in own:
                return "index", axis
    return "tokens", ("", 0)


def fresh_leaf(plan: LeafPlan, sizes: dict[str, int], mode: str, rng: torch.Generator) -> Any:
    """A new value for the leaf at these sizes; numbers keep the example's value."""
    if not plan.is_tensor:
        return plan.example
    shape = plan.shape(sizes)
    if mode == "tiled":
        return tiled_leaf(plan, shape, rng)
    if plan.is_bool:
        share = 0.5 if plan.example.numel() == 0 else min(max(float(plan.example.double().mean()), 0.3), 0.7)
        return torch.rand(shape, generator=rng) < share
    if plan.is_float:
        return fresh_float(plan, shape, rng)
    return fresh_integers(plan, shape, sizes, mode, rng)


def tiled_leaf(plan: LeafPlan, shape: list[int], rng: torch.Generator) -> Any:
    """The example's entries repeated along the axes that grew; floats are stirred by up to 10 % each."""
    value = plan.example.detach()
    for axis, size in enumerate(shape):
        if size != value.shape[axis]:
            if value.shape[axis] == 0:
                return torch.zeros(shape, dtype=value.dtype)
            value = value.index_select(axis, torch.arange(size) % value.shape[axis])
    if plan.is_float and not plan.traits & {"binary", "whole", "ascending", "descending", "sums to one"}:
        value = (value * (1 + 0.1 * (2 * torch.rand(value.shape, generator=rng) - 1))).to(plan.example.dtype)
        if "unit" in plan.traits:
            value = value.clamp(0, 1)
    return value.clone()


def fresh_float(plan: LeafPlan, shape: list[int], rng: torch.Generator) -> Any:
    """Random reals with the example's mean, spread, range and order."""
    if plan.example.is_complex():
        scale = float(plan.example.abs().double().mean()) or 1.0
        return torch.complex(torch.randn(shape, generator=rng), torch.randn(shape, generator=rng)).to(plan.example.dtype) * scale
    if "sums to one" in plan.traits:
        out = torch.softmax(torch.randn(shape, generator=rng), -1) if shape and shape[-1] else torch.zeros(shape)
    elif "binary" in plan.traits:
        out = (torch.rand(shape, generator=rng) < 0.6).float()
    elif "whole" in plan.traits:
        out = torch.randint(int(plan.low), int(plan.high) + 1, shape, generator=rng).float()
    elif "unit" in plan.traits and "constant" not in plan.traits:
        out = torch.rand(shape, generator=rng)
    elif not shape or "constant" in plan.traits:
        centre = plan.low
        out = centre * (0.5 + 1.5 * torch.rand(shape, generator=rng)) if centre else torch.randn(shape, generator=rng)
    else:
        values = plan.example.detach().double()
        values = values[torch.isfinite(values)]
        mean, spread = float(values.mean()), float(values.std()) if values.numel() > 1 else abs(float(values.mean())) or 1.0
        out = mean + spread * torch.randn(shape, generator=rng)
        if "nonnegative" in plan.traits:
            out = out.abs()
    if plan.traits & {"ascending", "descending"} and shape and shape[-1]:
        out = out.sort(-1, descending="descending" in plan.traits).values
    return out.to(plan.example.dtype)


def fresh_integers(plan: LeafPlan, shape: list[int], sizes: dict[str, int], mode: str, rng: torch.Generator) -> Any:
    """Random integers that keep to the leaf's role."""
    dtype, count = plan.example.dtype, math.prod(shape)
    low, high = int(plan.low), int(plan.high)
    symbol, before = plan.tied
    room = sizes.get(symbol, before)

    def draw(a: int, b: int, where: list[int] | None = None) -> Any:
        return torch.randint(a, max(a, b) + 1, shape if where is None else where, generator=rng)

    if plan.role == "positions":
        out = torch.arange(shape[-1]).expand(shape).clone() if shape else draw(low, high)
    elif plan.role == "mask":
        out = (torch.rand(shape, generator=rng) < 0.6).long()
    elif plan.role == "partition":
        cuts = torch.randint(0, room + 1, (max(count - 1, 0),), generator=rng).sort().values
        out = torch.cat([cuts, torch.tensor([room])]).diff(prepend=torch.zeros(1, dtype=torch.int64)) if count else torch.zeros(shape)
        if count and low > 0 and room >= 2 * count:
            out = (
                torch.cat([(cuts * (room - count) // max(room, 1)), torch.tensor([room - count])]).diff(prepend=torch.zeros(1, dtype=torch.int64)) + 1
            )
    elif plan.role.startswith("offsets"):
        out = torch.randint(0, room + 1, (count,), generator=rng).sort().values
        if count:
            out[0] = 0
            if plan.role == "offsets to the end":
                out[-1] = room
    elif plan.role == "segments":
        out = draw(low, high).sort(-1).values if shape else draw(low, high)
    elif plan.role == "lengths":
        out = draw(1, max(room, 1))
        if count and high == before:
            out.view(-1)[0] = max(room, 1)
        if count > 1 and bool((plan.example.reshape(-1).long().diff() <= 0).all()) and plan.example.numel() > 1:
            out = out.reshape(-1).sort(descending=True).values.reshape(shape)
    elif plan.role == "index":
        out = draw(0, min(high, room - 1) if mode == "small" else room - 1)
    else:
        top = min([high, *(s - 1 for s in sizes.values() if s > 0)]) if mode == "small" else high
        out = draw(min(low, top), top)
    return out.reshape(shape).to(dtype)
