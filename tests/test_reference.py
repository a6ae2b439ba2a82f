"""The reference: outputs, float64, state, determinism, facts; errors with the person's own line."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from autofix.carried import carried_attributes
from autofix.case import CaseSpec, load_case
from autofix.eager import Eager
from autofix.errors import CaseError
from autofix.reference import Reference, first_calls, load_reference, make_reference
from autofix.target import Target


def reference_of(tmp_path: Path, text: str) -> Reference:
    file = tmp_path / f"r_{abs(hash(text)) % 10**8}.py"
    file.write_text(textwrap.dedent(text))
    make_reference(load_case(CaseSpec(str(file))), Target(), str(tmp_path))
    return load_reference(str(tmp_path))


STATE = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("unchanged", torch.ones(3))
    def forward(self, x):
        self.total += x.sum(0)
        return self.total * self.unchanged
def get_inputs():
    return [torch.ones(2, 3)]
def get_more_inputs():
    return [[torch.ones(2, 3)], [torch.ones(2, 3) * 2]]
"""


def test_buffers_that_forward_changes_make_the_own_sets_one_chain(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, STATE)
    assert reference.facts["mutated_buffers"] == ["total"]
    given, first, second = reference.sets[:3]
    assert given.outputs[0][1].tolist() == [2, 2, 2] and first.outputs[0][1].tolist() == [4, 4, 4] and second.outputs[0][1].tolist() == [8, 8, 8]
    assert given.state_before["total"].tolist() == [0, 0, 0]
    for one in reference.sets:
        change = one.state_after["total"] - one.state_before["total"]
        torch.testing.assert_close(change, dict(one.leaves)["x"].sum(0), rtol=1e-3, atol=1e-3, equal_nan=True)


def test_hidden_state_does_not_leak_between_sets(tmp_path: Path) -> None:
    text = """
    import torch
    from torch import nn
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.emb = nn.Embedding(5, 2, max_norm=0.5)
        def forward(self, ids):
            self.calls += 1
            return self.emb(ids) * self.calls
    def get_inputs():
        return [torch.tensor([1, 2])]
    """
    reference = reference_of(tmp_path, text)
    assert reference.facts["mutated_attributes"] == ["calls"] and reference.facts["mutated_parameters"] == ["emb.weight"]
    assert all(float(s.outputs[0][1].norm(dim=-1).max()) < 0.51 for s in reference.sets)


HOOKED = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.ReLU()
        self.seen = {}
        def keep(module, args, output):
            self.seen["body"] = output
        self.body.register_forward_hook(keep)
    def forward(self, x):
        self.seen.clear()
        self.body(x)
        return {name: value * 2 for name, value in self.seen.items()}
def get_inputs():
    return [torch.tensor([1.0, -1.0, 3.0])]
"""


SHRINKING = """
import torch
from torch import nn
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.window = 4
        self.register_buffer("cache", torch.zeros(1))
    def forward(self, x):
        if x.shape[1] < self.window:
            self.window = x.shape[1]
            self.cache = torch.ones(x.shape[1])
        return x[:, : x.shape[1] // self.window * self.window].reshape(x.shape[0], -1, self.window).sum(1) + self.cache[0]
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    def forward(self, x):
        return self.inner(x)
dynamic_shapes = {"x": {0: "n", 1: "m"}}
def get_inputs():
    return [torch.arange(16.0).reshape(2, 8)]
"""


def test_what_a_small_input_changes_in_the_model_does_not_outlast_the_call(tmp_path: Path) -> None:
    """As Swin's windows do, which shrink for good with the first image that is smaller."""
    reference = reference_of(tmp_path, SHRINKING)
    assert [d for d in reference.facts["dropped_sets"] if "RuntimeError" in d["why"] and "=0" not in d["set"]] == []
    by_width = {}
    for one in reference.sets:
        x, y = dict(one.leaves)["x"], one.outputs[0][1]
        assert y.shape[1] == min(4, x.shape[1])
        by_width[x.shape[1]] = y.shape[1]
        small = float(x.shape[1] < 4)
        wanted = x[:, : x.shape[1] // y.shape[1] * y.shape[1]].reshape(x.shape[0], -1, y.shape[1]).sum(1) + small
        assert torch.allclose(y, wanted, equal_nan=True)
    assert min(by_width.values()) < 4 and max(by_width) > 8


def test_hooks_that_close_over_the_model_write_into_the_model_that_is_called(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, HOOKED)
    assert [(name, value.tolist()) for name, value in reference.sets[0].outputs] == [("body", [2.0, 0.0, 6.0])]
    assert all([name for name, _ in one.outputs] == ["body"] for one in reference.sets)
    wide = reference.sets[0].outputs64
    assert wide is not None and [w.tolist() for w in wide] == [[2.0, 0.0, 6.0]]


def test_tensors_of_inference_mode_may_stay_in_the_model(tmp_path: Path) -> None:
    text = """
    import torch
    from torch import nn
    class Model(nn.Module):
        @torch.inference_mode()
        def forward(self, x):
            self.last = x + 1
            self.history = [self.last]
            return self.last * 2
    def get_inputs():
        return [torch.tensor([1.0, 2.0])]
    """
    assert reference_of(tmp_path, text).sets[0].outputs[0][1].tolist() == [4.0, 6.0]


def test_inputs_changed_in_place_are_copies(tmp_path: Path) -> None:
    text = """
    import torch
    from torch import nn
    class Model(nn.Module):
        def forward(self, x):
            return x.mul_(2)
    def get_inputs():
        return [torch.ones(2)]
    """
    given = reference_of(tmp_path, text).sets[0]
    assert given.args[0].tolist() == [1, 1] and given.outputs[0][1].tolist() == [2, 2]


FACTS = """
import torch
from torch import nn
class Part(nn.Module):
    def forward(self, x):
        if x.max() > 0:
            return x.softmax(-1)
        return x
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.part = Part()
    def forward(self, x, n: int):
        count = int(x.shape[0]) + n
        return {"first": self.part(self.fc(x)), "second": x.sum().item(), "third": count}
def get_inputs():
    return [torch.randn(2, 4), 3]
dynamic_shapes = {"x": {0: "batch"}}
"""


def test_facts(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, FACTS)
    facts = reference.facts
    assert facts["parameters"] == ["x", "n"]
    assert facts["inputs"][0] == {"name": "x", "dtype": "float32", "shape": [2, 4], "axes": {"0": "batch"}, "kind": "tensor"}
    assert facts["inputs"][1]["kind"] == "int"
    assert [o["name"] for o in facts["outputs"]] == ["first", "second", "third"]
    assert facts["modules"]["Part"] == ["part"] and facts["modules"]["Linear"] == ["fc"]
    file, first, last = facts["module_files"]["part"]
    assert Path(file).name.startswith("r_") and (first, last) == (4, 8)
    line = next(v for k, v in facts["operators"].items() if "softmax" in k)
    assert line.endswith(":7")
    kinds = {(s["line"], s["kind"]) for s in facts["sites"]}
    assert {(6, "bool"), (16, "item")} <= kinds
    site = next(s for s in facts["sites"] if s["kind"] == "bool")
    assert site["function"] == "forward" and site["locals"]["x"] == "tensor:float32:2" and site["user_line"] == 6
    assert facts["eager_seconds"] > 0 and facts["input_sets"][0]["origin"] == "given"
    assert reference.sets[0].outputs64 is not None and reference.sets[0].outputs64[0].dtype == torch.float64


def test_float64_runs_through_named_float32(tmp_path: Path) -> None:
    text = """
    import torch
    from torch import nn
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)
        def forward(self, x, i):
            return self.fc(x) + i.float().unsqueeze(-1) + torch.zeros(2, dtype=torch.float32)
    def get_inputs():
        return [torch.randn(3, 4), torch.tensor([1, 2, 3])]
    """
    reference = reference_of(tmp_path, text)
    assert reference.facts["float64"] == "yes" and reference.sets[0].outputs64[0].dtype == torch.float64


def test_reduced_precision_on_purpose_gets_a_noise_floor(tmp_path: Path) -> None:
    text = """
    import torch
    from torch import nn
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.fc(x)
            return y.float()
    def get_inputs():
        return [torch.randn(3, 4)]
    """
    reference = reference_of(tmp_path, text)
    assert reference.sets[0].outputs64 is None and reference.sets[0].noise is not None
    assert reference.facts["low_precision"] == ["bfloat16"]


def raising(body: str) -> str:
    return f"""
    import torch
    from torch import nn
    class Model(nn.Module):
        def forward(self, x):
            {body}
    def get_inputs():
        return [torch.ones(3)]
    """


def test_a_forward_that_raises_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"r_\d+\.py:6: forward raises on the given inputs: RuntimeError") as caught:
        reference_of(tmp_path, raising("return x @ torch.ones(4)"))
    assert "\n" not in str(caught.value)


def test_a_random_model_names_the_operator(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r":6: the model is not deterministic: aten\.rand"):
        reference_of(tmp_path, raising("return x + torch.rand(3)"))


def test_a_seeded_model_is_deterministic(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, raising("torch.manual_seed(1); return x + torch.rand(3)"))
    assert any("rand" in k for k in reference.facts["random_operators"])


def test_a_model_without_outputs(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="returns no tensor"):
        reference_of(tmp_path, raising("return None"))


OTHER_PATH = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 1) if x.shape[1] > 5 else x * 2


def get_inputs():
    return [torch.ones(2, 4)]


dynamic_shapes = {"x": {1: "n"}}
"""


def test_operators_of_other_sizes_are_known(tmp_path: Path) -> None:
    facts = reference_of(tmp_path, OTHER_PATH).facts
    assert "aten.cumsum.default" in facts["operators_elsewhere"] and "aten.cumsum.default" not in facts["operators"]


@pytest.mark.parametrize(
    ("line", "carried"),
    [("self.kept = self.kept * 0.9 + x", ["kept"]), ("self.kept = x * 2", []), ("self.kept = self.kept * 0 + x", [])],
)
def test_state_in_a_plain_attribute_counts_where_the_next_call_depends_on_it(tmp_path: Path, line: str, carried: list[str]) -> None:
    source = "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.kept = torch.zeros(3)\n\n"
    source += f"    def forward(self, x):\n        {line}\n        return self.kept + 1\n"
    file = tmp_path / "m.py"
    file.write_text("import torch\nfrom torch import nn\n\n\n" + source + "\n\ndef get_inputs():\n    return [torch.ones(3)]\n")
    eager = Eager(load_case(CaseSpec(str(file))))
    _, log = first_calls(eager)
    assert carried_attributes(eager, bool(log.random)) == carried
