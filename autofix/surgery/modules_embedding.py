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
    rows = torch.embedding(weight, input)
    return rows if max_norm is None else renormed_rows(rows, max_norm, norm_type)


def bag_of_each(offsets: Tensor, count: Any) -> Tensor:
    """Number of the bag that each of `count` positions lies in; bags begin at `offsets`, of which several may be equal."""
    begun = torch.zeros(count + 1, dtype=torch.int64).scatter_add(0, offsets.long(), torch.ones_like(offsets, dtype=torch.int64))
    return begun[:-1].cumsum(0) - 1


def sum_by_bag(rows: Tensor, bag: Tensor, bags: Any) -> Tensor:
    """The sum of rows [n, width] by bag."""
    zeros = torch.zeros(bags, rows.shape[1], dtype=rows.dtype)
    if torch._C._get_tracing_state() is not None:  # the TorchScript exporter loses repeated indices of index_put
        return zeros.scatter_add(0, bag[:, None].expand(-1, rows.shape[1]), rows)
    return zeros.index_put((bag,), rows, accumulate=True)  # whole rows at a time: one ScatterND


def embedding_bags(rows: Tensor, starts: Tensor, kept: Tensor | None, mode: str) -> Tensor:
    """Sum, mean or maximum of rows [n, width] by bag, which begin at `starts`; rows with False in `kept` are left out, an empty bag gives zeros."""
    count, bags = rows.shape[0], starts.shape[0]
    bag = bag_of_each(starts, count)
    if mode == "sum":
        return sum_by_bag(rows if kept is None else torch.where(kept[:, None], rows, torch.zeros_like(rows)), bag, bags)
    if kept is None:  # from one start to the next
        number = (torch.cat([starts[1:].long(), torch.full((1,), count, dtype=torch.int64)]) - starts.long())[:, None]
    else:
        number = torch.zeros(bags, dtype=torch.int64).scatter_add(0, bag, kept.long())[:, None]
    if mode == "mean":
        return embedding_bags(rows, starts, kept, "sum") / number.clamp(min=1).to(rows.dtype)
    low = torch.full((bags, rows.shape[1]), float("-inf"), dtype=rows.dtype)
    seen = rows if kept is None else rows.masked_fill(~kept[:, None], float("-inf"))
    best = low.scatter_reduce(0, bag[:, None].expand(-1, rows.shape[1]), seen, "amax")
    return torch.where(number > 0, best, torch.zeros_like(best))


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
    rows = torch.embedding(weight, input)
    if max_norm is not None:
        rows = renormed_rows(rows, max_norm, norm_type)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[..., None]
    kept = None if padding_idx is None else input != padding_idx % weight.shape[0]
    if input.dim() == 1:
        assert offsets is not None
        starts = offsets[:-1] if include_last_offset else offsets
        return embedding_bags(rows, starts, kept, mode)
    if kept is None:
        return rows.amax(1) if mode == "max" else rows.mean(1) if mode == "mean" else rows.sum(1)
    number = kept.sum(1, keepdim=True).to(rows.dtype)
    if mode == "max":
        best = rows.masked_fill(~kept[..., None], float("-inf")).amax(1)
        return torch.where(number > 0, best, torch.zeros_like(best))
    total = torch.where(kept[..., None], rows, torch.zeros_like(rows)).sum(1)
    return total / number.clamp(min=1) if mode == "mean" else total
