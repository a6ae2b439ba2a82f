"""Losses and fractional pooling against PyTorch's own, in eager mode."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from autofix.surgery.ops_losses import LOSS_DECOMPOSITIONS, ctc_loss_plain
from autofix.surgery.ops_pool_fractional import FRACTIONAL_DECOMPOSITIONS

SCORES = torch.randn(12, 5, 6, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
TARGETS = torch.tensor([[2, 2, 2, 3], [1, 5, 3, 4], [4, 1, 1, 1], [5, 5, 1, 2], [3, 3, 3, 3]])
HEARD, MEANT = torch.tensor([12, 10, 5, 8, 0]), torch.tensor([4, 3, 2, 0, 1])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("blank", [0, 2])
def test_connectionist_temporal_classification(reduction, finite, blank):
    options = {"blank": blank, "reduction": reduction, "zero_infinity": finite}
    torch.testing.assert_close(ctc_loss_plain(SCORES, TARGETS, HEARD, MEANT, **options), F.ctc_loss(SCORES, TARGETS, HEARD, MEANT, **options))


def test_targets_one_after_the_other_and_one_recording_alone():
    flat = torch.cat([row[:n] for row, n in zip(TARGETS, MEANT, strict=True)])
    expected = F.ctc_loss(SCORES, flat, HEARD, MEANT, reduction="none")
    torch.testing.assert_close(ctc_loss_plain(SCORES, flat, HEARD, MEANT, reduction="none"), expected)
    for heard, meant in (((12,), (4,)), (torch.tensor(12), torch.tensor(4))):
        expected = F.ctc_loss(SCORES[:, 0], TARGETS[0], heard, meant, reduction="none")
        torch.testing.assert_close(ctc_loss_plain(SCORES[:, 0], TARGETS[0], heard, meant, reduction="none"), expected)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_multilabel_margins(reduction):
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    target = torch.randint(-1, 5, (6, 5), generator=torch.Generator().manual_seed(2))
    x[1, 2], x[2, 1] = math.nan, math.inf
    for scores, wanted in ((x, target), (x[0], target[0])):
        expected = torch.ops.aten.multilabel_margin_loss_forward(scores, wanted, reduction)
        given = LOSS_DECOMPOSITIONS["aten.multilabel_margin_loss_forward.default"](scores, wanted, reduction)
        torch.testing.assert_close(given, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("size", "kernel", "output"), [((11, 9), (3, 2), (4, 5)), ((11, 9), (3, 2), (1, 5)), ((7, 9, 8), (2, 2, 3), (3, 4, 2))], ids=str
)
def test_fractional_pooling(size, kernel, output):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 2, *size, generator=generator)
    x[0, 0].view(-1)[::7] = math.nan
    samples = torch.rand(3, 2, len(size), generator=generator)
    name = f"fractional_max_pool{len(size)}d"
    expected = getattr(torch.ops.aten, name)(x, kernel, output, samples)
    torch.testing.assert_close(FRACTIONAL_DECOMPOSITIONS[f"aten.{name}.default"](x, kernel, output, samples), expected, equal_nan=True)
