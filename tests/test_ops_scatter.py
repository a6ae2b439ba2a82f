"""Reductions by index and distances against PyTorch's own, in eager mode."""

import math

import pytest
import torch

from autofix.surgery import ops_scatter
from autofix.surgery.ops_scatter import SCATTER_DECOMPOSITIONS, scatter_reduced

G = torch.Generator().manual_seed(0)
X = torch.randn(3, 4, generator=G) * 3
INDEX = torch.randint(0, 4, (3, 6), generator=G)
SOURCE = torch.randn(3, 6, generator=G) * 3


def same(a, b, tolerance=2e-6):
    assert a.dtype == b.dtype
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("mode", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32])
def test_scatter_reduce(mode, include, dtype):
    x, source = X.to(dtype), SOURCE.to(dtype)
    same(scatter_reduced(x, 1, INDEX, source, mode, include), x.scatter_reduce(1, INDEX, source, mode, include_self=include))


@pytest.mark.parametrize("mode", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include", [True, False])
def test_scatter_reduce_of_nan_and_infinities(mode, include):
    x, source = X.clone(), SOURCE.clone()
    x[2, 1], x[1, 1], source[0, 0], source[1, 2] = math.nan, -math.inf, math.nan, math.inf
    same(scatter_reduced(x, 1, INDEX, source, mode, include), x.scatter_reduce(1, INDEX, source, mode, include_self=include))


@pytest.mark.parametrize("mode", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include", [True, False])
def test_index_reduce(mode, include):
    index = INDEX[0]
    ours = SCATTER_DECOMPOSITIONS["aten.index_reduce.default"](X, 1, index, SOURCE, mode, include_self=include)
    same(ours, X.index_reduce(1, index, SOURCE, mode, include_self=include))


def test_scatter_with_and_put():
    same(SCATTER_DECOMPOSITIONS["aten.scatter.reduce"](X, 1, INDEX, SOURCE, reduce="multiply"), X.scatter(1, INDEX, SOURCE, reduce="multiply"))
    same(SCATTER_DECOMPOSITIONS["aten.scatter.value_reduce"](X, 1, INDEX, 2.5, reduce="add"), X.scatter(1, INDEX, 2.5, reduce="add"))
    same(SCATTER_DECOMPOSITIONS["aten.put.default"](X, INDEX - 4, SOURCE, True), X.put(INDEX - 4, SOURCE, accumulate=True))
    same(SCATTER_DECOMPOSITIONS["aten.index_add.default"](X, 1, INDEX[0], SOURCE, alpha=2), X.index_add(1, INDEX[0], SOURCE, alpha=2))


def test_what_onnx_does_itself_is_left_alone():
    assert ops_scatter.scatter_reduce(X, 1, INDEX, SOURCE, "amax", include_self=True) is NotImplemented
    assert ops_scatter.scatter_add(X, 1, INDEX, SOURCE) is NotImplemented
    longer = torch.cat([SOURCE, SOURCE], 1)
    same(ops_scatter.scatter_add(X, 1, INDEX, longer), X.scatter_add(1, INDEX, longer))


@pytest.mark.parametrize("mode", ["sum", "mean", "max", "min", "prod"])
def test_segments_with_an_empty_one(mode):
    data, lengths = torch.randn(6, 3, generator=G), torch.tensor([2, 0, 4])
    ours = SCATTER_DECOMPOSITIONS["aten.segment_reduce.default"](data, mode, lengths=lengths)
    same(ours, torch.segment_reduce(data, mode, lengths=lengths, unsafe=True))


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, math.inf])
def test_distances(p):
    a, b = torch.randn(2, 5, 4, generator=G), torch.randn(7, 4, generator=G)
    same(SCATTER_DECOMPOSITIONS["aten.cdist.default"](a, b, p), torch.cdist(a, b, p), 1e-5)
    for n in (2, 3, 9, 40):
        x = torch.randn(n, 3, generator=G)
        same(SCATTER_DECOMPOSITIONS["aten.pdist.default"](x, p), torch.pdist(x, p), 1e-5)


@pytest.mark.parametrize(("shape", "offset", "dims"), [((4, 5), 0, (0, 1)), ((4, 5), 2, (1, 0)), ((5, 2, 3), -1, (0, 2)), ((2, 6, 3), -2, (-2, -1))])
def test_a_diagonal_is_written(shape, offset, dims):
    x = torch.arange(float(math.prod(shape))).reshape(shape)
    part = -1 - torch.diagonal(x, offset, *dims)
    same(SCATTER_DECOMPOSITIONS["aten.diagonal_scatter.default"](x, part, offset, *dims), torch.diagonal_scatter(x, part, offset, *dims))


def test_entries_picked_by_a_mask_of_another_shape():
    for mask in (X > 0, torch.tensor([True, False, True, False]), torch.tensor([[True], [False], [True]])):
        same(SCATTER_DECOMPOSITIONS["aten.masked_select.default"](X, mask), torch.masked_select(X, mask))
