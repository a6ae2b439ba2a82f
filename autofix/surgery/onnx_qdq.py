"""Static 8-bit form of convolutional networks: QuantizeLinear/DequantizeLinear pairs with calibrated ranges, by onnxruntime.quantization."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from typing import Any

import onnx

from autofix.calibration import calibration_feeds
from autofix.errors import NothingToDo
from autofix.surgery.onnx_int8 import first_output
from autofix.surgery.onnx_types import onnx_opset_of

QDQ_LARGE_FILE = 1_000_000_000


def folded_for_qdq(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model after ONNX Runtime's basic optimisations, which merge batch normalisation into convolutions: a pair of QDQ nodes between the
    two would stand in their way. The operators stay those of the ONNX standard."""
    import onnxruntime as ort

    with tempfile.TemporaryDirectory(prefix="autofix-qdq-") as folder:
        path, out = os.path.join(folder, "float.onnx"), os.path.join(folder, "folded.onnx")
        onnx.save(model, path, save_as_external_data=model.ByteSize() > QDQ_LARGE_FILE, location="float.data")
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = out
        ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        folded = onnx.load(out)
    del folded.graph.value_info[:]
    for k, node in enumerate(folded.graph.node):
        node.name = f"{k}_{node.op_type}"  # the quantiser leaves nodes out by name
    return folded


def to_qdq(model: onnx.ModelProto, keep: Iterable[str], reduce_range: bool) -> onnx.ModelProto:
    """The static 8-bit form, apart from nodes whose first output is in `keep`. Ranges: the smallest and largest values on `calibration_feeds`.

    Raises NothingToDo without convolutions, without feeds, or before opset 13, which lacks scales per channel.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    if onnx_opset_of(model) < 13:
        raise NothingToDo("8-bit scales per channel need opset 13")
    feeds = calibration_feeds()
    if not feeds:
        raise NothingToDo("there are no inputs to calibrate with")
    folded = folded_for_qdq(model)
    kept = set(keep)
    excluded = [n.name for n in folded.graph.node if first_output(n) in kept]
    if not any(n.op_type == "Conv" and n.name not in excluded for n in folded.graph.node):
        raise NothingToDo("no convolution is left to quantise")

    class Feeds(CalibrationDataReader):  # type: ignore[misc]
        """Gives the feeds one after another."""

        def __init__(self) -> None:
            self.rest = iter(feeds)

        def get_next(self) -> dict[str, Any] | None:
            """The next feed, or None at the end."""
            return next(self.rest, None)

    with tempfile.TemporaryDirectory(prefix="autofix-qdq-") as folder:
        path, out = os.path.join(folder, "folded.onnx"), os.path.join(folder, "qdq.onnx")
        onnx.save(folded, path)
        quantize_static(
            path,
            out,
            Feeds(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=reduce_range,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=excluded,
            calibrate_method=CalibrationMethod.MinMax,
        )
        quantized = onnx.load(out)
    del quantized.graph.value_info[:]
    names = [[v.name for v in values] for values in (model.graph.input, model.graph.output)]
    if [[v.name for v in values] for values in (quantized.graph.input, quantized.graph.output)] != names:
        raise NothingToDo("the quantiser would change the file's inputs or outputs")
    return quantized
