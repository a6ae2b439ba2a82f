"""How much of the machine's own peak a model reaches: its floating-point operations over its time, against a large matrix product here."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZE = 1024
"""Rows and columns of the product: 2 * SIZE^3 operations, 25 ms at 85 GFLOP/s; caches hold its blocks, so that arithmetic is what limits it."""
INT8_OPS = ("MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QGemm", "QuantizeLinear", "DynamicQuantizeLinear")
NEAR = 0.85
"""From this share of the peak on, no other arrangement of the same arithmetic is likely to help."""


def best_seconds(call: Callable[[], Any], threads: int, seconds: float) -> float:
    """The smallest of several times; processor time where one thread is used, as for all latencies."""
    clock = time.process_time if threads == 1 else time.perf_counter
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        start = clock()
        call()
        best = min(best, max(clock() - start, 1e-9))
    return best


def peak_gflops(threads: int, seconds: float = 0.4) -> float:
    """GFLOP/s of a float32 matrix product with this many threads: PyTorch's, or NumPy's where that is faster on one thread."""
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    a, b = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)
    out = torch.empty(SIZE, SIZE)
    best = best_seconds(lambda: torch.mm(a, b, out=out), threads, seconds / 2)
    if threads == 1:
        x, y = a.numpy(), b.numpy()
        best = min(best, best_seconds(lambda: np.matmul(x, y), threads, seconds / 2))
    return 2 * SIZE**3 / best / 1e9


def int8_peak_gops(threads: int, seconds: float = 0.4) -> float:
    """10^9 operations a second of ONNX Runtime's product of a uint8 and an int8 matrix with this many threads."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper

    from autofix.session import SessionSettings, session_options

    weights = onnx.numpy_helper.from_array(np.random.default_rng(0).integers(-64, 64, (SIZE, SIZE), np.int8), "b")
    values = [helper.make_tensor_value_info(n, t, [SIZE, SIZE]) for n, t in (("a", TensorProto.UINT8), ("y", TensorProto.INT32))]
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "peak", values[:1], values[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    import onnxruntime as ort

    session = ort.InferenceSession(model.SerializeToString(), session_options(SessionSettings(), threads), providers=["CPUExecutionProvider"])
    feed = {"a": np.random.default_rng(1).integers(0, 255, (SIZE, SIZE), np.uint8)}
    return 2 * SIZE**3 / best_seconds(lambda: session.run(None, feed), threads, seconds) / 1e9


def has_int8(path: Path) -> bool:
    """Whether an ONNX file multiplies in 8 bits: dynamic or static quantisation."""
    import onnx

    nodes = onnx.load(str(path), load_external_data=False).graph.node
    return any(n.op_type in INT8_OPS or n.op_type.startswith("QLinear") for n in nodes)


def count_gflop(model: Any, args: list[Any], kwargs: dict[str, Any]) -> float:
    """10^9 operations of matrix products, convolutions and attention in one eager call (one multiplication with its addition is two)."""
    import copy

    import torch
    from torch.utils.flop_counter import FlopCounterMode

    args, kwargs = copy.deepcopy(args), copy.deepcopy(kwargs)
    # without oneDNN recurrent layers are made of the products that the counter knows
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        model(*args, **kwargs)
    return float(counter.get_total_flops()) / 1e9


def peak_facts(model: Any, reference: Any, threads: int, file: Path | None = None) -> dict[str, float]:
    """{"gflop": of one call, "peak_gflops": of this machine with this many threads}; "peak_int8_gops" beside them where the file multiplies in
    8 bits."""
    given = reference.sets[0]
    facts = {"gflop": round(count_gflop(model, given.args, given.kwargs), 6), "peak_gflops": round(peak_gflops(threads), 2)}
    return facts | ({"peak_int8_gops": round(int8_peak_gops(threads), 2)} if file is not None and has_int8(file) else {})


def peak_share(latency: dict[str, Any]) -> float | None:
    """The part of the peak that a file reaches, of the 8-bit peak where it multiplies in 8 bits; None where nothing was counted."""
    gflop, peak = float(latency.get("gflop") or 0), float(latency.get("peak_int8_gops") or latency.get("peak_gflops") or 0)
    return gflop / (latency["ort_ms"] / 1000) / peak if gflop and peak and latency.get("ort_ms") else None


def peak_text(latency: dict[str, Any]) -> str:
    """What the share means, in words; empty where no peak was measured."""
    if "peak_gflops" not in latency:
        return ""
    share = peak_share(latency)
    if share is None:
        return "no matrix products or convolutions to hold against this machine's peak"
    rate = latency["gflop"] / (latency["ort_ms"] / 1000)
    float_peak = f"{latency['peak_gflops']:.3g} GFLOP/s for a large float32 matrix product"
    if latency.get("peak_int8_gops"):
        peak = f"{latency['peak_int8_gops']:.3g} GOP/s for a large 8-bit matrix product"
        return f"{rate:.3g} GOP/s, in part in 8 bits, are {share:.1%} of this machine's own {peak} (its float32 peak: {float_peak})"
    text = f"{rate:.3g} GFLOP/s are {share:.1%} of this machine's own {float_peak}"
    return text + (": little is left to gain by other arrangements of the same arithmetic" if share >= NEAR else "")
