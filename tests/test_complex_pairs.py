"""Complex numbers as pairs of reals: rewritten programs give what eager PyTorch gives, at the captured and at other sizes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from autofix.surgery.complex_capture import complex_capture
from autofix.surgery.complex_pass import complex_to_pairs

pytestmark = pytest.mark.slow

OPERATIONS = {
    "add": lambda z, w, x: z + w * 2 - x,
    "mul": lambda z, w, x: z * w * x * (1 + 2j),
    "div": lambda z, w, x: z / w + x / w + 1 / w + z / (3 - 1j),
    "polar form": lambda z, w, x: torch.polar(w.abs(), w.angle()) + z.sgn(),
    "exp log": lambda z, w, x: torch.exp(z * 0.3) + torch.log(w) + torch.sqrt(z) + z.log1p() + z.expm1(),
    "powers": lambda z, w, x: z**2 + w**-1 + w**0.5 + w**1.5 + w**w,
    "circular": lambda z, w, x: torch.sin(z) + torch.cos(w) + torch.tanh(z) + torch.sinh(w) + torch.cosh(z) + torch.tan(w) + z.sigmoid(),
    "conjugate": lambda z, w, x: z.conj().imag + (z.mH @ w).real.sum() + w.conj_physical().real,
    "products": lambda z, w, x: torch.einsum("ij,kj->ik", z, w) @ (z @ w.mT),
    "reductions": lambda z, w, x: z.mean(0) + w.sum(0) + z.prod(0) + w.cumprod(0)[-1] + z.var(0) + z.norm(dim=0),
    "structure": lambda z, w, x: torch.cat([z.roll(1, 1), w.flip(0)]).T.unflatten(1, (2, -1)).permute(2, 0, 1).reshape(-1, 2),
    "choice": lambda z, w, x: torch.where(x > 0, z, w.real) + z.masked_fill(x > 0, 1j) + z[:, [0, 2, 1, 3, 4]],
    "equality": lambda z, w, x: (z == w) | (z != 0) | torch.isnan(z) | ~torch.isfinite(w),
    "factories": lambda z, w, x: torch.zeros_like(z) + torch.full((5,), 1j) * x + torch.eye(5, dtype=torch.cfloat)[:1] + z.new_ones(1, 5),
    "convolution": lambda z, w, x: nn.functional.conv1d(z[None], w[None, :, :3]),
    "inverse circular": lambda z, w, x: torch.asin(z) + torch.acos(w) + torch.atan(z),
    "inverse hyperbolic": lambda z, w, x: torch.asinh(z) + torch.acosh(w) + torch.atanh(z),
    "hermitian": lambda z, w, x: torch.linalg.eigvalsh(z @ w.mH + w @ z.mH) + torch.linalg.svdvals(z),
    "factor": lambda z, w, x: torch.linalg.solve_triangular(torch.linalg.cholesky(z @ z.mH + torch.eye(4)), w, upper=False),
    "factor solve": lambda z, w, x: torch.cholesky_solve(w, torch.linalg.cholesky(z @ z.mH + torch.eye(4))),
    "exponential": lambda z, w, x: torch.linalg.matrix_exp(z[:, :4] - z[:, :4].mH) @ w,
    "determinant": lambda z, w, x: torch.linalg.det(z[:, :4]) * torch.linalg.slogdet(w[:, :4])[0] + torch.linalg.slogdet(w[:, :4])[1],
    "wide factors": lambda z, w, x: torch.linalg.qr(z)[0] @ torch.linalg.qr(w)[1] + torch.linalg.qr(w.mT)[0].mT,
    "pseudo-inverse": lambda z, w, x: torch.linalg.pinv(z) + torch.linalg.pinv(w[:2]).sum(),
    "system": lambda z, w, x: torch.linalg.solve(z[:, :4] + 5 * torch.eye(4), w) + torch.linalg.inv(w[:, :4] + 5 * torch.eye(4)) @ z,
}


class Pair(nn.Module):
    def __init__(self, operation):
        super().__init__()
        self.operation = operation
        self.w = nn.Parameter(torch.randn(4, 5, dtype=torch.cfloat))

    def forward(self, x, y):
        return self.operation(torch.complex(x, y), self.w, x)


def rewritten(model, *inputs, **options):
    with complex_capture():
        return complex_to_pairs(torch.export.export(model, inputs, strict=False, **options)).module()


def as_real(value):
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name):
    torch.manual_seed(0)
    model = Pair(OPERATIONS[name])
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    got = rewritten(model, x, y)(x, y)
    torch.testing.assert_close(got, as_real(model(x, y)), rtol=1e-5, atol=5e-6)


def test_no_complex_value_is_left():
    model = Pair(OPERATIONS["mul"])
    program = rewritten(model, torch.randn(4, 5), torch.randn(4, 5))
    assert not any(p.is_complex() for p in program.state_dict().values())


def test_no_test_of_an_error_code_is_left():
    """The parts of linalg.cholesky come with one, which a functional graph orders among its values."""
    model = rewritten(Pair(lambda z, w, x: torch.linalg.cholesky(z @ z.mH + torch.eye(4))), torch.randn(4, 5), torch.randn(4, 5))
    assert not [n for n in model.graph.nodes if "check_errors" in str(n.target)]


def test_writes_into_slices_at_other_sizes():
    class Cut(nn.Module):
        def forward(self, x):
            spectrum = torch.fft.fft(x)
            kept = torch.zeros_like(spectrum)
            kept[..., :3] = spectrum[..., :3]
            kept.imag[..., 0] = 0
            return kept

    model = Cut()
    changed = rewritten(model, torch.randn(2, 8), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    for rows in (1, 2, 5):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(changed(x), torch.view_as_real(model(x)), rtol=1e-5, atol=1e-5)


def test_zero_division_spreads_like_eager():
    model = Pair(lambda z, w, x: torch.stack([w / z, z.reciprocal()]))
    x = torch.zeros(4, 5)
    got, want = rewritten(model, x, x)(x, x), as_real(model(x, x))
    assert torch.equal(torch.isnan(got), torch.isnan(want))


def test_unknown_operator_is_named():
    with pytest.raises(NotImplementedError, match="logcumsumexp"):
        rewritten(Pair(lambda z, w, x: torch.logcumsumexp(z, 1)), torch.randn(4, 5), torch.randn(4, 5))


def test_vectors_of_a_complex_matrix_are_refused():
    """Eigenvectors are unique only up to a phase: no pair of reals can be promised to agree with PyTorch's."""
    x = torch.eye(4, 5)
    with pytest.raises(NotImplementedError, match="unique only up to a phase"):
        rewritten(Pair(lambda z, w, x: torch.linalg.eigh(z @ z.mH)[1]), x, x)
