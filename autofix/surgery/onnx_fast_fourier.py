"""STFT as a convolution and DFT as a matrix product, for lengths at which ONNX Runtime's own kernels are slower.

X_k = sum_n x_n exp(-2 pi i k n / N); the matrices are worked out in double precision with k n reduced modulo N first.
"""

from __future__ import annotations

import numpy as np
import onnx

from autofix.surgery.onnx_fast_nodes import FastGraph
from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter

MOST_POINTS = 1024


def fourier_rows(n: int, bins: int, inverse: bool = False) -> np.ndarray:
    """[n, bins, 2]: real and imaginary part of exp(-+ 2 pi i k j / n), over n for the inverse."""
    angle = 2.0 * np.pi * (np.outer(np.arange(n), np.arange(bins)) % n) / n
    scale = 1.0 / n if inverse else 1.0
    return np.stack([np.cos(angle), np.sin(angle) * (1.0 if inverse else -1.0)], -1) * scale


def fast_stft(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """STFT of real signals [batch, length, 1] as a convolution with the windowed waves."""
    signal, step = node.input[0], known.numbers(node.input[1])
    window = known.value(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    frame = known.numbers(node.input[3]) if len(node.input) > 3 and node.input[3] else None
    if not known.is_float(signal) or step is None or known.rank(signal) != 3 or known.size(signal, 2) != 1:
        return False
    size = frame[0] if frame else len(window) if window is not None else 0
    if not 0 < size <= MOST_POINTS or step[0] < 1 or (len(node.input) > 2 and node.input[2] and window is None):
        return False
    shape = np.ones(size) if window is None else window.astype(np.float64)
    if shape.shape != (size,):
        return False
    bins = size // 2 + 1 if onnx_attribute(node, "onesided", 1) else size
    waves = fourier_rows(size, bins) * shape[:, None, None]
    kernel = waves.reshape(size, 2 * bins).T[:, None, :]
    framed = w.op("Conv", w.op("Transpose", signal, perm=[0, 2, 1]), w.const(kernel, np.float32), strides=[step[0]], kernel_shape=[size])
    w.op("Reshape", w.op("Transpose", framed, perm=[0, 2, 1]), w.const([0, 0, bins, 2]), out=node.output[0])
    return True


def fast_dft(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """DFT along the last axis of a signal, of its own length."""
    x, rank = node.input[0], known.rank(node.input[0])
    if rank is None or not known.is_float(x) or rank < 2:
        return False
    axis: int | None = int(onnx_attribute(node, "axis", -2 if w.opset >= 20 else 1))
    if w.opset >= 20 and len(node.input) > 2 and node.input[2]:
        given = known.numbers(node.input[2])
        axis = given[0] if given else None
    n, parts = known.size(x, rank - 2), known.size(x, rank - 1)
    length = known.numbers(node.input[1]) if len(node.input) > 1 and node.input[1] else [n]
    if axis is None or axis % rank != rank - 2 or n is None or parts not in (1, 2) or length != [n] or not 0 < n <= MOST_POINTS // parts:
        return False
    inverse, onesided = bool(onnx_attribute(node, "inverse", 0)), bool(onnx_attribute(node, "onesided", 0))
    if inverse and onesided:
        return False
    bins = n // 2 + 1 if onesided else n
    waves = fourier_rows(n, bins, inverse)
    if parts == 2:
        turned = np.stack([-waves[..., 1], waves[..., 0]], -1)
        waves = np.stack([waves, turned], 1).reshape(2 * n, bins, 2)
    shape = w.op("Shape", x)
    lead = w.slice(shape, [0], [rank - 2], [0])
    flat = w.op("Reshape", x, w.op("Concat", lead, w.const([n * parts]), axis=0))
    product = w.op("MatMul", flat, w.const(waves.reshape(n * parts, 2 * bins), np.float32))
    w.op("Reshape", product, w.op("Concat", lead, w.const([bins, 2]), axis=0), out=node.output[0])
    return True


FAST_FOURIER = {"STFT": fast_stft, "DFT": fast_dft}
