"""Gradient operators (`aten.*_backward`) that neither torch's own decompositions nor the exporter have, in forward operators.

Sources: a convolution's gradient for its input is the transposed convolution with the same weights, that for its weights the convolution of the
input with the gradient, with stride and dilation exchanged (Dumoulin and Visin, A guide to convolution arithmetic, 2016, chapter 4). Pooling by
averages and resizing are linear and work on each axis alone: y = A x B^T, so the gradient is A^T g B. A^T is read off by running the operator
itself over an identity matrix.
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


def through_axes(grad: Any, transposes: list[Any]) -> Any:
    """A^T g B for the last axes of grad; transposes[i] is (input size, output size)."""
    if len(transposes) == 1:
        return grad @ transposes[0].transpose(0, 1)
    return transposes[0] @ grad @ transposes[1].transpose(0, 1)


def axis_transposes(grad: Any, sizes: Any, run: Callable[[Any, int], Any]) -> list[Any]:
    """For each axis the transposed matrix of a linear operator: run(identity (1, n, n), axis number) -> (1, n, output size)."""
    return [run(torch.eye(size, dtype=grad.dtype).unsqueeze(0), axis)[0] for axis, size in enumerate(sizes)]


def pair(value: Any, otherwise: Any = None) -> list[Any]:
    """Two numbers from a list of none, one or two."""
    given = list(value) or list(otherwise)
    return given if len(given) == 2 else given * 2


def avg_pool2d_backward(
    grad: Any, x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool, divisor_override: Any
) -> Any:
    """aten.avg_pool2d_backward; with a divisor of its own only where all windows are whole (else NotImplementedError)."""
    kernel, padding = pair(kernel_size), pair(padding)
    stride = pair(stride, kernel)
    if divisor_override is not None and ceil_mode:
        raise NotImplementedError("avg_pool2d_backward with divisor_override and ceil_mode")
    counted = count_include_pad or divisor_override is not None

    def run(eye: Any, axis: int) -> Any:
        return aten.avg_pool1d(eye, [kernel[axis]], [stride[axis]], [padding[axis]], ceil_mode, counted)

    made = through_axes(grad, axis_transposes(grad, x.shape[-2:], run))
    return made if divisor_override is None else made * (kernel[0] * kernel[1] / divisor_override)


def adaptive_avg_pool2d_backward(grad: Any, x: Any) -> Any:
    """aten._adaptive_avg_pool2d_backward."""
    return through_axes(grad, axis_transposes(grad, x.shape[-2:], lambda eye, axis: aten.adaptive_avg_pool1d(eye, [grad.shape[axis - 2]])))


def nearest1d_backward(grad: Any, output_size: Any, input_size: Any, scales: Any = None) -> Any:
    """aten.upsample_nearest1d_backward."""
    return through_axes(grad, axis_transposes(grad, input_size[2:], lambda eye, axis: aten.upsample_nearest1d(eye, [output_size[axis]], scales)))


def nearest2d_backward(grad: Any, output_size: Any, input_size: Any, scales_h: Any = None, scales_w: Any = None) -> Any:
    """aten.upsample_nearest2d_backward."""
    scales = (scales_h, scales_w)
    return through_axes(
        grad, axis_transposes(grad, input_size[2:], lambda eye, axis: aten.upsample_nearest1d(eye, [output_size[axis]], scales[axis]))
    )


def linear1d_backward(grad: Any, output_size: Any, input_size: Any, align_corners: bool, scales: Any = None) -> Any:
    """aten.upsample_linear1d_backward."""

    def run(eye: Any, axis: int) -> Any:
        return aten.upsample_linear1d(eye, [output_size[axis]], align_corners, scales)

    return through_axes(grad, axis_transposes(grad, input_size[2:], run))


def bilinear2d_backward(grad: Any, output_size: Any, input_size: Any, align_corners: bool, scales_h: Any = None, scales_w: Any = None) -> Any:
    """aten.upsample_bilinear2d_backward."""
    scales = (scales_h, scales_w)

    def run(eye: Any, axis: int) -> Any:
        return aten.upsample_linear1d(eye, [output_size[axis]], align_corners, scales[axis])

    return through_axes(grad, axis_transposes(grad, input_size[2:], run))


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
    "aten.avg_pool2d_backward.default": avg_pool2d_backward,
    "aten._adaptive_avg_pool2d_backward.default": adaptive_avg_pool2d_backward,
    "aten.upsample_nearest1d_backward.default": nearest1d_backward,
    "aten.upsample_nearest2d_backward.default": nearest2d_backward,
    "aten.upsample_linear1d_backward.default": linear1d_backward,
    "aten.upsample_bilinear2d_backward.default": bilinear2d_backward,
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
