"""Small models of many kinds for mutation.py: a table of definitions, each exported with fixed and with dynamic axes.

A row is (name, inputs, what __init__ builds, what forward does). Inputs are `name:kind[dims]`, separated by `;`. Kinds: f normal, u uniform in
[0, 1], p positive, i7 integers in [0, 7), s7 integers in (-7, 7), d double, h half, m boolean, 1 ones (a mask that is seldom 0). A dim is
a number or a symbol with its size in the example, such as b2: the same symbol is the same size everywhere, and dynamic where the variant is.
"""

# ruff: noqa: E501
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# fmt: off
ROWS: tuple[tuple[str, str, str, str], ...] = (
    # convolutions
    ("conv_relu", "x:f[b2,3,h8,w8]", "self.c = nn.Conv2d(3, 4, 3, padding=1)", "return torch.relu(self.c(x))"),
    ("conv_stride", "x:f[b2,3,h9,w9]", "self.c = nn.Conv2d(3, 4, 3, stride=2, padding=1)", "return F.leaky_relu(self.c(x), 0.1)"),
    ("conv_dilated", "x:f[b2,2,h10,w10]", "self.c = nn.Conv2d(2, 3, 3, padding=2, dilation=2)", "return F.elu(self.c(x))"),
    ("conv_depthwise", "x:f[b2,4,h8,w8]", "self.c = nn.Conv2d(4, 4, 3, padding=1, groups=4); self.p = nn.Conv2d(4, 6, 1)", "return F.hardswish(self.p(self.c(x)))"),
    ("conv1d_gelu", "x:f[b2,3,t12]", "self.c = nn.Conv1d(3, 5, 5, padding=2)", "return F.gelu(self.c(x))"),
    ("conv3d", "x:f[b2,2,5,h6,w6]", "self.c = nn.Conv3d(2, 3, 3, padding=1)", "return torch.tanh(self.c(x))"),
    ("conv_transposed", "x:f[b2,3,h5,w5]", "self.c = nn.ConvTranspose2d(3, 2, 3, stride=2, padding=1, output_padding=1)", "return self.c(x).sigmoid()"),
    ("conv_transposed_1d", "x:f[b2,3,t6]", "self.c = nn.ConvTranspose1d(3, 2, 4, stride=2, padding=1)", "return self.c(x)"),
    ("pad_reflect_conv", "x:f[b2,2,h7,w7]", "self.c = nn.Conv2d(2, 3, 3)", "return self.c(F.pad(x, (1, 1, 1, 1), mode='reflect'))"),
    ("pad_replicate", "x:f[b2,2,h7,w7]", "", "return F.pad(x, (2, 1, 0, 3), mode='replicate') * 2"),
    ("pad_constant", "x:f[b2,3,t6]", "", "return F.pad(x, (2, 1), value=-1.5)"),
    ("conv_bn_relu", "x:f[b2,3,h8,w8]", "self.c = nn.Conv2d(3, 4, 3, bias=False); self.n = nn.BatchNorm2d(4); self.n.running_mean.normal_(); self.n.running_var.uniform_(0.5, 2)", "return torch.relu(self.n(self.c(x)))"),
    ("residual_block", "x:f[b2,4,h7,w7]", "self.a = nn.Conv2d(4, 4, 3, padding=1); self.b = nn.Conv2d(4, 4, 3, padding=1)", "return torch.relu(x + self.b(torch.relu(self.a(x))))"),
    ("inception", "x:f[b2,3,h8,w8]", "self.a = nn.Conv2d(3, 2, 1); self.b = nn.Conv2d(3, 2, 3, padding=1); self.c = nn.Conv2d(3, 2, 5, padding=2)", "return torch.cat([self.a(x), self.b(x), self.c(x), F.max_pool2d(x, 3, 1, 1)], 1)"),
    ("squeeze_excite", "x:f[b2,4,h6,w6]", "self.a = nn.Linear(4, 2); self.b = nn.Linear(2, 4)", "s = torch.sigmoid(self.b(torch.relu(self.a(x.mean((2, 3)))))); return x * s[:, :, None, None]"),
    ("inverted_residual", "x:f[b2,4,h8,w8]", "self.a = nn.Conv2d(4, 8, 1); self.b = nn.Conv2d(8, 8, 3, padding=1, groups=8); self.c = nn.Conv2d(8, 4, 1)", "return x + self.c(F.relu6(self.b(F.relu6(self.a(x)))))"),
    ("conv_same_even", "x:f[b2,2,h8,w8]", "self.c = nn.Conv2d(2, 3, 4, padding='same')", "return self.c(x)"),
    ("lenet", "x:f[b2,1,16,16]", "self.a = nn.Conv2d(1, 4, 5); self.b = nn.Conv2d(4, 6, 3); self.f = nn.Linear(24, 10)", "x = F.max_pool2d(torch.relu(self.a(x)), 2); x = F.max_pool2d(torch.relu(self.b(x)), 2); return self.f(x.flatten(1))"),
    ("unet_small", "x:f[b2,2,h8,w8]", "self.a = nn.Conv2d(2, 4, 3, padding=1); self.b = nn.Conv2d(4, 4, 3, padding=1); self.u = nn.ConvTranspose2d(4, 4, 2, stride=2); self.o = nn.Conv2d(8, 1, 1)", "a = torch.relu(self.a(x)); m = torch.relu(self.b(F.max_pool2d(a, 2))); return self.o(torch.cat([a, self.u(m)], 1))"),
    ("temporal_block", "x:f[b2,3,t10]", "self.c = nn.Conv1d(3, 3, 3, dilation=2)", "return torch.relu(self.c(F.pad(x, (4, 0)))) + x"),
    # pools
    ("max_pool", "x:f[b2,3,h9,w9]", "", "return F.max_pool2d(x, 3, 2, 1)"),
    ("max_pool_dilated", "x:f[b2,3,h10,w10]", "", "return F.max_pool2d(x, 2, 2, dilation=2)"),
    ("avg_pool_exclude", "x:f[b2,3,h9,w9]", "", "return F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)"),
    ("avg_pool_include", "x:f[b2,3,h9,w9]", "", "return F.avg_pool2d(x, 3, 1, 1)"),
    ("global_avg_pool", "x:f[b2,3,h6,w6]", "self.f = nn.Linear(3, 5)", "return self.f(F.adaptive_avg_pool2d(x, 1).flatten(1))"),
    ("global_max", "x:f[b2,3,h6,w6]", "", "return x.amax((2, 3))"),
    ("max_pool_1d", "x:f[b2,3,t11]", "", "return F.max_pool1d(x, 3, 2)"),
    ("avg_pool_1d", "x:f[b2,3,t12]", "", "return F.avg_pool1d(x, 4, 2)"),
    ("adaptive_fixed", "x:f[b2,3,8,12]", "", "return F.adaptive_avg_pool2d(x, (4, 3))"),
    # norms
    ("batch_norm_1d", "x:f[b4,5]", "self.n = nn.BatchNorm1d(5, eps=1e-3); self.n.running_mean.normal_(); self.n.running_var.uniform_(1e-3, 2)", "return self.n(x)"),
    ("layer_norm", "x:f[b2,t5,8]", "self.n = nn.LayerNorm(8); nn.init.normal_(self.n.weight)", "return self.n(x)"),
    ("layer_norm_two_axes", "x:f[b2,4,6]", "", "return F.layer_norm(x, (4, 6), eps=1e-6)"),
    ("group_norm", "x:f[b2,6,h5,w5]", "self.n = nn.GroupNorm(3, 6); nn.init.normal_(self.n.weight)", "return self.n(x)"),
    ("instance_norm", "x:f[b2,3,h6,w6]", "self.n = nn.InstanceNorm2d(3, affine=True)", "return self.n(x)"),
    ("rms_norm", "x:f[b2,t5,8]", "self.w = nn.Parameter(torch.randn(8))", "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w"),
    ("normalize", "x:f[b3,8]", "", "return F.normalize(x, dim=-1)"),
    ("standardize", "x:f[b3,8]", "", "return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)"),
    ("response_norm", "x:f[b2,5,h4,w4]", "", "return F.local_response_norm(x, 3)"),
    # activations
    ("gelu_tanh", "x:f[b3,8]", "", "return F.gelu(x, approximate='tanh')"),
    ("silu_mish", "x:f[b3,8]", "", "return F.silu(x) + F.mish(x)"),
    ("selu_celu", "x:f[b3,8]", "", "return F.selu(x) * F.celu(x, 0.7)"),
    ("prelu", "x:f[b2,3,t6]", "self.p = nn.PReLU(3)", "return self.p(x)"),
    ("softplus", "x:f[b3,8]", "", "return F.softplus(x, beta=2.0)"),
    ("hardtanh_hardsigmoid", "x:f[b3,8]", "", "return F.hardtanh(x, -0.5, 1.5) + F.hardsigmoid(x)"),
    ("shrinks", "x:f[b3,8]", "", "return F.hardshrink(x, 0.4) + torch.tanh(x)"),
    ("glu", "x:f[b3,8]", "", "return F.glu(x, -1)"),
    ("softsign_threshold", "x:f[b3,8]", "", "return F.softsign(x) + F.threshold(x, 0.2, -1.0)"),
    ("relu6_erf", "x:f[b3,8]", "", "return F.relu6(x * 3) + torch.erf(x)"),
    # numerics
    ("exp_log", "x:p[b3,6]", "", "return torch.log(x) + torch.exp(-x)"),
    ("sqrt_reciprocal", "x:p[b3,6]", "", "return torch.sqrt(x) - torch.reciprocal(x + 1)"),
    ("sin_cos", "x:f[b3,6]", "", "return torch.sin(x) * torch.cos(2 * x)"),
    ("powers", "x:f[b3,6]", "", "return x ** 2 - 0.5 * x ** 3"),
    ("pow_tensors", "x:p[b3,6];y:u[b3,6]", "", "return torch.pow(x, y)"),
    ("abs_sign", "x:f[b3,6]", "", "return x.abs() - 2 * torch.sign(x)"),
    ("rounding", "x:f[b3,6]", "", "return torch.floor(x * 3) + torch.ceil(x) * 10 + torch.round(x * 2) * 100"),
    ("trunc_frac", "x:f[b3,6]", "", "return torch.trunc(x * 4), x - torch.floor(x)"),
    ("remainders", "x:f[b3,6];y:p[b3,6]", "", "return torch.fmod(x, 1.5)"),
    ("clamps", "x:f[b3,6]", "", "return x.clamp(-1, 1), x.clamp(min=0.2), x.clamp(max=0.4)"),
    ("min_max", "x:f[b3,6];y:f[b3,6]", "", "return torch.minimum(x, y) + 2 * torch.maximum(x, y)"),
    ("lerp_addcmul", "x:f[b3,6];y:f[b3,6]", "", "return torch.addcmul(x, y, y, value=0.3) + torch.lerp(x, y, 0.25)"),
    ("scale_shift", "x:f[b3,6]", "self.s = nn.Parameter(torch.randn(6)); self.o = nn.Parameter(torch.randn(6))", "return (x - self.o) / (self.s.abs() + 0.1)"),
    ("outer_sums", "x:f[n4];y:f[m5]", "", "return x[:, None] - y[None, :]"),
    ("broadcast_square", "x:f[b3,5,5];y:f[5]", "", "return x - y[:, None]"),
    ("polynomial", "x:f[b3,6]", "", "return 1.0 + x * (0.5 - x * (0.25 + 0.125 * x))"),
    ("gated_mix", "x:f[b3,6];y:f[b3,6];g:f[b3,6]", "", "s = torch.sigmoid(g); return s * x + (1 - s) * y"),
    ("double_math", "x:d[b3,6]", "", "return torch.exp(-x * x) + x.tanh()"),
    ("half_scale", "x:h[b3,6]", "", "return x.float() * 0.5 + 1"),
    # reductions
    ("sums", "x:f[b3,4,5]", "", "return x.sum(1), x.mean(2), x.sum()"),
    ("max_min", "x:f[b3,4,5]", "", "return x.amax(1), x.amin((1, 2))"),
    ("max_with_place", "x:f[b3,7]", "", "v, i = x.max(1); return v, i"),
    ("argmax", "x:f[b3,7]", "", "return x.argmax(1)"),
    ("argmin_keep", "x:f[b3,7]", "", "return x.argmin(-1, keepdim=True)"),
    ("logsumexp", "x:f[b3,7]", "", "return torch.logsumexp(x, 1)"),
    ("variance", "x:f[b3,7]", "", "return x.var(1), x.var(1, unbiased=False)"),
    ("norms", "x:f[b3,7]", "", "return torch.linalg.vector_norm(x, dim=1), x.abs().sum(1)"),
    ("cumulative", "x:f[b3,t7]", "", "return x.cumsum(1)"),
    ("any_all", "x:f[b3,7]", "", "return (x > 0).any(1), (x > -1).all(1)"),
    ("top_k", "x:f[b3,9]", "", "v, i = torch.topk(x, 3, dim=1); return v, i"),
    ("sorted_rows", "x:f[b3,9]", "", "v, i = torch.sort(x, dim=1, descending=True); return v, i"),
    ("softmax_rows", "x:f[b3,5,5]", "", "return torch.softmax(x, 1)"),
    ("log_softmax", "x:f[b3,9]", "", "return torch.log_softmax(x, -1)"),
    ("mean_pooling", "x:f[b2,t6,4];k:1[b2,t6]", "", "k = k[..., None].float(); return (x * k).sum(1) / k.sum(1).clamp(min=1)"),
    ("count_positive", "x:f[b3,7]", "", "return (x > 0).sum(1), (x >= 0).float().mean()"),
    ("product", "x:f[b3,4]", "", "return x.prod(1)"),
    # indexing and layout
    ("gather_rows", "x:f[b3,6,4];i:i6[b3]", "", "return x[torch.arange(x.shape[0]), i]"),
    ("gather_axis", "x:f[b3,6];i:i6[b3,k4]", "", "return x.gather(1, i)"),
    ("index_select", "x:f[b3,6];i:i6[k4]", "", "return x.index_select(1, i)"),
    ("slices", "x:f[b3,10]", "", "return x[:, 1:8:2] - x[:, 2:9:2]"),
    ("shift_difference", "x:f[b3,t8]", "", "return x[:, 1:] - x[:, :-1]"),
    ("last_step", "x:f[b3,t8,4]", "self.f = nn.Linear(4, 2)", "return self.f(x[:, -1])"),
    ("rolled", "x:f[b3,8]", "", "return torch.roll(x, 3, 1) + x"),
    ("flipped", "x:f[b3,t8]", "", "return x.flip(1) - 2 * x"),
    ("scatter_once", "x:f[b3,6]", "self.register_buffer('i', torch.tensor([[4, 0, 2]]))", "return torch.zeros_like(x).scatter(1, self.i.expand(x.shape[0], -1), x[:, :3])"),
    ("scatter_add", "x:f[b3,6];i:i4[b3,6]", "", "return torch.zeros(x.shape[0], 4).scatter_add(1, i, x)"),
    ("masked_fill", "x:f[b3,6];k:m[b3,6]", "", "return x.masked_fill(k, -2.0)"),
    ("where_sign", "x:f[b3,6];y:f[b3,6]", "", "return torch.where(x > y, x * 2, y - 1)"),
    ("where_chain", "x:f[b3,6]", "", "return torch.where(x > 1, x * 0.5, torch.where(x < -1, -x, x * x))"),
    ("triangle", "x:f[b2,5,5]", "", "return torch.tril(x) + torch.triu(x, 1) * 2"),
    ("pixel_shuffle", "x:f[b2,8,h3,w3]", "", "return F.pixel_shuffle(x, 2)"),
    ("one_hot", "i:i5[b3,t4]", "self.f = nn.Linear(5, 3)", "return self.f(F.one_hot(i, 5).float())"),
    ("chunks", "x:f[b3,12]", "", "a, b, c = x.chunk(3, 1); return torch.cat([c, a * b], 1)"),
    ("stacked", "x:f[b3,6];y:f[b3,6]", "", "return torch.stack([x, y, x - y], 1)"),
    ("permuted", "x:f[b2,4,5,4]", "", "return x.permute(0, 3, 1, 2).reshape(x.shape[0], -1)"),
    ("transposed", "x:f[b2,5,5]", "", "return x.transpose(1, 2) - 0.5 * x"),
    ("expanded", "x:f[b3,6];y:f[6]", "", "return torch.cat([x, y.expand(x.shape[0], 6)], 1)"),
    ("repeated", "x:f[b3,4]", "", "return x.repeat(1, 3) + x.repeat_interleave(3, 1)"),
    ("einsum_bilinear", "x:f[b3,4];y:f[b3,5]", "self.w = nn.Parameter(torch.randn(4, 5, 2))", "return torch.einsum('bi,ijk,bj->bk', x, self.w, y)"),
    ("diagonal", "x:f[b2,5,5]", "", "return torch.diagonal(x, dim1=1, dim2=2) * 2"),
    ("patches", "x:f[b2,3,8,8]", "self.f = nn.Linear(48, 6)", "b = x.shape[0]; x = x.reshape(b, 3, 2, 4, 2, 4).permute(0, 2, 4, 1, 3, 5).reshape(b, 4, 48); return self.f(x)"),
    ("channel_shuffle", "x:f[b2,6,h4,w4]", "", "b, c, h, w = x.shape; return x.reshape(b, 2, 3, h, w).transpose(1, 2).reshape(b, c, h, w)"),
    ("distances", "x:f[n4,3];y:f[m5,3]", "", "return ((x[:, None] - y[None]) ** 2).sum(-1)"),
    ("size_scaled", "x:f[b2,t6,4]", "", "return x.sum(1) / x.shape[1] + torch.arange(x.shape[1]).float().mean()"),
    ("positions_added", "x:f[b2,t6,4]", "", "return x + 0.1 * torch.arange(x.shape[1]).float()[None, :, None]"),
    ("split_heads", "x:f[b2,t5,8]", "", "b, t, _ = x.shape; return x.reshape(b, t, 2, 4).transpose(1, 2)"),
    # recurrent
    ("lstm", "x:f[b2,t5,4]", "self.r = nn.LSTM(4, 6, batch_first=True)", "y, (h, c) = self.r(x); return y, h, c"),
    ("gru", "x:f[b2,t5,4]", "self.r = nn.GRU(4, 6, batch_first=True)", "y, h = self.r(x); return y, h"),
    ("rnn_tanh", "x:f[b2,t5,4]", "self.r = nn.RNN(4, 6, batch_first=True)", "return self.r(x)[0]"),
    ("lstm_bi", "x:f[b2,t5,4]", "self.r = nn.LSTM(4, 3, batch_first=True, bidirectional=True)", "return self.r(x)[0]"),
    ("gru_two_layers", "x:f[5,b2,4]", "self.r = nn.GRU(4, 5, num_layers=2)", "return self.r(x)[0][-1]"),
    ("lstm_cell", "x:f[b2,4];h:f[b2,5];c:f[b2,5]", "self.r = nn.LSTMCell(4, 5)", "h, c = self.r(x, (h, c)); return h, c"),
    # attention
    ("attention", "x:f[b2,t5,8]", "self.q = nn.Linear(8, 8); self.k = nn.Linear(8, 8); self.v = nn.Linear(8, 8)", "a = self.q(x) @ self.k(x).transpose(1, 2) / 8 ** 0.5; return torch.softmax(a, -1) @ self.v(x)"),
    ("sdpa", "q:f[b2,2,t5,4];k:f[b2,2,s6,4];v:f[b2,2,s6,4]", "", "return F.scaled_dot_product_attention(q, k, v)"),
    ("sdpa_causal", "q:f[b2,2,t5,4];k:f[b2,2,t5,4];v:f[b2,2,t5,4]", "", "return F.scaled_dot_product_attention(q, k, v, is_causal=True)"),
    ("causal_attention", "x:f[b2,t5,8]", "self.q = nn.Linear(8, 24)", "q, k, v = self.q(x).chunk(3, -1); a = q @ k.transpose(-1, -2) * 8 ** -0.5; i = torch.arange(x.shape[1]); a = a.masked_fill(i[None, :] > i[:, None], float('-inf')); return a.softmax(-1) @ v"),
    ("padded_attention", "x:f[b2,t5,8];k:1[b2,t5]", "self.q = nn.Linear(8, 8)", "a = self.q(x) @ x.transpose(1, 2); a = a + (1 - k[:, None].float()) * -1e4; return a.softmax(-1) @ x"),
    ("multi_head", "x:f[b2,t5,8]", "self.a = nn.MultiheadAttention(8, 2, batch_first=True)", "y, w = self.a(x, x, x); return y, w"),
    ("encoder_layer", "x:f[b2,t5,8]", "self.e = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)", "return self.e(x)"),
    ("cross_attention", "x:f[b2,t4,8];m:f[b2,s6,8]", "self.a = nn.MultiheadAttention(8, 2, batch_first=True); self.n = nn.LayerNorm(8)", "return self.n(x + self.a(x, m, m, need_weights=False)[0])"),
    ("transformer_block", "x:f[b2,t5,8]", "self.n = nn.LayerNorm(8); self.q = nn.Linear(8, 24); self.o = nn.Linear(8, 8); self.m = nn.LayerNorm(8); self.u = nn.Linear(8, 16); self.d = nn.Linear(16, 8)", "b, t, _ = x.shape; q, k, v = self.q(self.n(x)).reshape(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4); a = (q @ k.transpose(-1, -2) * 0.5).softmax(-1) @ v; x = x + self.o(a.transpose(1, 2).reshape(b, t, 8)); return x + self.d(F.gelu(self.u(self.m(x))))"),
    ("rotary", "x:f[b2,t5,8]", "", "p = torch.arange(x.shape[1]).float()[:, None] * 100.0 ** (-torch.arange(4).float() / 4); a, b = x[..., :4], x[..., 4:]; return torch.cat([a * p.cos() - b * p.sin(), b * p.cos() + a * p.sin()], -1)"),
    # embeddings
    ("embedding", "i:i11[b2,t5]", "self.e = nn.Embedding(11, 4)", "return self.e(i)"),
    ("embedding_mean", "i:i11[b2,t5]", "self.e = nn.Embedding(11, 4, padding_idx=0); self.f = nn.Linear(4, 3)", "k = (i != 0).float()[..., None]; return self.f((self.e(i) * k).sum(1) / k.sum(1).clamp(min=1.0))"),
    ("embedding_positions", "i:i11[b2,t5]", "self.e = nn.Embedding(11, 4); self.p = nn.Embedding(64, 4); self.n = nn.LayerNorm(4)", "return self.n(self.e(i) + self.p(torch.arange(i.shape[1])))"),
    ("two_towers", "u:i9[b3];v:i7[b3]", "self.u = nn.Embedding(9, 4); self.v = nn.Embedding(7, 4)", "return torch.sigmoid((self.u(u) * self.v(v)).sum(-1))"),
    ("wide_deep", "x:f[b3,4];i:i7[b3]", "self.e = nn.Embedding(7, 3); self.a = nn.Linear(7, 5); self.b = nn.Linear(5, 1); self.w = nn.Linear(4, 1)", "return torch.sigmoid(self.w(x) + self.b(torch.relu(self.a(torch.cat([x, self.e(i)], 1)))))"),
    # resize
    ("resize_nearest", "x:f[b2,2,h4,w5]", "", "return F.interpolate(x, scale_factor=2, mode='nearest')"),
    ("resize_bilinear", "x:f[b2,2,4,5]", "", "return F.interpolate(x, size=(7, 9), mode='bilinear', align_corners=False)"),
    ("resize_corners", "x:f[b2,2,4,5]", "", "return F.interpolate(x, size=(7, 9), mode='bilinear', align_corners=True)"),
    ("resize_bicubic", "x:f[b2,2,6,6]", "", "return F.interpolate(x, size=(9, 9), mode='bicubic', align_corners=False)"),
    ("resize_linear", "x:f[b2,2,6]", "", "return F.interpolate(x, size=11, mode='linear', align_corners=False)"),
    ("grid_sample", "x:f[b2,2,5,5];g:f[b2,4,4,2]", "", "return F.grid_sample(x, torch.tanh(g), align_corners=False)"),
    ("fpn_merge", "x:f[b2,3,h4,w4];y:f[b2,3,8,8]", "self.c = nn.Conv2d(3, 3, 1)", "return self.c(y) + F.interpolate(x, size=(8, 8), mode='nearest')"),
    # integers and booleans
    ("int_arithmetic", "i:s20[b3,5];j:s20[b3,5]", "", "return i * 3 - j, i + j // 1"),
    ("int_remainder", "i:s20[b3,5]", "", "return torch.remainder(i, 7), torch.remainder(i, -3)"),
    ("int_division", "i:i20[b3,5]", "", "return torch.div(i, 3, rounding_mode='floor')"),
    ("int_compare", "i:s6[b3,5];j:s6[b3,5]", "", "return (i > j) & (i != 2), i >= j"),
    ("bits", "i:i64[b3,5];j:i64[b3,5]", "", "return torch.bitwise_and(i, j), torch.bitwise_xor(i, j)"),
    ("casts", "x:f[b3,5]", "", "return x.to(torch.int32), (x * 2).long().float() + x"),
    ("logic", "p:m[b3,5];q:m[b3,5]", "", "return p & ~q, torch.logical_xor(p, q), p | q"),
    ("buckets", "x:f[b3,5]", "", "return (x[..., None] > torch.tensor([-1.0, 0.0, 0.5])).sum(-1)"),
    ("clamped_index", "x:f[7,3];i:s9[n5]", "", "return x[i.clamp(0, 6)]"),
    # several inputs and outputs, losses
    ("mlp", "x:f[b3,6]", "self.a = nn.Linear(6, 8); self.b = nn.Linear(8, 3)", "return self.b(torch.relu(self.a(x)))"),
    ("mlp_tanh_softmax", "x:f[b3,6]", "self.a = nn.Linear(6, 8); self.b = nn.Linear(8, 4)", "return torch.softmax(self.b(torch.tanh(self.a(x))), 1)"),
    ("autoencoder", "x:f[b3,6]", "self.a = nn.Linear(6, 3); self.b = nn.Linear(3, 6)", "z = torch.tanh(self.a(x)); return {'code': z, 'image': torch.sigmoid(self.b(z))}"),
    ("two_heads", "x:f[b3,6]", "self.a = nn.Linear(6, 5); self.m = nn.Linear(5, 2); self.s = nn.Linear(5, 2)", "h = torch.relu(self.a(x)); return self.m(h), F.softplus(self.s(h)) + 1e-3"),
    ("bilinear", "x:f[b3,4];y:f[b3,5]", "self.b = nn.Bilinear(4, 5, 3)", "return self.b(x, y)"),
    ("mse_loss", "x:f[b3,5];y:f[b3,5]", "", "return F.mse_loss(x, y), F.l1_loss(x, y, reduction='none')"),
    ("smooth_l1", "x:f[b3,5];y:f[b3,5]", "", "return F.smooth_l1_loss(x, y, reduction='none', beta=0.5)"),
    ("cosine", "x:f[b3,6];y:f[b3,6]", "", "return F.cosine_similarity(x, y, dim=1)"),
    ("contrastive", "x:f[b3,6];y:f[b3,6]", "self.t = nn.Parameter(torch.tensor(0.5))", "return F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).t() * self.t.exp()"),
    ("mixture", "x:f[b3,6]", "self.g = nn.Linear(6, 3); self.w = nn.Parameter(torch.randn(3, 6, 4))", "g = torch.softmax(self.g(x), -1); return torch.einsum('be,bi,eio->bo', g, x, self.w)"),
    ("affine_boxes", "x:f[b3,4]", "", "c, s = x[:, :2], x[:, 2:].exp().clamp(max=50.0); return torch.cat([c - s / 2, c + s / 2], 1)"),
    ("box_areas", "x:u[n5,4]", "", "return (x[:, 2] - x[:, 0]).clamp(min=0) * (x[:, 3] - x[:, 1]).clamp(min=0)"),
    ("box_overlap", "x:u[n4,4];y:u[m5,4]", "", "a = torch.maximum(x[:, None, :2], y[None, :, :2]); b = torch.minimum(x[:, None, 2:], y[None, :, 2:]); return (b - a).clamp(min=0).prod(-1)"),
    # control flow
    ("branch", "x:f[b3,5]", "", "return torch.cond(x.sum() > 0, lambda t: t * 2 + 1, lambda t: t - 3, (x,))"),
    ("branch_layers", "x:f[b3,5]", "self.a = nn.Linear(5, 5); self.b = nn.Linear(5, 5)", "return torch.cond(x.mean() > 0.1, lambda t: torch.relu(self.a(t)), lambda t: torch.tanh(self.b(t)), (x,))"),
    ("branch_flag", "x:f[b3,5];k:m[1]", "", "return torch.cond(k.any(), lambda t: t.sin(), lambda t: t.cos(), (x,))"),
)
# fmt: on

VARIANTS = ("fixed", "dynamic")


@dataclass(frozen=True)
class Leaf:
    """One input of a row."""

    name: str
    kind: str
    dims: tuple[str, ...]

    def shape(self, sizes: dict[str, int]) -> list[int]:
        return [int(d) if d.isdigit() else sizes[symbol_of(d)] for d in self.dims]


@dataclass(frozen=True)
class Model:
    """A row in one of the VARIANTS: the text of a model file, its inputs, its dynamic symbols and their sizes in the example."""

    name: str
    text: str
    leaves: tuple[Leaf, ...]
    sizes: dict[str, int]
    dynamic: bool


def symbol_of(dim: str) -> str:
    """`b` of `b2`."""
    return re.sub(r"\d+$", "", dim)


def parse_inputs(text: str) -> tuple[Leaf, ...]:
    """The leaves of a row's inputs."""
    found = []
    for part in text.split(";"):
        match = re.fullmatch(r"(\w+):(\w+)\[(.*)\]", part)
        assert match, part
        found.append(Leaf(match[1], match[2], tuple(d for d in match[3].split(",") if d)))
    return tuple(found)


def drawn(kind: str, shape: list[int]) -> str:
    """The expression that draws an example."""
    size = str(tuple(shape))
    if kind[0] in "is":
        high = int(kind[1:])
        return f"torch.randint({0 if kind[0] == 'i' else 1 - high}, {high}, {size})"
    return {
        "f": f"torch.randn{size}",
        "u": f"torch.rand{size}",
        "p": f"torch.rand{size} * 2 + 0.1",
        "d": f"torch.randn{size}.double()",
        "h": f"torch.randn{size}.half()",
        "m": f"torch.rand{size} > 0.5",
        "1": f"(torch.rand{size} > 0.2).long()",
    }[kind]


def model_of(row: tuple[str, str, str, str], variant: str) -> Model:
    """A row's model file."""
    name, inputs, init, forward = row
    leaves = parse_inputs(inputs)
    sizes = {symbol_of(d): int(d[len(symbol_of(d)) :]) for leaf in leaves for d in leaf.dims if not d.isdigit()}
    axes = {leaf.name: {i: symbol_of(d) for i, d in enumerate(leaf.dims) if not d.isdigit()} for leaf in leaves}
    dynamic = variant == "dynamic"
    lines = ["import torch", "import torch.nn.functional as F", "from torch import nn", "", "", "class Model(nn.Module):"]
    lines += ["    def __init__(self):", "        super().__init__()", *(f"        {part.strip()}" for part in init.split(";") if part.strip()), ""]
    lines += [f"    def forward(self, {', '.join(leaf.name for leaf in leaves)}):", *(f"        {part.strip()}" for part in forward.split(";"))]
    lines += ["", "", "def get_inputs():", f"    return [{', '.join(drawn(leaf.kind, leaf.shape(sizes)) for leaf in leaves)}]"]
    if dynamic:
        lines += ["", "", f"dynamic_shapes = {{{', '.join(f'{n!r}: {a!r}' for n, a in axes.items() if a)}}}"]
    return Model(f"{name}_{variant}", "\n".join(lines) + "\n", leaves, sizes, dynamic)


def all_models() -> Iterator[Model]:
    """Every row in every variant that differs, dynamic ones first within a row."""
    for row in ROWS:
        model = model_of(row, "dynamic")
        if model.sizes:
            yield model
        yield model_of(row, "fixed")


SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 19)


def truth_inputs(model: Model, count: int, seed: int) -> Iterator[list[Any]]:
    """Allowed inputs, drawn without regard to the gate's own: other seeds, scales, offsets, grids of values, and sizes where they are dynamic."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    for turn in range(count):
        sizes = dict(model.sizes)
        if model.dynamic and turn % 2:
            for symbol in sizes:
                sizes[symbol] = SIZES[int(torch.randint(0, len(SIZES), (), generator=rng))]
        yield [draw(leaf, leaf.shape(sizes), turn, rng) for leaf in model.leaves]


def confirming_inputs(model: Model, sizes: dict[str, int], any_integer: bool, count: int, seed: int, root: str = "") -> Iterator[list[Any]]:
    """Fresh inputs of the kind that an alarm speaks of: at its sizes, or with integers of any size, where PyTorch takes them, or near the root
    of the "largest" or "smallest" number."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    for turn in range(count):
        leaves = [(leaf, leaf.shape({**model.sizes, **sizes})) for leaf in model.leaves]
        values = [
            torch.randint(-(2**31), 2**31, shape, generator=rng) if any_integer and leaf.kind[0] in "is" else draw(leaf, shape, turn, rng)
            for leaf, shape in leaves
        ]
        yield [v * root_scale(v.dtype, root) if v.is_floating_point() else v for v in values]


def root_scale(dtype: Any, root: str) -> float:
    """About the root of the dtype's largest or smallest number."""
    import torch

    limits = torch.finfo(dtype)
    return {"": 1.0, "largest": 0.5 * limits.max**0.5, "smallest": float(limits.tiny**0.5)}[root]


def draw(leaf: Leaf, shape: list[int], turn: int, rng: Any) -> Any:
    """One input tensor; the turn sets its scale and kind."""
    import torch

    if leaf.kind[0] in "is":
        high = int(leaf.kind[1:])
        low = 0 if leaf.kind[0] == "i" else 1 - high
        if turn % 8 == 6:
            return torch.full(shape, int(torch.randint(low, high, (), generator=rng)))
        return torch.randint(low, high, shape, generator=rng)
    if leaf.kind in ("m", "1"):
        share = (0.5, 0.2, 0.8, 1.0)[turn % 4]
        out = torch.rand(shape, generator=rng) <= share
        return out if leaf.kind == "m" else out.long()
    if leaf.kind == "u":
        out = torch.rand(shape, generator=rng)
        return (out**3, out, (out * 4).round() / 4, out)[turn % 4]
    if leaf.kind == "p":
        return 10.0 ** ((torch.rand(shape, generator=rng) * 2 - 1) * (0.5, 1.0, 2.0, 3.0)[turn % 4])
    shapes: tuple[Callable[[Any], Any], ...] = (
        lambda x: x,
        lambda x: x * 3,
        lambda x: x * 0.3,
        lambda x: x + 2,
        lambda x: x * 10 - 5,
        lambda x: (x * 2).round() / 2,
        lambda x: x * 0.01,
        lambda x: x * 50,
        lambda x: x.abs(),
        lambda x: x * 1e-3,
        lambda x: x * 10 ** (2 * torch.randn(x.shape, generator=rng)).clamp(-4, 4),
        lambda x: x - 3,
    )
    out = shapes[(turn // 2 if turn % 5 else turn) % len(shapes)](torch.randn(shape, generator=rng))
    return out.double() if leaf.kind == "d" else out.half() if leaf.kind == "h" else out
