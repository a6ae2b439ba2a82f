"""Embedding with max_norm and EmbeddingBag as look-ups and reductions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def renormed_rows(rows: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Rows scaled to at most `max_norm`, as torch.embedding_renorm_ does: max_norm / (norm + 1e-7) where the norm is larger."""
    norms = torch.linalg.vector_norm(rows, norm_type, -1, keepdim=True)
    return torch.where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows)


def embedding_any(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """For torch.nn.functional.embedding; the weight stays as it is, and the other options only matter for gradients."""
    rows = weight[input]
    return rows if max_norm is None else renormed_rows(rows, max_norm, norm_type)


def bag_of_each(offsets: Tensor, count: Any) -> Tensor:
    """Number of the bag that each of `count` positions lies in; bags begin at `offsets` (not decreasing)."""
    return (torch.arange(count)[:, None] >= offsets[None]).sum(1) - 1


def embedding_bags(rows: Tensor, bag: Tensor, bags: Any, counts_in: Tensor, mode: str) -> Tensor:
    """Sum, mean or maximum of rows [n, width] by bag; rows with False in `counts_in` are left out, an empty bag gives zeros."""
    width = rows.shape[1]
    place = bag[:, None].expand(-1, width)
    number = torch.zeros(bags, dtype=rows.dtype).scatter_add(0, bag, counts_in.to(rows.dtype))[:, None]
    if mode == "max":
        low = torch.full((bags, width), float("-inf"), dtype=rows.dtype)
        best = low.scatter_reduce(0, place, torch.where(counts_in[:, None], rows, float("-inf")), "amax")
        return torch.where(number > 0, best, torch.zeros_like(best))
    total = torch.zeros(bags, width, dtype=rows.dtype).scatter_add(0, place, torch.where(counts_in[:, None], rows, torch.zeros_like(rows)))
    return total / number.clamp(min=1) if mode == "mean" else total


def embedding_bag_any(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """For torch.nn.functional.embedding_bag."""
    if not weight.is_floating_point():  # the older order of arguments: weight first
        input, weight = weight, input
    rows = weight[input]
    if max_norm is not None:
        rows = renormed_rows(rows, max_norm, norm_type)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[..., None]
    counts = torch.ones_like(input, dtype=torch.bool) if padding_idx is None else input != padding_idx % weight.shape[0]
    if input.dim() == 2:
        kept = counts[..., None]
        number = counts.sum(1, keepdim=True).to(rows.dtype)
        if mode == "max":
            best = rows.masked_fill(~kept, float("-inf")).amax(1)
            return torch.where(number > 0, best, torch.zeros_like(best))
        total = torch.where(kept, rows, torch.zeros_like(rows)).sum(1)
        return total / number.clamp(min=1) if mode == "mean" else total
    assert offsets is not None
    starts = offsets[:-1] if include_last_offset else offsets
    return embedding_bags(rows, bag_of_each(starts, input.shape[0]), starts.shape[0], counts, mode)
