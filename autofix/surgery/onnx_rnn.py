"""LSTM, GRU and RNN written as Scan over matrix products, for element types that ONNX Runtime's kernels refuse."""

from __future__ import annotations

from typing import Any

import onnx

from autofix.surgery.onnx_types import onnx_attribute
from autofix.surgery.onnx_writer import OnnxWriter

RNN_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
RNN_ACTIVATIONS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


def rnn_step(w: OnnxWriter, kind: str, x: str, h: str, c: str, r: str, rb: str, acts: list[str], linear_before_reset: bool) -> tuple[str, str]:
    """One time step. x [B, G H] holds the input's part; r [G H, H] transposed to [H, G H]; returns the new h and c.

    Equations: the ONNX operators' documentation (gate order i o f c, and z r h).
    """
    if kind == "RNN":
        return w.op(acts[0], w.op("Add", x, w.op("Add", w.op("MatMul", h, r), rb))), c
    if kind == "LSTM":
        gates = w.op("Add", x, w.op("Add", w.op("MatMul", h, r), rb))
        i, o, f, g = rnn_split(w, gates, 4)
        new_c = w.op("Add", w.op("Mul", w.op(acts[0], f), c), w.op("Mul", w.op(acts[0], i), w.op(acts[1], g)))
        return w.op("Mul", w.op(acts[0], o), w.op(acts[2], new_c)), new_c
    xz, xr, xh = rnn_split(w, x, 3)
    if linear_before_reset:
        hz, hr, hh = rnn_split(w, w.op("Add", w.op("MatMul", h, r), rb), 3)
        z, reset = w.op(acts[0], w.op("Add", xz, hz)), w.op(acts[0], w.op("Add", xr, hr))
        new = w.op(acts[1], w.op("Add", xh, w.op("Mul", reset, hh)))
    else:
        rz, rr, rh = rnn_split(w, r, 3)
        bz, br, bh = rnn_split(w, rb, 3)
        z = w.op(acts[0], w.op("Add", xz, w.op("Add", w.op("MatMul", h, rz), bz)))
        reset = w.op(acts[0], w.op("Add", xr, w.op("Add", w.op("MatMul", h, rr), br)))
        new = w.op(acts[1], w.op("Add", xh, w.op("Add", w.op("MatMul", w.op("Mul", reset, h), rh), bh)))
    return w.op("Add", new, w.op("Mul", z, w.op("Sub", h, new))), c


def rnn_split(w: OnnxWriter, x: str, parts: int) -> list[str]:
    """Equal parts of the last axis."""
    outputs = [w.name() for _ in range(parts)]
    extra: dict[str, Any] = {"num_outputs": parts} if w.opset >= 18 else {}
    w.nodes.append(onnx.helper.make_node("Split", [x], outputs, name=f"{outputs[0]}_node", axis=-1, **extra))
    return outputs


def rnn_parts(w: OnnxWriter, node: onnx.NodeProto, code: int) -> bool:
    """Write an LSTM, GRU or RNN node as one Scan a direction. Peepholes, clipping and other activations are left."""
    kind, inputs = node.op_type, [*node.input, *[""] * (8 - len(node.input))]
    x, weight, recurrent, bias, lengths, h0, c0, peephole = inputs[:8]
    direction = onnx_attribute(node, "direction", b"forward").decode()
    directions = 2 if direction == "bidirectional" else 1
    given = [a.decode() for a in onnx_attribute(node, "activations", [])] or list(RNN_ACTIVATIONS[kind]) * directions
    acts = given[: len(given) // directions]
    if peephole or onnx_attribute(node, "clip") is not None or onnx_attribute(node, "input_forget", 0) or onnx_attribute(node, "layout", 0):
        return False
    if given != acts * directions or any(a not in ("Sigmoid", "Tanh", "Relu") for a in acts):
        return False
    hidden = w.size(recurrent, 2)
    batch, steps = w.size(x, 1), w.size(x, 0)
    zero = onnx.helper.make_tensor("value", code, [1], [0])
    ys, hs, cs = [], [], []
    for d in range(directions):
        backwards = direction == "reverse" or d == 1
        pick = w.const(d)
        wt = w.op("Transpose", w.op("Gather", weight, pick, axis=0), perm=[1, 0])
        rt = w.op("Transpose", w.op("Gather", recurrent, pick, axis=0), perm=[1, 0])
        projected = w.op("MatMul", x, wt)
        width = w.op("Mul", hidden, w.const([RNN_GATES[kind]]))
        if bias:
            both = w.op("Gather", bias, pick, axis=0)
            wb, rb = rnn_split(w, both, 2)
            projected = w.op("Add", projected, wb)
        else:
            rb = w.op("ConstantOfShape", width, value=zero)
        state = w.shape_of(batch, hidden)
        h = w.op("Gather", h0, pick, axis=0) if h0 else w.op("ConstantOfShape", state, value=zero)
        c = w.op("Gather", c0, pick, axis=0) if kind == "LSTM" and c0 else w.op("ConstantOfShape", state, value=zero)
        b = OnnxWriter(f"{w.prefix}_body{d}", w.opset)
        new_h, new_c = rnn_step(
            b, kind, f"{b.prefix}_x", f"{b.prefix}_h", f"{b.prefix}_c", rt, rb, acts, bool(onnx_attribute(node, "linear_before_reset", 0))
        )
        shown = new_h
        if lengths:
            live = b.unsqueeze(b.op("Less", f"{b.prefix}_t", b.cast(lengths, onnx.TensorProto.INT64)), [1])
            shown = b.op("Where", live, new_h, b.op("Sub", f"{b.prefix}_h", f"{b.prefix}_h"))
            new_h = b.op("Where", live, new_h, f"{b.prefix}_h")
            new_c = b.op("Where", live, new_c, f"{b.prefix}_c")
        results = [b.op("Identity", v) for v in (new_h, new_c, shown)]
        info = onnx.helper.make_tensor_value_info
        body_inputs = [info(f"{b.prefix}_h", code, None), info(f"{b.prefix}_c", code, None), info(f"{b.prefix}_x", code, None)]
        scanned = [projected]
        if lengths:
            body_inputs.append(info(f"{b.prefix}_t", onnx.TensorProto.INT64, None))
            scanned.append(w.op("Range", w.const(0), w.squeeze(steps, [0]), w.const(1)))
        body = onnx.helper.make_graph(b.nodes, f"{b.prefix}_graph", body_inputs, [info(r, code, [None, None]) for r in results])
        outputs = [w.name() for _ in range(3)]
        w.nodes.append(
            onnx.helper.make_node(
                "Scan", [h, c, *scanned], outputs, name=f"{outputs[0]}_node", body=body, num_scan_inputs=len(scanned),
                scan_input_directions=[int(backwards)] * len(scanned), scan_output_directions=[int(backwards)],
            )
        )  # fmt: skip
        hs.append(w.unsqueeze(outputs[0], [0]))
        cs.append(w.unsqueeze(outputs[1], [0]))
        ys.append(w.unsqueeze(outputs[2], [1]))
    for k, (parts, axis) in enumerate(((ys, 1), (hs, 0), (cs, 0))):
        if k < len(node.output) and node.output[k]:
            w.op("Concat", *parts, axis=axis, out=node.output[k])
    return True
