"""Counts and moments whose PyTorch bodies read values while they run: bincount, histogram, cov, corrcoef; swapped in before capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from autofix.surgery.ops_order import searchsorted


def bincount_sized(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """torch.bincount; the length of the result is max(greatest entry + 1, minlength), a size known at run time only."""
    entries = input.to(torch.int64)
    length = torch.cat([entries, torch.full((1,), minlength - 1, dtype=torch.int64)]).amax(0) + 1
    size = length.item()
    torch._check(size >= minlength)  # type: ignore[no-untyped-call]
    if weights is None:
        return torch.zeros(size, dtype=torch.int64).scatter_add(0, entries, torch.ones_like(entries))  # type: ignore[arg-type]
    dtype = torch.float32 if weights.dtype == torch.float32 else torch.float64
    total = torch.zeros(size, dtype=torch.float64).scatter_add(0, entries, weights.to(torch.float64))  # type: ignore[arg-type]
    return total.to(dtype)


def one_hot_sized(tensor: Tensor, num_classes: Any = -1) -> Tensor:
    """torch.nn.functional.one_hot; without a number of classes there are as many as the greatest entry says, known at run time only."""
    if isinstance(num_classes, int) and num_classes == -1:
        num_classes = (tensor.reshape(-1).to(torch.int64).amax(0) + 1).item()
        torch._check(num_classes >= 0)  # type: ignore[no-untyped-call]
        if isinstance(num_classes, torch.SymInt):  # torch's own tests may take it for an ordinary size (capture_scopes.py)
            known = num_classes.node.shape_env.__dict__.setdefault("numbers_used_as_sizes", set())
            known.update(num_classes.node.expr.free_symbols)
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, dtype=torch.int64)).to(torch.int64)


def histogram_counted(
    input: Tensor, bins: Any, *, range: tuple[float, float] | None = None, weight: Tensor | None = None, density: bool = False, out: None = None
) -> Any:
    """torch.histogram: the last bin includes its right edge; what lies outside is left out."""
    x = input.reshape(-1)
    if isinstance(bins, Tensor):
        edges = bins
    else:
        if range is None or (range[0] == 0 and range[1] == 0):
            low, high = x.amin(0), x.amax(0)
            same = low == high
            low, high = torch.where(same, low - 0.5, low), torch.where(same, high + 0.5, high)
        else:
            first, last = (range[0] - 0.5, range[1] + 0.5) if range[0] == range[1] else range
            low, high = torch.full((), first, dtype=x.dtype), torch.full((), last, dtype=x.dtype)
        place = torch.arange(bins + 1)
        step = (high - low) / bins
        # torch.linspace counts from the nearer end
        edges = torch.where(place * 2 < bins + 1, low + step * place, high - step * (bins - place)).to(x.dtype)
    count = edges.shape[0] - 1
    lowest, highest = edges.narrow(0, 0, 1), edges.narrow(0, count, 1)
    inside = (x >= lowest) & (x <= highest)
    bin_of = searchsorted(edges.contiguous(), torch.where(inside, x, lowest), right=True) - 1
    bin_of = torch.where(bin_of >= count, count - 1, bin_of)
    mass = torch.ones_like(x) if weight is None else weight.reshape(-1)
    hist = torch.zeros_like(edges.narrow(0, 0, count)).scatter_add(0, bin_of, torch.where(inside, mass, 0.0))
    if density:
        hist = hist / hist.sum() / (edges.narrow(0, 1, count) - edges.narrow(0, 0, count))
    return torch.return_types.histogram((hist, edges))


def histc_counted(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch.histc between the least and the greatest entry, which `min` equal to `max` asks for: ATen's bin int((x - min) bins / (max - min)), the
    last with its right edge; an empty span is widened by 1 on both sides."""

    def replacement(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: None = None) -> Tensor:
        if min != max:
            return original(input, bins, min, max)
        x = input.reshape(-1)
        low, high = x.amin(0), x.amax(0)
        same = low == high
        low, high = torch.where(same, low - 1.0, low), torch.where(same, high + 1.0, high)
        place = ((x - low) * bins / (high - low)).to(torch.int64)
        place = torch.where(place == bins, bins - 1, place)
        return torch.zeros(bins, dtype=input.dtype).scatter_add(0, place, torch.ones_like(x))

    return replacement


def cov_plain(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """torch.cov without its tests of the weights' values."""
    x = input.reshape(1, -1) if input.ndim < 2 else input
    x = x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())
    w: Tensor | None = None
    if fweights is not None:
        w = fweights
    if aweights is not None:
        w = aweights if w is None else w * aweights
    observations = x.shape[1]
    if w is None:
        mean = x.mean(1, keepdim=True)
        norm = torch.scalar_tensor(observations, dtype=x.dtype) - correction
        centered = x - mean
        product = centered @ centered.mT
    else:
        total = w.sum()
        centered = x - ((x * w).sum(1) / total).unsqueeze(1)
        if correction == 0:
            norm = total
        elif aweights is None:
            norm = total - correction
        else:
            norm = total - correction * (w * aweights).sum() / total
        norm = norm.to(x.dtype)
        product = centered @ (centered * w).mT
    norm = torch.where(norm < 0, 0.0, norm)
    result = product / norm
    return result.reshape(()) if input.ndim < 2 else result.squeeze()


def corrcoef_plain(input: Tensor) -> Tensor:
    """torch.corrcoef."""
    c = cov_plain(input)
    if c.ndim == 0:
        return c / c
    deviation = c.diagonal().sqrt()
    r = c / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    return torch.where(r > 1, 1.0, torch.where(r < -1, -1.0, r))


COUNT_OVERRIDES = {
    torch.histc: histc_counted(torch.histc),
    torch.Tensor.histc: histc_counted(torch.histc),
    torch.nn.functional.one_hot: one_hot_sized,
    torch.bincount: bincount_sized,
    torch.Tensor.bincount: bincount_sized,
    torch.histogram: histogram_counted,
    torch.Tensor.histogram: histogram_counted,
    torch.cov: cov_plain,
    torch.Tensor.cov: cov_plain,
    torch.corrcoef: corrcoef_plain,
    torch.Tensor.corrcoef: corrcoef_plain,
}
