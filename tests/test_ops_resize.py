"""Pooling, interpolation and grids against PyTorch's own, in eager mode."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from autofix.surgery.ops_grid import affine_grid, grid_sample_volume, transposed_overrides
from autofix.surgery.ops_pool import adaptive_max, adaptive_mean
from autofix.surgery.ops_resize_scaled import interpolate_scaled
from autofix.surgery.ops_resize_table import resize_table

TABLE = resize_table()


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same(ours, theirs, tolerance=2e-6):
    ours = ours if isinstance(ours, (tuple, list)) else (ours,)
    theirs = theirs if isinstance(theirs, (tuple, list)) else (theirs,)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (7, 2), (10, 13), (12, 20), (1, 4)], ids=str)
def test_adaptive_pools_with_nan_and_infinities(size):
    x = normal(2, 2, 10, 13)
    x[0, 0, 3, 4], x[0, 1, 2, 2] = math.nan, math.inf
    x[1, 0] = -math.inf
    same(adaptive_mean(x, size), F.adaptive_avg_pool2d(x, size))
    same(adaptive_max(x, size), F.adaptive_max_pool2d(x, size, return_indices=True))


def test_adaptive_pools_of_other_ranks():
    x = normal(2, 5, 7, 6).round()
    same(adaptive_max(x, (2, 3, 4)), F.adaptive_max_pool3d(x, (2, 3, 4), return_indices=True))
    same(adaptive_mean(x, (2, 3, 4)), F.adaptive_avg_pool3d(x, (2, 3, 4)))
    same(adaptive_max(x[0], (4,)), F.adaptive_max_pool1d(x[0], 4, return_indices=True))


@pytest.mark.parametrize(("size", "count"), itertools.product([1, 2, 5, 26, 16, 37, 64], [1, 3, 8, 64, 26, 50]))
def test_interpolation_to_a_size(size, count):
    x = normal(1, 1, size)
    same(TABLE["aten.upsample_nearest1d.default"](x, [count]), F.interpolate(x, count, mode="nearest"))
    same(TABLE["aten._upsample_nearest_exact1d.default"](x, [count]), F.interpolate(x, count, mode="nearest-exact"))
    plane = normal(1, 2, size, 5)
    for align in (False, True):
        same(TABLE["aten.upsample_linear1d.default"](x, [count], align), F.interpolate(x, count, mode="linear", align_corners=align), 1e-4)
        for mode in ("bilinear", "bicubic"):
            same(
                TABLE[f"aten.upsample_{mode}2d.default"](plane, [count, 7], align),
                F.interpolate(plane, (count, 7), mode=mode, align_corners=align),
                1e-4,
            )
            theirs = F.interpolate(plane, (count, 7), mode=mode, align_corners=align, antialias=True)
            same(TABLE[f"aten._upsample_{mode}2d_aa.default"](plane, [count, 7], align), theirs, 1e-4)


@pytest.mark.parametrize("scale", [0.37, 1.05, 2.0, 1.3, 0.9, 3.7, 0.5])
def test_interpolation_by_a_factor(scale):
    for size in (10, 16, 20, 31):
        x = normal(1, 1, size, 40)
        both = [scale, scale]
        same(TABLE["aten.upsample_nearest2d.vec"](x, None, both), F.interpolate(x, scale_factor=scale, mode="nearest"))
        same(TABLE["aten._upsample_nearest_exact2d.vec"](x, None, both), F.interpolate(x, scale_factor=scale, mode="nearest-exact"))
        for mode in ("bilinear", "bicubic"):
            same(TABLE[f"aten.upsample_{mode}2d.vec"](x, None, False, both), F.interpolate(x, scale_factor=scale, mode=mode), 1e-4)
            same(
                TABLE[f"aten._upsample_{mode}2d_aa.vec"](x, None, False, both), F.interpolate(x, scale_factor=scale, mode=mode, antialias=True), 1e-4
            )


@pytest.mark.parametrize("align", [False, True])
def test_grids(align):
    for size in ((2, 3, 4, 5), (2, 3, 4, 5, 6), (1, 1, 1, 1)):
        theta = normal(size[0], len(size) - 2, len(size) - 1)
        same(affine_grid(theta, size, align), F.affine_grid(theta, size, align_corners=align), 1e-5)
    volume, grid = normal(2, 3, 4, 5, 6), normal(2, 3, 4, 5, 3, seed=1) * 1.5
    grid[0, 0, 0, 0] = math.nan
    for mode, padding in itertools.product(range(2), range(3)):
        theirs = F.grid_sample(
            volume, grid, mode=("bilinear", "nearest")[mode], padding_mode=("zeros", "border", "reflection")[padding], align_corners=align
        )
        same(grid_sample_volume(volume, grid, mode, padding, align), theirs, 1e-4)


def test_transposed_convolution_leaves_plain_calls_alone():
    ours = transposed_overrides()[torch.conv_transpose2d]
    x, w = normal(1, 2, 4, 5), normal(2, 3, 3, 3, seed=1)
    same(ours(x, w, None, 2, 1, 1), torch.conv_transpose2d(x, w, None, 2, 1, 1))


@pytest.mark.parametrize(("height", "width"), [(9, 12), (7, 7), (14, 5), (1, 3)])
def test_a_scale_that_is_computed_from_sizes(height, width):
    """As tensors, which is what numbers of the graph are, the factors give what they give as Python numbers."""
    x = normal(1, 2, 7, 7)
    factors = (height / 7 + 1e-4, width / 7 + 0.1)
    tensors = tuple(torch.tensor(f, dtype=torch.float64) for f in factors)
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
        for recompute in (None, True):
            theirs = F.interpolate(x, scale_factor=factors, mode=mode, recompute_scale_factor=recompute)
            same(interpolate_scaled(x, scale_factor=tensors, mode=mode, recompute_scale_factor=recompute), theirs, 1e-5)
    same(interpolate_scaled(x, scale_factor=1.5), F.interpolate(x, scale_factor=1.5))
    with pytest.raises(NotImplementedError):
        interpolate_scaled(x, scale_factor=tensors, mode="bicubic", antialias=True)
