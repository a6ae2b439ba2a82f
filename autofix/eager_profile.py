"""Eager PyTorch's time by module path, source line and aten operator, to be held against ONNX Runtime's."""

from __future__ import annotations

import copy
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autofix.profile import Graph, Key, Row

SAME = {
    "linear": ("addmm", "mm", "bmm"),
    "matmul": ("mm", "bmm", "mv", "dot", "addmm"),
    "einsum": ("bmm", "mm"),
    "conv1d": ("convolution",),
    "conv2d": ("convolution",),
    "conv3d": ("convolution",),
    "conv_transpose1d": ("convolution",),
    "conv_transpose2d": ("convolution",),
    "conv_transpose3d": ("convolution",),
    "batch_norm": ("native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm"),
    "_native_batch_norm_legit_no_training": ("native_batch_norm", "batch_norm"),
    "layer_norm": ("native_layer_norm",),
    "group_norm": ("native_group_norm",),
    "softmax": ("_softmax",),
    "log_softmax": ("_log_softmax",),
    "max_pool1d": ("max_pool2d_with_indices", "max_pool1d_with_indices"),
    "max_pool2d": ("max_pool2d_with_indices",),
    "max_pool3d": ("max_pool3d_with_indices",),
    "embedding_bag": ("_embedding_bag",),
    "scaled_dot_product_attention": ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math"),
}
"""Operators as the exporter knows them, with those that they run as in eager mode."""

ALIKE: dict[tuple[str, ...], tuple[str, ...]] = {
    ("Conv", "ConvTranspose"): ("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    ("MaxPool",): ("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices"),
    ("AveragePool",): ("avg_pool1d", "avg_pool2d", "avg_pool3d"),
    ("Gemm", "MatMul"): ("addmm", "linear", "mm", "bmm", "matmul"),
    ("LSTM", "GRU", "RNN"): ("lstm", "gru", "mkldnn_rnn_layer"),
    ("Softmax",): ("_softmax", "softmax"),
    ("LayerNormalization",): ("native_layer_norm", "layer_norm"),
    ("Resize", "Upsample"): tuple(
        f"upsample_{kind}" for kind in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d", "trilinear3d")
    ),
    ("GridSample",): ("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"),
    ("CumSum",): ("cumsum",),
    ("TopK",): ("topk", "sort"),
    ("Erf",): ("gelu", "erf"),
}
"""ONNX operators that stand for one call each of one of these: where there are as many nodes as calls, they belong together in order."""


@dataclass
class EagerCall:
    """One call of an operator: its name without namespace and overload, where it was made, milliseconds."""

    operator: str
    key: Key
    ms: float


def plain(operator: str) -> str:
    """`aten.conv2d.default` -> `conv2d`."""
    parts = operator.split(".")
    return parts[1] if len(parts) > 1 else operator


def eager_calls(model: Any, args: list[Any], kwargs: dict[str, Any], files: frozenset[str], seconds: float) -> list[EagerCall]:
    """The calls of one run in order, each with its smallest time of several runs; the operator alone is timed, not the noting of it."""
    import torch
    from torch.nn.modules import module as hooks
    from torch.utils._python_dispatch import TorchDispatchMode

    from autofix.pairing import calling_line

    paths = {id(m): name for name, m in model.named_modules()}
    stack: list[str] = []
    calls: list[EagerCall] = []

    class Clock(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Times every operator."""

        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            start = time.perf_counter()
            out = func(*args, **(kwargs or {}))
            took = time.perf_counter() - start
            key = (stack[-1] if stack else "", *calling_line(sys._getframe(1), files))
            calls.append(EagerCall(plain(str(func)), key, took * 1000))
            return out

    def enter(module: Any, inputs: Any) -> None:
        stack.append(paths.get(id(module), stack[-1] if stack else ""))

    def leave(module: Any, inputs: Any, output: Any) -> None:
        if stack:
            stack.pop()

    best: list[EagerCall] = []
    handles = [hooks.register_module_forward_pre_hook(enter), hooks.register_module_forward_hook(leave, always_call=True)]
    try:
        end = time.perf_counter() + seconds
        for done in range(20):
            if done >= 2 and time.perf_counter() > end:
                break
            calls.clear()
            stack.clear()
            fresh_args, fresh_kwargs = copy.deepcopy(args), copy.deepcopy(kwargs)
            with torch.no_grad(), Clock():  # type: ignore[no-untyped-call]
                model(*fresh_args, **fresh_kwargs)
            if len(calls) == len(best):
                for known, new in zip(best, calls, strict=True):
                    known.ms = min(known.ms, new.ms)
            else:
                best = list(calls)
    finally:
        for handle in handles:
            handle.remove()
    return best


def with_eager(rows: list[Row], calls: list[EagerCall], graph: Graph) -> None:
    """Give each row eager_ms: what PyTorch needs for its operator in the same module on the same line; where the operator is not told
    apart there, for the whole line, shared out among the rows of that line. What the exporter noted nothing about is paired in order."""
    times: dict[Key, dict[str, float]] = {}
    for call in calls:
        here = times.setdefault(call.key, {})
        here[call.operator] = here.get(call.operator, 0.0) + call.ms
    in_order = paired_in_order(calls, graph)
    for row in rows:
        wanted = plain(row.operator)
        pairs = [in_order[n] for n in row.nodes if n in in_order]
        known = any(row.op_type in types and wanted in operators for types, operators in ALIKE.items())
        if pairs and len(pairs) == row.count and not known:  # TorchScript, or a convolution with its normalisation
            row.eager_ms = sum(c.ms for c in pairs)
            row.operator = f"aten.{pairs[0].operator}.default"
            row.key = pairs[0].key
            continue
        here = times.get(row.key, {})
        names = [n for n in here if n == wanted or n in SAME.get(wanted, ()) or n.rstrip("_") == wanted]
        alike = [r for r in rows if r.key == row.key and (not names or plain(r.operator) == wanted)]
        part = row.ms / (sum(r.ms for r in alike) or 1.0)
        if names or (here and row.key[1]):
            row.eager_ms = sum(here[n] for n in names or here) * part


def paired_in_order(calls: list[EagerCall], graph: Graph) -> dict[str, EagerCall]:
    """{node name: the eager call that it stands for} for the operators of ALIKE that are as many on both sides."""
    pairs: dict[str, EagerCall] = {}
    for op_types, operators in ALIKE.items():
        nodes = [n for n in graph.nodes if n.op_type in op_types]
        wanted = [c for c in calls if c.operator in operators]
        if nodes and len(nodes) == len(wanted):
            pairs |= {n.name: c for n, c in zip(nodes, wanted, strict=True) if n.name}
    return pairs
