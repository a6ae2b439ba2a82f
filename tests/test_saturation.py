"""Quantized sums: what whole numbers give is no saturation; anything further off is."""

import pytest
import torch
import torch.ao.quantization as tq

from autofix.saturation import EightBitSums, differs, is_quantized

NETS = {
    "linear": (lambda: torch.nn.Linear(6, 4), (5, 6)),
    "conv1d": (lambda: torch.nn.Conv1d(3, 4, 3, stride=2, padding=1), (2, 3, 9)),
    "conv2d": (lambda: torch.nn.Conv2d(4, 6, 3, padding=1, groups=2), (2, 4, 7, 7)),
}


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.filterwarnings("ignore")
def test_sums_within_the_calibration_are_exact(kind):
    """Activations of 7 bits can't saturate on any processor."""
    make, shape = NETS[kind]
    torch.manual_seed(0)
    net = torch.nn.Sequential(tq.QuantStub(), make(), torch.nn.ReLU(), tq.DeQuantStub()).eval()
    net = tq.fuse_modules(net, [["1", "2"]])
    net.qconfig = tq.get_default_qconfig("fbgemm")
    x = torch.randn(shape)
    prepared = tq.prepare(net)
    prepared(x)
    net = tq.convert(prepared)
    assert is_quantized(net) and not is_quantized(make())
    with EightBitSums() as watch:
        net(x)
    assert not watch.saturated
    layer, given = net[1], net[0](x)
    right = layer(given)
    packed = layer._packed_params._packed_params if kind == "linear" else layer._packed_params
    assert not differs(f"{kind}_relu", given, packed, right)
    off = torch._make_per_tensor_quantized_tensor((right.int_repr() // 2 + right.q_zero_point() // 2), right.q_scale(), right.q_zero_point())
    assert differs(f"{kind}_relu", given, packed, off)
