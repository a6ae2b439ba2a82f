"""What holds while a model with complex numbers is captured, so that its dynamic axes stay dynamic."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def complex_capture() -> Iterator[None]:
    """While active, writes into slices are not searched for overlap: the search compares dynamic sizes with the example's."""
    before = torch._debug_has_internal_overlap
    torch._debug_has_internal_overlap = lambda input: 2
    try:
        yield
    finally:
        torch._debug_has_internal_overlap = before


def complex_mean(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    """torch.mean; that of complex numbers as a sum over a count in a tensor, as the number itself would fix dynamic axes."""
    if not (dtype.is_complex if dtype is not None else input.is_complex()):
        return torch.mean(input, dtype=dtype) if dim is None else torch.mean(input, dim, keepdim, dtype=dtype)
    dims = list(range(input.ndim)) if dim is None or dim == () or dim == [] else [dim] if isinstance(dim, int) else list(dim)
    count: Any = 1
    for d in dims:
        count = count * input.shape[d]
    total = torch.sum(input, dims, keepdim, dtype=dtype) if dims else input.to(dtype or input.dtype)
    return total / torch.scalar_tensor(count, dtype=total.real.dtype)


def complex_mean_overrides() -> dict[Any, Any]:
    """Means."""
    return {torch.mean: complex_mean, torch.Tensor.mean: complex_mean}
