"""Sums of products over named axes, by permutations and batched matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def einsum_by_products(equation: str, tensors: Sequence[Tensor], *, path: Any = None) -> Tensor:
    """aten.einsum as ATen's own body carries it out (Linear.cpp): permute, multiply or bmm, sum."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd  # type: ignore[attr-defined,unused-ignore]
    return torch.ops.aten.einsum.default._op_dk(key, equation, list(tensors), path=path)  # type: ignore[no-any-return]


EINSUM_DECOMPOSITIONS = {"aten.einsum.default": einsum_by_products}
