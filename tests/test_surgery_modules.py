"""The module substitutes against the modules they stand for, in eager inference."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from autofix.surgery.modules_attention import plain_attention

pytestmark = pytest.mark.slow
CAUSAL = torch.ones(5, 5).triu(1).bool()


def padded(*lengths):
    return torch.arange(5)[None] >= torch.tensor(lengths)[:, None]


def same(module, *args, rewrite=plain_attention, atol=1e-5, **kwargs):
    plain = copy.deepcopy(module)
    assert rewrite(plain)
    with torch.no_grad():
        want, got = module(*args, **kwargs), plain(*args, **kwargs)
    for w, g in zip(want if isinstance(want, tuple) else (want,), got if isinstance(got, tuple) else (got,), strict=True):
        assert (w is None) == (g is None)
        if w is not None:
            torch.testing.assert_close(g, w, atol=atol, rtol=1e-4, equal_nan=True)


KEY_MASKS = {
    "none": None,
    "aligned": padded(5, 3, 1),
    "one empty": padded(5, 3, 0),
    "no padding": padded(5, 5, 5),
    "gaps": torch.tensor([[0, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]).bool(),
    "left padded": torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]).bool(),
    "float": torch.zeros(3, 5).masked_fill(padded(5, 3, 1), float("-inf")),
    "float finite": torch.zeros(3, 5).masked_fill(padded(5, 3, 1), -1e4),
}
LAYERS = {
    "post": {}, "pre": {"norm_first": True}, "odd heads": {"nhead": 1}, "sequence first": {"batch_first": False}, "gelu": {"activation": "gelu"},
    "no bias": {"bias": False}, "tanh gelu": {"activation": nn.GELU(approximate="tanh")}, "silu": {"activation": nn.functional.silu},
}  # fmt: skip


def layer_of(options):
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(**{"d_model": 8, "nhead": 2, "dim_feedforward": 16, "batch_first": True, **options}).eval()


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("key_mask", KEY_MASKS.values(), ids=KEY_MASKS)
@pytest.mark.parametrize(
    "mask", [None, CAUSAL, torch.zeros(5, 5).masked_fill(CAUSAL, float("-inf")), torch.eye(5) * 0.5], ids=["no", "causal", "float", "bias"]
)
def test_encoder_layers_and_encoders(options, key_mask, mask):
    layer = layer_of(options)
    x = torch.randn(3, 5, 8)
    x = x if layer.self_attn.batch_first else x.transpose(0, 1)
    if mask is not None and key_mask is not None and mask.dtype != key_mask.dtype:
        mask = mask != 0
        key_mask = key_mask != 0
    same(layer, x, src_mask=mask, src_key_padding_mask=key_mask)
    norm = nn.LayerNorm(8)
    nn.init.uniform_(norm.bias)
    same(nn.TransformerEncoder(layer, 2, norm=norm).eval(), x, mask=mask, src_key_padding_mask=key_mask)


def test_encoder_without_mask_check_keeps_leading_positions():
    encoder = nn.TransformerEncoder(layer_of({}), 2, mask_check=False).eval()
    same(encoder, torch.randn(3, 5, 8), src_key_padding_mask=KEY_MASKS["gaps"])


def test_nan_in_padding_does_not_spread():
    x = torch.randn(3, 5, 8)
    x[1, 4] = float("nan")
    same(nn.TransformerEncoder(layer_of({}), 2).eval(), x, src_key_padding_mask=padded(5, 3, 1))


@pytest.mark.parametrize("key_mask", KEY_MASKS.values(), ids=KEY_MASKS)
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_heads": 1}, {"batch_first": False}, {"bias": False}, {"add_zero_attn": True}, {"add_bias_kv": True}, {"kdim": 6, "vdim": 4}],
    ids=str,
)
def test_attention(key_mask, need_weights, average, options):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(**{"embed_dim": 8, "num_heads": 2, "batch_first": True, **options}).eval()
    x, k, v = torch.randn(3, 5, 8), torch.randn(3, 5, module.kdim), torch.randn(3, 5, module.vdim)
    if not module.batch_first:
        x, k, v = (t.transpose(0, 1) for t in (x, k, v))
    more = {"key_padding_mask": key_mask, "need_weights": need_weights, "average_attn_weights": average}
    same(module, x, k, v, **more)
    if module._qkv_same_embed_dim:
        same(module, x, x, x, **more)
        if key_mask is None or key_mask.dtype == torch.bool:
            same(module, x, x, x, **{**more, "attn_mask": CAUSAL})


def test_whole_transformer():
    torch.manual_seed(0)
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()
    same(
        model,
        torch.randn(3, 5, 8),
        torch.randn(3, 5, 8),
        tgt_mask=CAUSAL,
        src_key_padding_mask=padded(5, 3, 1),
        memory_key_padding_mask=padded(5, 3, 1),
    )
