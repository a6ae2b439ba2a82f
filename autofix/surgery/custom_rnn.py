"""Recurrent layers as loops of matrix products, for the forms that ONNX's own LSTM and GRU lack.

Formulas: PyTorch's documentation of nn.LSTM (with projections after Sak et al. 2014), nn.GRU and nn.RNN. One product computes the input's
share for all steps; the loop holds the recurrent share only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from autofix.surgery.ops_loop import loop_steps


def rnn_lstm_cell(gates: Any, h: Any, c: Any, wh: Any, bh: Any, wr: Any) -> tuple[Any, Any]:
    """One step of an LSTM: new output (projected by wr) and cell."""
    i, f, g, o = (gates + torch.matmul(h, wh) + bh).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    out = torch.sigmoid(o) * torch.tanh(c)
    return (out if wr is None else torch.matmul(out, wr)), c


def rnn_gru_cell(gates: Any, h: Any, wh: Any, bh: Any) -> Any:
    """One step of a GRU."""
    ir, iz, inew = gates.chunk(3, -1)
    hr, hz, hnew = (torch.matmul(h, wh) + bh).chunk(3, -1)
    r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    n = torch.tanh(inew + r * hnew)
    return n + z * (h - n)


def rnn_direction(kind: str, x: Any, h: Any, c: Any, weights: list[Any], reverse: bool) -> tuple[Any, Any, Any]:
    """One direction of one layer over x [time, batch, features]: outputs [time, batch, hidden], last h and c [batch, ..]."""
    wi, wh, bi, bh, wr = weights
    gates = torch.matmul(x, wi.transpose(0, 1)) + bi
    wh = wh.transpose(0, 1)
    wr = None if wr is None else wr.transpose(0, 1)
    steps = x.shape[0]
    size = h.shape[-1]
    extra = [gates, wh, bh] + ([] if wr is None else [wr])
    outputs = torch.zeros([steps, x.shape[1], size], dtype=x.dtype)

    def body(k: Any, *rest: Any) -> Any:
        held, h0 = rest[0], rest[1]
        tail = rest[3:] if kind == "lstm" else rest[2:]
        gates, wh, bh = tail[0], tail[1], tail[2]
        wr = tail[3] if len(tail) > 3 else None
        at = k.reshape(1)
        step = torch.index_select(gates, 0, at).squeeze(0)
        if kind == "lstm":
            h1, c1 = rnn_lstm_cell(step, h0, rest[2], wh, bh, wr)
            return torch.index_copy(held, 0, at, h1.unsqueeze(0)), h1, c1
        if kind == "gru":
            h1 = rnn_gru_cell(step, h0, wh, bh)
        else:
            total = step + torch.matmul(h0, wh) + bh
            h1 = torch.tanh(total) if kind == "rnn_tanh" else torch.relu(total)
        return torch.index_copy(held, 0, at, h1.unsqueeze(0)), h1

    if reverse:
        extra[0] = torch.flip(gates, [0])
    state = [outputs, h, c] if kind == "lstm" else [outputs, h]
    made = loop_steps(body, steps, state, extra)
    held = torch.flip(made[0], [0]) if reverse else made[0]
    return held, made[1], made[2] if kind == "lstm" else None


def rnn_layers(
    kind: str, x: Any, h0: Any, c0: Any, params: Any, biases: bool, layers: int, both: bool, batch_first: bool, projected: bool
) -> tuple[Any, Any, Any]:
    """All layers and directions, with torch.lstm's order of parameters."""
    x = x.transpose(0, 1) if batch_first else x
    per = 2 + (2 if biases else 0) + (1 if projected else 0)
    directions = 2 if both else 1
    h_last, c_last = [], []
    for layer in range(layers):
        results = []
        for direction in range(directions):
            index = layer * directions + direction
            own = list(params[index * per : (index + 1) * per])
            zero = torch.zeros([own[0].shape[0]], dtype=own[0].dtype)
            weights = [own[0], own[1], own[2] if biases else zero, own[3] if biases else zero, own[-1] if projected else None]
            out, h, c = rnn_direction(kind, x, h0[index], None if c0 is None else c0[index], weights, direction == 1)
            results.append(out)
            h_last.append(h)
            c_last.append(c)
        x = torch.cat(results, -1) if both else results[0]
    y = x.transpose(0, 1) if batch_first else x
    return y, torch.stack(h_last), torch.stack(c_last) if c0 is not None else None


def rnn_lstm(
    input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool
) -> Any:
    """torch.lstm on padded sequences."""
    if isinstance(hx, torch.Tensor):
        raise NotImplementedError("an LSTM over packed sequences")
    projected = hx[0].shape[-1] != hx[1].shape[-1]
    return rnn_layers("lstm", input, hx[0], hx[1], params, has_biases, num_layers, bidirectional, batch_first, projected)


def rnn_single(kind: str) -> Callable[..., Any]:
    """torch.gru, torch.rnn_tanh or torch.rnn_relu on padded sequences."""

    def run(
        input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool
    ) -> Any:
        if isinstance(params, torch.Tensor):
            raise NotImplementedError("a recurrent layer over packed sequences")
        return rnn_layers(kind, input, hx, None, params, has_biases, num_layers, bidirectional, batch_first, False)[:2]

    return run


def rnn_overrides() -> dict[Any, Any]:
    """torch's recurrent layers, under the names that nn modules call."""
    table: dict[Any, Any] = {}
    for name in ("gru", "rnn_tanh", "rnn_relu", "lstm"):
        rule = rnn_lstm if name == "lstm" else rnn_single(name)
        table[getattr(torch, name)] = rule
        table[getattr(torch._VF, name)] = rule
    return table
