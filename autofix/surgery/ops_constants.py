"""Exact float64 constants: the exporter writes Python numbers beside float64 tensors as float32 and casts them."""

from __future__ import annotations

from typing import Any


def scalar_tensor_exact(s: Any, dtype: int = -1, layout: str = "", device: str = "", pin_memory: bool = False) -> Any:
    """Translation of aten.scalar_tensor: a number keeps all digits of its dtype."""
    import numpy as np
    import onnx
    from onnxscript import opset18 as op

    wanted = int(dtype) if dtype is not None and int(dtype) > 0 else int(onnx.TensorProto.FLOAT)
    if isinstance(s, (bool, int, float)):
        value = np.array(s, dtype=np.float64 if isinstance(s, float) else np.int64)
        if wanted == onnx.TensorProto.DOUBLE:
            return op.Constant(value=onnx.numpy_helper.from_array(value.astype(np.float64)))
        if isinstance(s, float):
            value = value.astype(np.float32)
        return op.Cast(op.Constant(value=onnx.numpy_helper.from_array(value)), to=wanted)  # type: ignore[type-var]
    return op.Cast(s, to=wanted)


EXACT_CONSTANTS = {"aten.scalar_tensor.default": scalar_tensor_exact}
