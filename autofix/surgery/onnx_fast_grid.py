"""GridSample of images from gathers of whole pixels, with weights worked out once for all channels.

Formulas: the ONNX operator's documentation and ATen's GridSampler.h (unnormalising, clipping, reflecting; Keys' kernel with a = -3/4).
Measured with ONNX Runtime 1.32 on one core: GridSample takes 3 to 12 times as long as PyTorch, except bilinear with zeros.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from autofix.surgery.onnx_fast_nodes import FastGraph, fast_guarded, fast_scalar
from autofix.surgery.onnx_fast_resize import cubic_tap, resize_text
from autofix.surgery.onnx_writer import OnnxWriter

GRID_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Pixels that count along an axis."""
MOST_CHANNELS = 64


def grid_places(w: OnnxWriter, grid: str, k: int, size: str, aligned: bool) -> str:
    """Pixel coordinates [n, p] of one axis (k: 0 for x, 1 for y) from a grid [n, p, 2] in -1 .. 1; size [1], float32."""
    part = w.squeeze(w.slice(grid, [k], [k + 1], [2]), [2])
    shifted, half, one = w.op("Add", part, fast_scalar(w, 1.0)), fast_scalar(w, 2.0), fast_scalar(w, 1.0)
    if aligned:
        return w.op("Mul", w.op("Div", shifted, half), w.op("Sub", size, one))
    return w.op("Div", w.op("Sub", w.op("Mul", shifted, size), one), half)


def grid_reflected(w: OnnxWriter, place: str, size: str, aligned: bool) -> str:
    """Coordinates reflected at the borders (of pixels' centres if aligned, else of their edges) as often as it takes; then clipped."""
    one, zero, half = fast_scalar(w, 1.0), fast_scalar(w, 0.0), fast_scalar(w, 0.5)
    span = w.op("Sub", size, one) if aligned else size
    low = zero if aligned else fast_scalar(w, -0.5)
    away = w.op("Abs", w.op("Sub", place, low))
    safe = w.op("Max", span, half)
    turns = w.op("Floor", w.op("Div", away, safe))
    rest = w.op("Sub", away, w.op("Mul", turns, safe))
    odd = w.op("Sub", turns, w.op("Mul", w.op("Floor", w.op("Mul", turns, half)), fast_scalar(w, 2.0)))
    # even turns: rest + low, odd ones: span - rest + low
    back = w.op("Mul", odd, w.op("Sub", span, w.op("Mul", rest, fast_scalar(w, 2.0))))
    return grid_clipped(w, w.op("Add", w.op("Add", rest, back), low), size)


def grid_clipped(w: OnnxWriter, place: str, size: str) -> str:
    """Coordinates cut at the first and the last pixel."""
    return w.op("Max", w.op("Min", place, w.op("Sub", size, fast_scalar(w, 1.0))), fast_scalar(w, 0.0))


def grid_axis(w: OnnxWriter, place: str, size: str, whole: str, mode: str, padding: str, aligned: bool) -> tuple[list[str], list[str]]:
    """(first tap, one more entry per tap where taps do not follow one another; weights) along one axis, all [n, p]; taps are int64 places
    in the padded image, GRID_TAPS[mode] pixels wider on each side. size: [1] float32, whole: [1] int64.
    """
    taps, one = GRID_TAPS[mode], fast_scalar(w, 1.0)
    if mode != "cubic" and padding == "border":
        place = grid_clipped(w, place, size)
    if mode != "cubic" and padding == "reflection":
        place = grid_reflected(w, place, size, aligned)
    if mode == "nearest":
        start, weights = w.op("Round", place), []
    else:
        start = w.op("Floor", place)
        part = w.op("Sub", place, start)
        if mode == "cubic":
            weights = [cubic_tap(w, part, k, -0.75) for k in range(-1, 3)]
            start = w.op("Sub", start, one)
        else:
            weights = [w.op("Sub", one, part), part]
    if mode == "cubic" and padding == "reflection":
        spots = [grid_reflected(w, w.op("Add", start, fast_scalar(w, float(k))), size, aligned) for k in range(taps)]
    else:
        spots = [start]
    places = []
    for spot in spots:
        bounded = w.op("Max", w.op("Min", spot, size), fast_scalar(w, -float(taps)))
        # NaN becomes some whole number, which must stay inside
        number = w.op("Add", w.cast(bounded, TensorProto.INT64), w.const([taps]))
        places.append(w.op("Max", w.op("Min", number, w.op("Add", whole, w.const([taps]))), w.const([0])))
    return places, weights


def grid_windows(w: OnnxWriter, x: str, n: str, c: str, taps: int, padding: str) -> tuple[str, str, str]:
    """(rows, height, width): rows [n height width, taps c] holds for each pixel of the padded image itself and the taps - 1 to its right."""
    bounds = w.const([0, 0, taps, taps, 0, 0, taps, taps])
    wide = w.op("Pad", x, bounds, mode="edge") if padding != "zeros" else w.op("Pad", x, bounds, fast_scalar(w, 0.0))
    tall, broad = w.size(wide, 2), w.size(wide, 3)
    flat = w.op("Transpose", w.op("Reshape", wide, w.op("Concat", n, c, w.op("Mul", tall, broad), axis=0)), perm=[0, 2, 1])
    pixels = w.op("Reshape", flat, w.op("Concat", n, tall, broad, c, axis=0))
    width = w.op("Sub", broad, w.const([taps - 1]))
    if taps > 1:
        shifted = [w.op("Slice", pixels, w.const([k]), w.op("Add", width, w.const([k])), w.const([2])) for k in range(taps)]
        pixels = w.op("Concat", *shifted, axis=3)
    return w.op("Reshape", pixels, w.op("Concat", w.const([-1]), w.op("Mul", c, w.const([taps])), axis=0)), tall, width


def fast_grid(w: OnnxWriter, node: onnx.NodeProto, known: FastGraph) -> bool:
    """Two-dimensional GridSample; where the grid or the result holds NaN or infinity the node itself is kept."""
    x, grid = node.input
    if not (known.is_float(x) and known.is_float(grid)) or known.rank(x) != 4:
        return False
    mode = {"bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic", "cubic": "cubic"}.get(
        resize_text(node, "mode", "linear" if w.opset >= 20 else "bilinear")
    )
    padding = resize_text(node, "padding_mode", "zeros")
    aligned = any(a.name == "align_corners" and a.i for a in node.attribute)
    channels = known.size(x, 1)
    if mode is None or not channels or channels > MOST_CHANNELS or any(known.size(x, k) == 0 for k in range(4)):
        return False
    taps, scattered = GRID_TAPS[mode], mode == "cubic" and padding == "reflection"
    shape, goal = w.op("Shape", x), w.op("Shape", grid)
    n, c, h, wd = (w.op("Gather", shape, w.const([k]), axis=0) for k in range(4))
    points = w.op("Reshape", grid, w.op("Concat", n, w.const([-1, 2]), axis=0))
    sizes = [w.cast(v, TensorProto.FLOAT) for v in (wd, h)]
    columns, across = grid_axis(w, grid_places(w, points, 0, sizes[0], aligned), sizes[0], wd, mode, padding, aligned)
    lines, down = grid_axis(w, grid_places(w, points, 1, sizes[1], aligned), sizes[1], h, mode, padding, aligned)
    table, tall, width = grid_windows(w, x, n, c, 1 if scattered else taps, "edge" if scattered else padding)
    if scattered:  # the padding of one pixel there is not used
        columns, lines = ([w.op("Sub", v, w.const([taps - 1])) for v in values] for values in (columns, lines))
    each = w.unsqueeze(w.op("Range", w.const(0), w.squeeze(n, [0]), w.const(1)), [1])
    first = w.op("Mul", each, tall)
    # one matrix repeats a tap's weight for every channel, another adds up what belongs to a channel
    repeat = w.const(np.repeat(np.eye(taps, dtype=np.float32), channels, axis=1), np.float32)
    over = w.op("Concat", *[w.unsqueeze(v, [2]) for v in across], axis=2) if across else ""
    total = ""
    for j in range(taps):
        line = lines[j] if scattered else w.op("Add", lines[0], w.const([j])) if j else lines[0]
        base = w.op("Mul", w.op("Add", line, first), width)
        parts = [w.op("Gather", table, w.op("Add", base, column), axis=0) for column in columns]
        taken = w.op("Concat", *parts, axis=2) if len(parts) > 1 else parts[0]
        if over:
            taken = w.op("Mul", taken, w.op("MatMul", w.op("Mul", over, w.unsqueeze(down[j], [2])), repeat))
        total = w.op("Add", total, taken) if total else taken
    if over:
        total = w.op("MatMul", total, w.const(np.tile(np.eye(channels, dtype=np.float32), (taps, 1)), np.float32))
    picture = w.op("Transpose", total, perm=[0, 2, 1])
    result = w.op("Reshape", picture, w.op("Concat", n, c, w.slice(goal, [1], [3], [0]), axis=0))
    # zero times the sum of the grid: NaN where the grid is not finite
    doubt = w.op("Mul", w.op("ReduceSum", grid, keepdims=0), fast_scalar(w, 0.0))
    return fast_guarded(w, [node], result, node.output[0], also=doubt)


FAST_GRID = {"GridSample": fast_grid}
