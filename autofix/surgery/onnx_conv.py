"""Convolutions and average pooling as gathers and matrix products, for element types without such kernels."""

from __future__ import annotations

import numpy as np
import onnx

from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter


def conv_patches(
    w: OnnxWriter, x: str, kernel: list[int], strides: list[int], dilations: list[int], pads: list[int], code: int
) -> tuple[str, list[str]]:
    """Patches of x [N, C, *spatial] as [N, C, k1, o1, k2, o2, ...], and the output sizes (shape [1] each).

    Along an axis, index [k, o] = k * dilation + o * stride into the padded input; o runs over
    floor((size + pads - dilation (k - 1) - 1) / stride) + 1 places (the formula of ONNX's Conv).
    """
    rank = len(kernel)
    if any(pads):
        full = [0, 0, *pads[:rank], 0, 0, *pads[rank:]]
        zero = w.cast(w.const(0, np.int64), code)
        x = w.op("Pad", x, w.const(full), zero)
    sizes: list[str] = []
    patches = x
    for d in range(rank):
        reach = dilations[d] * (kernel[d] - 1) + 1
        room = w.op("Sub", w.size(x, 2 + d), w.const([reach]))
        count = w.op("Add", w.op("Div", room, w.const([strides[d]])), w.const([1]))
        sizes.append(count)
        places = w.op("Range", w.const(0), w.squeeze(count, [0]), w.const(1))
        starts = w.unsqueeze(w.op("Mul", places, w.const(strides[d])), [0])
        taps = w.const((np.arange(kernel[d]) * dilations[d])[:, None])
        patches = w.op("Gather", patches, w.op("Add", starts, taps), axis=2 + 2 * d)
    return patches, sizes


def conv_settings(node: onnx.NodeProto, kernel: list[int]) -> tuple[list[int], list[int], list[int]] | None:
    """Strides, dilations and pads, or None where pads are worked out from the input's size."""
    rank = len(kernel)
    if onnx_attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return None
    return (
        list(onnx_attribute(node, "strides", [1] * rank)),
        list(onnx_attribute(node, "dilations", [1] * rank)),
        list(onnx_attribute(node, "pads", [0] * 2 * rank)),
    )


def conv_product(
    w: OnnxWriter,
    x: str,
    weight: str,
    bias: str,
    kernel: list[int],
    group: int,
    strides: list[int],
    dilations: list[int],
    pads: list[int],
    code: int,
    out: str,
) -> None:
    """Write Conv as one batched matrix product over patches. `weight` is [M, C / group, *kernel]."""
    rank = len(kernel)
    patches, sizes = conv_patches(w, x, kernel, strides, dilations, pads, code)
    order = [0, 1, *[2 + 2 * d for d in range(rank)], *[3 + 2 * d for d in range(rank)]]
    patches = w.op("Transpose", patches, perm=order)
    places = sizes[0]
    for s in sizes[1:]:
        places = w.op("Mul", places, s)
    batch = w.size(x, 0)
    taps = w.op("Div", w.op("Mul", w.size(x, 1), w.const([int(np.prod(kernel))])), w.const([group]))
    columns = w.op("Reshape", patches, w.shape_of(batch, group, taps, places), **w.keep_zeros())
    rows = w.op("Reshape", weight, w.shape_of(group, w.op("Div", w.size(weight, 0), w.const([group])), taps))
    product = w.op("MatMul", rows, columns)
    channels = w.size(weight, 0)
    shape = w.shape_of(batch, channels, *sizes)
    plain = w.op("Reshape", product, shape, out=None if bias else out, **w.keep_zeros())
    if bias:
        w.op("Add", plain, w.unsqueeze(bias, list(range(1, rank + 1))), out=out)


def conv_parts(w: OnnxWriter, node: onnx.NodeProto, code: int, weight_shape: list[int] | None) -> bool:
    """Conv for element types without a kernel."""
    kernel = list(onnx_attribute(node, "kernel_shape", (weight_shape or [])[2:]))
    settings = conv_settings(node, kernel) if kernel else None
    if settings is None:
        return False
    bias = node.input[2] if len(node.input) > 2 else ""
    conv_product(w, node.input[0], node.input[1], bias, kernel, int(onnx_attribute(node, "group", 1)), *settings, code, node.output[0])
    return True


def conv_transpose_parts(w: OnnxWriter, node: onnx.NodeProto, code: int, weight_shape: list[int] | None) -> bool:
    """ConvTranspose: spread the input by its stride, pad by dilation (k - 1) - pad, and convolve with the flipped weight."""
    kernel = list(onnx_attribute(node, "kernel_shape", (weight_shape or [])[2:]))
    settings = conv_settings(node, kernel) if kernel else None
    if settings is None or onnx_attribute(node, "output_shape") is not None:
        return False
    strides, dilations, pads = settings
    rank, group = len(kernel), int(onnx_attribute(node, "group", 1))
    extra = list(onnx_attribute(node, "output_padding", [0] * rank))
    x, weight = node.input[0], node.input[1]
    zero = w.cast(w.const(0), code)
    for d in range(rank):
        if strides[d] > 1:
            axis = 2 + d
            apart = w.unsqueeze(x, [axis + 1])
            widths = [0] * (rank + 3)
            widths[axis + 1] = strides[d] - 1
            spread = w.op("Pad", apart, w.const([0] * (rank + 3) + widths), zero)
            shape = [w.size(x, a) for a in range(rank + 2)]
            shape[axis] = w.op("Mul", shape[axis], w.const([strides[d]]))
            whole = w.op("Reshape", spread, w.shape_of(*shape), **w.keep_zeros())
            last = w.op("Sub", shape[axis], w.const([strides[d] - 1]))
            x = w.op("Slice", whole, w.const([0]), last, w.const([axis]))
    before = [dilations[d] * (kernel[d] - 1) - pads[d] for d in range(rank)]
    after = [dilations[d] * (kernel[d] - 1) - pads[rank + d] + extra[d] for d in range(rank)]
    # weight [C, M / group, *k] -> [group, C / group, M / group, *k] -> [M, C / group, *k], taps reversed
    shape_parts: list[str | int] = [group, w.op("Div", w.size(weight, 0), w.const([group])), w.size(weight, 1), *kernel]
    split = w.op("Reshape", weight, w.shape_of(*shape_parts))
    turned = w.op("Transpose", split, perm=[0, 2, 1, *range(3, 3 + rank)])
    outputs = w.op("Mul", w.size(weight, 1), w.const([group]))
    merged = w.op("Reshape", turned, w.shape_of(outputs, w.op("Div", w.size(weight, 0), w.const([group])), *kernel))
    flipped = w.slice(merged, [-1] * rank, [-(2**31)] * rank, list(range(2, 2 + rank)), [-1] * rank)
    bias = node.input[2] if len(node.input) > 2 else ""
    conv_product(w, x, flipped, bias, kernel, group, [1] * rank, dilations, before + after, code, node.output[0])
    return True


def average_pool_parts(w: OnnxWriter, node: onnx.NodeProto, code: int, weight_shape: list[int] | None) -> bool:
    """AveragePool: the sum over patches divided by the number of places that count."""
    kernel = list(onnx_attribute(node, "kernel_shape"))
    settings = conv_settings(node, kernel)
    if settings is None or onnx_attribute(node, "ceil_mode", 0):
        return False
    x, rank = node.input[0], len(kernel)
    taps = [2 + 2 * d for d in range(rank)]
    total = w.reduce("ReduceSum", conv_patches(w, x, kernel, *settings, code)[0], taps, False)
    if any(settings[2]) and not onnx_attribute(node, "count_include_pad", 0):
        shape = w.op("Concat", w.const([1, 1]), w.slice(w.op("Shape", x), [2], [2**31], [0]), axis=0)
        ones = w.op("ConstantOfShape", shape, value=onnx.helper.make_tensor("value", code, [1], [1]))
        count = w.reduce("ReduceSum", conv_patches(w, ones, kernel, *settings, code)[0], taps, False)
    else:
        count = w.cast(w.const(int(np.prod(kernel))), code)
    w.op("Div", total, count, out=node.output[0])
    return True
