"""OnnxWriter: nodes written one after another, whatever form an operator has at the opset in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx


class OnnxWriter:
    """Collects the nodes that replace one node. Value names get a prefix that must be unique in the model."""

    def __init__(self, prefix: str, opset: int) -> None:
        self.prefix, self.opset = prefix, opset
        self.nodes: list[onnx.NodeProto] = []
        self.count = 0

    def name(self) -> str:
        """A fresh value name."""
        self.count += 1
        return f"{self.prefix}_{self.count}"

    def op(self, op_type: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """Append a node with one output and return the output's name."""
        result = out or self.name()
        self.nodes.append(onnx.helper.make_node(op_type, list(inputs), [result], name=f"{result}_node", **attributes))
        return result

    def const(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant; `dtype` is NumPy's, or an ONNX element type where `value` is an array of it already."""
        return self.op("Constant", value=onnx.numpy_helper.from_array(np.asarray(value, dtype=dtype)))

    def unsqueeze(self, x: str, axes: Sequence[int], out: str | None = None) -> str:
        """Unsqueeze, with the axes where the opset wants them."""
        if self.opset >= 13:
            return self.op("Unsqueeze", x, self.const(list(axes)), out=out)
        return self.op("Unsqueeze", x, axes=list(axes), out=out)

    def squeeze(self, x: str, axes: Sequence[int], out: str | None = None) -> str:
        """Squeeze, with the axes where the opset wants them."""
        if self.opset >= 13:
            return self.op("Squeeze", x, self.const(list(axes)), out=out)
        return self.op("Squeeze", x, axes=list(axes), out=out)

    def reduce(self, kind: str, x: str, axes: Sequence[int], keepdims: bool, out: str | None = None) -> str:
        """ReduceSum, ReduceMean, ReduceMax ..., with the axes where the opset wants them."""
        if self.opset >= (13 if kind == "ReduceSum" else 18):
            return self.op(kind, x, self.const(list(axes)), keepdims=int(keepdims), out=out)
        return self.op(kind, x, axes=list(axes), keepdims=int(keepdims), out=out)

    def slice(self, x: str, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int] | None = None) -> str:
        """Slice by constant bounds."""
        more = [self.const(list(steps))] if steps else []
        return self.op("Slice", x, self.const(list(starts)), self.const(list(ends)), self.const(list(axes)), *more)

    def size(self, x: str, axis: int) -> str:
        """The size of one axis, shape [1]."""
        return self.op("Gather", self.op("Shape", x), self.const([axis]), axis=0)

    def shape_of(self, *parts: str | int) -> str:
        """A shape, from numbers and values of shape [1]."""
        return self.op("Concat", *[p if isinstance(p, str) else self.const([p]) for p in parts], axis=0)

    def cast(self, x: str, to: int, out: str | None = None) -> str:
        """Cast to an element type."""
        return self.op("Cast", x, to=to, out=out)

    def cast_from_fresh(self, out: str, to: int) -> str:
        """Append a cast that writes `out`, and return the fresh name that it reads."""
        source = self.name()
        self.nodes.append(onnx.helper.make_node("Cast", [source], [out], name=f"{source}_node", to=to))
        return source

    def keep_zeros(self) -> dict[str, Any]:
        """Attributes of a Reshape whose shape may hold true zeros; before opset 14 an empty tensor can't be reshaped to such a shape."""
        return {"allowzero": 1} if self.opset >= 14 else {}


def write_softmax(w: OnnxWriter, node: onnx.NodeProto, axis: int) -> None:
    """A Softmax or LogSoftmax over one axis, by exp and sum."""
    away = w.op("Sub", node.input[0], w.reduce("ReduceMax", node.input[0], [axis], True))
    grown = w.op("Exp", away)
    total = w.reduce("ReduceSum", grown, [axis], True)
    if node.op_type == "Softmax":
        w.op("Div", grown, total, out=node.output[0])
    else:
        w.op("Sub", away, w.op("Log", total), out=node.output[0])
