"""Orthogonal polynomials against torch.special's, in eager mode."""

import pytest
import torch

from autofix.surgery.ops_special_polynomials import NAMES, POLYNOMIALS

X = torch.cat([torch.linspace(-2.5, 2.5, 41), torch.tensor([1.0, -1.0, 0.0, 0.5])])


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-4, equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_degrees_that_are_known(name):
    if name.startswith("shifted") and name[-1] in "uvw":
        x = (X + 2.5) / 5  # as far as ATen's own recurrence is right
    else:
        x = X
    for n in (-1, 0, 1, 2, 3, 7, 9, 12):
        same(POLYNOMIALS[f"aten.special_{name}.n_scalar"](x, n), getattr(torch.special, name)(x, n))


@pytest.mark.parametrize("name", NAMES)
def test_degrees_by_tensor(name):
    x = torch.linspace(0.02, 0.98, 6)
    n = torch.tensor([0.0, 1.0, 2.0, 5.0, 10.0, -1.0])
    same(POLYNOMIALS[f"aten.special_{name}.default"](x, n), getattr(torch.special, name)(x, n))
    same(POLYNOMIALS[f"aten.special_{name}.x_scalar"](0.3, n), getattr(torch.special, name)(0.3, n))


def test_degrees_that_are_no_numbers_count_as_negative():
    n = torch.tensor([float("nan"), float("inf"), -float("inf"), 2.5])
    expected = torch.special.hermite_polynomial_he(0.4, n)
    same(POLYNOMIALS["aten.special_hermite_polynomial_he.x_scalar"](0.4, n), expected)
    assert expected[:3].tolist() == [0, 0, 0]
