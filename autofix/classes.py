"""Classes of values that reveal faults, at the example's own shapes: signs, zeros, ties, magnitudes, masks, NaN."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from autofix.values import SPECIAL, LeafPlan, fresh_leaf

NOT_THE_MODEL = re.compile(r"get_\w*inputs|get_kwargs|build_model")
"""Functions of a model file whose numbers describe inputs rather than decide anything."""


def model_nodes(sources: Mapping[str, str]) -> Iterator[ast.AST]:
    """Every node of the sources but for functions that make inputs; files that do not parse are left out."""
    for text in sources.values():
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for top in tree.body:
            if isinstance(top, ast.FunctionDef) and NOT_THE_MODEL.fullmatch(top.name):
                continue
            yield from ast.walk(top)


def source_constants(sources: dict[str, str], model: Any = None) -> tuple[list[float], list[int]]:
    """(float constants, integer constants from 2 to 4096) in the person's source, products and powers of constants among them, and in plain
    attributes of the model's modules."""
    floats: set[float] = set()
    integers: set[int] = set()

    def note(value: Any) -> None:
        if isinstance(value, bool):
            return
        if isinstance(value, float) and 1e-6 <= abs(value) < 1e6:
            floats.add(value)
        elif isinstance(value, int) and 2 <= value <= 4096:
            integers.add(value)
        elif isinstance(value, dict):
            for inner in list(value.values())[:16]:
                note(inner)

    for node in model_nodes(sources):
        note(constant_value(node))
    for module in model.modules() if model is not None else ():
        if not type(module).__module__.startswith("torch."):
            for key, value in vars(module).items():
                if not key.startswith("_"):
                    note(value)
    return sorted(floats)[:24], sorted(integers)[:48]


def constant_value(node: ast.AST) -> Any:
    """The number that a constant, or a product, sum, difference or small power of constants, stands for; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (int, float)) else None
    if isinstance(node, ast.BinOp):
        a, b = constant_value(node.left), constant_value(node.right)
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            if isinstance(node.op, ast.Mult):
                return a * b
            if isinstance(node.op, ast.Add):
                return a + b
            if isinstance(node.op, ast.Sub):
                return a - b
            if isinstance(node.op, ast.Pow) and abs(b) <= 16 and abs(a) <= 64:
                return a**b
    return None


def class_leaf(plan: LeafPlan, kind: str, sizes: dict[str, int], constants: list[float], rng: torch.Generator) -> Any:
    """A value of the leaf that belongs to one of VALUE_CLASSES."""
    value = fresh_leaf(plan, sizes, "usual", rng)
    if not plan.is_tensor or value.numel() == 0:
        return value
    if plan.is_mask:
        return mask_of_class(value, kind, rng)
    if plan.is_float:
        return float_of_class(plan, value, kind, constants, rng)
    return integers_of_class(plan, value, kind, rng)


def mask_of_class(value: Any, kind: str, rng: torch.Generator) -> Any:
    """All clear, all set, a single one set, or the first row clear and the last set."""
    out = value.clone()
    if kind == "negative":
        return torch.zeros_like(out)
    if kind in ("zeros", "shifted"):
        return torch.ones_like(out)
    if kind == "wide":
        out = torch.zeros_like(out)
        out.view(-1)[int(torch.randint(0, out.numel(), (), generator=rng))] = 1
    elif kind in ("ties", "tenfold") and out.dim() and out.shape[0]:
        out = torch.ones_like(out) if kind == "ties" else out
        if out.dim() > 1 and out.shape[0] == 1:
            out[..., out.shape[-1] // 2 :] = 0
        else:
            out[0] = 0
            out[-1:] = 1 if out.shape[0] > 1 else 0
    return out


def float_of_class(plan: LeafPlan, value: Any, kind: str, constants: list[float], rng: torch.Generator) -> Any:
    """Reals of a class; "unit" leaves (probabilities, positions) keep to [0, 1] where the class allows."""
    if value.is_complex():
        return {"negative": -value, "zeros": torch.zeros_like(value), "tenfold": value * 10}.get(kind, value)
    unit = "unit" in plan.traits
    real = value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    scale = float(real.abs().mean()) or 1.0
    if kind == "negative":
        out = -real.abs() - 0.5 * scale * torch.rand(real.shape, generator=rng).to(real.dtype)
    elif kind == "positive":
        out = real.abs() + 0.25 * scale
    elif kind == "zeros":
        out = torch.zeros_like(real)
    elif kind == "wide":
        exponent = 7 * torch.rand(real.shape, generator=rng) - 4
        sign = torch.where(torch.rand(real.shape, generator=rng) < 0.5, -1.0, 1.0)
        out = 10.0**exponent * sign * (0.05 if value.dtype in (torch.float16, torch.bfloat16) else 1.0)
        if unit:
            out = torch.where(torch.rand(real.shape, generator=rng) < 0.5, 10.0 ** (exponent.clamp(max=0)), (out > 0).float())
    elif kind == "tiny":
        smallest = 1e-3 if value.dtype in (torch.float16, torch.bfloat16) else 1e-7
        out = real / scale * smallest * 10.0 ** (3 * torch.rand(real.shape, generator=rng))
    elif kind == "ties":
        choice = torch.tensor([*SPECIAL, *constants, *(-c for c in constants)])
        if unit:
            choice = choice[(choice >= 0) & (choice <= 1)]
        out = choice[torch.randint(0, len(choice), real.shape, generator=rng)]
    elif kind == "shifted":
        out = real + (200.0 if value.dtype != torch.float16 else 20.0) * rows_up_and_down(real)
    elif kind == "tenfold":
        out = real * 10
    elif kind == "far" and not unit:  # about where exp overflows and where it gives denormal numbers
        reach = 18.0 if value.dtype == torch.float16 else 110.0
        out = reach * (2 * torch.rand(real.shape, generator=rng) - 1)
    else:
        out = real
    return out.to(value.dtype)


def rows_up_and_down(value: Any) -> Any:
    """+1 for even and -1 for odd rows of the first axis that has any; elements where there is a single row."""
    sign = torch.ones_like(value)
    for axis, size in enumerate(value.shape):
        if size > 1:
            shape = [1] * value.dim()
            shape[axis] = size
            return sign * (1 - 2 * (torch.arange(size) % 2)).reshape(shape).to(value.dtype)
    return -sign


def integers_of_class(plan: LeafPlan, value: Any, kind: str, rng: torch.Generator) -> Any:
    """Integers in the observed range: permuted, all lowest, all the same, all highest."""
    low, high = int(plan.low), int(plan.high)
    if plan.role in ("partition", "grid", "positions") or plan.role.startswith("offsets"):
        return value
    if plan.role == "segments":
        return value.sort(-1).values if kind != "zeros" else torch.full_like(value, low)
    if kind == "zeros":
        return torch.full_like(value, 1 if plan.role == "lengths" and low > 0 else low)
    if kind == "ties":
        return torch.full_like(value, high if plan.role != "index" else max(min(high, plan.tied[1] - 1), 0))
    if kind == "negative" and plan.role != "lengths":
        flat = plan.example.detach().reshape(-1)
        return flat[torch.randperm(flat.numel(), generator=rng)].reshape(plan.example.shape) if plan.example.shape == value.shape else value
    if kind in ("shifted", "tenfold") and plan.role == "tokens" and value.dim():
        # the lowest entry is often the padding: behind a random point of each row
        size = value.shape[-1]
        cut = torch.randint(1, size + 1, (*value.shape[:-1], 1), generator=rng)
        return torch.where(torch.arange(size) < cut, value, torch.full_like(value, low))
    if kind == "positive" and plan.role == "lengths":
        return torch.full_like(value, plan.tied[1])
    return value


def wide_integers(plan: LeafPlan, sizes: dict[str, int], rng: torch.Generator) -> Any:
    """Integers of both signs and up to 2^40 (or the whole range of a narrow type): for leaves that turn out to be plain numbers."""
    shape, dtype = plan.shape(sizes), plan.example.dtype
    info = torch.iinfo(dtype)
    if info.bits <= 16:
        return torch.randint(info.min, info.max + 1, shape, generator=rng).to(dtype)
    choice = torch.tensor([-1, 0, 1, -7, 10, 77, -12, 1000, 123456789, -123456789, *((2**40 + 3, -(2**40) - 5) if info.bits == 64 else ())])
    chosen = choice[torch.randint(0, len(choice), shape, generator=rng)]
    # half of them past 2^24, where float32 no longer holds every whole number
    large = torch.randint(2**27, 2**30, shape, generator=rng) * torch.where(torch.rand(shape, generator=rng) < 0.5, -1, 1)
    out = torch.where(torch.rand(shape, generator=rng) < 0.5, large, chosen).reshape(-1)
    if out.numel() > 1:
        out[0], out[-1] = large.abs().reshape(-1)[0], -large.abs().reshape(-1)[-1]
    return out.reshape(shape).to(dtype)


def past_range_integers(plan: LeafPlan, sizes: dict[str, int], rng: torch.Generator) -> Any:
    """Integers from below zero to twice the observed range."""
    info = torch.iinfo(plan.example.dtype)
    low, high = max(-int(plan.high) - 1, info.min), min(2 * int(plan.high) + 2, info.max)
    return torch.randint(low, high + 1, plan.shape(sizes), generator=rng).to(plan.example.dtype)


def odd_places(count: int, rng: torch.Generator) -> list[int]:
    """Up to three places, spread over `count` elements in order."""
    start = int(torch.randint(0, count, (), generator=rng))
    return list(dict.fromkeys((start + k * count // 3) % count for k in range(3)))


def nonfinite_leaf(value: Any, places: list[int]) -> Any:
    """A float tensor with NaN, +Inf and -Inf at these places."""
    out = value.clone()
    for place, odd in zip(places, (float("nan"), float("inf"), float("-inf")), strict=False):
        out.view(-1)[place] = odd
    return out


def zero_beside(value: Any, places: list[int], count: int) -> Any:
    """A leaf of the same number of elements with 0 at these places, where the other leaf is NaN or infinite."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.numel() != count:
        return value
    out = value.clone()
    out.view(-1)[torch.tensor(places)] = 0
    return out
