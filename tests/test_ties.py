"""Equal entries: what hangs on their order, and that nothing else is let through."""

from __future__ import annotations

import numpy as np
import torch

from autofix.compare import check_output
from autofix.ties import FIRST, LAST, MOST_TIED, TieOrder, few_tied, has_own_order, ordered_entries, tied_places

X = torch.tensor([[3.0, 1.0, 3.0, 2.0, 1.0], [0.0, 5.0, 4.0, 5.0, 5.0]])


class Call:
    def __init__(self, outputs):
        self.outputs = outputs


class Calls:
    """Stands in for Eager."""

    def __init__(self, function):
        self.function = function

    def call(self, leaves, model=None, template=None):
        return Call([(str(i), v) for i, v in enumerate(self.function(*[v for _, v in leaves]))])


def places(function, *inputs):
    leaves = [(str(i), v) for i, v in enumerate(inputs)]
    calls = Calls(function)
    return tied_places(calls, leaves, calls.call(leaves).outputs)


def test_first_and_last_of_equal_entries():
    assert ordered_entries(X, -1, False, FIRST)[1].tolist() == [[1, 4, 3, 0, 2], [0, 2, 1, 3, 4]]
    assert ordered_entries(X, -1, False, LAST)[1].tolist() == [[4, 1, 3, 2, 0], [0, 2, 4, 3, 1]]
    assert ordered_entries(X, -1, True, LAST)[1].tolist() == [[2, 0, 3, 4, 1], [4, 3, 1, 2, 0]]
    values, indices = ordered_entries(X, -1, False, 2)
    assert torch.equal(values, X.sort(-1).values) and torch.equal(X.gather(-1, indices), values)
    assert torch.equal(ordered_entries(X, 0, True, LAST)[0], X.sort(0, descending=True).values)


def test_only_places_of_equal_entries_are_tied():
    values, indices = places(lambda x: torch.sort(x, dim=-1), X)
    assert not values.any() and indices.tolist() == [[True, True, False, True, True], [False, False, True, True, True]]
    _, best = places(lambda x: torch.topk(x, 2), X)
    assert best.tolist() == [[True, True], [True, True]]
    _, stable = places(lambda x: torch.sort(x, dim=-1, stable=True), X)
    assert not stable.any()  # PyTorch says which comes first
    gathered, far = places(lambda x, y: (y[x.argsort()], y * 2), torch.tensor([1.0, 0.0, 1.0]), torch.tensor([7.0, 8.0, 9.0]))
    assert gathered.tolist() == [False, True, True] and not far.any()


def test_nothing_is_tied_without_a_sort():
    assert places(lambda x: (x * 2, x.argmax(-1)), X) is None


def test_a_shape_that_hangs_on_the_order_is_no_tie():
    assert places(lambda x: (torch.zeros(int(x.argsort()[0]) + 1),), torch.tensor([1.0, 1.0])) is None


def test_own_order():
    assert not has_own_order("aten.sort.default", (X,), {}, X.sort(stable=True))
    wrong = ordered_entries(X, -1, False, LAST)
    assert has_own_order("aten.sort.default", (X,), {}, wrong) and not has_own_order("aten.sort.stable", (X,), {"stable": True}, wrong)
    with TieOrder(LAST) as order:
        assert X.argsort(-1).tolist() == wrong[1].tolist() and order.met


def test_too_many_ties_leave_everything_to_be_held_to():
    all_tied, few = torch.ones(10, dtype=torch.bool), torch.arange(20) < 20 * MOST_TIED
    kept = few_tied([all_tied, few])
    assert not kept[0].any() and torch.equal(kept[1], few)


def test_differences_pass_at_tied_places_only():
    expected, tied = torch.arange(20), torch.arange(20) < 2
    swapped = np.arange(20)
    swapped[[0, 1]] = [1, 0]
    found = check_output(expected, swapped, tied=tied)
    assert found["ok"] and found["rule"] == "tie" and found["message"].startswith("2 of 20 places differ")
    assert not check_output(expected, swapped)["ok"]
    swapped[7] = 8
    assert not check_output(expected, swapped, tied=tied)["ok"]
    assert check_output(expected, expected.numpy(), tied=tied)["rule"] == "exact"
    assert not check_output(expected, swapped.astype(np.int32), tied=tied)["ok"]
