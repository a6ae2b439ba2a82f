"""Gradients of padding, resizing, pooling by place and sampling against torch's own kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autofix.surgery.gradient_forms_places import PLACE_GRADIENTS, counting_losses

aten = torch.ops.aten


def check(name: str, *args: Any) -> None:
    """Our form of aten.<name>.default gives what the kernel gives."""
    expected = getattr(aten, name)(*args)
    given = PLACE_GRADIENTS[f"aten.{name}.default"](*args)
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["replication", "reflection"])
def test_padding(kind: str) -> None:
    torch.manual_seed(0)
    for x, padding in ((torch.randn(2, 3, 7), [2, 3]), (torch.randn(2, 3, 7, 5), [1, 0, 3, 2]), (torch.randn(2, 3, 4, 5, 6), [1, 2, 3, 0, 2, 1])):
        rank = len(padding) // 2
        made = getattr(aten, f"{kind}_pad{rank}d")(x, padding)
        check(f"{kind}_pad{rank}d_backward", torch.randn_like(made), x, padding)


def test_means_of_volumes() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, 7, 8)
    for how in (([3, 2, 2], [2, 2, 2], [1, 0, 1], False, True, None), ([2], [], [0], True, False, None), ([2], [2], [0], False, False, 3)):
        check("avg_pool3d_backward", torch.randn_like(aten.avg_pool3d(x, *how)), x, *how)
    check("_adaptive_avg_pool3d_backward", torch.randn(2, 3, 4, 3, 5), x)


def test_resizing() -> None:
    torch.manual_seed(0)
    volume, plane = [2, 3, 4, 5, 6], [2, 3, 9, 8]
    check("upsample_nearest3d_backward", torch.randn(2, 3, 7, 5, 3), [7, 5, 3], volume, None, None, None)
    check("_upsample_nearest_exact3d_backward", torch.randn(2, 3, 8, 10, 12), [8, 10, 12], volume, 2.0, 2.0, 2.0)
    check("_upsample_nearest_exact2d_backward", torch.randn(2, 3, 5, 13), [5, 13], plane, None, None)
    check("_upsample_nearest_exact1d_backward", torch.randn(2, 3, 5), [5], [2, 3, 9], None)
    for align in (True, False):
        check("upsample_trilinear3d_backward", torch.randn(2, 3, 7, 5, 3), [7, 5, 3], volume, align, None, None, None)
        check("upsample_bicubic2d_backward", torch.randn(2, 3, 13, 5), [13, 5], plane, align, None, None)
        check("_upsample_bilinear2d_aa_backward", torch.randn(2, 3, 13, 5), [13, 5], plane, align, None, None)
    check("upsample_bicubic2d_backward", torch.randn(2, 3, 18, 16), [18, 16], plane, False, 2.0, 2.0)


def test_largest_entries() -> None:
    torch.manual_seed(0)
    x, volume = torch.randn(2, 3, 9, 8), torch.randn(2, 3, 5, 6, 7)
    how: Any = ([3, 3], [2, 2], [1, 1], [1, 1], False)
    made, places = aten.max_pool2d_with_indices(x, *how)
    check("max_pool2d_with_indices_backward", torch.randn_like(made), x, *how, places)
    how = ([3] * 3, [1] * 3, [1] * 3, [1] * 3, True)
    made, places = aten.max_pool3d_with_indices(volume, *how)
    check("max_pool3d_with_indices_backward", torch.randn_like(made), volume, *how, places)
    made, places = aten.adaptive_max_pool2d(x, [4, 5])
    check("adaptive_max_pool2d_backward", torch.randn_like(made), x, places)
    made, places = aten.fractional_max_pool2d(x, [2, 2], [4, 5], torch.rand(2, 3, 2))
    check("fractional_max_pool2d_backward", torch.randn_like(made), x, [2, 2], [4, 5], places)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("rank", [2, 3])
def test_sampling(mode: int, padding: int, align: bool, rank: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, *(4, 5, 6)[:rank])
    grid = torch.randn(2, *(3, 4, 2)[:rank], rank) * 1.7
    grad = torch.randn(2, 3, *grid.shape[1:-1])
    check(f"grid_sampler_{rank}d_backward", grad, x, grid, mode, padding, align, [True, True])


def test_losses_give_the_weight_that_gradients_are_divided_by() -> None:
    torch.manual_seed(0)
    for name, size in (("nll_loss_forward", (6, 5)), ("nll_loss2d_forward", (2, 5, 3, 4))):
        scores = torch.randn(*size).log_softmax(1)
        target = torch.randint(0, 5, (size[0], *size[2:]))
        target.view(-1)[0] = -100
        for weight in (None, torch.rand(5)):
            expected = getattr(aten, name)(scores, target, weight, 1, -100)
            torch.testing.assert_close(counting_losses()[f"aten.{name}.default"](scores, target, weight, 1, -100), expected)
