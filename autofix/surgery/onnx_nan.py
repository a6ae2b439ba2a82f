"""Forms of operators that treat NaN, infinity and empty sets as PyTorch does where ONNX Runtime's kernels do not.

Measured with ONNX Runtime 1.32 on CPU: ReduceMax, ReduceMin, ArgMax, ArgMin, MaxPool and GlobalMaxPool pass over NaN; the pools give the
lowest finite number for windows of -Inf; Clip with one
bound turns infinity into the largest float and ignores a NaN bound; Sign keeps NaN where torch.sign gives 0; the mean of nothing is 0.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter

NAN_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)


def nan_mask(w: OnnxWriter, x: str, code: int) -> str:
    """1 where x is NaN, else 0, in x's own element type."""
    return w.cast(w.op("IsNaN", x), code)


def nan_twin(w: OnnxWriter, node: onnx.NodeProto, op_type: str, first: str, out: str | None = None) -> str:
    """The node once more, as `op_type`, on another first input."""
    twin = onnx.NodeProto()
    twin.CopyFrom(node)
    result = out or w.name()
    twin.op_type, twin.name, twin.input[0] = op_type, f"{result}_node", first
    del twin.output[:]
    twin.output.append(result)
    w.nodes.append(twin)
    return result


def nan_where(w: OnnxWriter, flag: str, otherwise: str, code: int, out: str) -> bool:
    """NaN where `flag` (of element type `code`) is above 0."""
    positive = w.op("Greater", flag, w.cast(w.const(0.0, np.float32), code))
    w.op("Where", positive, w.cast(w.const(np.nan, np.float32), code), otherwise, out=out)
    return True


def nan_reduce(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """ReduceMax, ReduceMin, MaxPool and GlobalMaxPool: NaN where any of the values is."""
    code = types.get(node.input[0])
    if code not in NAN_TYPES or sum(bool(o) for o in node.output) > 1:
        return False
    kind = "ReduceMax" if node.op_type == "ReduceMin" else node.op_type
    flag = nan_twin(w, node, kind, nan_mask(w, node.input[0], code))
    found = nan_twin(w, node, node.op_type, node.input[0])
    if node.op_type in ("MaxPool", "GlobalMaxPool"):  # the kernel starts from the lowest finite number
        least = w.cast(w.const(-np.inf, np.float32), code)
        above = nan_twin(w, node, node.op_type, w.cast(w.op("Not", w.op("Equal", node.input[0], least)), code))
        found = w.op("Where", w.op("Greater", above, w.cast(w.const(0.0, np.float32), code)), found, least)
    return nan_where(w, flag, found, code, node.output[0])


def nan_arg(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """ArgMax and ArgMin: the first NaN along the axis wins where there is one."""
    code = types.get(node.input[0])
    if code not in NAN_TYPES or onnx_attribute(node, "select_last_index", 0):
        return False
    x, axis = node.input[0], int(onnx_attribute(node, "axis", 0))
    mask = nan_mask(w, x, code)
    found = w.op("Greater", w.reduce("ReduceMax", mask, [axis], True), w.cast(w.const(0.0, np.float32), code))
    judged = mask if node.op_type == "ArgMax" else w.op("Neg", mask)
    nan_twin(w, node, node.op_type, w.op("Where", found, judged, x), out=node.output[0])
    return True


def nan_clip(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """Clip as Max and Min, whose kernels keep infinity and NaN; the upper bound wins where it is the lower one (torch.clamp)."""
    code = types.get(node.input[0])
    if code not in NAN_TYPES or onnx_attribute(node, "min") is not None or onnx_attribute(node, "max") is not None:
        return False
    bounds = [*node.input[1:], "", ""][:2]
    x = node.input[0]
    if bounds[0]:
        x = w.op("Max", x, bounds[0], out=None if bounds[1] else node.output[0])
    if bounds[1]:
        w.op("Min", x, bounds[1], out=node.output[0])
    return bool(bounds[0] or bounds[1])


def nan_sign(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """torch.sign of NaN is 0."""
    code = types.get(node.input[0])
    if code not in NAN_TYPES:
        return False
    w.op("Where", w.op("IsNaN", node.input[0]), w.cast(w.const(0.0, np.float32), code), w.op("Sign", node.input[0]), out=node.output[0])
    return True


def nan_mean(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """The mean of nothing is NaN."""
    code = types.get(node.input[0])
    if code not in NAN_TYPES:
        return False
    nothing = w.op("Equal", w.op("Size", node.input[0]), w.const(0))
    mean = nan_twin(w, node, node.op_type, node.input[0])
    w.op("Where", nothing, w.cast(w.const(np.nan, np.float32), code), mean, out=node.output[0])
    return True


def nan_grid(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """GridSample in two dimensions at coordinates that are NaN or infinite, which ONNX Runtime takes for 0.

    PyTorch 2.13 on CPU, measured: bilinear into zeros and bicubic give NaN there, nearest into zeros gives 0; padded by the border an
    infinite coordinate is the end of its axis; the rest agrees.
    """
    code = types.get(node.input[0])
    mode, padding = (onnx_attribute(node, key, other) for key, other in (("mode", b"linear"), ("padding_mode", b"zeros")))
    mode, padding = (v.decode() if isinstance(v, bytes) else str(v) for v in (mode, padding))
    grid, grid_code = node.input[1], types.get(node.input[1])
    if code not in NAN_TYPES or grid_code not in NAN_TYPES or (padding == "reflection" and "cubic" not in mode):
        return False
    if padding == "border" and "cubic" not in mode:
        low, high = (w.cast(w.const(bound, np.float32), grid_code) for bound in (-2.0, 2.0))
        bounded = w.op("Where", w.op("Greater", grid, high), high, w.op("Where", w.op("Less", grid, low), low, grid))
        twin = onnx.NodeProto()
        twin.CopyFrom(node)
        twin.name, twin.input[1] = f"{node.name}_bounded", bounded
        w.nodes.append(twin)
        return True
    odd = w.reduce("ReduceMax", nan_mask(w, w.op("Sub", grid, grid), TensorProto.FLOAT), [-1], False)
    flag = w.op("Greater", w.unsqueeze(odd, [1]), w.const(0.0, np.float32))
    found, number = nan_twin(w, node, node.op_type, node.input[0]), [w.cast(w.const(v, np.float32), code) for v in (0.0, np.nan, -0.0)]
    if mode == "nearest":
        w.op("Where", flag, number[0], found, out=node.output[0])
    else:  # minus 0 changes no number, and adding is faster than choosing among all channels
        w.op("Add", found, w.op("Where", flag, *number[1:]), out=node.output[0])
    return True


NAN_FORMS = {
    "GridSample": nan_grid,
    "ReduceMax": nan_reduce,
    "ReduceMin": nan_reduce,
    "MaxPool": nan_reduce,
    "GlobalMaxPool": nan_reduce,
    "ArgMax": nan_arg,
    "ArgMin": nan_arg,
    "Clip": nan_clip,
    "Sign": nan_sign,
    "ReduceMean": nan_mean,
}
