"""NumPy code on tensors: values, shapes and types are NumPy's own."""

from __future__ import annotations

import warnings

import pytest
import torch

from autofix.surgery.source_numpy import rewrite_numpy

GROUPS = [
    [
        "np.percentile(a, 95, axis=1)",
        "np.percentile(a, [25, 50, 75], axis=1)",
        "np.percentile(a, [5, 95], axis=(0, 1))",
        "np.quantile(a, 0.3, axis=0, keepdims=True)",
        "np.quantile(a, [0.1, 0.9], axis=1, keepdims=True)",
    ],
    [
        'np.percentile(a, 30, axis=1, method="lower")',
        'np.percentile(a, 30, axis=1, method="nearest")',
        "np.quantile(a, np.linspace(0, 1, 4))",
        'np.quantile(a, 0.35, method="midpoint")',
        "np.percentile(i, 40)",
    ],
    [
        "np.take_along_axis(a, np.argsort(a, axis=1), axis=1)",
        "np.take_along_axis(a, np.expand_dims(np.argmax(a, axis=1), 1), axis=1)",
        "np.take_along_axis(a, i % 3 - 3, axis=0)",
        "np.take_along_axis(a, a.argsort(axis=-1)[:, ::-1], axis=-1)",
    ],
    [
        "np.pad(a, ((0, 0), (2, 3)))",
        'np.pad(a, 2, mode="reflect")',
        'np.pad(a, ((1, 1), (2, 0)), mode="edge")',
        'np.pad(a, ((1, 2), (0, 1)), "constant", constant_values=-1)',
        'np.pad(a, (1, 2), mode="symmetric")',
        'np.pad(a, ((0, 0), (3, 3)), mode="wrap")',
        'np.pad(b, (2, 9), mode="reflect")',
        "np.pad(b, 1)",
    ],
    [
        'np.einsum("ij,kj->ik", a, a)',
        'np.einsum("ij,j->i", a, b)',
        'np.einsum("ij->j", i)',
        'np.einsum("ij,ij->", a, i)',
    ],
    [
        "np.concatenate([a, a * 2], axis=1)",
        "np.concatenate((a, i), axis=0)",
        "np.stack([b, b + 1], axis=-1)",
        "np.clip(a, -0.5, None)",
        "np.clip(i, 0, 3)",
        "np.where(a > 0, a, 0)",
        "np.where(a > b, a, b * 2)",
        "np.where(i > 2, 1.5, a)",
    ],
    [
        "np.argsort(-a, axis=1)",
        "np.sort(a, axis=0)",
        "np.cumsum(a, axis=1)",
        "np.cumsum(i)",
        "np.linalg.norm(a, axis=1, keepdims=True)",
        "np.linalg.norm(a)",
        "np.linalg.norm(i, axis=0)",
        "np.interp(b, np.arange(4), np.array([0.0, 1.0, 0.5, 2.0]))",
    ],
    [
        "np.searchsorted(np.array([-1.0, 0.0, 0.5]), a)",
        'np.searchsorted(np.sort(b), a, side="right")',
        "np.digitize(a, np.array([-0.5, 0.0, 0.5]))",
        "np.digitize(a, bins=[-0.5, 0.0, 0.5], right=True)",
        "np.digitize(i, [0, 2, 4])",
    ],
    [
        "np.meshgrid(b, np.arange(3))[0]",
        'np.meshgrid(np.arange(a.shape[1]), np.arange(a.shape[0]), indexing="ij")[1]',
    ],
    [
        "np.histogram(a, bins=5, range=(-1.0, 1.0))[0]",
        "np.histogram(a, bins=5, range=(-2, 2))[1]",
        "np.histogram(a, bins=[-1.0, 0.0, 0.25, 1.0])[0]",
        "np.histogram(a, bins=np.linspace(-2, 2, 9), density=True)[0]",
        "np.histogram(i, bins=4, range=(0, 4))[0]",
        "np.histogram(a, 4)[0]",
        "np.histogram(a, bins=3, range=(-1, 1), weights=a)[0]",
    ],
    [
        "np.diff(a, axis=1)",
        "np.diff(a, n=2, axis=0)",
        "np.outer(b, b)",
        "np.outer(b, np.arange(3))",
        "np.diff(b)",
        "np.bincount(i.ravel())",
        "np.bincount(i.flatten(), minlength=12)",
        "np.trapezoid(a, dx=0.5, axis=1)",
    ],
    [
        "np.moveaxis(a, 0, 1)",
        "np.broadcast_to(b, (3, 5))",
        "np.diag(b)",
        "np.trace(np.outer(b, b))",
        "np.tril(a)",
        "np.triu(a, k=1)",
        "np.nan_to_num(np.log(a))",
        "np.flatnonzero(a > 0)",
        "np.argwhere(i > 2)",
        "np.array_split(b, 2)[0]",
        "np.split(a, 3)[1]",
        "np.split(a, [1, 2], axis=1)[1]",
    ],
    [
        "np.maximum.accumulate(a, axis=1)",
        "np.minimum.accumulate(b)",
        "np.inner(b, b)",
        "np.vdot(b, b)",
        "np.kron(b, b)",
        "np.tensordot(a, a, axes=([1], [1]))",
        'np.convolve(b, np.array([0.25, 0.5, 0.25]), mode="same")',
        "np.convolve(b, np.ones(2))",
        'np.correlate(b, np.array([1.0, -1.0]), mode="valid")',
        'np.convolve(b, np.array([1.0, 2.0, 3.0, 4.0]), "same")',
    ],
    [
        "np.eye(3)",
        "np.identity(2) @ a[:2]",
        "np.eye(a.shape[0], k=1)",
        "np.cross(a[:, :3], a[:, 2:])",
        "np.full_like(a, 2)",
        "np.isclose(a, 0.5)",
        "np.mean(a, axis=(0, 1))",
        "np.std(a, axis=1, ddof=1)",
        "np.average(a, axis=0, weights=np.arange(3))",
        "np.median(a, axis=1)",
        "np.ptp(a, axis=0)",
        "np.round(a, 2)",
        "np.column_stack((b, b))",
        "np.dstack((a, a))",
        "a.cumsum(axis=0)",
        "np.mean(i)",
        "np.floor(a).astype(np.int64)",
        "np.heaviside(a, 0.5)",
        "np.square(a).sum(axis=-1)",
        "np.sum(a * a, axis=1) ** 0.5",
        "np.expand_dims(a, 0)",
        "np.repeat(a, 2, axis=1)",
        "np.tile(b, 2)",
        "np.roll(a, 1, axis=1)",
        "np.any(a > 1, axis=1)",
        "np.count_nonzero(a > 0, axis=1)",
        "np.linalg.inv(a[:, :3])",
        "np.fft.rfft(b).real",
        "np.float32(2.5) * a",
        "np.ceil(b / 2)",
        "np.isin(i, [1, 2])",
        "np.cumprod(b)",
        "np.nanmean(a)",
        "np.sign(a)",
        "np.linalg.det(a[:, :3])",
        "np.linalg.solve(a[:, :3] + 3 * np.eye(3), b[:3])",
    ],
]

HEAD = "import numpy as np\nimport torch\n\n\nclass Model:\n    def forward(self, x, y, z):\n"
HEAD += "        a, b, i = x.numpy(), y.numpy(), z.numpy()\n        return torch.as_tensor({})\n"


def run(text, *args):
    scope = {}
    exec(text, scope)  # noqa: S102
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scope["Model"]().forward(*args)


@pytest.mark.parametrize("group", GROUPS, ids=[g[0].partition("(")[0][3:] for g in GROUPS])
def test_what_numpy_computes(group):
    draw = torch.Generator().manual_seed(0)
    args = torch.randn(3, 5, generator=draw), torch.randn(5, generator=draw), torch.randint(0, 6, (3, 5), generator=draw)
    for expression in group:
        text = HEAD.format(expression)
        new = rewrite_numpy(text, ["Model.forward"])
        assert new != text, expression
        got, want = run(new, *args), run(text, *args)
        assert got.dtype == want.dtype, expression
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7, equal_nan=True, msg=lambda m, e=expression: f"{e}: {m}")


@pytest.mark.parametrize("expression", ["np.pad(a, 1, mode='mean')", "np.quantile(a, 0.2, method='weibull')"])
def test_what_has_no_counterpart_is_refused(expression):
    text = HEAD.format(expression)
    with pytest.raises(TypeError, match="counterpart"):
        run(rewrite_numpy(text, ["Model.forward"]), torch.ones(3, 5), torch.ones(5), torch.ones(3, 5, dtype=torch.int64))
