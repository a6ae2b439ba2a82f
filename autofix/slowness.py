"""Why an operator loses time: a slug for each costly row of a profile, by what the graph shows and by what PyTorch needs for the same.

Slugs: unfused-conv-bn, weight-transposed-each-run, weight-cast-each-run, gather-elements-embedding, one-hot-embedding (faults of the graph,
whatever PyTorch needs); not-nchwc, depthwise-conv, conv-3d, transposed-conv, pool-1d, resize-kernel, einsum, expand-tile, loop-body,
unrolled, slow-kernel (where the row takes more than PyTorch does, or nothing is known of that).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autofix.profile import Graph, Row

LOSES = 1.15
"""A row loses where it takes this much more than PyTorch; less is within what profiles differ by."""
SMALL_SHARE = 0.02
UNROLLED = 200
"""Nodes of one kind on one line from which on a loop is taken to be unrolled."""
LAYOUT = {"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Concat", "Expand", "Tile"}
CASTS = {"Cast", "CastLike", "DequantizeLinear"}
RESIZES = {"Resize", "Upsample", "GridSample", "AffineGrid"}
CONTROL = {"Loop", "Scan", "If"}


def name_causes(rows: list[Row], graph: Graph, optimized: Graph | None) -> None:
    """Fill in `why` of the rows that matter."""
    for row in rows:
        if row.share >= SMALL_SHARE or row.count >= UNROLLED:
            row.why = cause(row, graph, optimized)


def loses(row: Row) -> bool:
    """Whether a row takes clearly more than PyTorch needs for the same; unknown counts as yes."""
    return row.eager_ms is None or row.ms > row.eager_ms * LOSES


def cause(row: Row, graph: Graph, optimized: Graph | None) -> str:
    """The slug of one row, or an empty string where nothing is wrong with it."""
    node = graph.by_name.get(row.node)
    found = graph_fault(row, node, graph, optimized) if node is not None else ""
    if found or not loses(row):
        return found
    if row.count >= UNROLLED:
        return "unrolled"
    if row.op_type in CONTROL or row.node in graph.looped:
        return "loop-body"
    if node is not None and row.op_type in ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"):
        found = window_cause(row, node, graph)
        if found:
            return found
    if row.op_type in RESIZES:
        return "resize-kernel"
    if row.op_type == "Einsum":
        return "einsum"
    if row.op_type in ("Expand", "Tile"):
        return "expand-tile"
    return "slow-kernel" if row.eager_ms is not None else ""


def graph_fault(row: Row, node: Any, graph: Graph, optimized: Graph | None) -> str:
    """What is wrong with the graph itself, however fast it is."""
    if row.op_type == "BatchNormalization" and row.kernel == "BatchNormalization":
        before = graph.producer.get(node.input[0]) if node.input else None
        return "unfused-conv-bn" if before is not None and before.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul") else ""
    if row.op_type in LAYOUT and node.input and graph.is_constant(node.input[0]):
        return "weight-transposed-each-run"
    if row.op_type in CASTS and node.input and graph.is_constant(node.input[0]):
        return "weight-cast-each-run"
    if row.op_type == "GatherElements" and node.input and graph.is_constant(node.input[0]):
        return "gather-elements-embedding"
    if row.op_type in ("MatMul", "Gemm", "Einsum") and any(is_one_hot(i, graph) for i in node.input):
        return "one-hot-embedding"
    return ""


def counts_up(name: str, graph: Graph) -> bool:
    """Whether a value is the constant 0, 1, 2, ... along its last axis."""
    import numpy as np
    from onnx import numpy_helper

    tensor = graph.constants.get(name)
    if tensor is None or tensor.data_type not in (6, 7) or not tensor.dims or math.prod(tensor.dims) != tensor.dims[-1]:
        return False
    if tensor.data_location == 1:  # in a file beside the graph, which is not read here: whole numbers of that form have to do
        return True
    return np.array_equal(numpy_helper.to_array(tensor).reshape(-1), np.arange(tensor.dims[-1]))


def is_one_hot(name: str, graph: Graph, depth: int = 3) -> bool:
    """Whether a value is a one-hot encoding, seen through casts and reshapes."""
    node = graph.producer.get(name)
    if node is None or depth == 0:
        return False
    if node.op_type == "OneHot" or node.op_type == "Equal" and any(counts_up(i, graph) for i in node.input):
        return True
    passes = node.op_type in (*CASTS, "Reshape", "Squeeze", "Unsqueeze", "Identity") and bool(node.input)
    return passes and is_one_hot(node.input[0], graph, depth - 1)


def window_cause(row: Row, node: Any, graph: Graph) -> str:
    """The kind of a convolution or pooling, as far as its kind is what makes it slow."""
    attributes = {a.name: a for a in node.attribute}
    weight = graph.constants.get(node.input[1]) if len(node.input) > 1 else None
    kernel = list(attributes["kernel_shape"].ints) if "kernel_shape" in attributes else list(weight.dims[2:]) if weight is not None else []
    groups = int(attributes["group"].i) if "group" in attributes else 1
    if "Pool" in row.op_type:
        return "pool-1d" if len(kernel) == 1 else ""
    if row.op_type == "ConvTranspose":
        return "transposed-conv"
    if len(kernel) == 3:
        return "conv-3d"
    if groups > 1 and weight is not None and math.prod(weight.dims[1:2]) == 1:
        return "depthwise-conv"
    return "not-nchwc" if len(kernel) == 2 and not row.kernel.startswith("nchwc:") else ""


def slow_lines(text: str, most: int = 5) -> list[str]:
    """The costliest operators of a profile (the fact `slow`), a line each, for a log."""
    import json

    lines = []
    for row in json.loads(text or "[]")[:most]:
        eager = f", PyTorch {row['eager_ms']:.3g} ms" if row.get("eager_ms") is not None else ""
        operator = f" for {row['operator']}" if row.get("operator") else ""
        where = f" at {row['file'].rpartition('/')[2]}:{row['line']}" if row.get("file") else ""
        many = f"{row['count']}x " if row.get("count", 1) > 1 else ""
        why = f": {row['why']}" if row.get("why") else ""
        lines.append(f"{many}{row['op_type']} ({row['node']}){operator}{where}: {row['ms']:.3g} ms, {row['share']:.0%} of the run{eager}{why}")
    return lines
