"""Diagonals by index, where the exporter multiplies by a mask and adds up, so that NaN and infinities beside the diagonal spread; logit."""

from __future__ import annotations

import torch
from torch import Tensor


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """aten.diagonal: entry (i + max(-offset, 0), i + max(offset, 0)) of the two axes, along a last axis."""
    moved = x.movedim((dim1, dim2), (-2, -1))
    down, right = max(-offset, 0), max(offset, 0)
    rows, columns = moved.shape[-2], moved.shape[-1]
    count = torch.sym_max(torch.sym_min(rows - down, columns - right), 0)  # type: ignore[no-untyped-call]
    each = torch.arange(count)
    return moved.flatten(-2).index_select(-1, (each + down) * columns + each + right)


def trace(x: Tensor) -> Tensor:
    """aten.trace: the sum of the diagonal."""
    return diagonal(x).sum()


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """aten.logit: log(z / (1 - z)) with z clamped to [eps, 1 - eps] but for NaN."""
    z = x if eps is None else torch.where(x < eps, torch.full((), eps, dtype=x.dtype), torch.where(x > 1.0 - eps, 1.0 - eps, x))
    return torch.log(z / (1.0 - z))


MOVE_DECOMPOSITIONS = {"aten.diagonal.default": diagonal, "aten.trace.default": trace, "aten.logit.default": logit}
