"""Rules for torch.func.vmap that keep a mapped axis of dynamic size. torch's own for these operators read it as a constant."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

aten = torch.ops.aten
functorch: Any = torch._C._functorch


def unmapped(value: Any, level: int) -> tuple[Any, bool]:
    """A tensor with the axis that is mapped at this level in front, and whether it has one."""
    if isinstance(value, torch.Tensor) and functorch.is_batchedtensor(value) and functorch.maybe_get_level(value) == level:
        return functorch.get_unwrapped(value).movedim(functorch.maybe_get_bdim(value), 0), True
    return value, False


def below_vmap() -> Any:
    """While active, operators run on what the mapped tensors hold."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchBatched))


def mapped_cat(tensors: Any, dim: int = 0) -> Any:
    """aten.cat of tensors of which some are mapped; the others are repeated. Empty tensors of one axis fit any, as in torch.cat."""
    level = functorch.maybe_current_level()
    with below_vmap():
        parts = [unmapped(t, level) for t in tensors]
        sizes = [p.shape[0] for p, mapped in parts if mapped]
        if not sizes:
            return torch.cat([p for p, _ in parts], dim)
        whole = [p if mapped else p.unsqueeze(0).expand(sizes[0], *p.shape) for p, mapped in parts]
        rank = max(p.dim() for p in whole)
        whole = [p for p in whole if p.dim() == rank]
        made = torch.cat(whole, dim + 1 if dim >= 0 else dim)
    return functorch._add_batch_dim(made, 0, level)


def view_gradient(operator: Any, axes: tuple[int, ...]) -> Callable[..., Any]:
    """The rule for the gradient of a view, operator(grad, input sizes, *rest); axes: which of `rest` are numbers of axes."""

    def rule(grad: Any, input_sizes: Any, *rest: Any) -> Any:
        level = functorch.maybe_current_level()
        with below_vmap():
            inner, mapped = unmapped(grad, level)
            if not mapped:
                return operator(inner, input_sizes, *rest)
            moved = [value % len(input_sizes) + 1 if place in axes else value for place, value in enumerate(rest)]
            made = operator(inner, [inner.shape[0], *input_sizes], *moved)
        return functorch._add_batch_dim(made, 0, level)

    return rule


RULES: dict[str, Callable[..., Any]] = {
    "cat": mapped_cat,
    "slice_backward": view_gradient(aten.slice_backward.default, (0,)),
    "select_backward": view_gradient(aten.select_backward.default, (0,)),
    "diagonal_backward": view_gradient(aten.diagonal_backward.default, (1, 2)),
}


@contextlib.contextmanager
def vmap_keeps_sizes() -> Iterator[None]:
    """While active, torch.func.vmap follows these rules."""
    make: Any = torch.library.Library
    library = make("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that its own rules are overridden
            for name, rule in RULES.items():
                library.impl(name, rule, "FuncTorchBatched", allow_override=True)
        yield
    finally:
        library._destroy()
