"""OpenVINO behind the methods of an onnxruntime.InferenceSession; needs the package openvino (`pip install autofix-onnx[openvino]`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ValueInfo:
    """An input or output as ONNX Runtime describes it: name, type such as "tensor(float)", shape with names for sizes that vary."""

    name: str
    type: str
    shape: list[Any]


def value_infos(values: Any) -> list[ValueInfo]:
    """ValueInfos of graph inputs or outputs."""
    from autofix.surgery.onnx_types import ORT_TYPE_NAMES

    found = []
    for value in values:
        tensor = value.type.tensor_type
        shape = [int(d.dim_value) if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
        found.append(ValueInfo(value.name, ORT_TYPE_NAMES.get(tensor.elem_type, "tensor(float)"), shape))
    return found


def fixed_array(port: Any) -> tuple[tuple[int, ...], Any] | None:
    """(shape, NumPy dtype) of an output whose shape is fixed and holds something, else None."""
    partial = port.get_partial_shape()
    shape = tuple(int(d) for d in partial.to_shape()) if partial.is_static else (0,)
    return (shape, port.get_element_type().to_dtype()) if all(shape) else None


class OpenVinoSession:
    """One model on the CPU, in float32 throughout, with the latency hint and a fixed number of threads."""

    def __init__(self, path: str, threads: int = 1) -> None:
        import onnx
        import openvino

        graph = onnx.load(path, load_external_data=False).graph
        constant = {t.name for t in graph.initializer}
        self.inputs = value_infos([i for i in graph.input if i.name not in constant])
        self.outputs = value_infos(graph.output)
        config = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        self.compiled = openvino.Core().compile_model(path, "CPU", config)
        self.request = self.compiled.create_infer_request()
        self.order = [self.port(value.name) for value in self.outputs]
        self.fixed = {self.place(port): fixed_array(port) for port in self.order}

    def port(self, name: str) -> Any:
        """The compiled model's output of this name."""
        for output in self.compiled.outputs:
            if name in output.get_names():
                return output
        raise ValueError(f"OpenVINO has no output {name}")

    def place(self, port: Any) -> int:
        """The position of one of the compiled model's outputs."""
        return int(self.compiled.outputs.index(port))

    def get_inputs(self) -> list[ValueInfo]:
        """As InferenceSession's."""
        return self.inputs

    def get_outputs(self) -> list[ValueInfo]:
        """As InferenceSession's."""
        return self.outputs

    def get_providers(self) -> list[str]:
        """The runtime's own name."""
        return ["OpenVINO"]

    def run(self, names: list[str] | None, feed: dict[str, Any]) -> list[Any]:
        """As InferenceSession's; the results are the caller's own: outputs of a fixed shape are written where they stay, others are copied."""
        import numpy as np
        import openvino

        own: dict[int, Any] = {}
        for place, form in self.fixed.items():
            if form is not None:
                own[place] = np.empty(*form)
                self.request.set_output_tensor(place, openvino.Tensor(own[place], shared_memory=True))
        results = self.request.infer(feed, share_inputs=True, share_outputs=True)
        wanted = self.order if names is None else [self.port(n) for n in names]
        return [own[self.place(port)] if self.place(port) in own else results[port].copy() for port in wanted]
