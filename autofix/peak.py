"""How much of the machine's own peak a model reaches: its floating-point operations over its time, against a large matrix product here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SIZE = 1024
"""Rows and columns of the product: 2 * SIZE^3 operations, 25 ms at 85 GFLOP/s; caches hold its blocks, so that arithmetic is what limits it."""
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


def peak_facts(model: Any, reference: Any, threads: int) -> dict[str, float]:
    """{"gflop": of one call, "peak_gflops": of this machine with this many threads}."""
    given = reference.sets[0]
    return {"gflop": round(count_gflop(model, given.args, given.kwargs), 6), "peak_gflops": round(peak_gflops(threads), 2)}


def peak_share(latency: dict[str, Any]) -> float | None:
    """The part of the peak that a file reaches; None where nothing was counted."""
    gflop, peak = float(latency.get("gflop") or 0), float(latency.get("peak_gflops") or 0)
    return gflop / (latency["ort_ms"] / 1000) / peak if gflop and peak and latency.get("ort_ms") else None


def peak_text(latency: dict[str, Any]) -> str:
    """What the share means, in words; empty where no peak was measured."""
    if "peak_gflops" not in latency:
        return ""
    share = peak_share(latency)
    if share is None:
        return "no matrix products or convolutions to hold against this machine's peak"
    rate = latency["gflop"] / (latency["ort_ms"] / 1000)
    text = f"{rate:.3g} GFLOP/s are {share:.1%} of this machine's own {latency['peak_gflops']:.3g} GFLOP/s for a large matrix product"
    return text + (": little is left to gain by other arrangements of the same arithmetic" if share >= NEAR else "")
