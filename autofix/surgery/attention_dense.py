"""Attention written out densely: scores, mask, softmax, product; with PyTorch's rules for rows where every key is masked."""

from __future__ import annotations

import math
from typing import Any

import torch


def attention_softmax(scores: Any) -> Any:
    """Softmax along the last axis that gives zeros where all scores are -inf, as torch._safe_softmax."""
    top = scores.amax(-1, keepdim=True)
    dead = top == -math.inf
    weights = torch.softmax(torch.where(dead, torch.zeros_like(scores), scores), -1)
    return torch.where(dead, torch.zeros_like(weights), weights)


def attention_flag(flag: Any) -> Any:
    """A symbolic truth value as a 0-d bool tensor; tensors and Python bools pass."""
    if isinstance(flag, torch.SymBool):
        return torch.ops.aten.scalar_tensor.default(torch.sym_ite(flag, 1, 0), dtype=torch.int64) == 1  # type: ignore[no-untyped-call]
    return flag


def attention_repeat(x: Any, heads: int) -> Any:
    """Key or value heads [.., h, n, d] repeated to `heads` (grouped queries)."""
    groups = heads // x.shape[-3]
    if groups == 1:
        return x
    shape = list(x.shape)
    return x.unsqueeze(-3).expand([*shape[:-2], groups, *shape[-2:]]).reshape([*shape[:-3], heads, *shape[-2:]])


def attention_dense(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: Any = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    """torch.nn.functional.scaled_dot_product_attention without dropout.

    Scale is split over both factors and an additive or boolean mask is applied before the softmax (PyTorch's math kernel); is_causal hides
    keys behind the query counted from the top left.
    """
    if dropout_p:
        raise NotImplementedError("attention with dropout")
    if enable_gqa:
        key, value = (attention_repeat(x, query.shape[-3]) for x in (key, value))
    factor = math.sqrt(1.0 / math.sqrt(query.shape[-1]) if scale is None else abs(scale))
    sign = -1.0 if scale is not None and scale < 0 else 1.0
    wide = query.dtype in (torch.float16, torch.bfloat16)
    q, k, v = (x.float() if wide else x for x in (query, key, value))
    scores = torch.matmul(q * (sign * factor), (k * factor).transpose(-1, -2))
    flag = attention_flag(is_causal)
    if isinstance(flag, torch.Tensor) or flag:
        rows = torch.arange(query.shape[-2], dtype=torch.int64).unsqueeze(1)
        allowed = torch.arange(key.shape[-2], dtype=torch.int64).unsqueeze(0) <= rows
        allowed = allowed | ~flag if isinstance(flag, torch.Tensor) else allowed
        scores = torch.where(allowed, scores, -math.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = torch.where(attn_mask, scores, -math.inf)
        else:
            scores = scores + attn_mask
    return torch.matmul(attention_softmax(scores), v).to(query.dtype)


def attention_indices(scores: Any) -> tuple[Any, Any, Any, Any]:
    """Batch, head, query and key positions of scores [b, h, q, k], each shaped to broadcast against them."""
    made = []
    for axis in range(4):
        shape = [1, 1, 1, 1]
        shape[axis] = -1
        made.append(torch.arange(scores.shape[axis], dtype=torch.int64).reshape(shape))
    return made[0], made[1], made[2], made[3]


def attention_modified(mod: Any, scores: Any, with_score: bool) -> Any:
    """score_mod or mask_mod on all positions at once, by broadcasting; by vmap where it needs scalars."""
    b, h, q, k = attention_indices(scores)
    try:
        made = mod(scores, b, h, q, k) if with_score else mod(b, h, q, k)
        return torch.broadcast_to(made, scores.shape)
    except (RuntimeError, IndexError, ValueError):
        flat = [torch.arange(n, dtype=torch.int64) for n in scores.shape]
        first = (0,) if with_score else ()
        mapped = mod
        for axis in (3, 2, 1, 0):
            mapped = torch.vmap(mapped, in_dims=(*first, *[0 if axis == i else None for i in range(4)]))
        return mapped(*((scores,) if with_score else ()), *flat)


def attention_flex(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: Any = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    """torch.nn.attention.flex_attention.flex_attention on the whole score matrix."""
    if query.shape[-3] != key.shape[-3]:
        key, value = (attention_repeat(x, query.shape[-3]) for x in (key, value))
    working = torch.float64 if query.dtype == torch.float64 else torch.float32
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query.to(working), key.to(working).transpose(-1, -2)) * factor
    if score_mod is not None:
        scores = attention_modified(score_mod, scores, True).to(working)
    if block_mask is not None:
        scores = torch.where(attention_modified(block_mask.mask_mod, scores, False), scores, -math.inf)
    out = torch.matmul(attention_softmax(scores).to(query.dtype), value)
    if not return_lse and return_aux is None:
        return out
    top = scores.amax(-1)
    safe = torch.where(top == -math.inf, torch.zeros_like(top), top)
    lse = torch.log(torch.exp(scores - safe.unsqueeze(-1)).sum(-1)) + safe
    if return_aux is None:
        return out, lse
    from torch.nn.attention.flex_attention import AuxOutput

    return out, AuxOutput(lse=lse if return_aux.lse else None, max_scores=top if return_aux.max_scores else None)


class AttentionMask:
    """What create_block_mask returns while a model is captured: only the mask function is needed."""

    def __init__(self, mask_mod: Any, shape: tuple[Any, ...]) -> None:
        self.mask_mod, self.shape = mask_mod, shape


def attention_block_mask(mask_mod: Any, B: Any, H: Any, Q_LEN: Any, KV_LEN: Any, *args: Any, **kwargs: Any) -> Any:
    """torch.nn.attention.flex_attention.create_block_mask."""
    return AttentionMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN))
