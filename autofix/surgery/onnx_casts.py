"""Give every node that ONNX Runtime has no kernel for another form of the same value: wider types around it, or other operators."""

from __future__ import annotations

import onnx
import onnx.inliner
from onnx import TensorProto

from autofix.surgery.onnx_conv import average_pool_parts, conv_parts, conv_transpose_parts
from autofix.surgery.onnx_double import (
    double_bent_line,
    double_elu,
    double_erf,
    double_gelu,
    double_inverse_hyperbolic,
    double_inverse_trig,
    double_sinh_cosh,
    double_softplus,
    double_tan,
    gemm_parts,
    global_pool_parts,
    instance_norm_parts,
    nonzero_parts,
    relu_parts,
    sum_parts,
)
from autofix.surgery.onnx_kernels import OrtKernels
from autofix.surgery.onnx_rnn import rnn_parts
from autofix.surgery.onnx_types import (
    ORT_TYPE_NAMES,
    onnx_attribute,
    onnx_formal_arguments,
    onnx_graph_types,
    onnx_opset_of,
    onnx_output_type,
    onnx_schema_of,
    onnx_subgraphs,
)
from autofix.surgery.onnx_writer import OnnxWriter

RING_OPS = (
    "Add", "Sub", "Mul", "Neg", "Abs", "Sum", "MatMul", "ReduceSum", "ReduceProd", "ReduceSumSquare", "CumSum", "Einsum", "BitShift",
)  # fmt: skip
"""Right modulo 2^n, so that computing wider and cutting off gives what wrap-around gives."""
ORDER_OPS = (
    "Max", "Min", "Clip", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK", "Less", "Greater", "LessOrEqual", "GreaterOrEqual",
    "Equal", "Sign", "Relu", "MaxPool", "GlobalMaxPool", "Div", "Mod", "Range", "NonZero", "Unique", "Hardmax", "ReduceL1",
)  # fmt: skip
"""The value is one of the inputs, or an exact integer quotient: the same in any wider type."""
MOVE_OPS = (
    "Where", "Gather", "GatherElements", "GatherND", "Concat", "Reshape", "Transpose", "Slice", "Split", "Expand", "Tile", "Pad",
    "Squeeze", "Unsqueeze", "Flatten", "Identity", "ScatterElements", "ScatterND", "Compress", "Trilu", "ReverseSequence", "SpaceToDepth",
    "DepthToSpace", "OneHot", "CenterCropPad", "Scatter", "ConstantOfShape", "EyeLike", "Size", "Shape", "ConcatFromSequence",
    "SplitToSequence", "SequenceAt", "Upsample", "Resize", "MaxUnpool",
)  # fmt: skip
"""Values are moved or chosen only."""
WIDER_TYPES: dict[int, tuple[int, ...]] = {
    TensorProto.BOOL: (TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8, TensorProto.FLOAT),
    TensorProto.INT8: (TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT),
    TensorProto.UINT8: (TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT),
    TensorProto.INT16: (TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT),
    TensorProto.UINT16: (TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT),
    TensorProto.INT32: (TensorProto.INT64, TensorProto.DOUBLE),
    TensorProto.UINT32: (TensorProto.INT64, TensorProto.DOUBLE),
    TensorProto.UINT64: (TensorProto.INT64,),
    TensorProto.FLOAT16: (TensorProto.FLOAT,),
    TensorProto.BFLOAT16: (TensorProto.FLOAT,),
    TensorProto.FLOAT: (TensorProto.DOUBLE,),
}
SMALL_INTEGERS = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16)
REAL_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
DOUBLE_FORMS = {
    "Erf": double_erf, "Gelu": double_gelu, "Sinh": double_sinh_cosh, "Cosh": double_sinh_cosh, "Tan": double_tan, "Asin": double_inverse_trig,
    "Acos": double_inverse_trig, "Atan": double_inverse_trig, "Asinh": double_inverse_hyperbolic, "Acosh": double_inverse_hyperbolic,
    "Atanh": double_inverse_hyperbolic, "Elu": double_elu, "Celu": double_elu, "Selu": double_elu, "Softplus": double_softplus,
    "Mish": double_softplus, "LeakyRelu": double_bent_line, "PRelu": double_bent_line, "HardSigmoid": double_bent_line,
    "HardSwish": double_bent_line, "Softsign": double_bent_line, "LSTM": rnn_parts, "GRU": rnn_parts, "RNN": rnn_parts,
    "InstanceNormalization": instance_norm_parts,
}  # fmt: skip
ANY_FORMS = {
    "NonZero": nonzero_parts,
    "Relu": relu_parts,
    "Gemm": gemm_parts,
    "Sum": sum_parts,
    "Mean": sum_parts,
    "GlobalAveragePool": global_pool_parts,
    "GlobalMaxPool": global_pool_parts,
}
CONV_FORMS = {"Conv": conv_parts, "ConvTranspose": conv_transpose_parts, "AveragePool": average_pool_parts}
FLOAT_FUNCTIONS = (
    "Sqrt", "Exp", "Log", "Sin", "Cos", "Tan", "Sigmoid", "Tanh", "Erf", "Reciprocal", "Floor", "Ceil", "Round", "Softmax", "Atan", "Asin",
    "Acos",
)  # fmt: skip
"""PyTorch takes integers for these and computes in float32; ONNX does not."""


def cast_is_exact(node: onnx.NodeProto, narrow: int, wide: int) -> bool:
    """Whether computing in `wide` and casting back gives what the operator gives in `narrow` itself."""
    op = node.op_type
    if narrow in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
        return True  # PyTorch's CPU kernels too compute in float32 and round once
    if op == "Resize" and onnx_attribute(node, "mode", b"nearest") != b"nearest":
        return False
    if narrow == TensorProto.FLOAT or wide in REAL_TYPES:
        return op in MOVE_OPS + ORDER_OPS and op not in ("Div", "Mod", "ReduceL1")
    if narrow == TensorProto.UINT64:
        return op in RING_OPS + MOVE_OPS and not (op == "BitShift" or op == "Abs")
    if op == "BitShift":
        return False
    return op in RING_OPS + ORDER_OPS + MOVE_OPS


PRODUCT_OPS = ("Transpose", "MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum")
"""Products and what their operands come from: a product of transposed half precision takes ONNX Runtime 1.32 down (NchwcTransformer)."""


class KernelRepair:
    """Rewrites one model's nodes; `changed` lists what was done to which node."""

    def __init__(self, model: onnx.ModelProto, wide_products: bool = False) -> None:
        self.wide_products = wide_products
        self.opset = onnx_opset_of(model)
        self.kernels = OrtKernels(self.opset)
        self.types: dict[str, int] = {}
        self.shapes: dict[str, list[int]] = {}
        self.scalars: dict[str, float] = {}
        self.changed: list[str] = []
        self.count = 0

    def graph(self, graph: onnx.GraphProto) -> None:
        """Repair the nodes of a graph, nested ones first, in place."""
        for tensor in graph.initializer:
            self.note_constant(tensor.name, tensor)
        onnx_graph_types(graph, self.opset, self.types)
        done: list[onnx.NodeProto] = []
        for node in graph.node:
            for sub in onnx_subgraphs(node):
                self.graph(sub)
            if node.op_type == "Constant" and onnx_attribute(node, "value") is not None:
                self.note_constant(node.output[0], onnx_attribute(node, "value"))
            done += self.node(node, 0)
        del graph.node[:]
        graph.node.extend(done)
        if self.changed:
            del graph.value_info[:]

    def note_constant(self, name: str, tensor: onnx.TensorProto) -> None:
        """Remember a constant's shape, and its value where it is a single number."""
        self.shapes[name] = list(tensor.dims)
        if tensor.data_type in SMALL_INTEGERS + REAL_TYPES[:3] and all(d == 1 for d in tensor.dims):
            self.scalars[name] = float(onnx.numpy_helper.to_array(tensor).reshape(-1)[0])

    def small_power(self, node: onnx.NodeProto, narrow: int) -> bool:
        """Whether a power of 8- or 16-bit integers stays far below 2^53, so that it is exact in 64 bits."""
        return node.op_type == "Pow" and narrow in SMALL_INTEGERS and self.scalars.get(node.input[1]) in (0.0, 1.0, 2.0, 3.0)

    def settle(self, nodes: list[onnx.NodeProto], depth: int) -> list[onnx.NodeProto]:
        """Repair newly written nodes in turn."""
        out: list[onnx.NodeProto] = []
        for node in nodes:
            for sub in onnx_subgraphs(node):
                self.graph(sub)
            out += self.node(node, depth)
        return out

    def node(self, node: onnx.NodeProto, depth: int) -> list[onnx.NodeProto]:
        """The nodes that stand for `node`: itself where ONNX Runtime takes it."""
        for k, name in enumerate(node.output):
            code = onnx_output_type(node, k, self.opset, self.types)
            if name and code:
                self.types[name] = code
        inputs = [self.types.get(n) if n else None for n in node.input]
        outputs = [self.types.get(n) if n else None for n in node.output]
        avoided = self.wide_products and node.op_type in PRODUCT_OPS and inputs[0] in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
        if depth > 4 or (self.kernels.accepts(node, inputs, outputs) and not avoided):
            return [node]
        self.count += 1
        for form in (self.other_form, self.wider, self.as_float):
            replacement = form(node, inputs, outputs)
            if replacement:
                self.changed.append(f"{node.op_type} {node.name}: {form.__name__}")
                return self.settle(replacement, depth + 1)
        return [node]

    def writer(self, node: onnx.NodeProto) -> OnnxWriter:
        """A writer with a prefix of its own."""
        return OnnxWriter(f"autofix_{node.output[0]}_{self.count}", self.opset)

    def other_form(self, node: onnx.NodeProto, inputs: list[int | None], outputs: list[int | None]) -> list[onnx.NodeProto]:
        """The node from other operators, or nothing."""
        code = inputs[0] if inputs else None
        if code is None or (code in (TensorProto.FLOAT16, TensorProto.BFLOAT16) and node.op_type != "NonZero"):
            return []
        w, op = self.writer(node), node.op_type
        done = False
        if op in DOUBLE_FORMS and code == TensorProto.DOUBLE:
            done = DOUBLE_FORMS[op](w, node, code)
        elif op in CONV_FORMS and (code == TensorProto.DOUBLE or op != "AveragePool"):
            weight_shape = self.shapes.get(node.input[1]) if len(node.input) > 1 else None
            done = CONV_FORMS[op](w, node, code, weight_shape)
        elif op in ANY_FORMS and (code == TensorProto.DOUBLE or op not in ("Mean", "GlobalAveragePool")):
            done = ANY_FORMS[op](w, node, code)
        return w.nodes if done else []

    def wider(self, node: onnx.NodeProto, inputs: list[int | None], outputs: list[int | None]) -> list[onnx.NodeProto]:
        """The node in a wider type, between casts, or nothing."""
        schema = onnx_schema_of(node, self.opset)
        if schema is None:
            return []
        formal_in, formal_out = onnx_formal_arguments(schema.inputs, len(inputs)), onnx_formal_arguments(schema.outputs, len(outputs))
        bound = {
            f.type_str: t
            for f, t in [*zip(formal_in, inputs, strict=True), *zip(formal_out, outputs, strict=True)]
            if f is not None and t is not None
        }
        allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        choices = [(name, code) for name, code in bound.items() if name in allowed and code in WIDER_TYPES]
        for narrow in sorted({code for _, code in choices}):
            for wide in WIDER_TYPES[narrow]:
                changed = {n: wide for n, code in choices if code == narrow and ORT_TYPE_NAMES[wide] in allowed[n]}
                exact = wide == TensorProto.INT64 if self.small_power(node, narrow) else cast_is_exact(node, narrow, wide)
                if not changed or not exact:
                    continue
                new_in = [changed.get(f.type_str, t) if f is not None and t == narrow else t for f, t in zip(formal_in, inputs, strict=True)]
                new_out = [changed.get(f.type_str, t) if f is not None and t == narrow else t for f, t in zip(formal_out, outputs, strict=True)]
                if self.kernels.accepts(node, new_in, new_out):
                    return self.between_casts(node, inputs, outputs, new_in, new_out)
        return []

    def between_casts(
        self, node: onnx.NodeProto, inputs: list[int | None], outputs: list[int | None], new_in: list[int | None], new_out: list[int | None]
    ) -> list[onnx.NodeProto]:
        """The node with casts where a type changes."""
        w = self.writer(node)
        renamed = {
            name: w.cast(name, new) for name, old, new in zip(node.input, inputs, new_in, strict=True) if name and new != old and new is not None
        }
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        del inner.input[:], inner.output[:]
        inner.input.extend(renamed.get(n, n) if new != old else n for n, old, new in zip(node.input, inputs, new_in, strict=True))
        casts = OnnxWriter(w.prefix + "_out", self.opset)
        for name, old, new in zip(node.output, outputs, new_out, strict=True):
            if name and new != old and old is not None:
                inner.output.append(casts.cast_from_fresh(name, old))
            else:
                inner.output.append(name)
        for name, new in zip(inner.output, new_out, strict=True):
            if name and new is not None:
                self.types[name] = new
        return [*w.nodes, inner, *casts.nodes]

    def as_float(self, node: onnx.NodeProto, inputs: list[int | None], outputs: list[int | None]) -> list[onnx.NodeProto]:
        """A real function of integers or booleans, in float32 as PyTorch computes it."""
        if node.op_type not in FLOAT_FUNCTIONS or not inputs or inputs[0] is None or inputs[0] in REAL_TYPES:
            return []
        w = self.writer(node)
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        inner.input[0] = w.cast(node.input[0], TensorProto.FLOAT)
        return [*w.nodes, inner]


def repair_kernels(model: onnx.ModelProto, wide_products: bool = False) -> list[str]:
    """Rewrite every node that ONNX Runtime's CPU provider has no kernel for, in place; returns what was changed.

    wide_products: half-precision products and transposes are taken in float32 although there are kernels.
    """
    if model.functions:
        model.CopyFrom(onnx.inliner.inline_local_functions(model))
    repair = KernelRepair(model, wide_products)
    repair.graph(model.graph)
    return repair.changed
