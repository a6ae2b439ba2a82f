"""Eager PyTorch's time by module path, source line and aten operator, to be held against ONNX Runtime's."""

from __future__ import annotations

import copy
import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autofix.profile import Key, Row

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
    "softmax": ("_softmax",),
    "log_softmax": ("_log_softmax",),
    "max_pool2d": ("max_pool2d_with_indices",),
    "max_pool3d": ("max_pool3d_with_indices",),
    "max_pool1d": ("max_pool2d_with_indices", "max_pool1d_with_indices"),
    "embedding_bag": ("_embedding_bag",),
    "scaled_dot_product_attention": ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math"),
    "unique_dim": ("_unique2",),
}
"""Operators as the exporter knows them, with those that they run as in eager mode."""

EagerTimes = dict["Key", dict[str, float]]
"""{(module path, file, line): {operator, without namespace and overload: ms a call of the model}}."""


def plain(operator: str) -> str:
    """`aten.conv2d.default` -> `conv2d`."""
    parts = operator.split(".")
    return parts[1] if len(parts) > 1 else operator


def eager_rows(model: Any, args: list[Any], kwargs: dict[str, Any], files: frozenset[str], seconds: float) -> EagerTimes:
    """The smallest time of several calls; the call of the operator itself is timed, not the noting around it."""
    import torch
    from torch.nn.modules import module as hooks
    from torch.utils._python_dispatch import TorchDispatchMode

    from autofix.pairing import calling_line

    paths = {id(m): name for name, m in model.named_modules()}
    stack: list[str] = []
    current: dict[Any, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    class Clock(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Times every operator."""

        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            start = time.perf_counter()
            out = func(*args, **(kwargs or {}))
            took = time.perf_counter() - start
            key = (stack[-1] if stack else "", *calling_line(sys._getframe(1), files))
            current[key][plain(str(func))] += took * 1000
            return out

    def enter(module: Any, inputs: Any) -> None:
        stack.append(paths.get(id(module), stack[-1] if stack else ""))

    def leave(module: Any, inputs: Any, output: Any) -> None:
        if stack:
            stack.pop()

    best: EagerTimes = {}
    handles = [hooks.register_module_forward_pre_hook(enter), hooks.register_module_forward_hook(leave, always_call=True)]
    try:
        end = time.perf_counter() + seconds
        for done in range(20):
            if done >= 3 and time.perf_counter() > end:
                break
            current.clear()
            del stack[:]
            fresh_args, fresh_kwargs = copy.deepcopy(args), copy.deepcopy(kwargs)
            with torch.no_grad(), Clock():  # type: ignore[no-untyped-call]
                model(*fresh_args, **fresh_kwargs)
            for key, times in current.items():
                known = best.setdefault(key, {})
                for operator, ms in times.items():
                    known[operator] = min(ms, known.get(operator, ms))
    finally:
        for handle in handles:
            handle.remove()
    return best


def with_eager(rows: list[Row], eager: EagerTimes) -> None:
    """Give each row eager_ms: what PyTorch needs for its operator in the same module on the same line; where the operator is not told
    apart there, for the whole line, shared out among the rows of that line. Rows without a line are found by module and operator."""
    for row in rows:
        times = eager.get(row.key) or nearest(row, eager)
        if not times:
            continue
        wanted = plain(row.operator)
        names = [n for n in times if n == wanted or n in SAME.get(wanted, ()) or n.rstrip("_") == wanted]
        same = [r for r in rows if r.key == row.key and (not names or plain(r.operator) == wanted)]
        whole = sum(r.ms for r in same) or 1.0
        row.eager_ms = (sum(times[n] for n in names) if names else sum(times.values()) * row.ms / whole) if row.key[1] or names else None
        if names and len(same) > 1:  # several kinds of nodes stand for one operator: each is held against its part of it
            row.eager_ms = (row.eager_ms or 0.0) * row.ms / whole


def nearest(row: Row, eager: EagerTimes) -> dict[str, float]:
    """What eager ran in the row's module, whatever the line; {} where the module is not known."""
    path = row.key[0]
    found: dict[str, float] = defaultdict(float)
    for (module, _, _), times in eager.items():
        if path and module == path:
            for operator, ms in times.items():
                found[operator] += ms
    return dict(found)
