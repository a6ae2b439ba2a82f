"""What the exporter writes for a decomposed program is put right: quotients of sizes round down."""

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from autofix.capture_scopes import may_be_negative, sizes_for_strides


class Quotients(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        return x.sum() * 0 + torch.arange(-(-n // 4) + (3 - n) // 2 + 50)


@pytest.mark.parametrize("size", [2, 3, 4, 9, 11])
def test_quotients_of_negative_sizes_round_down(size):
    x = torch.zeros(10)
    with sizes_for_strides():
        made = torch.onnx.export(Quotients(), (x,), dynamo=True, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), verbose=False)
    assert made is not None
    session = onnxruntime.InferenceSession(made.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    given = np.zeros(size, np.float32)
    np.testing.assert_array_equal(session.run(None, {session.get_inputs()[0].name: given})[0], Quotients()(torch.zeros(size)))


def test_plain_numbers_tell_their_sign():
    assert may_be_negative(-1)
    assert not may_be_negative(3)
