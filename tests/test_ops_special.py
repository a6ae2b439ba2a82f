"""Special functions against PyTorch's own in float64, in eager mode."""

import math

import pytest
import torch

from autofix.surgery.ops_special import ERROR_FUNCTIONS, erf_double
from autofix.surgery.ops_special_bessel import BESSEL_FUNCTIONS
from autofix.surgery.ops_special_gamma import GAMMA_FUNCTIONS

TABLE = {**ERROR_FUNCTIONS, **GAMMA_FUNCTIONS, **BESSEL_FUNCTIONS}
EDGES = torch.tensor([0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, math.inf, -math.inf, math.nan, 1e-7, -1e-7, 1e-30, 8, -8, 20, 0.25, 88])
SPREAD = torch.cat([torch.randn(200, generator=torch.Generator().manual_seed(s)) * w for s, w in enumerate((1e-3, 0.3, 1, 5, 30))])
UNIT = torch.cat([torch.rand(400, generator=torch.Generator().manual_seed(9)), torch.tensor([0.0, 1.0, 0.5, 1e-30, 1 - 1e-7])])

ONE_ARGUMENT = {
    "aten.erfc.default": torch.erfc,
    "aten.special_log_ndtr.default": torch.special.log_ndtr,
    "aten.lgamma.default": torch.lgamma,
    "aten.digamma.default": torch.digamma,
    "aten.i0.default": torch.i0,
    "aten.special_i0e.default": torch.special.i0e,
    "aten.special_i1.default": torch.special.i1,
    "aten.special_i1e.default": torch.special.i1e,
    "aten.special_bessel_j0.default": torch.special.bessel_j0,
    "aten.special_bessel_j1.default": torch.special.bessel_j1,
    "aten.special_bessel_y0.default": torch.special.bessel_y0,
    "aten.special_bessel_y1.default": torch.special.bessel_y1,
    "aten.special_modified_bessel_k0.default": torch.special.modified_bessel_k0,
    "aten.special_modified_bessel_k1.default": torch.special.modified_bessel_k1,
    "aten.special_scaled_modified_bessel_k0.default": torch.special.scaled_modified_bessel_k0,
    "aten.special_scaled_modified_bessel_k1.default": torch.special.scaled_modified_bessel_k1,
    "aten.special_spherical_bessel_j0.default": torch.special.spherical_bessel_j0,
}


def agree(ours, eager, exact, tolerance=4e-6):
    """Non-finite places as in eager float32; values near float64's."""
    assert ours.dtype == eager.dtype
    assert torch.equal(ours.isnan(), eager.isnan())
    assert torch.equal(ours.isinf(), eager.isinf())
    good = eager.isfinite() & exact.isfinite()
    torch.testing.assert_close(ours[good].double(), exact[good], rtol=tolerance, atol=tolerance * 1e-2)


@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_one_argument(name):
    theirs = ONE_ARGUMENT[name]
    x = torch.cat([EDGES, SPREAD])
    if "bessel_y" in name or "bessel_j" in name:
        x = x[(x.abs() < 40) | x.isnan() | x.isinf()]
    with torch.no_grad():
        # ATen's float64 J and Y are right to 1e-6 only
        agree(TABLE[name](x), theirs(x), theirs(x.double()), 1e-4 if "bessel_y" in name or "bessel_j" in name else 4e-6)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_polygamma(order):
    x = torch.cat([SPREAD.abs() + 0.01, torch.tensor([-0.3, -1.7, -2.5])])
    agree(TABLE["aten.polygamma.default"](order, x), torch.polygamma(order, x), torch.polygamma(order, x.double()))


def test_inverses_at_the_edges_too():
    x = torch.cat([EDGES, 2 * UNIT - 1])
    agree(TABLE["aten.erfinv.default"](x), torch.erfinv(x), torch.erfinv(x.double()))
    p = torch.cat([EDGES, UNIT])
    agree(TABLE["aten.special_ndtri.default"](p), torch.special.ndtri(p), torch.special.ndtri(p.double()))


def test_incomplete_gamma_with_every_pair_of_edges():
    a, x = torch.meshgrid(
        torch.tensor([0.0, 0.5, 1, 30, 300, math.inf, math.nan, -1]), torch.tensor([0.0, 0.5, 1, 25, 310, math.inf, math.nan, -1]), indexing="ij"
    )
    agree(TABLE["aten.igamma.default"](a, x), torch.igamma(a, x), torch.igamma(a.double(), x.double()))
    agree(TABLE["aten.igammac.default"](a, x), torch.igammac(a, x), torch.igammac(a.double(), x.double()))


def test_zeta_left_and_right():
    s = torch.tensor([2.0, 3, 1.5, 1, 0.5, 10, 2, 3, 4, 3, 2.5])
    q = torch.tensor([1.0, 0.3, 2, 1, 1, 3, -0.5, -2.3, -7.7, -2, -0.5])
    agree(TABLE["aten.special_zeta.default"](s, q), torch.special.zeta(s, q), torch.special.zeta(s.double(), q.double()))


def test_error_function_to_full_precision():
    x = torch.linspace(-6, 6, 501, dtype=torch.float64)
    torch.testing.assert_close(erf_double(x), torch.erf(x), rtol=4e-16, atol=1e-16)


def test_integers_and_half_precision_keep_torch_dtypes():
    for x in (torch.arange(1, 5), torch.rand(3).half(), torch.rand(3).double()):
        assert TABLE["aten.lgamma.default"](x).dtype == torch.lgamma(x).dtype
