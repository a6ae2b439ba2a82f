"""nn.MultiheadAttention, nn.TransformerEncoderLayer and nn.TransformerEncoder with the meaning of eager's fast path, in plain operators.

In inference, eager runs fused kernels whose results differ from the modules' own Python code, which exporters follow. Measured with
torch 2.13 (conditions: the `forward` methods in torch/nn/modules/transformer.py and activation.py):

* nn.TransformerEncoder with a key padding mask whose rows are all left-aligned drops the padded positions, and gives zeros there
  (before the final norm). With `mask_check=False` it keeps as many leading positions as the mask has valid ones.
* the fused layer turns every mask into booleans (any number but 0 masks), and a row with everything masked becomes NaN, where the
  Python code gives 0 for its attention.
* nn.MultiheadAttention on one tensor with boolean masks does the same; with floating-point masks it runs the Python code.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def masked_self_attention(module: nn.MultiheadAttention, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Self-attention over x [batch, length, width] and its weights [batch, heads, length, length]; True in `mask`
    (broadcast over [batch, heads, length, length]) masks. A row with everything masked is NaN."""
    heads = module.num_heads
    q, k, v = F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)
    q, k, v = (t.reshape(t.shape[0], t.shape[1], heads, module.embed_dim // heads).transpose(1, 2) for t in (q, k, v))
    scores = (q * (1.0 / math.sqrt(module.embed_dim // heads))) @ k.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)
    weights = scores.softmax(-1)
    return module.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights


def joined_mask(heads: int, attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> Tensor | None:
    """Both masks as one of booleans, for [batch, heads, length, length]; numbers other than 0 count as True."""
    joined = None
    if attn_mask is not None:
        attn_mask = attn_mask if attn_mask.dtype == torch.bool else attn_mask != 0
        joined = attn_mask.reshape(-1, heads, *attn_mask.shape[1:]) if attn_mask.dim() == 3 else attn_mask[None, None]
    if key_padding_mask is not None:
        padding = key_padding_mask if key_padding_mask.dtype == torch.bool else key_padding_mask != 0
        padding = padding[:, None, None]
        joined = padding if joined is None else joined | padding
    return joined


class PlainMultiheadAttention(nn.MultiheadAttention):
    """nn.MultiheadAttention without fused kernels, with the values that eager's inference gives."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """See nn.MultiheadAttention."""
        fused = attention_is_fused(self) and query is key and key is value and query.dim() == 3
        real = any(m is not None and m.is_floating_point() for m in (attn_mask, key_padding_mask))
        if fused and not real and not torch.is_autocast_enabled():
            out, weights = masked_self_attention(self, query, joined_mask(self.num_heads, attn_mask, key_padding_mask))
            if not need_weights:
                return out, None
            return out, weights.mean(1) if average_attn_weights else weights
        turn = self.batch_first and query.dim() == 3
        if turn:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        separate = not self._qkv_same_embed_dim
        more: dict[str, Any] = (
            {"q_proj_weight": self.q_proj_weight, "k_proj_weight": self.k_proj_weight, "v_proj_weight": self.v_proj_weight} if separate else {}
        )
        key_padding_mask = F._canonical_mask(key_padding_mask, "key_padding_mask", F._none_or_dtype(attn_mask), "attn_mask", query.dtype)
        attn_mask = F._canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, check_other=False)
        out, given = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=separate,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            **more,
        )
        return (out.transpose(0, 1) if turn else out), given


def attention_is_fused(module: nn.MultiheadAttention) -> bool:
    """Whether eager would run the fused kernel for self-attention, as far as the module decides."""
    blocked = module.training or module.bias_k is not None or module.bias_v is not None or module.add_zero_attn or not module._qkv_same_embed_dim
    return not blocked and module.batch_first and module.num_heads % 2 == 0 and module.in_proj_bias is not None


class PlainEncoderLayer(nn.TransformerEncoderLayer):
    """nn.TransformerEncoderLayer without fused kernels, with the values that eager's inference gives."""

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """See nn.TransformerEncoderLayer."""
        if layer_is_fused(self) and src.dim() == 3 and not torch.is_autocast_enabled():
            return self.fused_meaning(src, joined_mask(self.self_attn.num_heads, src_mask, src_key_padding_mask))
        kpm = F._canonical_mask(src_key_padding_mask, "src_key_padding_mask", F._none_or_dtype(src_mask), "src_mask", src.dtype)
        mask = F._canonical_mask(src_mask, "src_mask", None, "", src.dtype, check_other=False)
        if self.norm_first:
            x = src + self._sa_block(self.norm1(src), mask, kpm, is_causal=is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(src + self._sa_block(src, mask, kpm, is_causal=is_causal))
        result: Tensor = self.norm2(x + self._ff_block(x))
        return result

    def fused_meaning(self, src: Tensor, mask: Tensor | None) -> Tensor:
        """What the fused kernel computes; its activation is ReLU or the exact GELU."""
        activation = F.relu if self.activation_relu_or_gelu == 1 else F.gelu

        def feed_forward(x: Tensor) -> Tensor:
            result: Tensor = self.linear2(activation(self.linear1(x)))
            return result

        if self.norm_first:
            x = src + masked_self_attention(self.self_attn, self.norm1(src), mask)[0]
            return x + feed_forward(self.norm2(x))
        x = self.norm1(src + masked_self_attention(self.self_attn, src, mask)[0])
        result: Tensor = self.norm2(x + feed_forward(x))
        return result


def layer_is_fused(layer: nn.TransformerEncoderLayer) -> bool:
    """Whether eager would run the fused layer, as far as the module decides."""
    attention = layer.self_attn
    hooked = any(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in layer.modules())
    eligible = attention.batch_first and attention.in_proj_bias is not None and attention._qkv_same_embed_dim and attention.num_heads % 2 == 0
    return bool(eligible and not layer.training and not hooked and layer.activation_relu_or_gelu and layer.norm1.eps == layer.norm2.eps)


class PlainEncoder(nn.TransformerEncoder):
    """nn.TransformerEncoder without nested tensors, with the values that eager's inference gives."""

    def forward(self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool | None = None) -> Tensor:
        """See nn.TransformerEncoder."""
        first = self.layers[0]
        kpm = F._canonical_mask(src_key_padding_mask, "src_key_padding_mask", F._none_or_dtype(mask), "mask", src.dtype)
        mask = F._canonical_mask(mask, "mask", None, "", src.dtype, check_other=False)
        nested = getattr(self, "use_nested_tensor", False) and not first.training and src.dim() == 3 and kpm is not None and mask is None
        dropped = None
        if nested and not torch.is_autocast_enabled():
            assert kpm is not None
            dropped = kpm != 0
            if getattr(self, "mask_check", True):
                gap = dropped[:, :-1] & ~dropped[:, 1:]  # a valid position behind a padded one
                dropped = dropped & ~gap.any()
            else:
                lengths = (~dropped).sum(1, keepdim=True)
                dropped = torch.arange(dropped.shape[1], device=dropped.device)[None] >= lengths
                kpm = dropped
            # eager never reads what it drops, so that NaN there must not reach the other positions
            src = src.masked_fill(dropped[:, :, None], 0.0)
        causal = bool(is_causal) and mask is not None  # a mask that only looks causal is used as the tensor that it is
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, is_causal=causal, src_key_padding_mask=kpm)
        if dropped is not None:
            output = torch.where(dropped[:, :, None], torch.zeros_like(output), output)
        result: Tensor = self.norm(output) if self.norm is not None else output
        return result


PLAIN_ATTENTION: dict[type[nn.Module], type[nn.Module]] = {
    nn.MultiheadAttention: PlainMultiheadAttention,
    nn.TransformerEncoderLayer: PlainEncoderLayer,
    nn.TransformerEncoder: PlainEncoder,
}


def plain_attention(model: nn.Module) -> list[str]:
    """Swap the classes of every attention module of torch's own, in place; returns their paths. Subclasses are left."""
    changed = []
    for path, module in model.named_modules():
        plain = PLAIN_ATTENTION.get(type(module))
        if plain is not None:
            module.__class__ = plain
            changed.append(path)
    return changed
