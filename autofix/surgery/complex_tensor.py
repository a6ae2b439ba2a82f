"""Complex tensors as pairs of real tensors while a graph is traced again.

`RealPair` looks like a complex tensor to torch (shape, dtype, broadcasting, composite operators) and holds a real and an
imaginary part. `PairMode` sees every ATen operator below the composite ones and hands those that touch complex values to the
functions of a table; what is left in the trace computes with real numbers only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

PAIR_REAL_DTYPES = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}
PAIR_COMPLEX_DTYPES = {torch.float32: torch.complex64, torch.float64: torch.complex128, torch.float16: torch.complex32}


class RealPair(torch.Tensor):
    """A complex tensor made of two real tensors `re` and `im` of equal shape and dtype."""

    re: torch.Tensor
    im: torch.Tensor

    @staticmethod
    def __new__(cls, re: torch.Tensor, im: torch.Tensor) -> RealPair:
        """Wrap two real tensors; their shapes must be equal."""
        made: RealPair = torch.Tensor._make_wrapper_subclass(
            cls, re.shape, strides=re.stride(), dtype=PAIR_COMPLEX_DTYPES[re.dtype], device=re.device
        )
        made.re, made.im = re, im
        return made

    def __init__(self, re: torch.Tensor, im: torch.Tensor) -> None:
        pass

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Reached only outside of PairMode, where nothing is known about pairs."""
        raise NotImplementedError(f"{func} on a pair of reals outside of PairMode")


def pair_parts(value: Any) -> tuple[Any, Any]:
    """Real and imaginary part of a pair, a real tensor (None for its zero imaginary part), or a Python number."""
    if isinstance(value, RealPair):
        return value.re, value.im
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise NotImplementedError("a complex tensor that is not a pair of reals")
        return value, None
    if isinstance(value, complex):
        return value.real, value.imag
    return value, None


def pair_of(value: Any, dtype: torch.dtype | None = None) -> RealPair:
    """`value` (a pair, a real tensor or a Python number) as a pair whose parts have the real `dtype`."""
    re, im = pair_parts(value)
    if not isinstance(re, torch.Tensor):
        kind = dtype or torch.float32
        return RealPair(torch.scalar_tensor(re, dtype=kind), torch.scalar_tensor(im or 0.0, dtype=kind))
    kind = dtype or (re.dtype if re.dtype.is_floating_point else torch.get_default_dtype())
    re = re.to(kind) if re.dtype != kind else re
    if im is None:
        im = torch.zeros_like(re)
    return RealPair(re, im.to(kind) if im.dtype != kind else im)


def pair_real_dtype(*values: Any) -> torch.dtype:
    """The real dtype that an operation on these complex, real and Python operands computes in (torch's type promotion)."""
    from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

    _, dtype = elementwise_dtypes(*values, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.INT_TO_FLOAT)
    return PAIR_REAL_DTYPES.get(dtype, dtype)


class PairMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operators with complex operands or results through `table` ("add.Tensor" or "add" -> function)."""

    def __init__(self, table: dict[str, Callable[..., Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The rule of the table, or torch's own decomposition into operators that have one."""
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        packet, _, overload = func.name().removeprefix("aten::").partition(".")
        touched = any(isinstance(v, (RealPair, complex)) or (isinstance(v, torch.dtype) and v.is_complex) for v in leaves)
        if not touched and packet not in ("complex", "polar", "view_as_complex", "view_as_complex_copy", "_fft_r2c"):
            return func(*args, **kwargs)
        rule = self.table.get(f"{packet}.{overload}" if overload else packet) or self.table.get(packet)
        with self:
            if rule is not None:
                return rule(func, *args, **kwargs)
            if func._can_decompose():
                return func.decompose(*args, **kwargs)
            python_rule = torch._decomp.decomposition_table.get(func)
            if python_rule is not None:
                return python_rule(*args, **kwargs)
        raise NotImplementedError(f"no rule for {func.name()} on complex numbers as pairs of reals")


def pair_flatten(value: Any) -> tuple[list[Any], Any]:
    """Leaves, with each pair replaced by its two parts, and what `pair_unflatten` needs."""
    leaves, spec = tree_flatten(value)
    flat: list[Any] = []
    kinds: list[bool] = []
    for leaf in leaves:
        kinds.append(isinstance(leaf, RealPair))
        flat.extend([leaf.re, leaf.im] if isinstance(leaf, RealPair) else [leaf])
    return flat, (spec, kinds)


def pair_unflatten(flat: list[Any], how: Any, make: Callable[[Any, Any], Any] = RealPair) -> Any:
    """The inverse of `pair_flatten`; `make` builds what stands for a pair."""
    spec, kinds = how
    rest = iter(flat)
    return tree_unflatten([make(next(rest), next(rest)) if pair else next(rest) for pair in kinds], spec)


def pair_broadcast(*tensors: Any) -> list[Any]:
    """Real tensors expanded to their common shape."""
    expanded: Any = torch.functional.broadcast_tensors  # untyped in torch
    return list(expanded(*tensors))
