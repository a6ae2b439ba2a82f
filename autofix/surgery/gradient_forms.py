"""Gradient operators (`aten.*_backward`) that neither torch's own decompositions nor the exporter have, in forward operators.

Sources: a convolution's gradient for its input is the transposed convolution with the same weights, that for its weights the convolution of the
input with the gradient, with stride and dilation exchanged (Dumoulin and Visin, A guide to convolution arithmetic, 2016, chapter 4). Those of
padding, pooling and resizing stand in gradient_forms_places.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

aten = torch.ops.aten


def convolution_backward(
    grad: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Any,
) -> tuple[Any, Any, Any]:
    """aten.convolution_backward; grad and x have a batch axis. Gives (for x, for weight, for bias), None where the mask says so."""
    space = len(stride)
    for_x = for_weight = for_bias = None
    if output_mask[0]:
        if transposed:
            for_x = aten.convolution(grad, weight, None, stride, padding, dilation, False, [0] * space, groups)
        else:
            # Each stride leaves up to stride - 1 inputs at the end that are part of no whole step: ask for all of them, take those there are.
            more = [s - 1 for s in stride]
            for_x = aten.convolution(grad, weight, None, stride, padding, dilation, True, more, groups)
        for_x = first_of_each_axis(for_x, x.shape[2:])
    if output_mask[1]:
        moved, fixed = (grad, x) if transposed else (x, grad)
        parts = []
        for a, b in zip(moved.chunk(groups, 1), fixed.chunk(groups, 1), strict=True):
            made = aten.convolution(a.transpose(0, 1), b.transpose(0, 1), None, dilation, padding, stride, False, [0] * space, 1)
            parts.append(first_of_each_axis(made, weight.shape[2:]).transpose(0, 1))
        for_weight = parts[0] if groups == 1 else torch.cat(parts, 0)
    if output_mask[2]:
        for_bias = grad.sum([0, *range(2, 2 + space)])
    return for_x, for_weight, for_bias


def first_of_each_axis(x: Any, sizes: Any) -> Any:
    """The first sizes[i] of axis 2 + i."""
    for axis, size in enumerate(sizes, 2):
        x = x.narrow(axis, 0, size)
    return x


def cdist_backward(grad: Any, x1: Any, x2: Any, p: float, cdist: Any) -> Any:
    """aten._cdist_backward: the gradient for x1 (..., rows, features); 0 where two points are the same, as in PyTorch."""
    apart = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    grad, distance = grad.unsqueeze(-1), cdist.unsqueeze(-1)
    if p == 1:
        return (grad * apart.sign()).sum(-2)
    if p == float("inf"):
        return (grad * apart.sign() * (apart.abs() == distance)).sum(-2)
    safe = torch.where(distance == 0, torch.ones_like(distance), distance)
    slope = apart / safe if p == 2 else apart.sign() * (apart.abs() / safe).pow(p - 1)
    return torch.where(distance == 0, torch.zeros_like(apart), grad * slope).sum(-2)


def shrink_backward(grad: Any, x: Any, lambd: Any) -> Any:
    """aten.hardshrink_backward and aten.softshrink_backward."""
    return torch.where(x.abs() <= lambd, torch.zeros_like(grad), grad)


def silu_backward(grad: Any, x: Any) -> Any:
    """aten.silu_backward: s (1 + x (1 - s)) of s = sigmoid(x)."""
    gate = torch.sigmoid(x)
    return grad * gate * (1 + x * (1 - gate))


def mish_backward(grad: Any, x: Any) -> Any:
    """aten.mish_backward: t + x s (1 - t^2) of t = tanh(softplus(x)) and s = sigmoid(x)."""
    squashed = torch.tanh(torch.nn.functional.softplus(x))
    return grad * (squashed + x * torch.sigmoid(x) * (1 - squashed * squashed))


GRADIENT_FORMS: dict[str, Callable[..., Any]] = {
    "aten.convolution_backward.default": convolution_backward,
    "aten._cdist_backward.default": cdist_backward,
    "aten.hardshrink_backward.default": shrink_backward,
    "aten.softshrink_backward.default": shrink_backward,
    "aten.silu_backward.default": silu_backward,
    "aten.mish_backward.default": mish_backward,
}


@contextlib.contextmanager
def decomposed_although_composite() -> Iterator[None]:
    """While active, ExportedProgram.run_decompositions uses the table for gradient operators that are composite and have a CPU kernel too.

    torch hands such entries (silu_backward, mish_backward) to the dispatcher as their composite form, which the CPU kernel goes before.
    """
    from torch.export import exported_program

    original = exported_program._split_decomp_table_to_cia_and_python_decomp

    def split(table: Any) -> Any:
        composite, python = original(table)
        for op in (aten.silu_backward.default, aten.mish_backward.default):
            if op in composite and GRADIENT_FORMS[str(op)] is composite[op]:
                python[op] = composite.pop(op)
        return composite, python

    setattr(exported_program, "_split_decomp_table_to_cia_and_python_decomp", split)  # noqa: B010
    try:
        yield
    finally:
        setattr(exported_program, "_split_decomp_table_to_cia_and_python_decomp", original)  # noqa: B010
