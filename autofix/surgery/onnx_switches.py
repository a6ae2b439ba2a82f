"""Which nodes must stay in float32 for an 8-bit model to keep within an error budget: found by running both forms side by side.

The model gets a further input, one switch a node; each node's value is its own plus its switch times (8-bit form - own form). One session then
measures, on the model's own outputs, what any set of 8-bit nodes costs.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from autofix.error_budget import output_error
from autofix.surgery.onnx_int8 import Int8Constants, first_output, has_int8_form, prepare_int8, put_nodes, write_int8
from autofix.surgery.onnx_types import onnx_attribute, onnx_opset_of
from autofix.surgery.onnx_writer import OnnxWriter

SWITCHES, SIZES = "autofix_switches", "autofix_sizes"
SECONDS = 60.0
"""Wall time for single-node measurements; beyond it the nodes are measured in groups."""
MARGIN = 0.9
"""The share of the budget that is aimed at: what the runtime fuses rounds a little differently."""


def conv_twin(w: OnnxWriter, node: onnx.NodeProto, constants: Int8Constants, outputs: list[str]) -> bool:
    """A convolution on weights rounded to 8 bits per output channel and activations rounded as they come: the error of a QDQ form."""
    value = constants.value(node.input[1])
    if value is None or not np.isfinite(value).all():
        return False
    per_output = value.ndim > 0 and node.op_type == "Conv"
    scale = np.abs(value).max(axis=tuple(range(1, value.ndim)) if per_output else None, keepdims=True) / constants.limit
    scale = np.where(scale < np.finfo(np.float32).tiny, 1.0, scale)
    rounded = constants.add(f"{node.input[1]}_rounded", (np.rint(value / scale) * scale).astype(np.float32))
    parts = [w.name() for _ in range(3)]
    w.nodes.append(onnx.helper.make_node("DynamicQuantizeLinear", [node.input[0]], parts, name=f"{parts[0]}_node"))
    copy = onnx.NodeProto.FromString(node.SerializeToString())
    copy.name += "_rounded"
    copy.input[0], copy.input[1] = w.op("DequantizeLinear", *parts), rounded
    copy.output[0] = outputs[0]
    w.nodes.append(copy)
    return True


def has_twin(node: onnx.NodeProto, constants: Int8Constants, convolutions: bool) -> bool:
    """Whether a node can be measured: it has an 8-bit form, or is a convolution with constant weights."""
    if convolutions and node.op_type in ("Conv", "ConvTranspose") and node.domain in ("", "ai.onnx"):
        return constants.is_constant(node.input[1])
    return has_int8_form(node, constants)


def with_switches(model: onnx.ModelProto, per_channel: bool, reduce_range: bool, convolutions: bool) -> list[str]:
    """Add switches to a model in place; returns the nodes' names (their first outputs) in the switches' order."""
    constants = Int8Constants(model, per_channel, reduce_range)
    opset, names, done = onnx_opset_of(model), list[str](), list[onnx.NodeProto]()
    counter, sizes = OnnxWriter("switch_sizes", opset), list[str]()
    for node in model.graph.node:
        name = first_output(node)
        w = OnnxWriter(f"switch_{name}", opset)
        twins = [f"{o}_int8" if o else "" for o in node.output]
        write = conv_twin if node.op_type in ("Conv", "ConvTranspose") else write_int8
        if not has_twin(node, constants, convolutions) or not write(w, node, constants, twins):
            done.append(node)
            continue
        switch = w.op("Gather", SWITCHES, w.const(len(names)), axis=0)
        own = onnx.NodeProto.FromString(node.SerializeToString())
        mixed = []
        for k, output in enumerate(node.output):
            if output:
                own.output[k] = f"{output}_float"
                mixed.append(w.op("Add", own.output[k], w.op("Mul", switch, w.op("Sub", twins[k], own.output[k])), out=output))
        done += [own, *w.nodes]
        names.append(name)
        sizes.append(counter.unsqueeze(counter.op("Size", name), [0]))
    if sizes:
        counter.op("Concat", *sizes, out=SIZES, axis=0)
    put_nodes(model, done + counter.nodes, constants)
    model.graph.output.append(onnx.helper.make_tensor_value_info(SIZES, TensorProto.INT64, [len(names)]))
    model.graph.input.append(onnx.helper.make_tensor_value_info(SWITCHES, TensorProto.FLOAT, [len(names)]))
    del model.graph.value_info[:]
    return names


class SwitchRuns:
    """Runs a model with switches: `error(on)` is the worst error of its outputs with these nodes in 8 bits."""

    def __init__(self, model: onnx.ModelProto, runs: list[tuple[dict[str, Any], list[Any]]], count: int, folder: str) -> None:
        import os

        import onnxruntime as ort

        path = os.path.join(folder, "switches.onnx")
        onnx.save(model, path, save_as_external_data=model.ByteSize() > 100_000_000, location="switches.data")
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.runs, self.count = runs, count
        self.names = [o.name for o in model.graph.output if o.name != SIZES]

    def sizes(self) -> list[int]:
        """How many values each node gives on the first run."""
        feed = {**self.runs[0][0], SWITCHES: np.zeros(self.count, np.float32)}
        return [int(n) for n in self.session.run([SIZES], feed)[0]]

    def error(self, on: set[int], first: bool = False) -> float:
        """The worst relative error over outputs and runs (over the first run alone with `first`)."""
        switches = np.array([float(i in on) for i in range(self.count)], np.float32)
        worst = 0.0
        for feed, expected in self.runs[:1] if first else self.runs:
            got = self.session.run(self.names, {**feed, SWITCHES: switches})
            worst = max([worst, *(output_error(e, g) for e, g in zip(expected, got, strict=True))])
        return worst


def single_errors(runs: SwitchRuns, base: float) -> list[float]:
    """What each node alone adds to the squared error. Where single runs would take too long, nodes are measured in groups of
    neighbours, which share their group's error."""
    start = time.perf_counter()
    runs.error(set(), first=True)
    each = time.perf_counter() - start
    size = max(1, math.ceil(runs.count * each / SECONDS))
    found: list[float] = []
    for i in range(0, runs.count, size):
        group = set(range(i, min(i + size, runs.count)))
        gain = max(runs.error(group, first=True) ** 2 - base**2, 0.0)
        found += [gain / len(group)] * len(group)
    return found


def arithmetic(model: onnx.ModelProto, names: list[str], sizes: list[int]) -> list[float]:
    """Multiplications with weights, for each named node: weights per output channel times output values."""
    constants = Int8Constants(model, True, True)
    nodes = {first_output(n): n for n in model.graph.node}
    found = []
    for name, size in zip(names, sizes, strict=True):
        node = nodes[name]
        shapes = [np.shape(np.asarray(constants.value(w))) for w in (node.input[1:3] if node.op_type == "LSTM" else node.input[1:2])]
        channels = {"Conv": 0, "ConvTranspose": 1, "MatMul": -1}.get(node.op_type)
        if node.op_type == "LSTM":
            share = sum(math.prod(s) for s in shapes) * 4 / max(shapes[0][0] * shapes[0][1], 1)
        elif channels is None:
            share = shapes[0][1] if onnx_attribute(node, "transB", 0) else shapes[0][0]
        else:
            share = math.prod(shapes[0]) / max(shapes[0][channels], 1)
        found.append(float(share * size))
    return found


def choose_kept(
    model: onnx.ModelProto,
    runs: list[tuple[dict[str, Any], list[Any]]],
    budget: float,
    error: float,
    kept: list[str],
    *,
    per_channel: bool,
    reduce_range: bool,
    convolutions: bool = False,
) -> tuple[list[str], float]:
    """(nodes to keep in float32, their share of the arithmetic) so that the rest in 8 bits keeps within the budget; ([], 0) where only all would do.

    runs: [(feed, expected outputs)]. error: what was measured with the nodes of `kept` in float32, which corrects what the switches show.
    Nodes go back to float32 by error per arithmetic, most first; how many are needed is found by bisection.
    """
    import tempfile

    prepare_int8(model)
    mixed = onnx.ModelProto()
    mixed.CopyFrom(model)
    names = with_switches(mixed, per_channel, reduce_range, convolutions)
    if not names:
        return [], 0.0
    with tempfile.TemporaryDirectory(prefix="autofix-switches-") as folder:
        measure = SwitchRuns(mixed, runs, len(names), folder)
        del mixed
        costs = arithmetic(model, names, measure.sizes())
        everything = {i for i, n in enumerate(names) if n not in set(kept)}
        seen = measure.error(everything)
        aim = MARGIN * budget * min(1.0, seen / error if error else 1.0)
        singles = single_errors(measure, measure.error(set(), first=True))
        order = sorted(range(len(names)), key=lambda i: (names[i] not in set(kept), -singles[i] / max(costs[i], 1.0)))
        low, high = len([n for n in names if n in set(kept)]), len(names)
        while low < high:  # the error falls as more nodes are kept, near enough
            middle = (low + high) // 2
            if measure.error(set(order[middle:])) <= aim:
                high = middle
            else:
                low = middle + 1
    chosen = [names[i] for i in sorted(order[:high])]
    if high >= len(names) or set(chosen) <= set(kept):
        return [], 0.0
    return chosen, sum(costs[i] for i in order[:high]) / max(sum(costs), 1.0)
