"""Grouped matrix products against torch's own."""

from __future__ import annotations

import pytest
import torch

from autofix.surgery.ops_grouped import grouped_mm, grouped_mm_fallback

ENDS = torch.tensor([2, 2, 7], dtype=torch.int32)


def by_hand(a, b, ends):
    """Group after group, as the documentation of torch.nn.functional.grouped_mm has it."""
    starts = [0, *ends.tolist()[:-1]]
    spans = list(zip(starts, ends.tolist(), strict=True))
    if a.dim() == 2 and b.dim() == 3:
        return torch.cat([a[s:e] @ b[g] for g, (s, e) in enumerate(spans)])
    if a.dim() == 3:
        return torch.cat([a[g] @ b[:, s:e] for g, (s, e) in enumerate(spans)], 1)
    return torch.stack([a[:, s:e] @ b[s:e] for s, e in spans])


@pytest.mark.parametrize(("left", "right"), [((7, 4), (3, 4, 5)), ((3, 6, 4), (4, 7)), ((6, 7), (7, 5))])
def test_groups_along_each_axis(left, right):
    torch.manual_seed(0)
    a, b = torch.randn(*left), torch.randn(*right)
    torch.testing.assert_close(grouped_mm(a, b, ENDS), by_hand(a, b, ENDS))


def test_a_batch_and_a_type():
    a, b = torch.randn(3, 6, 4), torch.randn(3, 4, 5)
    torch.testing.assert_close(grouped_mm(a, b, out_dtype=torch.float64), torch.bmm(a, b).double())


def test_other_experts_do_not_leak_and_rows_behind_the_end_are_zero():
    a, b = torch.randn(9, 4), torch.randn(3, 4, 5)
    b[1] = float("nan")  # an expert that no row is sent to
    out = grouped_mm_fallback(a, b, ENDS)
    torch.testing.assert_close(out[:7], by_hand(a[:7], b, ENDS))
    assert torch.equal(out[7:], torch.zeros(2, 5))
