"""Shape-following forms against PyTorch's own functions."""

import pytest
import torch

from autofix.surgery.ops_shapes import shape_overrides

NEW = {f: g for table in shape_overrides().values() for f, g in table.items()}
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def test_every_form_gives_the_same_elements():
    order = X.argsort(1)
    assert torch.equal(NEW[torch.take_along_dim](X, order, 1), torch.take_along_dim(X, order, 1))
    assert torch.equal(NEW[torch.take_along_dim](X, order[:1], 1), torch.take_along_dim(X, order[:1], 1))
    assert torch.equal(NEW[torch.take_along_dim](X, order), torch.take_along_dim(X, order))
    assert torch.equal(NEW[torch.kron](X, X[0]), torch.kron(X, X[0]))
    for n in (None, 0, 1, 3):
        for up in (False, True):
            torch.testing.assert_close(NEW[torch.vander](X[0], n, up), torch.vander(X[0], n, up))
    torch.testing.assert_close(NEW[torch.linalg.multi_dot]([X, X.mT, X]), torch.linalg.multi_dot([X, X.mT, X]))
    for offset in (-1, 0, 2):
        assert torch.equal(NEW[torch.tril_indices](3, 5, offset), torch.tril_indices(3, 5, offset))
        assert torch.equal(NEW[torch.triu_indices](3, 5, offset), torch.triu_indices(3, 5, offset))
    assert torch.equal(NEW[torch.roll](X, 2, 1), torch.roll(X, 2, 1))
    for ord in (2, -2, "nuc", "fro", 1):
        for keepdim in (False, True):
            torch.testing.assert_close(NEW[torch.linalg.matrix_norm](X, ord, keepdim=keepdim), torch.linalg.matrix_norm(X, ord, keepdim=keepdim))


def test_runs():
    x = torch.tensor([1, 1, 2, 2, 2, 1, 3])
    y = torch.tensor([[0, 1, 1], [0, 1, 1], [1, 1, 1], [0, 1, 1], [0, 1, 1]])
    for given, dim in ((x, None), (x, 0), (y, None), (y, 0), (y, 1), (y, -1)):
        for inverse in (False, True):
            for counts in (False, True):
                options = {"return_inverse": inverse, "return_counts": counts, "dim": dim}
                ours, theirs = (f(given, **options) for f in (NEW[torch.unique_consecutive], torch.unique_consecutive))
                for a, b in zip(*((o,) if isinstance(o, torch.Tensor) else o for o in (ours, theirs)), strict=True):
                    assert torch.equal(a, b)


def test_rows_of_choices():
    t = X[0]
    for r in (0, 1, 2, 3):
        for again in (False, True):
            assert torch.equal(NEW[torch.combinations](t, r, again), torch.combinations(t, r, again))
    assert torch.equal(NEW[torch.combinations](t[:1]), torch.combinations(t[:1]))
    assert torch.equal(NEW[torch.cartesian_prod](t, t[:2], t[:3]), torch.cartesian_prod(t, t[:2], t[:3]))
    assert torch.equal(NEW[torch.cartesian_prod](t), t)


def test_gradients():
    x = X.cumsum(1)
    uneven = (torch.tensor([0.0, 0.5, 2.0]), torch.tensor([-1.0, 0.0, 0.25, 4.0]))
    options = [{}, {"dim": 1}, {"dim": (1, 0), "spacing": (0.3, 2.0)}, {"spacing": 0.7, "edge_order": 2}, {"spacing": uneven}, {"dim": -1}]
    for kw in options:
        for data in (x, (x * 9).long()):
            for a, b in zip(NEW[torch.gradient](data, **kw), torch.gradient(data, **kw), strict=True):
                torch.testing.assert_close(a, b)


def test_written_parts():
    for key, value in [
        ((slice(None), slice(1, 3)), X[:, :2] + 9),
        ((Ellipsis, 1), X[:, 0] + 9),
        (2, X[0] + 9),
        ((slice(0, 2), None), X[:2, None] + 9),
        ((slice(None), 0), 7.0),
        (slice(None), torch.full((1, 1, 3, 4), 2.0)),
        (X > 0, torch.tensor(5.0)),
        (torch.tensor([0, 2]), X[:1]),
        ((1, 1), torch.tensor(4, dtype=torch.int32)),
    ]:
        ours, theirs = X.clone(), X.clone()
        NEW[torch.Tensor.__setitem__](ours, key, value)
        theirs[key] = value
        assert torch.equal(ours, theirs)


def test_coordinates_of_flat_indices():
    flat = torch.arange(24).reshape(4, 6)
    for shape in ((2, 3, 4), (24,), 24):
        assert torch.equal(torch.stack(NEW[torch.unravel_index](flat, shape)), torch.stack(torch.unravel_index(flat, shape)))


@pytest.mark.parametrize("shape", [(5, 3), (9, 3), (3, 5), (3, 3, 3), (1, 4)])
@pytest.mark.parametrize("wrap", [False, True])
def test_filled_diagonals(shape, wrap):
    ours, theirs = torch.randn(*shape), torch.zeros(shape)
    theirs.copy_(ours)
    wrap = wrap and len(shape) == 2
    assert NEW[torch.Tensor.fill_diagonal_](ours, 2.0, wrap) is ours
    assert torch.equal(ours, theirs.fill_diagonal_(2.0, wrap=wrap))
