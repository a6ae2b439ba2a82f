"""Translations of maxima and minima that keep NaN, which ONNX Runtime's ReduceMax, ArgMax and Clip may drop; ONNX operators, not torch's.

As in ATen: a reduction with NaN among its entries gives NaN, and the index of the first NaN.
"""

from __future__ import annotations

import math
from typing import Any


def onnx_operators() -> Any:
    """onnxscript's operators, untyped."""
    from onnxscript import opset18

    return opset18


def is_floating(x: Any) -> bool:
    """Whether an ONNX value has a floating dtype that can hold NaN."""
    return str(getattr(x.dtype, "name", x.dtype)) in ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")


def axes_list(x: Any, dim: Any) -> list[int]:
    """Axes as plain ints, all where none is named."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return list(range(len(x.shape)))
    return [dim] if isinstance(dim, int) else [int(d) for d in dim]


def reduce_keeping_nan(x: Any, dim: Any, keepdim: bool, greatest: bool) -> Any:
    """ReduceMax or ReduceMin over axes, NaN where an entry is NaN."""
    op = onnx_operators()

    axes = axes_list(x, dim)
    if not axes:
        return op.Identity(x)
    where = op.Constant(value_ints=axes)
    value = op.ReduceMax(x, where, keepdims=int(keepdim)) if greatest else op.ReduceMin(x, where, keepdims=int(keepdim))
    if not is_floating(x):
        return value
    spoiled = op.Cast(op.ReduceMax(op.Cast(op.IsNaN(x), to=6), where, keepdims=int(keepdim)), to=9)
    return op.Where(spoiled, op.CastLike(op.Constant(value_float=math.nan), x), value)


def place_keeping_nan(x: Any, axis: int, greatest: bool) -> Any:
    """ArgMax or ArgMin along an axis, kept with size 1; of several NaN the first."""
    op = onnx_operators()

    if not is_floating(x):
        return op.ArgMax(x, axis=axis, keepdims=1) if greatest else op.ArgMin(x, axis=axis, keepdims=1)
    bad = op.IsNaN(x)
    flags = op.Cast(bad, to=6)
    clean = op.Where(bad, op.CastLike(op.Constant(value_float=-math.inf if greatest else math.inf), x), x)
    best = op.ArgMax(clean, axis=axis, keepdims=1) if greatest else op.ArgMin(clean, axis=axis, keepdims=1)
    spoiled = op.Cast(op.ReduceMax(flags, op.Constant(value_ints=[axis]), keepdims=1), to=9)
    return op.Where(spoiled, op.ArgMax(flags, axis=axis, keepdims=1), best)


def both_along(x: Any, dim: int, keepdim: bool, greatest: bool) -> tuple[Any, Any]:
    """(values, indices) of max or min along an axis."""
    op = onnx_operators()

    if len(x.shape) == 0:
        return op.Identity(x), op.Constant(value_int=0)
    place = place_keeping_nan(x, dim, greatest)
    value = op.GatherElements(x, place, axis=dim)
    if keepdim:
        return value, place
    axis = op.Constant(value_ints=[dim])
    return op.Squeeze(value, axis), op.Squeeze(place, axis)


def place_of(x: Any, dim: Any, keepdim: bool, greatest: bool) -> Any:
    """argmax or argmin along an axis, or in the flattened tensor."""
    op = onnx_operators()

    if len(x.shape) == 0:
        return op.Constant(value_int=0)
    if dim is None:
        place = place_keeping_nan(op.Reshape(x, op.Constant(value_ints=[-1])), 0, greatest)
        return op.Reshape(place, op.Constant(value_ints=[1] * len(x.shape) if keepdim else [])) if keepdim else op.Squeeze(place)
    place = place_keeping_nan(x, dim, greatest)
    return place if keepdim else op.Squeeze(place, op.Constant(value_ints=[dim]))


def onnx_amax(self: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """aten.amax."""
    return reduce_keeping_nan(self, dim, keepdim, True)


def onnx_amin(self: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """aten.amin."""
    return reduce_keeping_nan(self, dim, keepdim, False)


def onnx_max(self: Any) -> Any:
    """aten.max."""
    return reduce_keeping_nan(self, None, False, True)


def onnx_min(self: Any) -> Any:
    """aten.min."""
    return reduce_keeping_nan(self, None, False, False)


def onnx_max_dim(self: Any, dim: int, keepdim: bool = False) -> Any:
    """aten.max.dim."""
    return both_along(self, dim, keepdim, True)


def onnx_min_dim(self: Any, dim: int, keepdim: bool = False) -> Any:
    """aten.min.dim."""
    return both_along(self, dim, keepdim, False)


def onnx_argmax(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """aten.argmax."""
    return place_of(self, dim, keepdim, True)


def onnx_argmin(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """aten.argmin."""
    return place_of(self, dim, keepdim, False)


NAN_TRANSLATIONS = {
    "aten.amax.default": onnx_amax,
    "aten.amin.default": onnx_amin,
    "aten.max.default": onnx_max,
    "aten.min.default": onnx_min,
    "aten.max.dim": onnx_max_dim,
    "aten.min.dim": onnx_min_dim,
    "aten.argmax.default": onnx_argmax,
    "aten.argmin.default": onnx_argmin,
}
