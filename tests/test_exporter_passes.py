"""The exporter's own optimiser: the step that is wrong is found and left out alone."""

from __future__ import annotations

import numpy as np
import onnx_ir
import pytest
import torch
from torch import nn

from autofix.exporter_passes import RawExport, guilty_passes, keeping_raw, leaving_out, rule_name


class Clamped(nn.Module):
    """relu(clamp to negative bounds) is 0 everywhere; the exporter's rule makes it 1 bound of the two."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.n = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.n(self.a(x)).clamp(-3.0, -1.0)) + 1.0


def exported(model: nn.Module, x: torch.Tensor) -> tuple[onnx_ir.Model, onnx_ir.Model]:
    kept: list[onnx_ir.Model] = []
    with keeping_raw(kept):
        made = torch.onnx.export(model.eval(), (x,), dynamo=True, verbose=False)
    assert made is not None
    return kept[0], made.model


def run(proto, x: torch.Tensor) -> np.ndarray:
    import onnxruntime as ort

    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


def test_the_wrong_rule_is_found_and_the_others_are_kept():
    torch.manual_seed(0)
    model, x = Clamped().eval(), torch.randn(2, 3, 8, 8)
    raw, optimized = exported(model, x)
    with torch.no_grad():
        wanted = model(x).numpy()
    assert np.all(wanted == 1.0)
    assert not np.allclose(run(onnx_ir.serde.serialize_model(optimized), x), wanted)  # the fault is still there: else this strategy can go
    export = RawExport(raw, onnx_ir.serde.serialize_model)
    names = guilty_passes(export, lambda proto: np.array_equal(run(proto, x), wanted))
    assert names == ("FuseSuccessiveReluClip",)
    kept = export.optimized(names)
    kinds = [node.op_type for node in kept.graph.node]
    assert "BatchNormalization" not in kinds and kinds.count("Clip") == 1 and kinds.count("Relu") == 1
    assert np.array_equal(run(kept, x), wanted)


def test_nothing_is_blamed_where_the_optimiser_has_no_part_in_it():
    model, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3)
    raw, _ = exported(model, x)
    export = RawExport(raw, onnx_ir.serde.serialize_model)
    assert guilty_passes(export, lambda proto: False) is None
    assert guilty_passes(export, lambda proto: True) is None


@pytest.mark.parametrize("names", [(), ("FuseSuccessiveReluClip",), ("FoldConstantsPass",)])
def test_what_is_left_out_is_put_back(names):
    from onnxscript import rewriter

    rewrite, call = rewriter.RewriteRule.try_rewrite, onnx_ir.passes.PassBase.__call__
    with pytest.raises(RuntimeError), leaving_out(names):
        assert rewriter.RewriteRule.try_rewrite is not rewrite
        raise RuntimeError
    assert rewriter.RewriteRule.try_rewrite is rewrite and onnx_ir.passes.PassBase.__call__ is call


def test_every_rule_has_a_name():
    from onnxscript import rewriter

    names = [rule_name(rule) for rule in rewriter._DEFAULT_REWRITE_RULES]
    assert all(name and not name.endswith(".rule") for name in names)
