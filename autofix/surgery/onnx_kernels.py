"""Which operators ONNX Runtime's CPU provider runs at which element types: asked of the runtime itself."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import TensorProto

from autofix.surgery.onnx_types import (
    ORT_TYPE_NAMES,
    onnx_formal_arguments,
    onnx_schema_of,
    onnx_subgraphs,
)

FAILS_WHEN_RUN = {"LSTM": (TensorProto.DOUBLE,), "GRU": (TensorProto.DOUBLE,), "RNN": (TensorProto.DOUBLE,)}
"""Kernels that are registered, load, and refuse to run."""


class OrtKernels:
    """Answers whether ONNX Runtime takes a node with inputs of given element types.

    First the runtime's list of kernels is looked at (`get_all_opkernel_def`); where that says no, a model of this one
    node is opened, because an operator without a kernel may still be expanded into others.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.known: dict[Any, bool] = {}
        self.table: dict[str, list[Any]] = {}
        try:
            from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def
        except ImportError:  # builds without that list: every node is tried out
            return
        for kernel in get_all_opkernel_def():
            if kernel.provider == "CPUExecutionProvider" and kernel.domain in ("", "ai.onnx"):
                self.table.setdefault(kernel.op_name, []).append(kernel)

    def accepts(self, node: onnx.NodeProto, input_types: list[int | None], output_types: list[int | None]) -> bool:
        """Whether the node runs with inputs and outputs of these element types. True where nothing is known."""
        schema = onnx_schema_of(node, self.opset)
        if schema is None or onnx_subgraphs(node) or node.op_type in ("Constant", "Cast") and TensorProto.BFLOAT16 not in input_types + output_types:
            return True
        if any(t is None for t, name in zip(input_types, node.input, strict=True) if name):
            return True
        stripped = onnx.NodeProto()
        stripped.CopyFrom(node)
        stripped.name = ""
        key = (
            node.op_type,
            tuple(input_types),
            tuple(output_types),
            tuple(a.SerializeToString() for a in stripped.attribute),
            tuple(bool(n) for n in node.input),
        )
        if key not in self.known:
            refused = FAILS_WHEN_RUN.get(node.op_type, ())
            if any(t in refused for t in input_types):
                self.known[key] = False
            else:
                self.known[key] = self.listed(node, schema, input_types, output_types) or self.opens(stripped, input_types, output_types)
        return self.known[key]

    def listed(self, node: onnx.NodeProto, schema: Any, input_types: list[int | None], output_types: list[int | None]) -> bool:
        """Whether some registered kernel matches, and the schema allows these types."""
        bound: dict[str, set[str]] = {}
        allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        for types, formals, names in ((input_types, schema.inputs, node.input), (output_types, schema.outputs, node.output)):
            for code, formal, name in zip(types, onnx_formal_arguments(formals, len(types)), names, strict=True):
                if formal is None or not name or code is None:
                    continue
                text = ORT_TYPE_NAMES.get(code, "?")
                if text not in allowed.get(formal.type_str, {text}):
                    return False
                bound.setdefault(formal.type_str, set()).add(text)
                bound.setdefault(formal.name, set()).add(text)
        if any(len(bound.get(c, ())) > 1 for c in allowed):
            heterogeneous = [f.type_str for f in (*schema.inputs, *schema.outputs) if not f.is_homogeneous]
            if any(len(bound.get(c, ())) > 1 and c not in heterogeneous for c in allowed):
                return False
        since = schema.since_version
        for kernel in self.table.get(node.op_type, ()):
            start, end = kernel.version_range
            if start != since and not (start < since <= end < 2**31 - 1):
                continue
            if all(bound.get(name, set()) <= set(types) for name, types in kernel.type_constraints.items()):
                return True
        return False

    def opens(self, node: onnx.NodeProto, input_types: list[int | None], output_types: list[int | None]) -> bool:
        """Whether a model of this node alone can be opened."""
        import onnxruntime as ort

        probe = onnx.NodeProto()
        probe.CopyFrom(node)
        del probe.input[:], probe.output[:]
        inputs, outputs = [], []
        for k, (name, code) in enumerate(zip(node.input, input_types, strict=True)):
            probe.input.append(f"i{k}" if name else "")
            if name and code is not None:
                inputs.append(onnx.helper.make_tensor_value_info(f"i{k}", code, None))
        for k, (name, result) in enumerate(zip(node.output, output_types, strict=True)):
            probe.output.append(f"o{k}" if name else "")
            if name:
                value = onnx.ValueInfoProto(name=f"o{k}")
                if result is not None:
                    value.type.tensor_type.elem_type = result
                outputs.append(value)
        graph = onnx.helper.make_graph([probe], "probe", inputs, outputs)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)], ir_version=10)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        try:
            ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception:
            return False
        return True
