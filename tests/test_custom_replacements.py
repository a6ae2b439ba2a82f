"""Attention, recurrent layers, quantized modules and swapped functions against PyTorch's own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from autofix.surgery.attention_dense import attention_dense
from autofix.surgery.capture_swap import eager_flags, swapped_functions
from autofix.surgery.custom_quantized import quantized_from_float, quantized_replaced
from autofix.surgery.custom_rnn import rnn_overrides
from autofix.surgery.random_ops import random_dropout, random_overrides
from autofix.surgery.sparse_dense import NestedItems, SparseAsDenseMode, nested_padded, sparse_from_rows

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"enable_gqa": True}])
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_attention(options, rows):
    heads = 2 if "enable_gqa" in options else 4
    q, k, v = torch.randn(2, 4, rows, 8), torch.randn(2, heads, 5, 8), torch.randn(2, heads, 5, 8)
    want = nn.functional.scaled_dot_product_attention(q, k, v, **options)
    torch.testing.assert_close(attention_dense(q, k, v, **options), want, rtol=1e-5, atol=1e-6)


def test_attention_rows_without_keys_are_zero():
    q = torch.randn(1, 1, 3, 4)
    mask = torch.tensor([[True, True, True], [False, False, False], [True, False, False]])
    for given in (mask, torch.zeros(3, 3).masked_fill(~mask, -torch.inf)):
        want = nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=given)
        got = attention_dense(q, q, q, attn_mask=given)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
        assert got[0, 0, 1].abs().max() == 0


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN", "projected"])
def test_recurrent_layers(layer):
    kinds = {"projected": lambda: nn.LSTM(3, 5, 2, proj_size=2, bidirectional=True)}
    rnn = kinds[layer]() if layer in kinds else getattr(nn, layer)(3, 4, 2, bidirectional=True)
    name = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh", "projected": "lstm"}[layer]
    rule = rnn_overrides()[getattr(torch, name)]
    x = torch.randn(4, 2, 3)  # few enough steps to be unrolled
    want, last = rnn(x)
    zeros = [torch.zeros_like(h) for h in last] if name == "lstm" else torch.zeros_like(last)
    got = rule(x, zeros, rnn._flat_weights, True, 2, 0.0, False, True, False)
    torch.testing.assert_close(got[0], want, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got[1], last[0] if name == "lstm" else last, rtol=1e-5, atol=1e-6)


def test_quantized_network_bit_for_bit():
    import torch.ao.quantization as quantization

    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("no FBGEMM here")
    torch.backends.quantized.engine = "fbgemm"
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)]
    net = nn.Sequential(quantization.QuantStub(), *layers, quantization.DeQuantStub()).eval()
    net.qconfig = quantization.get_default_qconfig("fbgemm")
    prepared = quantization.prepare(net)
    prepared(torch.randn(40, 3, 8, 8))
    made = quantization.convert(prepared)
    plain = copy.deepcopy(made)
    assert quantized_replaced(plain) == 4
    x = torch.randn(100, 3, 8, 8) * 1.3
    assert torch.equal(made(x), plain(x))


def test_quantizing_rounds_once():
    x = torch.randn(200000) * 3
    want = torch.quantize_per_tensor(x, 0.0173, 131, torch.quint8).int_repr()
    assert torch.equal(quantized_from_float(x, 0.0173, 131, 0, 255).q.to(torch.uint8), want)


def test_random_numbers_are_those_of_eager():
    torch.manual_seed(4)
    want = nn.functional.dropout(torch.ones(50), 0.3), torch.randn(7)
    torch.manual_seed(4)
    got = random_dropout(torch.ones(50), 0.3), random_overrides()[torch.randn](7)
    assert torch.equal(want[0], got[0]) and torch.equal(want[1], got[1])


def test_sparse_functions():
    dense = torch.rand(4, 5) * (torch.rand(4, 5) > 0.5)
    csr = dense.to_sparse_csr()
    torch.testing.assert_close(sparse_from_rows(csr.crow_indices(), csr.col_indices(), csr.values(), (4, 5)), dense)
    where = torch.tensor([[0, 0, 1], [2, 2, 0]])
    with SparseAsDenseMode():
        made = torch.sparse.mm(torch.sparse_coo_tensor(where, torch.tensor([1.0, 2.0, 3.0]), (2, 3)), torch.eye(3))
    assert made.tolist() == [[0, 0, 3], [3, 0, 0]]


def test_nested_items():
    items = [torch.ones(2, 3), torch.ones(4, 3)]
    want = torch.nested.to_padded_tensor(torch.relu(torch.nested.nested_tensor(items)) * 2, -1.0)
    assert torch.equal(nested_padded(torch.relu(NestedItems(items)) * 2, -1.0), want)


def original(a, b=2, *, c=3):
    return a, b, c


def test_swapped_functions_reach_stored_references():
    held = original
    with swapped_functions({original: lambda *args, **kwargs: "swapped"}):
        assert held(1) == "swapped"
    assert held(1) == (1, 2, 3)


def test_eager_flags_say_no():
    from torch.compiler import is_exporting

    torch.compiler._is_exporting_flag = True
    try:
        assert is_exporting()
        with eager_flags():
            assert not is_exporting()
        assert is_exporting()
    finally:
        torch.compiler._is_exporting_flag = False


def test_entries_of_sparse_tensors_count_even_where_they_are_zero():
    where, entries = torch.tensor([[0, 0, 1, 2], [0, 2, 1, 0]]), torch.tensor([0.0, 1.5, -2.0, 0.0])
    sparse = torch.sparse_coo_tensor(where, entries, (4, 3)).coalesce()
    want = torch.sparse.softmax(sparse, 1).to_dense(), torch.sparse.log_softmax(sparse, 1).to_dense(), sparse.values(), sparse.indices()
    with SparseAsDenseMode():
        made = torch.sparse_coo_tensor(where, entries, (4, 3)).coalesce()
        given = torch.sparse.softmax(made, 1).to_dense(), torch.sparse.log_softmax(made, 1).to_dense(), made.values(), made.indices()
    for ours, theirs in zip(given, want, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_values_and_offsets_of_jagged_tensors():
    items = [torch.randn(3, 4), torch.randn(2, 4)]
    want = torch.nested.as_nested_tensor(items, layout=torch.jagged)
    assert torch.equal(NestedItems(items).values(), want.values())
    assert torch.equal(NestedItems(items).offsets(), want.offsets())
