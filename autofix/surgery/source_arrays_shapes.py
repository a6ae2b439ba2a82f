"""NumPy functions that pick, pad, cut, count and contract, on tensors. Pasted into rewritten files like source_runtime.py."""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
from typing import Any

import torch

from autofix.surgery.source_arrays import array_dtype, array_in, array_together, array_weak


def array_along(x: Any, index: Any, axis: Any = -1) -> torch.Tensor:
    """numpy.take_along_axis: the other axes are broadcast, negative places count from the back."""
    x, index = array_in(x), array_in(index, torch.int64)
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = axis % x.dim()
    index = torch.where(index < 0, index + x.shape[axis], index)
    if all(d == axis or str(m) == str(n) for d, (m, n) in enumerate(zip(x.shape, index.shape))):
        return torch.gather(x, axis, index)
    sizes = [m if type(n) is int and n == 1 else n for m, n in zip(x.shape, index.shape)]
    held = x.expand([m if d == axis else n for d, (m, n) in enumerate(zip(x.shape, sizes))])
    return torch.gather(held, axis, index.expand([n if d == axis else m for d, (m, n) in enumerate(zip(sizes, index.shape))]))


def array_pad(x: Any, widths: Any, mode: str = "constant", constant_values: Any = 0, **other: Any) -> torch.Tensor:
    """numpy.pad with a constant, the edge, a reflection (the edge itself once or twice) or the other end; by places that are gathered."""
    if other:
        raise TypeError(f"numpy.pad with {', '.join(other)} has no counterpart here")
    x = array_in(x)
    pairs = [(widths, widths)] * x.dim() if array_weak(widths) else [p if isinstance(p, (list, tuple)) else (p, p) for p in widths]
    if not array_weak(widths) and all(array_weak(p) for p in widths):
        pairs = [(widths[0], widths[-1])] * x.dim()
    pairs = list(pairs) * x.dim() if len(pairs) == 1 else list(pairs)
    for dim, (before, after) in enumerate(pairs):
        if type(before) is int and type(after) is int and before == after == 0:
            continue
        size = x.shape[dim]
        if mode == "constant":
            value = constant_values[dim] if isinstance(constant_values, (list, tuple)) and len(constant_values) == x.dim() else constant_values
            ends = value if isinstance(value, (list, tuple)) else (value, value)
            blocks = [
                array_in(end, x.dtype).expand([n if d == dim else m for d, m in enumerate(x.shape)])
                for end, n in zip((ends[0], ends[-1]), (before, after))
            ]
            x = torch.cat([blocks[0], x, blocks[1]], dim)
            continue
        place = torch.arange(before + size + after) - before
        if mode == "edge":
            place = place.clamp(min=0)
            place = torch.minimum(place, torch.scalar_tensor(size - 1, dtype=torch.int64))
        elif mode == "wrap":
            place = torch.remainder(place, size)
        elif mode in ("reflect", "symmetric"):
            period = torch.scalar_tensor(2 * size - 2 if mode == "reflect" else 2 * size, dtype=torch.int64).clamp(min=1)
            place = torch.remainder(place, period)
            place = torch.minimum(place, period - place - (0 if mode == "reflect" else 1))
        else:
            raise TypeError(f"numpy.pad with mode {mode} has no counterpart here")
        x = x.index_select(dim, place)
    return x


def array_einsum(equation: str, *arrays: Any, **_: Any) -> torch.Tensor:
    """numpy.einsum, in the operands' common type."""
    return torch.einsum(equation, *array_together(*[array_in(a) for a in arrays]))


def array_places(edges: Any, values: Any, right: bool = False) -> torch.Tensor:
    """How many of the sorted `edges` are less than each value (right: or equal): a count, so that NaN, which numpy sorts last, is exact."""
    edges, values = array_together(array_in(edges), array_in(values))
    held, nan = values.unsqueeze(-1), torch.isnan
    below = (edges <= held) if right else (edges < held)
    if values.dtype.is_floating_point:
        below = below | (nan(held) & (~nan(edges) | bool(right)))
    return below.sum(-1)


def array_search(a: Any, v: Any, side: str = "left", **_: Any) -> torch.Tensor:
    """numpy.searchsorted."""
    return array_places(a, v, side == "right")


def array_digitize(x: Any, bins: Any, right: bool = False) -> torch.Tensor:
    """numpy.digitize for rising bins."""
    return array_places(bins, x, not right)


def array_histogram(x: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None) -> Any:
    """numpy.histogram: as many bins of one width as asked for between two ends, or bins between given edges; (counts, edges)."""
    x = array_in(x).reshape(-1)
    if array_weak(bins):
        wide = x.to(torch.float64)
        low, high = (torch.amin(wide), torch.amax(wide)) if range is None else (array_in(r, torch.float64) for r in range)
        flat = low == high
        low, high = torch.where(flat, low - 0.5, low), torch.where(flat, high + 0.5, high)
        step = (high - low) / bins
        count = torch.arange(bins + 1, dtype=torch.float64)
        edges = torch.where(count == bins, high, count * step + low)
        edges, held = (edges.to(x.dtype), x) if x.dtype.is_floating_point else (edges, wide)
    else:
        edges, held = array_in(bins), x
    edges, values = array_together(edges, held)
    last = edges.shape[0] - 1
    place = array_places(edges, values, True) - 1
    place = torch.where(values == edges[-1], last - 1, place)
    inside = (values >= edges[0]) & (values <= edges[-1])
    kind = torch.int64 if weights is None else array_in(weights).dtype
    worth = inside.to(kind) if weights is None else torch.where(inside, array_in(weights).reshape(-1), 0)
    hit = place.unsqueeze(-1) == torch.arange(last)
    counts = torch.where(hit, worth.unsqueeze(-1), torch.zeros((), dtype=kind)).sum(0)
    edges = array_in(bins) if not array_weak(bins) else edges
    if density:
        counts = counts.to(torch.float64) / (edges[1:] - edges[:-1]).to(torch.float64) / counts.sum()
    return counts, edges


def array_bincount(x: Any, weights: Any = None, minlength: Any = 0) -> torch.Tensor:
    """numpy.bincount: as many counts as the largest number asks for."""
    x = array_in(x, torch.int64)
    return torch.bincount(x, None if weights is None else array_in(weights, torch.float64), minlength)


def array_grid(*axes: Any, indexing: str = "xy", **_: Any) -> list[torch.Tensor]:
    """numpy.meshgrid; each grid keeps its own type."""
    order = [1, 0, *range(2, len(axes))] if indexing == "xy" and len(axes) > 1 else list(range(len(axes)))
    sizes = [array_in(axes[k]).numel() for k in order]
    return [array_in(a).reshape([-1 if d == k else 1 for d in range(len(axes))]).expand(sizes) for a, k in zip(axes, order)]


def array_cut(name: str, x: Any, parts: Any, axis: int = 0) -> list[torch.Tensor]:
    """numpy.split and array_split, hsplit and vsplit."""
    x = array_in(x)
    axis = 1 if name == "hsplit" and x.dim() > 1 else 0 if name in ("hsplit", "vsplit") else axis
    return list(torch.tensor_split(x, parts if array_weak(parts) else [int(p) for p in parts], axis))


def array_moved(name: str, x: Any, *args: Any, **options: Any) -> Any:
    """Functions that lay elements out anew: moveaxis, broadcast_to, diag, tril, rot90, and their like."""
    x = array_in(x)
    if name == "broadcast_to":
        shape = args[0] if args else options["shape"]
        return x.expand([shape] if array_weak(shape) else list(shape))
    if name in ("atleast_1d", "atleast_2d", "atleast_3d"):
        return x if x.dim() >= int(name[8]) else torch.atleast_2d(x) if name == "atleast_2d" else getattr(torch, name)(x)
    if name == "nan_to_num":
        return torch.nan_to_num(x, args[1] if len(args) > 1 else options.get("nan", 0.0), options.get("posinf"), options.get("neginf"))
    if name == "argwhere":
        return x.nonzero()
    if name == "flatnonzero":
        return x.reshape(-1).nonzero().squeeze(-1)
    if name == "trace":
        return torch.diagonal(x, *args, **options).sum(-1)
    if name == "diagonal":
        return torch.diagonal(x, args[0] if args else options.get("offset", 0), options.get("axis1", 0), options.get("axis2", 1))
    k = args[0] if args else options.get("k", 0)
    if name in ("diag", "tril", "triu"):
        return getattr(torch, name)(x, k)
    if name == "rot90":
        return torch.rot90(x, args[0] if args else options.get("k", 1), args[1] if len(args) > 1 else options.get("axes", (0, 1)))
    return torch.moveaxis(x, *args, *options.values())


def array_running(name: str, x: Any, axis: int = 0) -> torch.Tensor:
    """numpy.maximum.accumulate and minimum.accumulate."""
    return getattr(torch, "cummax" if name == "maximum" else "cummin")(array_in(x), axis)[0]


def array_products(name: str, a: Any, b: Any, *args: Any, **options: Any) -> torch.Tensor:
    """numpy.heaviside, inner, vdot, kron, cross, tensordot, convolve and correlate (the mode's default as numpy has it)."""
    a, b = array_together(*[v if array_weak(v) else array_in(v) for v in (a, b)])
    if name in ("inner", "vdot"):
        return (a.reshape(-1) * b.reshape(-1)).sum() if name == "vdot" or a.dim() == b.dim() == 1 else torch.tensordot(a, b, ([-1], [-1]))
    if name == "tensordot":
        axes = args[0] if args else options.get("axes", 2)
        return torch.tensordot(a, b, axes if array_weak(axes) else [[i] if array_weak(i) else list(i) for i in axes])
    if name == "kron":
        return torch.kron(a, b)
    if name == "heaviside":
        return torch.where(torch.isnan(a), a, torch.where(a == 0, b, (a > 0).to(a.dtype)))
    if name == "cross":
        return torch.linalg.cross(a, b, dim=options.get("axis", -1))
    mode = args[0] if args else options.get("mode", "full" if name == "convolve" else "valid")
    kind = a.dtype
    if not kind.is_floating_point:
        a, b = a.to(torch.float64), b.to(torch.float64)
    n, m = a.shape[0], b.shape[0]
    kernel = torch.flip(b, [0]) if name == "convolve" else b
    full = torch.nn.functional.conv1d(a.reshape(1, 1, -1), kernel.reshape(1, 1, -1), padding=0 if isinstance(m, torch.SymInt) else m - 1).reshape(-1)
    if isinstance(m, torch.SymInt) or (not isinstance(n, torch.SymInt) and n < m and mode != "full"):
        raise TypeError(f"numpy.{name} with a filter longer than the signal has no counterpart here")
    start, length = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n), "valid": (m - 1, n - m + 1)}[mode]
    out = full.narrow(0, start, length)
    return out if kind.is_floating_point else torch.round(out).to(kind)


def array_linalg(name: str, *arrays: Any, **options: Any) -> Any:
    """numpy.linalg.name of matrices, in their own type where it is a real one, else in float64."""
    held = array_together(*[array_in(a) for a in arrays]) if name != "matrix_power" else [array_in(arrays[0])]
    held = [a if a.dtype.is_floating_point else a.to(torch.float64) for a in held]
    return getattr(torch.linalg, name)(*held, *arrays[len(held) :], **options)


def array_fft(name: str, x: Any, n: Any = None, axis: Any = -1, **options: Any) -> torch.Tensor:
    """numpy.fft.name; of whole numbers in float64."""
    if name.endswith("freq"):
        return getattr(torch.fft, name)(x, n if n is not None else options.get("d", 1.0), dtype=torch.float64)
    x = array_in(x)
    x = x if x.dtype.is_floating_point or x.dtype.is_complex else x.to(torch.float64)
    if name.endswith("shift"):
        return getattr(torch.fft, name)(x, options.get("axes", n))
    return getattr(torch.fft, name)(x, n, axis, options.get("norm"))


def array_close(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> torch.Tensor:
    """numpy.isclose."""
    return torch.isclose(*array_together(a, b), rtol=rtol, atol=atol, equal_nan=equal_nan)


def array_member(x: Any, held: Any, **_: Any) -> torch.Tensor:
    """numpy.isin."""
    x, held = array_together(array_in(x), array_in(held).reshape(-1))
    return (x.unsqueeze(-1) == held).any(-1)


def array_eye(n: Any, m: Any = None, k: int = 0, dtype: Any = None) -> torch.Tensor:
    """numpy.eye and identity."""
    rows, columns = torch.arange(n).unsqueeze(1), torch.arange(n if m is None else m)
    return (columns - rows == k).to(torch.float64 if dtype is None else array_dtype(dtype))


def array_trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> torch.Tensor:
    """numpy.trapezoid."""
    y = array_in(y) if array_in(y).dtype.is_floating_point else array_in(y, torch.float64)
    size = y.shape[axis]
    if x is None:
        step: Any = dx
    else:
        x = array_in(x)
        step = torch.diff(x, dim=-1 if x.dim() == 1 else axis)
        if x.dim() == 1:
            step = step.reshape([-1 if d == axis % y.dim() else 1 for d in range(y.dim())])
        step, y = array_together(step, y)
    return (step * (y.narrow(axis, 1, size - 1) + y.narrow(axis, 0, size - 1)) / 2.0).sum(axis)
