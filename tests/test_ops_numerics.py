"""Careful numerics against PyTorch's own at tiny, huge, signed-zero, infinite, NaN and empty operands."""

import math

import pytest
import torch
import torch.nn.functional as F

from autofix.surgery.ops_norms import NORM_DECOMPOSITIONS as G
from autofix.surgery.ops_numerics import NUMERIC_DECOMPOSITIONS as N
from autofix.surgery.ops_reductions import REDUCTION_DECOMPOSITIONS as R

EDGES = torch.tensor(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -2.5, math.inf, -math.inf, math.nan, 1e-7, -1e-7, 1e-20, 3e38, -3e38, 100, -100, 20.5, -20.5, 0.1, 88]
)
LEFT, RIGHT = (t.flatten() for t in torch.meshgrid(EDGES, EDGES, indexing="ij"))


def same(ours, theirs, tolerance=2e-6):
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=1e-30 if tolerance < 1e-5 else tolerance, equal_nan=True)


ONE = {
    "aten.expm1.default": torch.expm1,
    "aten.log1p.default": torch.log1p,
    "aten.softplus.default": F.softplus,
    "aten.log_sigmoid.default": F.logsigmoid,
    "aten.sign.default": torch.sign,
    "aten.sigmoid.default": torch.sigmoid,
    "aten.silu.default": F.silu,
    "aten.elu.default": F.elu,
    "aten.celu.default": F.celu,
    "aten.selu.default": F.selu,
}
TWO = {
    "aten.logaddexp.default": torch.logaddexp,
    "aten.xlogy.Tensor": torch.xlogy,
    "aten.special_xlog1py.default": torch.special.xlog1py,
    "aten.atan2.default": torch.atan2,
    "aten.heaviside.default": torch.heaviside,
    "aten.fmin.default": torch.fmin,
    "aten.fmax.default": torch.fmax,
}


@pytest.mark.parametrize("name", ONE)
def test_one_argument(name):
    same(N[name](EDGES), ONE[name](EDGES))


@pytest.mark.parametrize("name", TWO)
def test_two_arguments(name):
    same(N[name](LEFT, RIGHT), TWO[name](LEFT, RIGHT))


def test_remainders_and_floor_division():
    keep = LEFT.abs() < 1e30
    a, b = LEFT[keep], RIGHT[keep]
    same(N["aten.remainder.Tensor"](a, b), torch.remainder(a, b))
    same(N["aten.fmod.Tensor"](a, b), torch.fmod(a, b))
    same(N["aten.floor_divide.default"](a, b), torch.floor_divide(a, b))
    same(N["aten.floor_divide.default"](torch.tensor([1.0]), torch.tensor([0.1])), torch.tensor([9.0]))


def test_clamps_let_infinities_pass():
    same(N["aten.clamp.default"](EDGES, 0.0), EDGES.clamp(min=0.0))
    same(N["aten.clamp.default"](EDGES, -1.0, 2.0), EDGES.clamp(-1, 2))


def test_powers_of_integers():
    i, x = torch.tensor([1, 2, 3, 4]), torch.tensor([0.5, 1, 1.5, -0.5])
    same(N["aten.pow.Tensor_Tensor"](i, x), torch.pow(i, x))
    same(N["aten.pow.Scalar"](2, x), torch.pow(2, x))
    same(N["aten.pow.Tensor_Scalar"](i, 0.5), i**0.5)
    assert N["aten.pow.Tensor_Tensor"](x, x) is NotImplemented


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_cross_entropy_with_every_option(reduction):
    name = ("none", "mean", "sum")[reduction]
    x, w = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)), torch.rand(5, generator=torch.Generator().manual_seed(1))
    ours = R["aten.cross_entropy_loss.default"]
    for labels in (torch.tensor([0, 1, -100, 4, 2, 3]), torch.full((6,), -100)):
        for weight in (None, w):
            for smoothing in (0.0, 0.1):
                same(
                    ours(x, labels, weight, reduction, -100, smoothing),
                    F.cross_entropy(x, labels, weight, reduction=name, label_smoothing=smoothing),
                    1e-5,
                )
    same(ours(x, x.softmax(1), w, reduction, -100, 0.2), F.cross_entropy(x, x.softmax(1), w, reduction=name, label_smoothing=0.2), 1e-5)
    same(ours(x[0], torch.tensor(3), None, reduction, -100, 0.1), F.cross_entropy(x[0], torch.tensor(3), reduction=name, label_smoothing=0.1), 1e-5)


def test_nothing_to_reduce():
    empty = torch.zeros(3, 0)
    same(R["aten.mean.dim"](empty, [1]), empty.mean(1))
    same(R["aten.var.correction"](empty, [1]), empty.var(1))
    same(R["aten.std.correction"](torch.ones(3, 1), [1]), torch.ones(3, 1).std(1))
    same(R["aten.any.dim"](empty, 1), empty.any(1))
    same(R["aten.all.dim"](empty, 1), empty.all(1))


def test_half_precision_keeps_its_dtype():
    x = torch.arange(12).reshape(3, 4).half()
    same(R["aten.sum.dim_IntList"](x, [1]), x.sum(1))
    same(R["aten.mean.default"](x), x.mean())
    assert R["aten.sum.default"](x.float()) is NotImplemented
    far = 300 * x
    same(R["aten.std.correction"](far, [1]), far.std(1), 1e-3)
    same(R["aten.var_mean.correction"](far, [1], correction=0)[1], torch.var_mean(far, 1, correction=0)[1], 1e-3)


def test_beta_zero_ignores_nan():
    bad, a, b = torch.full((2, 3, 4), math.nan), torch.randn(2, 3, 5), torch.randn(2, 5, 4)
    same(R["aten.baddbmm.default"](bad, a, b, beta=0, alpha=0.5), torch.baddbmm(bad, a, b, beta=0, alpha=0.5), 1e-5)
    assert R["aten.addmm.default"](bad[0], a[0], b[0]) is NotImplemented


def test_attention_with_dead_rows_and_grouped_heads():
    q, k = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 5, 8)
    mask = torch.ones(2, 1, 3, 5, dtype=torch.bool)
    mask[0, 0, 1] = False
    ours = R["aten.scaled_dot_product_attention.default"]
    same(ours(q, k, k, mask, enable_gqa=True), F.scaled_dot_product_attention(q, k, k, attn_mask=mask, enable_gqa=True), 1e-5)
    same(ours(q, q, q, is_causal=True, scale=0.3), F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3), 1e-5)


def test_batch_norm_on_batch_statistics():
    x, m, v, w = torch.randn(4, 3, 5) * 3 + 1, torch.randn(3), torch.rand(3), torch.rand(3)
    ours = R["aten._native_batch_norm_legit_functional.default"](x, w, w, m, v, True, 0.2, 1e-5)
    theirs = torch.ops.aten._native_batch_norm_legit_functional(x, w, w, m, v, True, 0.2, 1e-5)
    for a, b in zip(ours, theirs, strict=True):
        same(a, b, 1e-4)


def test_norms_of_groups_keep_nearly_equal_values():
    x = torch.randn(2, 6, 40, 30)
    weight, bias = torch.randn(6), torch.randn(6)
    same(G["aten.group_norm.default"](x, 3, weight, bias, 1e-3), F.group_norm(x, 3, weight, bias, 1e-3), 1e-5)
    same(G["aten.instance_norm.default"](x, weight, bias, None, None, True, 0.1, 1e-5, False), F.instance_norm(x, None, None, weight, bias), 1e-5)
    level = 0.37 + torch.randn(1, 4, 300, 200) * 1e-7
    wide = F.group_norm(level.double(), 4).float()
    same(G["aten.group_norm.default"](level, 4), wide, 1e-6)


def test_instance_norm_by_running_statistics_is_left_alone():
    x, mean, var = torch.randn(2, 3, 4), torch.zeros(3), torch.ones(3)
    assert G["aten.instance_norm.default"](x, None, None, mean, var, False, 0.1, 1e-5, False) is NotImplemented
