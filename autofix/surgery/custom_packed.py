"""Packed sequences kept padded, with a mask: what pack_padded_sequence, recurrent layers over it and pad_packed_sequence compute.

While a model is captured a PackedSequence holds `data` [time, batch, features] (zero behind each sequence's end, batch in the order of
falling lengths) instead of the joined steps; `batch_sizes` [time] is the number of sequences that are still running, 0 included.
A step that lies behind a sequence's end leaves its state as it was: the definition of a packed run.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from autofix.surgery.custom_rnn import rnn_gru_cell, rnn_lstm_cell
from autofix.surgery.ops_loop import loop_steps


def packed_padded(input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> Any:
    """torch.nn.utils.rnn.pack_padded_sequence."""
    lengths = torch.as_tensor(lengths).to(torch.int64)
    data = input.transpose(0, 1) if batch_first else input
    order = back = None
    if not enforce_sorted:
        lengths, order = torch.sort(lengths, descending=True)
        data = data.index_select(1, order)
        back = torch.zeros_like(order).scatter(0, order, torch.arange(order.shape[0], dtype=torch.int64))
    running = torch.arange(data.shape[0], dtype=torch.int64).unsqueeze(1) < lengths.unsqueeze(0)
    shape = [*running.shape, *[1] * (data.ndim - 2)]
    return PackedSequence(torch.where(running.reshape(shape), data, torch.zeros_like(data)), running.sum(1), order, back)


def packed_running(packed: Any) -> Any:
    """[time, batch]: which sequences run at which step."""
    return torch.arange(packed.data.shape[1], dtype=torch.int64).unsqueeze(0) < packed.batch_sizes.unsqueeze(1)


def packed_unpadded(sequence: Any, batch_first: bool = False, padding_value: float = 0.0, total_length: Any = None) -> Any:
    """torch.nn.utils.rnn.pad_packed_sequence: (padded, lengths)."""
    running = packed_running(sequence)
    data = torch.where(running.reshape([*running.shape, *[1] * (sequence.data.ndim - 2)]), sequence.data, padding_value)
    lengths = running.sum(0)
    steps = data.shape[0]
    if total_length is None:
        longest = (sequence.batch_sizes > 0).sum().item()
        torch._check(longest >= 0)  # type: ignore[no-untyped-call]
        torch._check(longest <= steps)  # type: ignore[no-untyped-call]
        known = longest.node.shape_env.__dict__.setdefault("numbers_used_as_sizes", set()) if hasattr(longest, "node") else set()
        known.update(longest.node.expr.free_symbols if hasattr(longest, "node") else ())
        data = data.narrow(0, 0, longest)
    elif total_length is not steps and str(total_length) != str(steps):
        data = torch.cat([data, torch.full([total_length, *data.shape[1:]], padding_value, dtype=data.dtype)])[:total_length]
    if sequence.unsorted_indices is not None:
        data, lengths = data.index_select(1, sequence.unsorted_indices), lengths.index_select(0, sequence.unsorted_indices)
    return data.transpose(0, 1) if batch_first else data, lengths


def packed_direction(kind: str, x: Any, running: Any, h: Any, c: Any, weights: list[Any], reverse: bool) -> tuple[Any, Any, Any]:
    """One direction of one layer: outputs [time, batch, hidden] (zero behind the ends), last h and c. running: [time, batch, 1]."""
    wi, wh, bi, bh, wr = weights
    gates = torch.matmul(x, wi.transpose(0, 1)) + bi
    if reverse:
        gates, running = torch.flip(gates, [0]), torch.flip(running, [0])
    extra = [gates, running, wh.transpose(0, 1), bh] + ([] if wr is None else [wr.transpose(0, 1)])
    outputs = torch.zeros([x.shape[0], x.shape[1], h.shape[-1]], dtype=x.dtype)

    def body(k: Any, *rest: Any) -> Any:
        held, h0 = rest[0], rest[1]
        tail = rest[3:] if kind == "LSTM" else rest[2:]
        wh, bh = tail[2], tail[3]
        at = k.reshape(1)
        step, runs = torch.index_select(tail[0], 0, at).squeeze(0), torch.index_select(tail[1], 0, at).squeeze(0)
        cells = []
        if kind == "LSTM":
            h1, c1 = rnn_lstm_cell(step, h0, rest[2], wh, bh, tail[4] if len(tail) > 4 else None)
            cells = [torch.where(runs, c1, rest[2])]
        elif kind == "GRU":
            h1 = rnn_gru_cell(step, h0, wh, bh)
        else:
            total = step + torch.matmul(h0, wh) + bh
            h1 = torch.tanh(total) if kind == "RNN_TANH" else torch.relu(total)
        shown = torch.where(runs, h1, torch.zeros_like(h1))
        return torch.index_copy(held, 0, at, shown.unsqueeze(0)), torch.where(runs, h1, h0), *cells

    made = loop_steps(body, x.shape[0], [outputs, h, c] if kind == "LSTM" else [outputs, h], extra)
    return torch.flip(made[0], [0]) if reverse else made[0], made[1], made[2] if kind == "LSTM" else None


def packed_recurrent(module: Any, packed: Any, hx: Any) -> Any:
    """nn.LSTM, nn.GRU or nn.RNN over a packed sequence, in inference."""
    kind, x = module.mode, packed.data
    ways = 2 if module.bidirectional else 1
    running = packed_running(packed).unsqueeze(-1)
    if hx is None:
        sizes = [module.proj_size or module.hidden_size, module.hidden_size]
        made = [torch.zeros([module.num_layers * ways, x.shape[1], size], dtype=x.dtype) for size in sizes]
    else:
        made = [s if packed.sorted_indices is None else s.index_select(1, packed.sorted_indices) for s in (hx if kind == "LSTM" else (hx, hx))]
    last_h, last_c = [], []
    for layer in range(module.num_layers):
        outs = []
        for way in range(ways):
            index = layer * ways + way
            own = module.all_weights[index]
            zero = torch.zeros([own[0].shape[0]], dtype=x.dtype)
            weights = [own[0], own[1], own[2] if module.bias else zero, own[3] if module.bias else zero, own[-1] if module.proj_size else None]
            out, h, c = packed_direction(kind, x, running, made[0][index], made[1][index], weights, way == 1)
            outs.append(out)
            last_h.append(h)
            last_c.append(c)
        x = torch.cat(outs, -1) if ways == 2 else outs[0]
    states = [torch.stack(s) for s in ((last_h, last_c) if kind == "LSTM" else (last_h,))]
    if packed.unsorted_indices is not None:
        states = [s.index_select(1, packed.unsorted_indices) for s in states]
    held = PackedSequence(x, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    return held, tuple(states) if kind == "LSTM" else states[0]


def packed_forward(original: Any) -> Any:
    """forward of a recurrent layer, with packed sequences computed padded."""

    def forward(self: Any, input: Any, hx: Any = None) -> Any:
        if not isinstance(input, PackedSequence):
            return original(self, input, hx)
        return packed_recurrent(self, input, hx)

    return forward


@contextlib.contextmanager
def packed_sequences() -> Iterator[None]:
    """While open, pack_padded_sequence and pad_packed_sequence (wherever they were imported) and the recurrent layers work on padded data."""
    swapped = {torch.nn.utils.rnn.pack_padded_sequence: packed_padded, torch.nn.utils.rnn.pad_packed_sequence: packed_unpadded}
    undo: list[tuple[Any, str, Any]] = []
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            for old, new in swapped.items():
                if value is old:
                    undo.append((module, name, value))
                    setattr(module, name, new)
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        undo.append((kind, "forward", kind.forward))
        setattr(kind, "forward", packed_forward(kind.forward))  # noqa: B010
    try:
        yield
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)
