"""Linear algebra decompositions against PyTorch's own, in eager mode."""

import pytest
import torch

from autofix.surgery.ops_linalg import LINALG_DECOMPOSITIONS, LINALG_OVERRIDES
from autofix.surgery.ops_linalg_qr import qr
from autofix.surgery.ops_proposal import operator_key

L = torch.linalg


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def positive(*shape, seed=0):
    a = normal(*shape, seed=seed)
    return a @ a.mT + torch.eye(shape[-1])


def same(ours, theirs, tolerance=2e-5):
    ours = ours if isinstance(ours, (tuple, list)) else (ours,)
    theirs = theirs if isinstance(theirs, (tuple, list)) else (theirs,)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


SHAPES = [(3, 3), (2, 5, 5), (1, 1), (0, 3, 3), (2, 0, 0), (2, 12, 12)]


@pytest.mark.parametrize("shape", SHAPES)
def test_inverse_determinant_and_solution(shape):
    a = normal(*shape) + 3 * torch.eye(shape[-1])
    b = normal(*shape[:-1], 2, seed=1)
    d = LINALG_DECOMPOSITIONS
    same(d["aten.linalg_inv_ex.default"](a), tuple(L.inv_ex(a)))
    same(d["aten.linalg_det.default"](a), L.det(a), 1e-3)
    same(d["aten._linalg_slogdet.default"](a)[:2], tuple(L.slogdet(a)))
    same(d["aten.linalg_solve.default"](a, b), L.solve(a, b))
    same(d["aten.linalg_solve.default"](a, b.mT, left=False), L.solve(a, b.mT, left=False))


def test_singular_matrices_give_what_lapack_gives():
    a = torch.tensor([[1.0, 2.0], [2.0, 4.0]]).expand(2, 2, 2).clone()
    a[1] = 0
    sign, log = LINALG_DECOMPOSITIONS["aten._linalg_slogdet.default"](a)[:2]
    same((sign, log), tuple(L.slogdet(a)))
    same(LINALG_DECOMPOSITIONS["aten.linalg_inv_ex.default"](a)[1], L.inv_ex(a)[1])


def test_logarithms_of_determinants_that_overflow_or_are_negative():
    a = normal(4, 8, 8)
    a = torch.stack([*a, a[0] * 1e30, a[1].roll(1, 0), a[1] * 0])
    same(LINALG_DECOMPOSITIONS["aten.logdet.default"](a), torch.logdet(a))
    assert bool(torch.isnan(torch.logdet(a)).any() and torch.isfinite(torch.logdet(a)).any())


@pytest.mark.parametrize("shape", [(2, 5, 3), (3, 5), (1, 4, 4), (2, 9, 12)])
def test_lu_and_qr_of_any_shape(shape):
    a = normal(*shape)
    same(LINALG_DECOMPOSITIONS["aten.linalg_lu.default"](a), tuple(L.lu(a)))
    same(LINALG_DECOMPOSITIONS["aten.linalg_lu_factor.default"](a), tuple(L.lu_factor(a)))
    for mode in ("reduced", "complete"):
        same(qr(a, mode), tuple(L.qr(a, mode)))
    same(LINALG_DECOMPOSITIONS["aten.geqrf.default"](a), tuple(torch.geqrf(a)))


def test_qr_keeps_signs_where_nothing_is_reflected():
    for a in (torch.eye(5, 3), torch.zeros(4, 2), -torch.eye(3)):
        same(qr(a), tuple(L.qr(a)))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems(upper, left, unit):
    a = normal(2, 4, 4) * 0.3 + 2 * torch.eye(4)
    b = normal(2, 4, 3) if left else normal(2, 3, 4)
    ours = LINALG_DECOMPOSITIONS["aten.linalg_solve_triangular.default"](a, b, upper=upper, left=left, unitriangular=unit)
    same(ours, L.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit))


def test_lu_solve_in_every_direction():
    lu, pivots = L.lu_factor(normal(2, 5, 5))
    for left in (True, False):
        for adjoint in (True, False):
            b = normal(2, 5, 3) if left else normal(2, 3, 5)
            ours = LINALG_DECOMPOSITIONS["aten.linalg_lu_solve.default"](lu, pivots, b, left=left, adjoint=adjoint)
            same(ours, L.lu_solve(lu, pivots, b, left=left, adjoint=adjoint), 1e-4)


def test_cholesky_and_its_failures():
    a = positive(3, 4, 4)
    a[1] -= 3 * torch.eye(4)
    factor, info = LINALG_DECOMPOSITIONS["aten.linalg_cholesky_ex.default"](a)
    same(info, L.cholesky_ex(a)[1])
    same(factor[0], L.cholesky(a[0]))
    same(LINALG_DECOMPOSITIONS["aten.linalg_cholesky.default"](a[:1], upper=True), L.cholesky(a[:1], upper=True))
    same(LINALG_DECOMPOSITIONS["aten.cholesky_inverse.default"](factor[0]), torch.cholesky_inverse(factor[0]))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16])
def test_eigenvalues_and_invariants(n):
    a = normal(2, n, n)
    a = a + a.mT
    w, v = LINALG_DECOMPOSITIONS["aten._linalg_eigh.default"](a)
    same(w, L.eigvalsh(a), 1e-4)
    same((v * w.unsqueeze(-2)) @ v.mT, a, 1e-4)
    same(v.mT @ v, torch.eye(n).expand(2, n, n))


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 6), (4, 4), (1, 1), (0, 3, 2)])
def test_singular_values_pinv_and_least_squares(shape):
    a = normal(*shape)
    u, s, v = LINALG_DECOMPOSITIONS["aten._linalg_svd.default"](a, False, True)
    same(s, L.svdvals(a), 1e-4)
    same((u * s.unsqueeze(-2)) @ v, a, 1e-4)
    same(LINALG_DECOMPOSITIONS["aten.linalg_pinv.atol_rtol_tensor"](a), L.pinv(a), 1e-3)
    b = normal(*shape[:-1], 2, seed=3)
    same(LINALG_OVERRIDES[L.lstsq](a, b).solution, L.lstsq(a, b).solution, 1e-3)


def test_rank_deficient_matrices_are_cut_at_the_same_rank():
    a = torch.ones(5, 3)
    same(LINALG_DECOMPOSITIONS["aten.linalg_pinv.atol_rtol_tensor"](a), L.pinv(a))
    same(LINALG_DECOMPOSITIONS["aten.linalg_pinv.atol_rtol_tensor"](torch.zeros(2, 3)), torch.zeros(3, 2))


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 5.0])
def test_matrix_exponential(scale):
    a = normal(2, 4, 4) * scale
    ours = LINALG_DECOMPOSITIONS["aten.linalg_matrix_exp.default"](a)
    torch.testing.assert_close(ours, torch.matrix_exp(a.double()).float(), rtol=1e-5, atol=1e-5)


def test_strategy_lists_what_the_table_holds():
    from autofix.loader import load_strategies

    strategy = load_strategies([], names={"decompose_linalg"})["decompose_linalg"]
    module = __import__(type(strategy).__module__, fromlist=["OPERATORS"])
    assert set(module.OPERATORS) == set(LINALG_DECOMPOSITIONS)


def test_variants_share_a_key():
    assert operator_key("aten._linalg_solve_ex.default") == operator_key("aten.linalg_solve.default")
    assert operator_key("prims.erf_inv.default") == operator_key("aten.erfinv.default")
    assert operator_key("aten.view.dtype") != operator_key("aten.view.default")
