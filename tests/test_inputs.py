"""Generated sets: roles, values, sizes, and the other outcome of every branch, found without being told."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from autofix.case import CaseSpec, load_case
from autofix.reference import Reference, load_reference, make_reference
from autofix.target import Target
from autofix.values import make_plans

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


def reference_of(tmp_path: Path, text: str, name: str = "m") -> Reference:
    file = tmp_path / f"{name}_{abs(hash(text)) % 10**8}.py"
    file.write_text(HEAD + textwrap.dedent(text))
    make_reference(load_case(CaseSpec(str(file))), Target(), str(tmp_path))
    return load_reference(str(tmp_path))


def forward_file(parameters: str, body: str, inputs: str, axes: str = "{}", init: str = "pass") -> str:
    lines = "\n".join("        " + line for line in textwrap.dedent(body).strip().splitlines())
    return (
        f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, {parameters}):\n{lines}\ndef get_inputs():\n    return {inputs}\ndynamic_shapes = {axes}\n"
    )


def outcomes(reference: Reference, test: Any) -> set[bool]:
    return {bool(test(dict(s.leaves))) for s in reference.sets}


@pytest.mark.parametrize(
    ("condition", "test"),
    [
        ("x.mean() > 0", lambda v: v["x"].mean() > 0),
        ("(x < -7.5).any()", lambda v: (v["x"] < -7.5).any()),
        ("x.abs().sum() > 5e4", lambda v: v["x"].abs().sum() > 5e4),
        ("x.std() < 1e-3", lambda v: v["x"].std() < 1e-3),
        ("torch.isnan(x).any()", lambda v: torch.isnan(v["x"]).any()),
        ("42.25 < float(x.mean()) < 42.75", lambda v: 42.25 < float(v["x"].mean()) < 42.75),
    ],
)
def test_the_other_outcome_of_a_value_test_is_found(tmp_path: Path, condition: str, test: Any) -> None:
    reference = reference_of(tmp_path, forward_file("x", f"return x * 2 if {condition} else x + 1", "[torch.randn(3, 4)]"))
    assert outcomes(reference, test) == {True, False}


def test_a_test_on_a_computed_value_is_flipped_by_gradient(tmp_path: Path) -> None:
    body = "h = self.fc(x)\nif h.sum() < -30.0:\n    return h * 2\nreturn h"
    reference = reference_of(tmp_path, forward_file("x", body, "[torch.randn(2, 4)]", init="self.fc = nn.Linear(4, 4)"))
    assert len({round(float(s.outputs[0][1].sum() < -30), 3) for s in reference.sets}) == 2
    assert reference.facts["one_sided_branches"] == []


def test_sizes_cross_thresholds_of_the_source(tmp_path: Path) -> None:
    body = "return x * 2 if x.shape[0] > 37 else x"
    reference = reference_of(tmp_path, forward_file("x", body, "[torch.randn(6, 4)]", "{'x': {0: 'batch'}}"))
    sizes = {int(dict(s.leaves)["x"].shape[0]) for s in reference.sets}
    assert {1, 13} <= sizes and max(sizes) > 37
    assert all(s.resized == (s.leaves[0][1].shape[0] != 6) for s in reference.sets)


def test_leaves_that_share_a_symbol_move_together(tmp_path: Path) -> None:
    axes = "{'x': {0: 'n'}, 'w': {0: 'n'}}"
    reference = reference_of(tmp_path, forward_file("x, w", "return (x * w[:, None]).sum(0)", "[torch.randn(4, 3), torch.rand(4)]", axes))
    assert all(s.leaves[0][1].shape[0] == s.leaves[1][1].shape[0] for s in reference.sets)
    assert 0 in {s.leaves[0][1].shape[0] for s in reference.sets}
    assert all(float(s.leaves[1][1].min()) >= 0 for s in reference.sets if s.kind == "sizes" and s.leaves[1][1].numel())


def test_sizes_with_a_relation_are_found_or_listed(tmp_path: Path) -> None:
    square = forward_file("x", "n = int(x.shape[0] ** 0.5)\nreturn x.reshape(n, n, 2).sum(1)", "[torch.randn(16, 2)]", "{'x': {0: 'n'}}")
    reference = reference_of(tmp_path, square)
    assert {25, 9} & {s.leaves[0][1].shape[0] for s in reference.sets}
    twins = forward_file("x, y", "return x + y", "[torch.randn(4), torch.randn(4)]", "{'x': {0: 'a'}, 'y': {0: 'b'}}")
    reference = reference_of(tmp_path, twins)
    assert any(s.resized and s.leaves[0][1].shape[0] > 4 for s in reference.sets)
    fixed = forward_file("x", "return x.view(6) * 2", "[torch.randn(6)]", "{'x': {0: 'n'}}")
    reference = reference_of(tmp_path, fixed)
    assert any("n" in d["set"] for d in reference.facts["dropped_sets"])


def test_python_numbers_vary(tmp_path: Path) -> None:
    body = "y = x.topk(k).values\nreturn y.flip(-1) if flag else y * scale"
    reference = reference_of(tmp_path, forward_file("x, k: int, flag: bool, scale: float", body, "[torch.randn(2, 9), 3, True, 0.5]"))
    values = [dict(s.leaves) for s in reference.sets]
    assert len({v["k"] for v in values}) > 2 and {v["flag"] for v in values} == {True, False} and len({v["scale"] for v in values}) > 1


def test_masks_are_tried_full_empty_and_single(tmp_path: Path) -> None:
    body = "return x.masked_fill(~mask, -1e9).softmax(-1)"
    reference = reference_of(tmp_path, forward_file("x, mask", body, "[torch.randn(2, 5), torch.ones(2, 5, dtype=torch.bool)]"))
    counts = {int(dict(s.leaves)["mask"].sum()) for s in reference.sets}
    assert {0, 1, 10} <= counts


def test_integers_keep_to_tables_and_past_the_range_where_they_are_numbers(tmp_path: Path) -> None:
    table = forward_file("ids", "return self.e(ids)", "[torch.tensor([[1, 2, 3]])]", init="self.e = nn.Embedding(10, 2)")
    found = torch.cat([s.leaves[0][1].flatten() for s in reference_of(tmp_path, table).sets])
    assert int(found.min()) >= 0 and 3 < int(found.max()) < 10
    plain = forward_file("pos", "return pos % 5", "[torch.tensor([1, 7, 11])]")
    found = torch.cat([s.leaves[0][1].flatten() for s in reference_of(tmp_path, plain).sets])
    assert int(found.min()) < 0 and int(found.max()) > 1000


@pytest.mark.parametrize(
    ("leaves", "axes", "name", "role"),
    [
        ([("x", torch.randn(9, 5)), ("counts", torch.tensor([2, 4, 3]))], {"x": {0: "total"}}, "counts", "partition"),
        ([("x", torch.randn(24, 5)), ("grid", torch.tensor([[2, 3, 4]]))], {"x": {0: "n"}, "grid": {0: "k"}}, "grid", "grid"),
        ([("x", torch.randn(2, 9)), ("lengths", torch.tensor([4, 6]))], {"x": {1: "seq"}}, "lengths", "lengths"),
        ([("ids", torch.arange(9)), ("offsets", torch.tensor([0, 3, 5]))], {"ids": {0: "n"}}, "offsets", "offsets"),
        ([("ids", torch.tensor([[3, 9, 2]])), ("attention_mask", torch.ones(1, 3, dtype=torch.long))], {}, "attention_mask", "mask"),
        ([("x", torch.randn(6, 4)), ("edge_index", torch.randint(0, 6, (2, 10)))], {"x": {0: "nodes"}}, "edge_index", "index"),
        ([("pos", torch.arange(5).expand(2, 5))], {}, "pos", "positions"),
    ],
)
def test_roles_of_integers(leaves: Any, axes: Any, name: str, role: str) -> None:
    assert {p.name: p.role for p in make_plans(leaves, axes)}[name] == role


def test_nan_counts_where_single_values_meet_an_operator_that_handles_them(tmp_path: Path) -> None:
    handled = reference_of(tmp_path, forward_file("x", "return torch.nan_to_num(x) + x.clamp(0, 1)", "[torch.randn(3, 4)]"))
    assert {s.advisory for s in handled.sets if s.kind == "nonfinite"} == {False}
    assert {"NaN and infinity", "NaN, first", "NaN, last", "NaN, one a row", "NaN, a column"} <= {s.name for s in handled.sets}
    spread = reference_of(tmp_path, forward_file("x", "return self.fc(x).relu()", "[torch.randn(3, 4)]", init="self.fc = nn.Linear(4, 4)"))
    assert [s.advisory for s in spread.sets if s.kind == "nonfinite"] == [True]


def test_sets_on_a_knife_edge_are_left_out(tmp_path: Path) -> None:
    body = "h = self.fc(x)\nreturn (h - h.mean()) / (h.std() * 0 + (h - h.mean()).abs().max() + 1e-12)"
    reference = reference_of(tmp_path, forward_file("x", body, "[torch.randn(3, 4)]", init="self.fc = nn.Linear(4, 1, bias=False)"))
    assert "zeros" not in {s.name for s in reference.sets} or all(
        float(s.outputs[0][1].abs().max()) == 0 for s in reference.sets if s.name == "zeros"
    )
    ties = reference_of(tmp_path, forward_file("x", "return x.topk(2)", "[torch.randn(3, 4)]"))
    assert [s.advisory for s in ties.sets if s.name == "zeros"] == [True]


@pytest.mark.parametrize(
    ("helper", "test"),
    [
        ("def far(x):\n    return x.shape[0] > LIMIT\nLIMIT = 200\n", lambda v: v["x"].shape[0] > 200),
        ("def far(x):\n    return x.numel() >= 30 * 30\n", lambda v: v["x"].numel() >= 900),
        ("def far(x):\n    return x.shape[0] - 3 * x.shape[1] > 90\n", lambda v: v["x"].shape[0] - 3 * v["x"].shape[1] > 90),
    ],
)
def test_sizes_far_from_the_example_are_reached_where_a_test_needs_them(tmp_path: Path, helper: str, test: Any) -> None:
    body = "if far(x):\n    return x * 2\nreturn x + 1"
    text = helper + forward_file("x", body, "[torch.randn(3, 4)]", '{"x": {0: "n", 1: "m"}}')
    reference = reference_of(tmp_path, text)
    assert outcomes(reference, test) == {True, False}
    assert max(dict(s.leaves)["x"].numel() for s in reference.sets) < 6000


def test_a_dividend_goes_far_where_its_divisor_can_not(tmp_path: Path) -> None:
    numbers = "[torch.tensor([5, 9, 100], dtype=torch.int32), torch.tensor([3, 8, 21], dtype=torch.int32)]"
    reference = reference_of(tmp_path, forward_file("a, b", 'return torch.div(a, b, rounding_mode="trunc")', numbers))
    assert max(int(dict(s.leaves)["a"].abs().max()) for s in reference.sets) > 2**24


def test_magnitudes_near_the_root_of_the_range_where_pytorch_itself_stays_finite(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, forward_file("x", "return x.std(-1)", "[torch.randn(3, 16)]"))
    tried = {s.name: s for s in reference.sets if s.kind == "magnitude"}
    huge = tried["near the root of the largest number"]
    assert 3e18 < float(huge.leaves[0][1].abs().max()) < 2e20 and bool(torch.isfinite(huge.outputs[0][1]).all())
    assert float(tried["near the root of the smallest number"].leaves[0][1].abs().max()) < 1e-17
    reference = reference_of(tmp_path, forward_file("x", "return x.std(-1), x.sum(-1)", "[torch.randn(3, 16).half()]"))
    assert {"past the root of the largest number"} <= {s.name for s in reference.sets}


@pytest.mark.parametrize("body", ["return (x * x).sum(-1).sqrt()", "return torch.softmax(x @ x.mT, -1)", "return x.long(), x * 2"])
def test_magnitudes_on_which_pytorch_overflows_inside_are_left_out(tmp_path: Path, body: str) -> None:
    reference = reference_of(tmp_path, forward_file("x", body, "[torch.randn(2, 3, 64)]"))
    assert "near the root of the largest number" not in {s.name for s in reference.sets}


@pytest.mark.parametrize(("body", "counts"), [("return torch.remainder(x, 6.0)", False), ("return x * 2, 7.0 % (x * x + 2)", True)])
def test_magnitudes_at_which_a_remainder_hangs_on_lost_digits_do_not_count(tmp_path: Path, body: str, counts: bool) -> None:
    reference = reference_of(tmp_path, forward_file("x", body, "[torch.randn(3, 16)]"))
    huge = [s for s in reference.sets if s.name.startswith("near the root of the largest number")]
    assert any(not s.advisory for s in huge) is counts


def test_probabilities_and_flags_keep_their_range(tmp_path: Path) -> None:
    reference = reference_of(tmp_path, forward_file("p", "return p.var(-1)", "[torch.rand(3, 8)]"))
    assert not any(s.kind == "magnitude" for s in reference.sets)
