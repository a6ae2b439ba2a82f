"""Order statistics and scans against PyTorch's own, in eager mode, with topk made stable as ONNX's is."""

import math

import pytest
import torch

from autofix.surgery import ops_order
from autofix.surgery.ops_order import ORDER_DECOMPOSITIONS, QUANTILE_OVERRIDES
from autofix.surgery.ops_order_counts import COUNT_OVERRIDES
from autofix.surgery.ops_scan import SCAN_DECOMPOSITIONS

SPECIAL = torch.tensor(
    [[1, math.nan, 3, math.inf, -math.inf, math.nan, 0, -0.0, 2], [0.0] * 9, [math.inf, 5, math.inf, 1, math.inf, 2, 2, 2, math.nan]]
)
PLAIN = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
TIES = torch.randint(0, 4, (3, 9), generator=torch.Generator().manual_seed(1)).float()
INTS = torch.randint(-3, 3, (4, 6), generator=torch.Generator().manual_seed(2))
ALL = [PLAIN, TIES, SPECIAL, PLAIN[:, :1], INTS, INTS.abs().to(torch.uint8), TIES.half()]


@pytest.fixture(autouse=True)
def stable_topk(monkeypatch):
    monkeypatch.setattr(ops_order, "topk_order", lambda key, dim, descending: torch.sort(key, dim=dim, descending=descending, stable=True)[1])


def same(ours, theirs, tolerance=1e-6):
    ours = ours if isinstance(ours, (tuple, list)) else (ours,)
    theirs = theirs if isinstance(theirs, (tuple, list)) else (theirs,)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("x", ALL, ids=str)
def test_sorts_scans_and_ranks(x):
    for dim in (0, 1):
        for descending in (False, True):
            same(
                ORDER_DECOMPOSITIONS["aten.sort.stable"](x, stable=True, dim=dim, descending=descending),
                tuple(torch.sort(x, dim=dim, stable=True, descending=descending)),
            )
        same(ORDER_DECOMPOSITIONS["aten.median.dim"](x, dim)[0], torch.median(x, dim)[0])
        same(ORDER_DECOMPOSITIONS["aten.nanmedian.dim"](x, dim, True)[0], torch.nanmedian(x, dim, True)[0])
        same(ORDER_DECOMPOSITIONS["aten.kthvalue.default"](x, 1, dim)[0], torch.kthvalue(x, 1, dim)[0])
        same(SCAN_DECOMPOSITIONS["aten.cummax.default"](x, dim), tuple(torch.cummax(x, dim)))
        same(SCAN_DECOMPOSITIONS["aten.cummin.default"](x, dim), tuple(torch.cummin(x, dim)))
        same(SCAN_DECOMPOSITIONS["aten.cumprod.default"](x, dim), torch.cumprod(x, dim))
        if x.dtype.is_floating_point:
            same(
                SCAN_DECOMPOSITIONS["aten.logcumsumexp.default"](x * 100, dim),
                torch.logcumsumexp(x * 100, dim),
                1e-3 if x.dtype == torch.half else 1e-5,
            )
    same(ORDER_DECOMPOSITIONS["aten.median.default"](x), torch.median(x))
    same(ORDER_DECOMPOSITIONS["aten.nanmedian.default"](x), torch.nanmedian(x))


@pytest.mark.parametrize("x", [TIES, INTS, PLAIN[:, :1], TIES.half()], ids=str)
def test_mode_takes_the_least_value_at_its_last_place(x):
    same(ORDER_DECOMPOSITIONS["aten.mode.default"](x, 1), tuple(torch.mode(x, 1)))


def test_products_overflow_and_underflow_as_atens_do():
    x = torch.tensor([[1e30, 1e30, 0, 2], [1e-30, 1e-30, 1e30, 1e30]])
    same(SCAN_DECOMPOSITIONS["aten.cumprod.default"](x, 1), torch.cumprod(x, 1))


@pytest.mark.parametrize("right", [False, True])
def test_binary_search(right):
    for sequence, values in (
        (PLAIN.sort(1)[0], PLAIN),
        (TIES.sort(1)[0], TIES),
        (PLAIN[0].sort()[0], PLAIN),
        (SPECIAL.sort(1)[0], SPECIAL),
        (PLAIN[:, :0], PLAIN),
        (torch.arange(5), INTS),
    ):
        same(ORDER_DECOMPOSITIONS["aten.searchsorted.Tensor"](sequence, values, right=right), torch.searchsorted(sequence, values, right=right))
    edges = torch.tensor([-1.0, 0.0, 0.5])
    same(
        ORDER_DECOMPOSITIONS["aten.bucketize.Tensor"](PLAIN, edges, right=right, out_int32=True),
        torch.bucketize(PLAIN, edges, right=right, out_int32=True),
    )


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("options", [{}, {"dim": 1}, {"dim": 0, "keepdim": True}, {"keepdim": True}], ids=str)
def test_quantiles(interpolation, options):
    q = torch.tensor([0.0, 0.25, 0.6, 1.0])
    for theirs in (torch.quantile, torch.nanquantile):
        ours = QUANTILE_OVERRIDES[theirs]
        for x in (PLAIN, SPECIAL):
            same(ours(x, q, interpolation=interpolation, **options), theirs(x, q, interpolation=interpolation, **options))
            same(ours(x, 0.3, interpolation=interpolation, **options), theirs(x, 0.3, interpolation=interpolation, **options))


def test_counts_and_moments():
    i = torch.tensor([0, 3, 3, 1])
    w = torch.tensor([0.5, 1.0, 2.0, 4.0])
    same(COUNT_OVERRIDES[torch.bincount](i), torch.bincount(i))
    same(COUNT_OVERRIDES[torch.bincount](i, w, minlength=7), torch.bincount(i, w, minlength=7))
    x = torch.cat([PLAIN.flatten(), torch.tensor([-2.0, 2.0, 0.0])])
    for options in ({}, {"range": (-1.0, 2.0)}, {"range": (-2.0, 2.0), "density": True}, {"weight": x.abs()}):
        same(tuple(COUNT_OVERRIDES[torch.histogram](x, 4, **options)), tuple(torch.histogram(x, 4, **options)), 1e-5)
    same(tuple(COUNT_OVERRIDES[torch.histogram](x, torch.tensor([-1.0, 0.0, 2.0]))), tuple(torch.histogram(x, torch.tensor([-1.0, 0.0, 2.0]))))
    for bins in (1, 4, 100):
        for y in (x, x.round(decimals=1), torch.ones(3)):
            same(COUNT_OVERRIDES[torch.histc](y, bins), torch.histc(y, bins))
    f = torch.tensor([1, 2, 1, 3, 1, 1, 1, 2, 1])
    for options in ({}, {"correction": 0}, {"fweights": f}, {"aweights": f * 0.5}, {"fweights": f, "aweights": f * 0.5}):
        same(COUNT_OVERRIDES[torch.cov](PLAIN, **options), torch.cov(PLAIN, **options), 1e-5)
    same(COUNT_OVERRIDES[torch.cov](PLAIN[0]), torch.cov(PLAIN[0]), 1e-5)
    same(COUNT_OVERRIDES[torch.corrcoef](PLAIN), torch.corrcoef(PLAIN), 1e-5)
