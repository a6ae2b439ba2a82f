"""Forms of functions whose bodies in C++ read sizes as plain integers while they run, which fixes dynamic axes; swapped in before capture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def is_one(size: Any) -> bool:
    """Whether a size is known to be 1."""
    return isinstance(size, int) and size == 1


def take_along(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """torch.take_along_dim."""
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    dim = dim % input.ndim
    both = zip(input.shape, indices.shape, strict=True)
    common = [b if is_one(a) else a for a, b in both]
    wide = [n if k != dim else input.shape[dim] for k, n in enumerate(common)]
    wide_index = [n if k != dim else indices.shape[dim] for k, n in enumerate(common)]
    return input.expand(wide).gather(dim, indices.expand(wide_index))


def kronecker(input: Tensor, other: Tensor) -> Tensor:
    """torch.kron."""
    rank = max(input.ndim, other.ndim)
    a, b = [1] * (rank - input.ndim) + list(input.shape), [1] * (rank - other.ndim) + list(other.shape)
    spread_a = [n for size in a for n in (size, 1)]
    spread_b = [n for size in b for n in (1, size)]
    return (input.reshape(spread_a) * other.reshape(spread_b)).reshape([m * n for m, n in zip(a, b, strict=True)])


def vandermonde(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803
    """torch.vander, torch.linalg.vander with increasing powers."""
    count = x.shape[-1] if N is None else N
    if isinstance(count, int):
        powers = [torch.ones_like(x)]
        for _ in range(count - 1):
            powers.append(powers[-1] * x)
        table = torch.stack(powers, -1).narrow(-1, 0, count)
    else:
        table = torch.pow(x.unsqueeze(-1), torch.arange(count).to(x.dtype))
    return table if increasing else table.flip(-1)


def vandermonde_upward(x: Tensor, *, N: int | None = None) -> Tensor:  # noqa: N803
    """torch.linalg.vander."""
    return vandermonde(x, N, True)


def chain_product(tensors: Sequence[Tensor], *, out: None = None) -> Tensor:
    """torch.linalg.multi_dot, from left to right."""
    product = tensors[0]
    for t in tensors[1:]:
        product = product @ t
    return product


def triangle_places(keep_lower: bool) -> Callable[..., Tensor]:
    """torch.tril_indices or torch.triu_indices."""

    def places(row: int, col: int, offset: int = 0, *, dtype: torch.dtype = torch.int64, **options: Any) -> Tensor:
        gap = torch.arange(col) - torch.arange(row).unsqueeze(-1)
        return ((gap <= offset) if keep_lower else (gap >= offset)).nonzero().mT.to(dtype)

    return places


def rolled(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch.roll that takes a symbolic shift."""

    def replacement(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
        steps = list(shifts) if isinstance(shifts, (tuple, list)) else [shifts]
        axes = [] if dims is None else list(dims) if isinstance(dims, (tuple, list)) else [dims]
        if all(isinstance(s, int) for s in steps):
            return original(input, shifts, dims) if dims is not None else original(input, shifts)
        work = input if axes else input.reshape(-1)
        for step, axis in zip(steps, axes or [0], strict=True):
            size = work.shape[axis]
            moved = torch.arange(size) - torch.full((), step, dtype=torch.int64)
            work = work.index_select(axis, torch.remainder(moved, torch.full((), size, dtype=torch.int64).clamp(min=1)))
        return work.reshape(input.shape)

    return replacement


def spectral_norm_of(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch.linalg.matrix_norm, with singular values taken over the last two axes."""

    def replacement(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: N803
        if ord not in (2, -2, "nuc"):
            return original(A, ord, dim, keepdim, dtype=dtype)
        a = A if dtype is None else A.to(dtype)
        axes = [d % a.ndim for d in dim]
        s = torch.linalg.svdvals(a.movedim(axes, (-2, -1)))
        value = s.sum(-1) if ord == "nuc" else s.amax(-1) if ord == 2 else s.amin(-1)
        for axis in sorted(axes) if keepdim else []:
            value = value.unsqueeze(axis)
        return value  # type: ignore[no-any-return]

    return replacement


def runs_of_equal(input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """torch.unique_consecutive over the flattened tensor, or over the slices along an axis."""
    rows = input.reshape(-1) if dim is None else input.movedim(dim, 0)
    n = rows.shape[0]
    differs = rows.narrow(0, 1, n - 1) != rows.narrow(0, 0, n - 1)
    if rows.ndim > 1:
        differs = differs.flatten(1).to(torch.int64).sum(1) > 0
    changed = torch.cat([torch.ones(1, dtype=torch.int64), differs.to(torch.int64)])
    inverse = changed.cumsum(0) - 1
    starts = changed.nonzero().squeeze(1)
    values = rows.index_select(0, starts)
    counts = torch.zeros_like(starts).scatter_add(0, inverse, torch.ones_like(inverse))
    if dim is None:
        inverse = inverse.reshape(input.shape)
    else:
        values = values.movedim(0, dim)
    if return_inverse and return_counts:
        return values, inverse, counts
    return (values, inverse) if return_inverse else (values, counts) if return_counts else values


def chosen_rows(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """torch.combinations: rows of r elements in lexicographic order of their places."""
    if r == 0:
        return input.new_empty(0)
    count = input.shape[0]
    places = [torch.arange(count).reshape([-1 if d == k else 1 for d in range(r)]) for k in range(r)]
    chosen = torch.ones([count] * r, dtype=torch.bool)
    for a, b in zip(places, places[1:]):
        chosen = chosen & ((a <= b) if with_replacement else (a < b))
    index = chosen.nonzero()
    return input.index_select(0, index.reshape(-1)).reshape(index.shape)


def product_rows(*tensors: Any) -> Tensor:
    """torch.cartesian_prod."""
    parts = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)
    if len(parts) == 1:
        return parts[0]  # type: ignore[no-any-return]
    sizes = [t.shape[0] for t in parts]
    spread = [t.reshape([-1 if d == k else 1 for d in range(len(parts))]).expand(sizes) for k, t in enumerate(parts)]
    return torch.stack(spread, -1).flatten(0, -2)


def even_places(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """torch.linspace with a symbolic number of steps, 1 included: from both ends to the middle, as ATen's RangeFactories do."""

    def replacement(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
        kind = dtype or torch.get_default_dtype()
        if isinstance(steps, int) or not kind.is_floating_point or isinstance(start, complex) or isinstance(end, complex):
            return original(start, end, steps, dtype=dtype, **options)
        each = torch.arange(steps)
        low, high = (torch.as_tensor(v, dtype=kind) if isinstance(v, Tensor) else torch.full((), v, dtype=kind) for v in (start, end))
        last = torch.scalar_tensor(steps, dtype=torch.int64) - 1
        step = (high - low) / torch.where(last > 0, last, 1).to(kind)
        upward, downward = low + step * each.to(kind), high - step * (last - each).to(kind)
        return torch.where((each < (last + 1) // 2) | (last == 0), upward, downward)

    return replacement


def differences(f: Tensor, dim: int, h: Any, edge_order: int) -> Tensor:
    """One axis of torch.gradient with even spacing h: central differences inside, one-sided ones at the edges (ATen's ReduceOps.cpp)."""
    size = f.shape[dim]
    center = (f.narrow(dim, 2, size - 2) - f.narrow(dim, 0, size - 2)) / h / 2
    if edge_order == 1:
        first = (f.narrow(dim, 1, 1) - f.narrow(dim, 0, 1)) / h
        last = (f.narrow(dim, size - 1, 1) - f.narrow(dim, size - 2, 1)) / h
    else:
        first = (f.narrow(dim, 1, 1) * 4 - f.narrow(dim, 0, 1) * 3 - f.narrow(dim, 2, 1)) / (2 * h)
        last = (f.narrow(dim, size - 1, 1) * 3 - f.narrow(dim, size - 2, 1) * 4 + f.narrow(dim, size - 3, 1)) / (2 * h)
    return torch.cat([first, center, last], dim)


def uneven_differences(f: Tensor, dim: int, places: Tensor) -> Tensor:
    """One axis of torch.gradient at coordinates `places`: the second-order formula for uneven steps inside (ATen's ReduceOps.cpp)."""
    size = f.shape[dim]
    steps = (places.narrow(0, 1, size - 1) - places.narrow(0, 0, size - 1)).reshape([-1 if d == dim else 1 for d in range(f.ndim)])
    one, two = steps.narrow(dim, 0, size - 2), steps.narrow(dim, 1, size - 2)
    left = f.narrow(dim, 0, size - 2) * (-two / (one * (one + two)))
    middle = f.narrow(dim, 1, size - 2) * ((two - one) / (one * two))
    right = f.narrow(dim, 2, size - 2) * (one / (two * (one + two)))
    first = (f.narrow(dim, 1, 1) - f.narrow(dim, 0, 1)) / steps.narrow(dim, 0, 1)
    last = (f.narrow(dim, size - 1, 1) - f.narrow(dim, size - 2, 1)) / steps.narrow(dim, size - 2, 1)
    return torch.cat([first, left + middle + right, last], dim)


def gradient_of(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch.gradient with sizes that stay in the graph."""

    def replacement(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> Any:
        axes = list(range(input.ndim)) if dim is None else [d % input.ndim for d in (dim if isinstance(dim, (tuple, list)) else [dim])]
        steps = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(axes)
        uneven = [isinstance(h, Tensor) and h.ndim == 1 for h in steps]
        known = len(steps) == len(axes) and (edge_order == 1 or not any(uneven)) and (all(uneven) or not any(isinstance(h, Tensor) for h in steps))
        if not known or input.is_complex():
            return original(input, spacing=spacing, dim=dim, edge_order=edge_order)
        return tuple(
            uneven_differences(input, d, h) if u else differences(input, d, h, edge_order) for d, h, u in zip(axes, steps, uneven, strict=True)
        )

    return replacement


def write_part(target: Tensor, key: Any, value: Any) -> None:
    """target[key] = value. PyTorch drops leading axes of size 1 from the value, and so takes a dynamic axis whose example is 1 to be 1 always;
    a value with no more axes than the part that it is written to needs none of that."""
    parts = key if isinstance(key, tuple) else (key,)
    plain = all(p is None or p is Ellipsis or isinstance(p, (slice, torch.SymInt)) or type(p) is int for p in parts)
    if plain and isinstance(value, Tensor):
        part = target[key]
        if value.dim() <= part.dim():
            part.copy_(value)
            return
    target[key] = value


def places_of(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """torch.unravel_index: coordinates of flat indices, axis by axis from the last."""
    sizes = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    found: list[Tensor] = []
    for size in reversed(sizes):
        found.append(torch.remainder(indices, size))
        indices = torch.div(indices, size, rounding_mode="floor")
    return tuple(reversed(found))


def filled_diagonal(x: Tensor, value: float, wrap: bool = False) -> Tensor:
    """x with a value on its diagonal; with `wrap` the diagonal of a high matrix begins anew below each square and a row."""
    if x.ndim == 2:
        columns = x.shape[1]
        place = torch.arange(x.shape[0]).unsqueeze(1) * columns + torch.arange(columns)
        on_diagonal = torch.remainder(place, columns + 1) == 0
        if not wrap:
            on_diagonal = on_diagonal & (place < columns * columns)
        return torch.where(on_diagonal, value, x)
    each = torch.arange(x.shape[0])
    places = [each.reshape([-1 if d == k else 1 for d in range(x.ndim)]) for k in range(x.ndim)]
    equal = torch.ones_like(x, dtype=torch.bool)
    for a, b in zip(places, places[1:]):
        equal = equal & (a == b)
    return torch.where(equal, value, x)


def fill_diagonal_in_place(input: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """torch.Tensor.fill_diagonal_, whose body works on strides."""
    return input.copy_(filled_diagonal(input, fill_value, wrap))


def shape_overrides() -> dict[str, dict[Callable[..., Any], Callable[..., Any]]]:
    """{name: {torch function: replacement}}."""
    lower, upper = triangle_places(True), triangle_places(False)
    return {
        "take_along_dim": {torch.take_along_dim: take_along, torch.Tensor.take_along_dim: take_along},
        "kron": {torch.kron: kronecker, torch.Tensor.kron: kronecker},
        "vander": {torch.vander: vandermonde, torch.linalg.vander: vandermonde_upward},
        "combinations": {torch.combinations: chosen_rows},
        "cartesian_prod": {torch.cartesian_prod: product_rows},
        "linspace": {torch.linspace: even_places(torch.linspace)},
        "fill_diagonal_": {torch.Tensor.fill_diagonal_: fill_diagonal_in_place},
        "gradient": {torch.gradient: gradient_of(torch.gradient)},
        "multi_dot": {torch.linalg.multi_dot: chain_product},
        "tril_indices": {torch.tril_indices: lower},
        "triu_indices": {torch.triu_indices: upper},
        "__setitem__": {torch.Tensor.__setitem__: write_part},
        "roll": {torch.roll: rolled(torch.roll), torch.Tensor.roll: rolled(torch.roll)},
        "matrix_norm": {torch.linalg.matrix_norm: spectral_norm_of(torch.linalg.matrix_norm)},
        "unravel_index": {torch.unravel_index: places_of},
        "unique_consecutive": {
            torch.unique_consecutive: runs_of_equal,
            torch.Tensor.unique_consecutive: runs_of_equal,
        },
    }
