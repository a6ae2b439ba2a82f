"""Convolutions with a number of groups taken from a size, against PyTorch's own."""

import numpy
import pytest
import torch

from autofix.surgery.ops_groups import grouped_overrides


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 3])
def test_grouped(rank, groups):
    torch.manual_seed(0)
    new, count = grouped_overrides(), numpy.int64(groups)  # anything but a plain int stands for a size of the graph
    x, bias = torch.randn(2, 2 * groups, *[7, 6, 5][:rank]), torch.randn(4 * groups)
    one, other = (getattr(torch, f"conv{t}{rank}d") for t in ("", "_transpose"))
    weight = torch.randn(4 * groups, 2, *[3, 2, 1][:rank])
    for stride, padding, dilation in ((1, 0, 1), (2, 1, 1), (3, 1, 2)):
        args = (bias, stride, padding, dilation)
        torch.testing.assert_close(new[one](x, weight, *args, count), one(x, weight, *args, groups), rtol=1e-4, atol=1e-4)
    weight = torch.randn(2 * groups, 4, *[3, 2, 1][:rank])
    for stride, padding, more, dilation in ((1, 0, 0, 1), (2, 1, 1, 1), (3, 0, 2, 2), (2, 2, 0, 1)):
        got = new[other](x, weight, bias, stride, padding, more, count, dilation)
        torch.testing.assert_close(got, other(x, weight, bias, stride, padding, more, groups, dilation), rtol=1e-4, atol=1e-4)
