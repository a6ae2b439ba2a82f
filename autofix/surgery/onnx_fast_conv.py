"""Convolutions of volumes, and transposed convolutions without a stride, as plain convolutions of images.

The slices of a volume stand one below the other in one tall image, so that nothing is moved but the shifted copies which a kernel of several
slices reads as channels side by side. Rows at which a window would reach into the next slice are cut off afterwards.

Measured with ONNX Runtime 1.32 on one core against eager PyTorch: a convolution of volumes with a kernel of 3 x 5 x 7 0.5, transposed ones of
volumes 0.25 to 0.55; a transposed convolution of images with stride 1 1.1, as a plain one 1.9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from autofix.surgery.onnx_fast_nodes import FastGraph
from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter

TO_THE_END = 2**31 - 1


@dataclass(frozen=True)
class Windows:
    """A convolution: weight as ONNX lays it out, settings along each axis, groups, name of the bias or an empty string. Pads may be negative."""

    weight: np.ndarray
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    extra: tuple[int, ...]
    group: int
    bias: str

    @property
    def kernel(self) -> tuple[int, ...]:
        """Sizes of the kernel."""
        return self.weight.shape[2:]

    def reach(self, axis: int) -> int:
        """How far the last tap stands from the first."""
        return (self.kernel[axis] - 1) * self.dilations[axis]


def read_windows(node: onnx.NodeProto, known: FastGraph) -> Windows | None:
    """The settings of a float32 Conv or ConvTranspose with a constant weight and written-out padding, else None."""
    weight = known.value(node.input[1])
    if weight is None or weight.dtype != np.float32 or not known.is_float(node.input[0]) or weight.ndim < 3 or not weight.size:
        return None
    rank = weight.ndim - 2
    if onnx_attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or onnx_attribute(node, "output_shape"):
        return None
    pads = tuple(onnx_attribute(node, "pads", [0] * 2 * rank))
    strides, dilations = (tuple(onnx_attribute(node, key, [1] * rank)) for key in ("strides", "dilations"))
    extra = tuple(onnx_attribute(node, "output_padding", [0] * rank))
    bias = node.input[2] if len(node.input) > 2 else ""
    return Windows(weight, strides, dilations, pads[:rank], pads[rank:], extra, int(onnx_attribute(node, "group", 1)), bias)


def write_windows(w: OnnxWriter, op_type: str, x: str, found: Windows, out: str | None = None) -> str:
    """The node of a convolution; what negative pads ask for is cut off before."""
    rank, begin, end = len(found.kernel), [max(p, 0) for p in found.begin], [max(p, 0) for p in found.end]
    x = padded(w, x, range(2, 2 + rank), [min(p, 0) for p in found.begin], [min(p, 0) for p in found.end], 2 + rank)
    more = {"output_padding": found.extra} if any(found.extra) else {}
    return w.op(
        op_type,
        x,
        w.const(found.weight, np.float32),
        *([found.bias] if found.bias else []),
        out=out,
        kernel_shape=found.kernel,
        strides=found.strides,
        dilations=found.dilations,
        pads=[*begin, *end],
        group=found.group,
        **more,
    )


def turned(found: Windows) -> Windows:
    """A transposed convolution whose strides are all 1, as a plain one: the kernel turned round, inputs and outputs exchanged."""
    weight, groups = found.weight, found.group
    parts = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:]).swapaxes(1, 2)
    kernel = np.ascontiguousarray(np.flip(parts.reshape(-1, *parts.shape[2:]), tuple(range(2, weight.ndim))))
    places = range(len(found.kernel))
    begin = tuple(found.reach(d) - found.begin[d] for d in places)
    end = tuple(found.reach(d) - found.end[d] + found.extra[d] for d in places)
    return replace(found, weight=kernel, begin=begin, end=end, extra=(0,) * len(places))


def padded(w: OnnxWriter, x: str, axes: Sequence[int], begin: Sequence[int], end: Sequence[int], rank: int) -> str:
    """x with zeros added along some axes; what is negative is cut off."""
    cut = [k for k in range(len(axes)) if begin[k] < 0 or end[k] < 0]
    if cut:
        x = w.slice(x, [max(-begin[k], 0) for k in cut], [min(end[k], 0) or TO_THE_END for k in cut], [axes[k] for k in cut])
    if max((*begin, *end)) <= 0:
        return x
    pads = [0] * 2 * rank
    for axis, first, last in zip(axes, begin, end, strict=True):
        pads[axis], pads[rank + axis] = max(first, 0), max(last, 0)
    return w.op("Pad", x, w.const(pads))


def side_by_side(w: OnnxWriter, x: str, offsets: Sequence[int], stride: int) -> str:
    """Every `stride`-th slice of x [N, C, D, H, W] from each offset on, joined along the channels; the largest offset is the last or first."""
    most = max(offsets)
    if most == 0 and stride == 1:
        return x
    parts = [w.slice(x, [k], [k - most or TO_THE_END], [2], [stride]) for k in offsets]
    return w.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]


def fast_conv(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """Conv of volumes."""
    found = read_windows(node, known)
    if found is None or len(found.kernel) != 3 or found.group != 1:
        return False
    write_volume_conv(w, node.input[0], found, node.output[0])
    return True


def write_volume_conv(w: OnnxWriter, x: str, found: Windows, out: str) -> None:
    """A plain convolution of a volume [N, C, D, H, W] in one group, pads of any sign."""
    outputs, inputs, depth = found.weight.shape[:3]
    stride, across = found.strides[0], found.strides[1]
    x = padded(w, x, [2, 3, 4], found.begin, found.end, 5)
    whole = w.size(x, 3)
    if across > 1:  # the slices must begin at rows that a step ends on
        more = w.op("Mod", w.op("Neg", whole), w.const([across]))
        x = w.op("Pad", x, w.shape_of(0, 0, 0, 0, 0, 0, 0, 0, more, 0))
    volume = side_by_side(w, x, [k * found.dilations[0] for k in range(depth)], stride)
    batch, places, tall, broad = (w.size(volume, k) for k in (0, 2, 3, 4))
    image = w.op("Reshape", volume, w.shape_of(batch, depth * inputs, w.op("Mul", places, tall), broad), **w.keep_zeros())
    weight = found.weight.transpose(0, 2, 1, 3, 4).reshape(outputs, depth * inputs, *found.kernel[1:])
    # the last slice has as many rows as the others; those that are too many are cut off
    lost = found.reach(1)
    flat = replace(found, weight=weight, strides=found.strides[1:], dilations=found.dilations[1:], begin=(0, 0), end=(lost, 0), extra=(0, 0))
    seen = write_windows(w, "Conv", image, flat)
    rows = w.op("Div", tall, w.const([across])) if across > 1 else tall
    back = w.op("Reshape", seen, w.shape_of(batch, outputs, places, rows, w.size(seen, 3)), **w.keep_zeros())
    kept = w.op("Sub", whole, w.const([lost]))
    if across > 1:
        kept = w.op("Div", w.op("Add", kept, w.const([across - 1])), w.const([across]))
    w.op("Slice", back, w.const([0]), kept, w.const([3]), out=out)


def fast_conv_transpose(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """ConvTranspose without a stride as Conv; of volumes with a stride as one of images."""
    found = read_windows(node, known)
    if found is None:
        return False
    x, out, rank = node.input[0], node.output[0], len(found.kernel)
    if all(s == 1 for s in found.strides):
        plain = turned(found)
        if rank == 3 and plain.group == 1:
            write_volume_conv(w, x, plain, out)
            return True
        write_windows(w, "Conv", x, plain, out)
        return True
    rest = found.kernel[0] % found.strides[0]
    # taps of zero weight would turn infinity into NaN
    if rank != 3 or found.group != 1 or found.dilations[0] != 1 or rest or found.extra[0] > found.end[0]:
        return False
    write_volume_transpose(w, x, found, out)
    return True


def write_volume_transpose(w: OnnxWriter, x: str, found: Windows, out: str) -> None:
    """A transposed convolution of a volume [N, C, D, H, W] in one group, not dilated along its depth, whose kernel is a multiple of the stride there.

    Output slice q = s m + r of the s phases r is made of the taps r, r + s, ... of the kernel alone (as in sub-pixel convolution, Shi et al.
    2016, arXiv:1609.05158): tap r + s j reads input slice m - j. The taps j stand side by side in the channels, the phases r in the outputs.
    """
    inputs, outputs, depth = found.weight.shape[:3]
    step, across = found.strides[0], found.strides[1]
    taps = depth // step
    # output slices before the first and behind the last one that is wanted; whole steps of them are not worked out
    first, last = found.begin[0], found.end[0] - found.extra[0]
    x = padded(w, x, [2], [taps - 1 - first // step], [taps - 1 - last // step], 5)
    high = w.size(x, 3)
    # rows of zeros that keep apart what the slices write, and what is read of them
    more = found.reach(1) + 1 - across + max(found.extra[1] - found.end[1], 0)
    gap = max(math.ceil(more / across), 0)
    volume = side_by_side(w, padded(w, x, [3], [0], [gap], 5), range(taps - 1, -1, -1), 1)
    batch, places, tall, broad = (w.size(volume, k) for k in (0, 2, 3, 4))
    image = w.op("Reshape", volume, w.shape_of(batch, taps * inputs, w.op("Mul", places, tall), broad), **w.keep_zeros())
    # [in, out, j, r, h, w] to [j in, out r, h, w]
    kernel = found.weight.reshape(inputs, outputs, taps, step, *found.kernel[1:]).transpose(2, 0, 1, 3, 4, 5)
    kernel = kernel.reshape(taps * inputs, outputs * step, *found.kernel[1:])
    bias = found.bias
    if bias and step > 1:
        bias = w.op("Reshape", w.op("Expand", w.unsqueeze(bias, [1]), w.const([1, step])), w.const([-1]))
    # the rows of all slices, `across` for each input row
    extra = max(across - 1 - found.reach(1), 0)
    flat = Windows(
        kernel,
        found.strides[1:],
        found.dilations[1:],
        (0, found.begin[2]),
        (max(found.reach(1) + 1 - across, 0), found.end[2]),
        (extra, found.extra[2]),
        1,
        bias,
    )
    if found.strides[1:] == (1, 1):
        seen = write_windows(w, "Conv", image, turned(flat))
    else:
        seen = write_windows(w, "ConvTranspose", image, flat)
    rows, wide = w.op("Mul", tall, w.const([across])), w.size(seen, 3)
    back = w.op("Reshape", seen, w.shape_of(batch, outputs, step, places, rows, wide), **w.keep_zeros())
    # rows of the whole: (high - 1) across + reach + 1 + extra - pads
    beyond = found.reach(1) + 1 + found.extra[1] - found.end[1] - across
    stop = w.op("Add", w.op("Mul", high, w.const([across])), w.const([beyond]))
    cut = w.op("Slice", back, w.const([found.begin[1]]), stop, w.const([4]))
    if step > 1:
        cut = w.op("Transpose", cut, perm=[0, 1, 3, 2, 4, 5])
    kept = w.op("Sub", stop, w.const([found.begin[1]]))
    slices = w.op("Mul", places, w.const([step]))
    result = w.op("Reshape", cut, w.shape_of(batch, outputs, slices, kept, wide), **w.keep_zeros())
    w.op("Slice", result, w.const([first % step]), w.const([-(last % step) or TO_THE_END]), w.const([2]), out=out)


FAST_CONV = {"Conv": fast_conv, "ConvTranspose": fast_conv_transpose}
