"""NumPy's functions on tensors, with NumPy's types: float64 by default, int with float32 gives float64. Pasted like source_runtime.py.

Arrays are plain tensors. Python numbers are weak, as in NumPy 2: they take the type of the array that they meet. A numpy.ndarray (a constant
of the model) becomes a tensor where it meets one.
"""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
import math
from typing import Any

import numpy
import torch

from autofix.surgery.source_rows import cat_list, stack_list


def array_dtype(kind: Any) -> Any:
    """numpy's, Python's or torch's name of a type as torch's."""
    if kind is None or isinstance(kind, torch.dtype):
        return kind
    return getattr(torch, numpy.dtype(kind).name)


def array_weak(value: Any) -> bool:
    """Whether a value is a Python number (or a size), which has no type of its own."""
    return isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat)) and not isinstance(value, numpy.generic)


def array_promote(a: Any, b: Any) -> Any:
    """The type of numpy arrays of two types together."""
    if a.is_floating_point == b.is_floating_point:
        return torch.promote_types(a, b)
    whole, real = (b, a) if a.is_floating_point else (a, b)
    bits = 8 if whole is torch.bool else torch.iinfo(whole).bits
    return real if bits == 8 else torch.promote_types(real, torch.float32 if bits == 16 else torch.float64)


def array_in(value: Any, dtype: Any = None) -> torch.Tensor:
    """An array, a number or nested lists of them as a tensor."""
    dtype = array_dtype(dtype)
    if isinstance(value, torch.Tensor):
        out = value.detach()
    elif isinstance(value, (numpy.ndarray, numpy.generic)):
        out = torch.tensor(value.tolist(), dtype=array_dtype(value.dtype))
    elif array_weak(value):
        kind = torch.bool if isinstance(value, bool) else torch.int64 if isinstance(value, (int, torch.SymInt)) else torch.float64
        out = torch.scalar_tensor(value, dtype=kind)
    elif getattr(value, "is_rows", False):
        out = stack_list(value)
    elif value:
        parts = [array_in(v) for v in value]
        kind = parts[0].dtype
        for part in parts[1:]:
            kind = array_promote(kind, part.dtype)
        out = torch.stack([p.to(kind) for p in parts])
    else:
        out = torch.zeros(0, dtype=torch.float64)
    return out if dtype is None else out.to(dtype)


def array_real(value: Any) -> torch.Tensor:
    """The value in the floating type in which numpy computes roots, exponentials and quotients of it."""
    value = array_in(value)
    if value.dtype.is_floating_point:
        return value
    return value.to(
        {torch.bool: torch.float16, torch.int8: torch.float16, torch.uint8: torch.float16, torch.int16: torch.float32}.get(value.dtype, torch.float64)
    )


def array_together(*values: Any) -> list[torch.Tensor]:
    """Arrays and numbers in their common type."""
    held = [array_in(v) for v in values]
    kind: Any = None
    for value, tensor in zip(values, held):
        if not array_weak(value):
            kind = tensor.dtype if kind is None else array_promote(kind, tensor.dtype)
    for value, tensor in zip(values, held):
        if array_weak(value):
            level = 2 if tensor.dtype.is_floating_point else 1 if tensor.dtype is torch.int64 else 0
            have = -1 if kind is None else 2 if kind.is_floating_point else 0 if kind is torch.bool else 1
            kind = tensor.dtype if level > have else kind
    return [t.to(kind) for t in held]


def array_op(sign: str, a: Any, b: Any) -> Any:
    """`a sign b` for an operator of arithmetic."""
    if not any(isinstance(v, (torch.Tensor, numpy.ndarray, numpy.generic)) for v in (a, b)):
        return {
            "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b, "//": lambda: a // b, "%": lambda: a % b,
            "**": lambda: a**b, "@": lambda: a @ b,
        }[sign]()  # fmt: skip
    a, b = array_together(a, b)
    if sign == "/":
        return torch.true_divide(array_real(a), array_real(b))
    named = {"+": "add", "-": "sub", "*": "mul", "//": "floor_divide", "%": "remainder", "**": "pow", "@": "matmul"}
    return getattr(torch, named[sign])(a, b)


def array_unary(name: str, x: Any, **_: Any) -> Any:
    """numpy.name(x), element by element."""
    if isinstance(x, (bool, int, float)):
        return getattr(numpy, name)(x).item()
    keeps = ("floor", "ceil", "trunc", "abs", "absolute", "square", "sign", "negative", "isnan", "isinf", "isfinite", "logical_not")
    other = {"arctan": "atan", "arcsin": "asin", "arccos": "acos", "rint": "round", "fabs": "abs", "absolute": "abs", "negative": "neg"}
    x = array_in(x) if name in keeps else array_real(x)
    out = getattr(torch, other.get(name, name))(x)
    return torch.where(torch.isnan(x), x, out) if name == "sign" and x.dtype.is_floating_point else out


def array_binary(name: str, a: Any, b: Any, **_: Any) -> Any:
    """numpy.name(a, b), element by element."""
    signs = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/", "power": "**", "mod": "%", "remainder": "%"}
    signs |= {"floor_divide": "//", "matmul": "@"}
    if name in signs:
        return array_op(signs[name], a, b)
    a, b = array_together(a, b)
    if name in ("arctan2", "hypot"):
        a, b = array_real(a), array_real(b)
    return getattr(torch, {"arctan2": "atan2", "equal": "eq", "not_equal": "ne"}.get(name, name))(a, b)


def array_reduce(name: str, x: Any, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> torch.Tensor:
    """numpy.name(x, axis) for sums, extremes, means and their like."""
    x = array_in(x)
    name = {"amax": "max", "amin": "min"}.get(name, name)
    dims = list(range(x.dim())) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    if name in ("mean", "std", "var", "median") and not x.dtype.is_floating_point:
        x = x.to(torch.float64)
    if dtype is not None:
        x = x.to(array_dtype(dtype))
    if name in ("any", "all"):
        x = x != 0
    if name in ("argmax", "argmin"):
        return getattr(torch, name)(x, dim=axis, keepdim=keepdims)
    if name in ("max", "min"):
        return getattr(torch, "a" + name)(x, dim=dims, keepdim=keepdims)
    if name == "ptp":
        return torch.amax(x, dim=dims, keepdim=keepdims) - torch.amin(x, dim=dims, keepdim=keepdims)
    if name in ("std", "var"):
        return getattr(torch, name)(x, dim=dims, correction=ddof, keepdim=keepdims)
    if name == "median":
        return array_quantile(x, 0.5, axis, keepdims=keepdims)
    if name == "prod":
        return torch.prod(x.reshape(-1), 0) if axis is None else torch.prod(x, axis, keepdim=keepdims)
    if name == "count_nonzero":
        return (x != 0).sum(dims)
    return getattr(torch, name)(x, dim=dims, keepdim=keepdims)


def array_quantile(x: Any, q: Any, axis: Any = None, keepdims: bool = False, method: str = "linear", **other: Any) -> torch.Tensor:
    """numpy.quantile between ranks, as numpy's _lerp computes it, or at a rank. q: one number or several; axis: one or several."""
    if other or method not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise TypeError(f"numpy.quantile with {', '.join(other) or method} has no counterpart here")
    x = array_real(x) if array_in(x).dtype.is_floating_point else array_in(x, torch.float64)
    dims = sorted(d % x.dim() for d in (range(x.dim()) if axis is None else [axis] if isinstance(axis, int) else axis))
    kept = [1 if d in dims else n for d, n in enumerate(x.shape)]
    ranked = x.movedim(dims, list(range(len(dims)))).flatten(0, len(dims) - 1) if len(dims) > 1 else x.movedim(dims[0], 0)
    ranked = torch.sort(ranked, dim=0)[0]
    several = not array_weak(q) and array_in(q).dim()
    kind = x.dtype if array_weak(q) else array_promote(x.dtype, array_in(q).dtype)
    last = torch.scalar_tensor(ranked.shape[0] - 1, dtype=torch.int64)
    place = array_in(q, torch.float64).reshape(-1) * last
    if method in ("lower", "higher", "nearest"):
        place = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}[method](place)
    low = torch.floor(place)
    part = (place - low if method != "midpoint" else torch.where(place == low, 0.0, 0.5)).to(kind).reshape([-1, *[1] * (ranked.dim() - 1)])
    low = low.to(torch.int64)
    a, b = (ranked.index_select(0, torch.minimum(i, last)).to(kind) for i in (low, low + 1))
    gap = b - a
    out = torch.where(part >= 0.5, b - gap * (1 - part), a + gap * part)
    if method in ("lower", "higher", "nearest"):
        out = a.to(x.dtype)
    if x.dtype.is_floating_point:
        out = torch.where(torch.isnan(ranked.narrow(0, ranked.shape[0] - 1, 1)), math.nan, out)
    if keepdims:
        out = out.reshape([out.shape[0], *kept])
    return out if several else out.squeeze(0)


def array_percentile(x: Any, q: Any, axis: Any = None, **options: Any) -> torch.Tensor:
    """numpy.percentile."""
    return array_quantile(x, q / 100 if array_weak(q) else array_in(q, torch.float64) / 100, axis, **options)


def array_interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> torch.Tensor:
    """numpy.interp for rising xp: float64, as numpy's compiled_base.c computes it (values outside take the ends)."""
    x, xp, fp = (array_in(v, torch.float64) for v in (x, xp, fp))
    shape, x = x.shape, x.reshape(-1)
    last = xp.shape[0] - 1
    at = (xp.unsqueeze(0) <= x.unsqueeze(1)).sum(1) - 1
    low = at.clamp(min=0)
    high = torch.minimum(low + 1, torch.scalar_tensor(last, dtype=torch.int64))
    x0, x1, f0, f1 = xp.index_select(0, low), xp.index_select(0, high), fp.index_select(0, low), fp.index_select(0, high)
    slope = (f1 - f0) / (x1 - x0)
    out = slope * (x - x0) + f0
    again = slope * (x - x1) + f1
    out = torch.where(torch.isnan(out), torch.where(torch.isnan(again) & (f0 == f1), f0, again), out)
    out = torch.where((x0 == x) | (low == last), f0, out)
    first = fp.narrow(0, 0, 1) if left is None else array_in(left, torch.float64)
    final = fp.narrow(0, last, 1) if right is None else array_in(right, torch.float64)
    out = torch.where(x < xp.narrow(0, 0, 1), first, torch.where(x > xp.narrow(0, last, 1), final, out))
    return (torch.where(torch.isnan(x), x, out) if last else out).reshape(shape)


def array_arange(*ends: Any, dtype: Any = None, **_: Any) -> torch.Tensor:
    """numpy.arange."""
    whole = all(isinstance(e, (int, torch.SymInt)) for e in ends)
    out = torch.arange(*ends, dtype=torch.int64 if whole else torch.float64)
    return out if dtype is None else out.to(array_dtype(dtype))


def array_linspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None) -> torch.Tensor:
    """numpy.linspace between two numbers."""
    first, final = array_in(start, torch.float64), array_in(stop, torch.float64)
    place = torch.arange(num, dtype=torch.float64)
    parts = torch.sym_max(num - 1, 1) if endpoint else num
    out = place * ((final - first) / torch.scalar_tensor(parts, dtype=torch.float64)) + first
    if endpoint and num != 1:
        out = torch.where(place == num - 1, final, out)
    return out if dtype is None else (out.floor() if not array_dtype(dtype).is_floating_point else out).to(array_dtype(dtype))


def array_filled(shape: Any, fill: Any, dtype: Any = None, like: Any = None) -> torch.Tensor:
    """numpy.zeros, ones, full and their _like forms: float64, for a fill value its own type."""
    kind = array_dtype(dtype) or (array_in(like).dtype if like is not None else array_in(fill).dtype)
    sizes = array_in(like).shape if like is not None else [shape] if isinstance(shape, (int, torch.SymInt)) else list(shape)
    return array_in(fill, kind).expand(sizes).clone()


def array_where(test: Any, *both: Any) -> Any:
    """numpy.where."""
    test = array_in(test)
    if not both:
        return (test != 0).nonzero(as_tuple=True)
    a, b = array_together(*both)
    return torch.where(test.to(torch.bool), a, b)


def array_clip(x: Any, low: Any = None, high: Any = None, **other: Any) -> torch.Tensor:
    """numpy.clip."""
    for bound, pick in ((other.get("a_min", other.get("min", low)), torch.maximum), (other.get("a_max", other.get("max", high)), torch.minimum)):
        if bound is not None:
            x = pick(*array_together(x, bound))
    return array_in(x)


def array_join(how: str, items: Any, axis: int = 0) -> torch.Tensor:
    """numpy.stack, concatenate, vstack, hstack, column_stack and dstack."""
    if getattr(items, "is_rows", False):
        return stack_list(items, axis) if how == "stack" or (how == "vstack" and items.data.dim() == 2) else cat_list(items, axis)
    parts = array_together(*[array_in(i) for i in items])
    if how == "vstack":
        parts = [p.reshape(1, -1) if p.dim() < 2 else p for p in parts]
    if how == "hstack":
        axis = 0 if parts[0].dim() < 2 else 1
    if how in ("column_stack", "dstack"):
        parts, axis = [torch.atleast_2d(p).mT if how == "column_stack" and p.dim() < 2 else p for p in parts], 1
    if how == "dstack":
        parts, axis = [torch.atleast_3d(p) for p in parts], 2
    return torch.stack(parts, axis) if how == "stack" else torch.cat(parts, axis)


def array_order(name: str, x: Any, axis: Any = -1, **_: Any) -> torch.Tensor:
    """numpy.sort and argsort."""
    x, dim = (array_in(x).reshape(-1), 0) if axis is None else (array_in(x), axis)
    values, places = torch.sort(x, dim=dim, stable=True)
    return values if name == "sort" else places


def array_shaped(name: str, x: Any, *args: Any, **options: Any) -> Any:
    """Functions that move or repeat elements: reshape, transpose, repeat, tile, flip, cumsum, diff and their like."""
    x = array_in(x)
    axis = options.get("axis", args[0] if args else None)
    if name == "reshape":
        return x.reshape(*args)
    if name == "transpose":
        order = args[0] if len(args) == 1 and not isinstance(args[0], int) else args or options.get("axes")
        return x.permute(list(order or range(x.dim() - 1, -1, -1)))
    if name in ("flatten", "ravel"):
        return x.reshape(-1).clone()
    if name == "repeat":
        dim = options.get("axis", args[1] if len(args) > 1 else None)
        return torch.repeat_interleave(x.reshape(-1) if dim is None else x, args[0], dim=0 if dim is None else dim)
    if name in ("flip", "flipud", "fliplr"):
        dims = {"flipud": 0, "fliplr": 1}.get(name, axis)
        return torch.flip(x, list(range(x.dim())) if dims is None else [dims] if isinstance(dims, int) else list(dims))
    if name in ("cumsum", "cumprod"):
        x = x if x.dtype.is_floating_point else x.to(torch.int64)
        return getattr(torch, name)(x.reshape(-1) if axis is None else x, 0 if axis is None else axis)
    if name == "diff":
        return torch.diff(x, args[0] if args else options.get("n", 1), dim=options.get("axis", args[1] if len(args) > 1 else -1))
    if name == "roll":
        return torch.roll(x, args[0], options.get("axis", args[1] if len(args) > 1 else None))
    if name == "take":
        dim = options.get("axis", args[1] if len(args) > 1 else None)
        index = array_in(args[0], torch.int64)
        held, dim = (x.reshape(-1), 0) if dim is None else (x, dim % x.dim())
        picked = held.index_select(dim, torch.where(index < 0, index + held.shape[dim], index).reshape(-1))
        return picked.reshape([*held.shape[:dim], *index.shape, *held.shape[dim + 1 :]])
    if name == "round":
        digits = options.get("decimals", args[0] if args else 0)
        return torch.round(x * 10.0**digits) / 10.0**digits if digits else torch.round(x)
    if name == "squeeze":
        return x.squeeze() if axis is None else x.squeeze(axis)
    if name == "nonzero":
        return x.nonzero(as_tuple=True)
    if name == "tile":
        return (
            x.repeat(*([args[0]] if isinstance(args[0], int) else args[0]))
            if x.dim() < 2 or not isinstance(args[0], int)
            else x.repeat(*[1] * (x.dim() - 1), args[0])
        )
    return getattr(torch, {"expand_dims": "unsqueeze", "swapaxes": "swapaxes"}.get(name, name))(x, *args, *options.values())


def array_method(x: Any, name: str, *args: Any, **options: Any) -> Any:
    """x.name(...) where x may be an array that has become a tensor."""
    if not isinstance(x, torch.Tensor):
        return getattr(x, name)(*args, **options)
    if name == "astype":
        return x.detach().to(array_dtype(args[0] if args else options["dtype"]), copy=True)
    if name == "copy":
        return x.clone()
    if name == "clip":
        return array_clip(x, *args, **options)
    if name == "dot":
        return array_op("@", x, args[0])
    if name == "argsort":
        return array_order(name, x, *args, **options)
    if name in ("mean", "sum", "max", "min", "std", "var", "argmax", "argmin", "prod", "any", "all", "ptp"):
        return array_reduce(name, x, *args, **options)
    return array_shaped(name, x, *args, **options)
