"""Grouped matrix products (mixtures of experts): rows that are sorted by group, each multiplied by its group's matrix.

Every group's matrix is applied to all rows and the group's own are kept: exact, and as many products as there are groups, which is known when the
graph is made. Rows behind the last offset are zero, as in transformers' fallback; torch leaves them undefined.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def group_of(size: Any, offsets: Tensor) -> Tensor:
    """[size]: how many of the ends lie at or before each place, so the number of its group."""
    places = torch.arange(size, dtype=torch.int64)
    return (places.unsqueeze(-1) >= offsets.to(torch.int64).unsqueeze(0)).to(torch.int64).sum(-1)


def rows_by_group(rows: Tensor, matrices: Tensor, offsets: Tensor) -> Tensor:
    """[s, k] rows, [g, k, n] matrices, [g] ends of the groups -> [s, n]."""
    group = group_of(rows.shape[0], offsets).unsqueeze(-1)
    out = torch.zeros_like(rows[:, :1] * matrices[0, :1])
    for g in range(matrices.shape[0]):
        out = torch.where(group == g, rows @ matrices[g], out)
    return out


def grouped_mm(a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None) -> Tensor:
    """aten._grouped_mm: groups along the rows of `a`, the columns of `b`, or what is summed over; without offsets a batch of products."""
    if offs is None:
        out = torch.bmm(a, b)
    elif a.dim() == 2 and b.dim() == 3:
        out = rows_by_group(a, b, offs)
    elif a.dim() == 3:
        out = rows_by_group(b.transpose(0, 1), a.transpose(1, 2), offs).transpose(0, 1)
    else:
        group = group_of(a.shape[1], offs)
        parts = [torch.where(group == g, a, 0.0) @ torch.where((group == g).unsqueeze(-1), b, 0.0) for g in range(offs.shape[0])]
        out = torch.stack(parts)
    out = out if bias is None else out + bias
    return out if out_dtype is None else out.to(out_dtype)


def grouped_mm_fallback(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:  # the names of the operator's schema
    """transformers.grouped_mm_fallback."""
    return rows_by_group(input, weight, offs)


GROUPED_DECOMPOSITIONS = {"aten._grouped_mm.default": grouped_mm, "transformers.grouped_mm_fallback.default": grouped_mm_fallback}
"""Operator -> torch function with its schema."""
