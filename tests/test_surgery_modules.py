"""The module substitutes against the modules they stand for, in eager inference."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from autofix.surgery.modules_attention import plain_attention
from autofix.surgery.modules_embedding import embedding_any, embedding_bag_any
from autofix.surgery.modules_fake_quantize import fake_quantize_channel_any, fake_quantize_tensor_any
from autofix.surgery.modules_norm import batch_norm_any, instance_norm_any
from autofix.surgery.modules_pool import adaptive_max, adaptive_pool

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
@pytest.mark.parametrize(("need_weights", "average"), [(False, True), (True, True), (True, False)])
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


OFFSETS = torch.tensor([0, 2, 2, 5])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 3, -1])
@pytest.mark.parametrize("max_norm", [None, 0.5])
@pytest.mark.parametrize("form", ["offsets", "last offset", "rows"])
def test_embedding_bags(mode, padding_idx, max_norm, form):
    torch.manual_seed(0)
    bag = nn.EmbeddingBag(10, 4, mode=mode, padding_idx=padding_idx, max_norm=max_norm, include_last_offset=form == "last offset").eval()
    ids = torch.tensor([3, 3, 1, 9, 3, 4, 4])
    args = (ids[:6].reshape(2, 3),) if form == "rows" else (ids, torch.cat([OFFSETS, torch.tensor([7])]) if form == "last offset" else OFFSETS)
    more = {"per_sample_weights": torch.rand_like(args[0], dtype=torch.float32)} if mode == "sum" else {}
    weight = bag.weight.detach().clone()
    with torch.no_grad():
        want = bag(*args, **more)
        offsets = args[1] if len(args) > 1 else None
        got = embedding_bag_any(
            args[0], weight, offsets, max_norm, mode=mode, include_last_offset=form == "last offset", padding_idx=padding_idx, **more
        )
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
def test_embeddings_with_max_norm(norm_type):
    torch.manual_seed(0)
    table = nn.Embedding(10, 4, max_norm=0.7, norm_type=norm_type).eval()
    weight = table.weight.detach().clone()
    ids = torch.tensor([[1, 2], [9, 1]])
    with torch.no_grad():
        torch.testing.assert_close(embedding_any(ids, weight, max_norm=0.7, norm_type=norm_type), table(ids))


@pytest.mark.parametrize(("dims", "size"), [(1, (7,)), (2, (10, 7)), (2, (3, 2)), (3, (4, 6, 5))])
@pytest.mark.parametrize("bins", [1, 2, 3, 4])
def test_adaptive_pooling(dims, size, bins):
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size)
    x[0, 0, 0] = float("nan")
    functional = torch.nn.functional
    torch.testing.assert_close(adaptive_pool(x, bins, dims, False), getattr(functional, f"adaptive_avg_pool{dims}d")(x, bins), equal_nan=True)
    torch.testing.assert_close(adaptive_pool(x, bins, dims, True), getattr(functional, f"adaptive_max_pool{dims}d")(x, bins), equal_nan=True)
    x = torch.randn(2, 3, *size)
    got, want = adaptive_max(x, bins, dims), getattr(functional, f"adaptive_max_pool{dims}d")(x, bins, return_indices=True)
    torch.testing.assert_close(got[0], want[0])
    assert torch.equal(got[1], want[1])
    x = torch.randint(0, 2, x.shape).float()  # ties
    assert torch.equal(adaptive_max(x, bins, dims)[1], getattr(functional, f"adaptive_max_pool{dims}d")(x, bins, return_indices=True)[1])


def test_adaptive_pooling_to_a_number_of_places_known_at_run_time():
    class Halve(nn.Module):
        def forward(self, x):
            return adaptive_pool(x, (x.shape[2] // 2, 3), 2, False), *adaptive_max(x, (x.shape[3], x.shape[2] // 2), 2)

    functional, auto = torch.nn.functional, torch.export.Dim.AUTO
    program = torch.export.export(Halve(), (torch.randn(1, 2, 9, 4),), dynamic_shapes=({2: auto, 3: auto},)).module()
    for rows, columns in ((9, 4), (14, 5), (6, 11)):
        x = torch.randn(1, 2, rows, columns)
        mean, largest, where = program(x)
        torch.testing.assert_close(mean, functional.adaptive_avg_pool2d(x, (rows // 2, 3)))
        want = functional.adaptive_max_pool2d(x, (columns, rows // 2), return_indices=True)
        assert torch.equal(largest, want[0])
        assert torch.equal(where, want[1])


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, -2.0, 0.5])])
def test_batch_statistics(weight):
    x = torch.randn(4, 3, 5)
    functional = torch.nn.functional
    mean, var = torch.zeros(3), torch.ones(3)
    torch.testing.assert_close(
        batch_norm_any(x, mean, var, weight, weight, True), functional.batch_norm(x, mean.clone(), var.clone(), weight, weight, True)
    )
    torch.testing.assert_close(batch_norm_any(x, mean, var, weight, weight), functional.batch_norm(x, mean, var, weight, weight))
    torch.testing.assert_close(instance_norm_any(x, None, None, weight, weight), functional.instance_norm(x, None, None, weight, weight))


def test_fake_quantisation():
    x = torch.cat([torch.randn(200) * 5, torch.tensor([0.05, 0.15, 0.25, -0.35, float("inf"), -float("inf")])])
    torch.testing.assert_close(fake_quantize_tensor_any(x, 0.1, 3, 0, 127), torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 127))
    w, scale, zero = torch.randn(3, 7), torch.tensor([0.1, 0.02, 0.3]), torch.tensor([0, 2, -1], dtype=torch.int32)
    torch.testing.assert_close(fake_quantize_channel_any(w, scale, zero, 0, -7, 7), torch.fake_quantize_per_channel_affine(w, scale, zero, 0, -7, 7))
