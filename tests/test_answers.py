"""Models without an answer to be held to: ill-conditioned, or hanging on the order of a set; optimisers that change values."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper

from autofix.case import CaseSpec
from autofix.errors import CaseError
from autofix.hashing import uses_hashes
from autofix.isolate import CaseProcess
from autofix.optimizers import changing_optimizers, guilty_optimizers, smallest_set
from autofix.session import SessionSettings
from autofix.shake import Shake, is_exact
from autofix.target import Target

HEAD = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.tensor([0.3, 0.6]))

    def forward(self, x):
{body}


def get_inputs():
    torch.manual_seed(0)
    return [torch.rand(2)]
"""


def facts_of(folder: Path, body: str) -> dict:
    """The reference's facts of a model with this body of forward."""
    file = folder / "model.py"
    file.write_text(HEAD.format(body="\n".join("        " + line for line in body.splitlines())))
    with CaseProcess(CaseSpec(str(file)), Target(), fork=True) as process:
        return process.reference()


def test_chaos_is_told_apart(tmp_path):
    facts = facts_of(tmp_path, "for _ in range(60):\n    x = 3.99 * x * (1 - x)\nreturn x.exp()")
    assert facts["ill_conditioned"] and facts["ill_conditioned"][0]["set"] == "given"


def test_plain_models_are_well_conditioned(tmp_path):
    assert facts_of(tmp_path, "return (x * 3).exp().sum() + x")["ill_conditioned"] == []


def test_chaos_in_a_buffer_is_told_apart(tmp_path):
    """Models that keep state have a noise floor too."""
    body = "self.state.mul_(3.99).mul_(1 - self.state / 3.99)\nfor _ in range(60):\n    x = 3.99 * x * (1 - x) + 0 * self.state\nreturn x.sigmoid()"
    assert facts_of(tmp_path, body)["ill_conditioned"]


def test_order_of_sets_is_no_answer(tmp_path):
    body = 'for i, k in enumerate({f"{n}k" for n in range(9)}):\n    x = x * 0.5 + i * int(k[0])\nreturn x'
    with pytest.raises(CaseError, match="PYTHONHASHSEED"):
        facts_of(tmp_path, body)
    assert facts_of(tmp_path, 'return x + len({"a", "b"})')["outputs"]


def test_only_sources_with_sets_are_run_elsewhere():
    assert uses_hashes({"a.py": "x = 1\ny = set(x)"}) == "a.py:2" and uses_hashes({"a.py": "x = {1: 2}\nx.setdefault(3)"}) == ""


def test_sums_move_with_their_terms():
    """Terms that cancel leave the round-off of what was there; whole numbers add up exactly, as far as float32 holds them."""
    big = torch.tensor([1e8, 0.3, -1e8, 0.3])
    with Shake(3) as shake:
        moved = {float(big.sum()) for _ in range(40)}
        whole = {float(torch.tensor([1.0, 2.0, -3.0]).sum()) for _ in range(40)}
    assert max(moved) - min(moved) > 1 and whole == {0.0} and shake.rounds
    assert is_exact(torch.tensor([3.0, 0.5, 1e9])).tolist() == [True, False, False]


def clip_model(path: Path) -> None:
    """y = relu(x w + b) clipped, with names."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 2]) for n in "xy")
    weights = [helper.make_tensor(n, TensorProto.FLOAT, s, np.ones(s, np.float32)) for n, s in (("w", (2, 2)), ("b", (2,)), ("hi", ()))]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Identity", ["q"], ["r"]),
        helper.make_node("Relu", ["r"], ["s"]),
        helper.make_node("Clip", ["s", "", "hi"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def test_optimisers_that_change_a_graph_are_named(tmp_path):
    clip_model(tmp_path / "m.onnx")
    names = changing_optimizers(str(tmp_path / "m.onnx"), SessionSettings())
    assert "MatMulAddFusion" in names and "Level1_RuleBasedTransformer" in names and "AttentionFusion" not in names


def test_a_softmax_of_quantised_values_blames_one_optimiser(tmp_path):
    """ONNX Runtime computes it in whole numbers, which rounds otherwise; without that one optimiser the file is right."""

    class Quantised(torch.nn.Module):
        def forward(self, x):
            q = torch.fake_quantize_per_tensor_affine(x, 0.05, 3, 0, 255)
            return torch.fake_quantize_per_tensor_affine(q.softmax(-1), 1 / 255, 0, 0, 255)

    torch.manual_seed(0)
    x, path = torch.randn(16, 5), str(tmp_path / "q.onnx")
    torch.onnx.export(Quantised(), (x,), path, dynamo=False, opset_version=17, input_names=["x"])

    def is_right(session: ort.InferenceSession) -> bool:
        return np.allclose(session.run(None, {"x": x.numpy()})[0], Quantised()(x).numpy(), 1e-3, 1e-5)

    assert guilty_optimizers(path, SessionSettings(), 1, is_right) == ("QDQSelectorActionTransformer",)
    off = SessionSettings(disabled_optimizers=("QDQSelectorActionTransformer",))
    assert guilty_optimizers(path, off, 1, is_right) is None
    assert guilty_optimizers(path, SessionSettings(), 1, lambda session: False) is None


def test_the_smallest_set_holds_what_is_needed_together():
    assert smallest_set(list("abcdef"), lambda names: {"b", "e"} <= set(names)) == ["b", "e"]
    assert smallest_set(list("abcdef"), lambda names: "c" in names) == ["c"]
    assert smallest_set(list("abc"), lambda names: False) == []
