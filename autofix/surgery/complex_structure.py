"""Shapes, indexing, reductions, factories and products of complex numbers, written with real parts.

Every rule has the signature rule(func, *args, **kwargs) of the ATen operator it stands for.
"""

from __future__ import annotations

from typing import Any

import torch

from autofix.surgery.complex_elementwise import complex_same, complex_to_copy, pair_operands
from autofix.surgery.complex_tensor import PAIR_REAL_DTYPES, RealPair, pair_broadcast, pair_of, pair_parts, pair_real_dtype


def complex_each_part(func: Any, *args: Any, **kwargs: Any) -> Any:
    """A linear operator with real coefficients: the same on both parts; sequences of results are paired up."""
    if isinstance(kwargs.get("dtype"), torch.dtype):
        kwargs["dtype"] = PAIR_REAL_DTYPES.get(kwargs["dtype"], kwargs["dtype"])
    dtype = pair_real_dtype(*[v for v in args if isinstance(v, RealPair)])
    dtype = kwargs.get("dtype") or dtype
    re = func(*[v.re if isinstance(v, RealPair) else v for v in args], **kwargs)
    im = func(*[v.im if isinstance(v, RealPair) else v for v in args], **kwargs)
    if isinstance(re, (tuple, list)):
        return type(re)(RealPair(r, i) for r, i in zip(re, im, strict=True))
    return RealPair(re, im)


def complex_reshape(func: Any, a: Any, shape: Any, *args: Any) -> Any:
    """view and reshape: the parts need not have the strides that a complex tensor would."""
    if isinstance(shape, torch.dtype):
        raise NotImplementedError("a view of complex numbers as another dtype")
    return RealPair(torch.reshape(a.re, shape), torch.reshape(a.im, shape))


def complex_broadcast_in_dim(func: Any, a: Any, shape: Any, dims: Any) -> Any:
    """prims.broadcast_in_dim: axis i of the operand becomes axis dims[i] of the result."""
    inserted = [axis for axis in range(len(shape)) if axis not in dims]
    parts = []
    for part in (a.re, a.im):
        for axis in inserted:
            part = torch.unsqueeze(part, axis)
        parts.append(part.expand(shape))
    return RealPair(parts[0], parts[1])


def complex_convert(func: Any, a: Any, dtype: torch.dtype) -> Any:
    """prims.convert_element_type."""
    return complex_to_copy(func, a, dtype=dtype)


def complex_scatter_like(func: Any, base: Any, *args: Any, **kwargs: Any) -> Any:
    """A write of values into a tensor: real parts into real parts, imaginary into imaginary; real operands have 0 there."""
    alpha = kwargs.pop("alpha", 1)
    if isinstance(alpha, complex) or alpha != 1:
        args = (*args[:-1], args[-1] * alpha)
    dtype = pair_real_dtype(base)
    target = pair_of(base, dtype)
    re_args: list[Any] = []
    im_args: list[Any] = []
    for position, value in enumerate(args):
        is_value = isinstance(value, (RealPair, complex)) or (position == len(args) - 1 and _is_numeric_value(value))
        if is_value and isinstance(value, torch.Tensor):
            pair = pair_of(value, dtype)
            re_args.append(pair.re)
            im_args.append(pair.im)
        elif is_value:
            re, im = pair_parts(value)
            re_args.append(re)
            im_args.append(0.0 if im is None else im)
        else:
            re_args.append(value)
            im_args.append(value)
    return RealPair(func(target.re, *re_args, **kwargs), func(target.im, *im_args, **kwargs))


def _is_numeric_value(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, torch.Tensor) and value.dtype is not torch.bool)


def complex_slice_scatter(func: Any, base: Any, src: Any, *args: Any, **kwargs: Any) -> Any:
    """slice_scatter, select_scatter, diagonal_scatter, copy: the source is the second argument."""
    if not isinstance(base, RealPair):
        return func(base, src.re, *args, **kwargs)
    dtype = base.re.dtype
    source = pair_of(src, dtype)
    return RealPair(func(base.re, source.re, *args, **kwargs), func(base.im, source.im, *args, **kwargs))


def complex_index_put(func: Any, base: Any, indices: Any, values: Any, accumulate: bool = False, *rest: Any) -> Any:
    """index_put of complex or real values."""
    target, source = pair_of(base), pair_of(values, pair_real_dtype(base))
    return RealPair(func(target.re, indices, source.re, accumulate, *rest), func(target.im, indices, source.im, accumulate, *rest))


def complex_masked_fill(func: Any, base: Any, mask: Any, value: Any) -> Any:
    """masked_fill with a complex or real number or 0-d tensor."""
    re, im = pair_parts(value)
    im = (torch.zeros_like(re) if isinstance(re, torch.Tensor) else 0.0) if im is None else im
    target = pair_of(base, pair_real_dtype(base))
    return RealPair(func(target.re, mask, re), func(target.im, mask, im))


def complex_where(func: Any, condition: Any, a: Any, b: Any) -> Any:
    """where with any mixture of complex, real and scalar operands."""
    dtype, ((ar, ai), (br, bi)) = pair_operands(a, b)
    re = torch.where(condition, ar, br)
    im = torch.where(condition, 0.0 if ai is None else ai, 0.0 if bi is None else bi)
    return RealPair(re.to(dtype), im.to(dtype).expand_as(re))


def complex_cat(func: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """cat and stack of complex and real tensors."""
    dtype = pair_real_dtype(*tensors)
    pairs = [pair_of(t, dtype) for t in tensors]
    return RealPair(func([p.re for p in pairs], *args, **kwargs), func([p.im for p in pairs], *args, **kwargs))


def complex_pad(func: Any, a: Any, pad: Any, value: Any = 0) -> Any:
    """constant_pad_nd."""
    re, im = pair_parts(value)
    return RealPair(func(a.re, pad, re), func(a.im, pad, 0.0 if im is None else im))


def complex_full(func: Any, size: Any, fill: Any = 0.0, *, dtype: Any = None, **kwargs: Any) -> Any:
    """full, zeros, ones, empty (as zeros), scalar_tensor with a complex dtype or value."""
    name = func.overloadpacket.__name__
    kind = PAIR_REAL_DTYPES[dtype] if dtype is not None else torch.get_default_dtype()
    if name == "scalar_tensor":
        size, fill = [], size
    re, im = pair_parts(1.0 if name == "ones" else fill if name in ("full", "scalar_tensor") else 0.0)
    return RealPair(torch.full(size, re, dtype=kind), torch.full(size, 0.0 if im is None else im, dtype=kind))


def complex_full_like(func: Any, like: Any, fill: Any = 0.0, *, dtype: Any = None, **kwargs: Any) -> Any:
    """full_like, zeros_like, ones_like, empty_like, new_zeros, new_ones, new_full, new_empty."""
    name = func.overloadpacket.__name__
    shape = like.shape
    if name.startswith("new_"):
        shape = fill
        fill = kwargs.pop("fill_value", 0.0)
    wanted = dtype or like.dtype
    value = 1.0 if name in ("ones_like", "new_ones") else fill if name in ("full_like", "new_full") else 0.0
    if not wanted.is_complex:
        return torch.full(shape, value, dtype=wanted)
    re, im = pair_parts(value)
    kind = PAIR_REAL_DTYPES[wanted]
    return RealPair(torch.full(shape, re, dtype=kind), torch.full(shape, 0.0 if im is None else im, dtype=kind))


def complex_new_full(func: Any, like: Any, size: Any, fill_value: Any, **kwargs: Any) -> Any:
    """new_full."""
    return complex_full_like(func, like, size, fill_value=fill_value, **kwargs)


def complex_fill(func: Any, a: Any, value: Any) -> Any:
    """fill with a number or a 0-d tensor."""
    re, im = pair_parts(value)
    if not isinstance(a, RealPair):
        return func(a, re)
    zero = torch.zeros_like(re) if isinstance(re, torch.Tensor) else 0.0
    return RealPair(func(a.re, re), func(a.im, zero if im is None else im))


def complex_arange(func: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """arange, linspace with a complex dtype and real bounds."""
    return pair_of(func(*args, dtype=PAIR_REAL_DTYPES[dtype] if dtype else None, **kwargs))


def complex_from_parts(func: Any, re: Any, im: Any) -> Any:
    """torch.complex."""
    parts = pair_broadcast(re, im)
    return RealPair(parts[0], parts[1])


def complex_polar(func: Any, size: Any, angle: Any) -> Any:
    """torch.polar."""
    return RealPair(*pair_broadcast(size * torch.cos(angle), size * torch.sin(angle)))


def complex_view_as_real(func: Any, a: Any) -> Any:
    """A last axis of 2 with the parts."""
    return torch.stack([a.re, a.im], -1)


def complex_view_as_complex(func: Any, x: Any) -> Any:
    """The inverse of view_as_real."""
    return RealPair(torch.select(x, -1, 0), torch.select(x, -1, 1))


def complex_real_part(func: Any, a: Any) -> Any:
    """The real part."""
    return a.re if isinstance(a, RealPair) else a


def complex_imaginary_part(func: Any, a: Any) -> Any:
    """The imaginary part."""
    return a.im


def complex_write(func: Any, a: Any, value: Any = 0.0, *rest: Any) -> Any:
    """copy_, fill_, zero_ inside a composite operator."""
    re, im = pair_parts(value)
    extra = () if func.overloadpacket.__name__ == "zero_" else (re,)
    func(a.re, *extra)
    if extra:
        extra = (torch.zeros_like(re) if im is None and isinstance(re, torch.Tensor) else 0.0 if im is None else im,)
    func(a.im, *extra)
    return a


def complex_nothing(func: Any, *args: Any, **kwargs: Any) -> None:
    """An assertion about dtypes that holds for the captured program."""


COMPLEX_EACH_PART = [
    "permute",
    "transpose",
    "t",
    "numpy_T",
    "expand",
    "unsqueeze",
    "squeeze",
    "slice",
    "select",
    "index",
    "index_select",
    "gather",
    "flip",
    "roll",
    "repeat",
    "diagonal",
    "split",
    "split_with_sizes",
    "unbind",
    "chunk",
    "unfold",
    "narrow",
    "cumsum",
    "sum",
    "mean",
    "nansum",
    "tril",
    "triu",
    "embedding",
    "take",
    "masked_select",
    "as_strided",
    "permute_copy",
    "transpose_copy",
    "t_copy",
    "expand_copy",
    "unsqueeze_copy",
    "squeeze_copy",
    "slice_copy",
    "select_copy",
    "diagonal_copy",
    "unbind_copy",
    "unfold_copy",
    "split_copy",
    "split_with_sizes_copy",
    "as_strided_copy",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "_adaptive_avg_pool2d",
    "adaptive_avg_pool1d",
    "trace",
    "diag_embed",
    "pixel_shuffle",
    "pixel_unshuffle",
    "repeat_interleave",
    "movedim",
    "flatten",
    "unflatten",
    "rot90",
    "im2col",
    "col2im",
    "index_select_copy",
    "tile",
]

COMPLEX_STRUCTURE: dict[str, Any] = {
    **dict.fromkeys(COMPLEX_EACH_PART, complex_each_part),
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "_reshape_alias", "view_copy", "_reshape_copy"), complex_reshape),
    "slice_scatter": complex_slice_scatter,
    "select_scatter": complex_slice_scatter,
    "diagonal_scatter": complex_slice_scatter,
    "as_strided_scatter": complex_slice_scatter,
    "copy": complex_slice_scatter,
    "index_put": complex_index_put,
    "_unsafe_index_put": complex_index_put,
    "scatter": complex_scatter_like,
    "scatter_add": complex_scatter_like,
    "index_add": complex_scatter_like,
    "index_copy": complex_scatter_like,
    "masked_scatter": complex_scatter_like,
    "masked_fill": complex_masked_fill,
    "where": complex_where,
    "cat": complex_cat,
    "stack": complex_cat,
    "constant_pad_nd": complex_pad,
    "full": complex_full,
    "zeros": complex_full,
    "ones": complex_full,
    "empty": complex_full,
    "scalar_tensor": complex_full,
    "full_like": complex_full_like,
    "zeros_like": complex_full_like,
    "ones_like": complex_full_like,
    "empty_like": complex_full_like,
    "new_zeros": complex_full_like,
    "new_ones": complex_full_like,
    "new_empty": complex_full_like,
    "new_full": complex_new_full,
    "fill": complex_fill,
    "arange": complex_arange,
    "linspace": complex_arange,
    "complex": complex_from_parts,
    "polar": complex_polar,
    "view_as_real": complex_view_as_real,
    "view_as_real_copy": complex_view_as_real,
    "view_as_complex": complex_view_as_complex,
    "view_as_complex_copy": complex_view_as_complex,
    "real": complex_real_part,
    "imag": complex_imaginary_part,
    "copy_": complex_write,
    "fill_": complex_write,
    "zero_": complex_write,
    "_assert_tensor_metadata": complex_nothing,
    "clone": complex_each_part,
    "contiguous": complex_each_part,
    "prims::view_of": complex_same,
    "prims::broadcast_in_dim": complex_broadcast_in_dim,
    "prims::convert_element_type": complex_convert,
}
