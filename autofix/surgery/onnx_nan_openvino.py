"""Forms of operators that keep NaN in OpenVINO, whose vector instructions take the other operand in its place.

Measured with OpenVINO 2026.4 on CPU: Clip, Relu, Max and Min lose a NaN in their first operand, Exp makes it infinity; Clip with one bound makes
infinity the largest float; IsNaN and Where are right.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto

from autofix.surgery.onnx_writer import OnnxWriter


def nan_kept(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """Relu and Exp: NaN where the operand is."""
    x = node.input[0]
    if types.get(x) != TensorProto.FLOAT:
        return False
    twin = onnx.NodeProto()
    twin.CopyFrom(node)
    found = w.name()
    twin.name, twin.output[0] = f"{found}_node", found
    w.nodes.append(twin)
    w.op("Where", w.op("IsNaN", x), x, found, out=node.output[0])
    return True


def nan_kept_clip(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """Clip as Max and Min, which keep infinity; NaN where the operand is. The upper bound wins where it is the lower one."""
    x, bounds = node.input[0], [*node.input[1:], "", ""][:2]
    if types.get(x) != TensorProto.FLOAT or not any(bounds):
        return False
    found = w.op("Max", x, bounds[0]) if bounds[0] else x
    found = w.op("Min", found, bounds[1]) if bounds[1] else found
    w.op("Where", w.op("IsNaN", x), x, found, out=node.output[0])
    return True


def nan_kept_of_many(w: OnnxWriter, node: onnx.NodeProto, types: dict[str, int]) -> bool:
    """Max and Min, two operands at a time: NaN where the first is."""
    if len(node.input) < 2 or types.get(node.input[0]) != TensorProto.FLOAT:
        return False
    value = node.input[0]
    for place, other in enumerate(node.input[1:], 2):
        found = w.op(node.op_type, value, other)
        value = w.op("Where", w.op("IsNaN", value), value, found, out=node.output[0] if place == len(node.input) else None)
    return True


OPENVINO_NAN_FORMS = {"Clip": nan_kept_clip, "Relu": nan_kept, "Exp": nan_kept, "Max": nan_kept_of_many, "Min": nan_kept_of_many}
