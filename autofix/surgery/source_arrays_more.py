"""More of NumPy on tensors: norms, averages, the way back to torch. Pasted into rewritten files like source_runtime.py."""

# mypy: disable-error-code="no-untyped-call,arg-type,assignment,var-annotated,no-any-return,union-attr,attr-defined,unused-ignore,misc"
from __future__ import annotations

# RUNTIME BEGINS
from typing import Any

import torch

from autofix.surgery.source_arrays import array_in, array_real, array_reduce, array_together


def array_rows(x: Any) -> Any:
    """What a loop over an array runs over."""
    return x


def array_norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    """numpy.linalg.norm of vectors, by default the Euclidean norm of all elements."""
    x = array_in(x) if array_in(x).dtype.is_floating_point else array_in(x, torch.float64)
    if ord is None or (ord == 2 and (axis is not None or x.dim() == 1)):
        return torch.sqrt((x * x).sum(list(range(x.dim())) if axis is None else axis, keepdim=keepdims))
    return torch.linalg.vector_norm(x, ord, axis, keepdims) if axis is not None or x.dim() == 1 else torch.linalg.norm(x, ord)


def array_average(x: Any, axis: Any = None, weights: Any = None) -> torch.Tensor:
    """numpy.average."""
    if weights is None:
        return array_reduce("mean", x, axis)
    x, w = array_together(array_in(x), array_in(weights))
    x, w = (array_real(v) for v in (x, w))
    if axis is not None and w.dim() == 1:
        w = w.reshape([-1 if d == axis % x.dim() else 1 for d in range(x.dim())]).expand(x.shape)
    dims = list(range(x.dim())) if axis is None else axis
    return (x * w).sum(dims) / w.sum(dims)


def tensor_from(data: Any, dtype: Any = None, **_: Any) -> torch.Tensor:
    """torch.from_numpy(data), torch.tensor(data) and their like, for an array that is a tensor already."""
    if isinstance(data, (list, tuple)) and any(isinstance(d, torch.Tensor) for d in data):
        data = array_in(data)
    out = data.detach().clone() if isinstance(data, torch.Tensor) else torch.as_tensor(data)
    return out if dtype is None else out.to(dtype)
