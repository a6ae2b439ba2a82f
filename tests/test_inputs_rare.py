"""Generated sets reach branches behind rare values: several tests on a line, tests behind tests, tests of all elements, numbers of the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from test_inputs import forward_file, outcomes, reference_of

from autofix.watch import Site, Watch, unseen_sizes

FLOATS = "[torch.randn(3, 4), torch.randn(3, 4)]"
IDS = "[torch.randint(0, 20, (2, 6))]"


@pytest.mark.parametrize(
    ("condition", "test"),
    [
        ("x.mean() > 20 and y.mean() < -20", lambda v: v["x"].mean() > 20 and v["y"].mean() < -20),
        ("x[0, 0] > 40 and x[0, 1] < -40", lambda v: v["x"][0, 0] > 40 and v["x"][0, 1] < -40),
        ("(x > 3.5).all()", lambda v: (v["x"] > 3.5).all()),
        ("torch.allclose(x.sum(1), torch.ones(3), atol=1e-4)", lambda v: torch.allclose(v["x"].sum(1), torch.ones(3), atol=1e-4)),
        ("x.isinf().any() and not x.isnan().any()", lambda v: v["x"].isinf().any() and not v["x"].isnan().any()),
    ],
)
def test_the_rare_outcome_of_a_value_test_is_found(tmp_path: Path, condition: str, test: Any) -> None:
    reference = reference_of(tmp_path, forward_file("x, y", f"return x * 2 + y if {condition} else x + y", FLOATS))
    assert outcomes(reference, test) == {True, False}


def test_a_test_behind_a_test_is_flipped(tmp_path: Path) -> None:
    body = "if x.max() > 50:\n    if y.min() < -80:\n        return x * 3 + y\n    return x + 1 + y\nreturn x + y"
    reference = reference_of(tmp_path, forward_file("x, y", body, FLOATS))
    assert outcomes(reference, lambda v: v["x"].max() > 50 and v["y"].min() < -80) == {True, False}
    assert reference.facts["one_sided_branches"] == []


@pytest.mark.parametrize(
    ("condition", "test"),
    [
        ("(ids == 50).any()", lambda v: (v["ids"] == 50).any()),
        ("ids[0, 0] == 101 and ids[0, -1] == 102", lambda v: v["ids"][0, 0] == 101 and v["ids"][0, -1] == 102),
        ("(ids == self.stop).all()", lambda v: (v["ids"] == 777).all()),
    ],
)
def test_tokens_that_the_source_names_are_tried(tmp_path: Path, condition: str, test: Any) -> None:
    body = f"e = self.emb(ids)\nreturn e * 2 if {condition} else e"
    reference = reference_of(tmp_path, forward_file("ids", body, IDS, init="self.emb, self.stop = nn.Embedding(1000, 4), 777"))
    assert outcomes(reference, test) == {True, False}


@pytest.mark.parametrize(("condition", "number"), [("step > 100", 101), ("step % 1000 == 999", 999)])
def test_counts_that_the_source_names_are_tried(tmp_path: Path, condition: str, number: int) -> None:
    body = f"return x * 2 if {condition} else x"
    reference = reference_of(tmp_path, forward_file("x, step", body, "[torch.randn(3, 4), torch.tensor(3)]"))
    assert number in {int(dict(s.leaves)["step"]) for s in reference.sets}


def test_an_empty_selection_is_tried_though_its_mean_is_nan(tmp_path: Path) -> None:
    body = "return x[x[:, 0] > 0].mean()"
    reference = reference_of(tmp_path, forward_file("x", body, "[torch.tensor([[1.0, 2.0], [-1.0, 3.0]])]"))
    assert any(not s.advisory and bool(torch.isfinite(s.leaves[0][1]).all()) and bool(torch.isnan(s.outputs[0][1])) for s in reference.sets)
    root = reference_of(tmp_path, forward_file("x", "return x.sqrt()", "[torch.rand(2, 3)]"), "root")
    assert not any(bool(torch.isnan(s.outputs[0][1]).any()) for s in root.sets if s.kind == "values")


def test_size_tests_are_turned_over_at_the_numbers_in_them() -> None:
    h, w = sympy.symbols("h w", integer=True, positive=True)
    places = {h: ("x", 0), w: ("x", 1)}

    def turned(test: Any, symbols: tuple[Any, ...]) -> list[dict[str, int]]:
        site = Site("bool", str(test), "m.py", 3, "forward", True, test, {s: places[s] for s in symbols})
        found = unseen_sizes(Watch({("bool", "m.py", 3, str(test)): site}), {"x": {0: "h", 1: "w"}}, [{"h": 6, "w": 5}, {"h": 7, "w": 11}])
        return [sizes for sizes, _ in found]

    assert turned(sympy.Eq(h, 224), (h,)) == [{"h": 224, "w": 5}]
    assert turned(sympy.Eq(2 * h + 6, 616), (h,)) == [{"h": 305, "w": 5}]
    assert [s["h"] * s["w"] > 9000 for s in turned(h * w > 9000, (h, w))] == [True]
    assert turned(h > 0, (h,)) == []


def test_added_masks_are_tried_with_a_row_all_masked(tmp_path: Path) -> None:
    text = forward_file("x, m", "return ((x @ x.t()) + m).softmax(-1) @ x", "[torch.randn(4, 3), torch.zeros(4, 4)]")
    masks = [dict(s.leaves)["m"] for s in reference_of(tmp_path, text).sets if "masked" in s.name and not s.advisory]
    assert [bool((m == float("-inf")).all(-1).any()) for m in masks] == [False, True]
    assert all(bool(((m == 0) | (m == float("-inf"))).all()) and bool((m == 0).any()) for m in masks)
    state = forward_file("x, h", "return torch.tanh(x @ x.t() + h @ h.t())", "[torch.randn(4, 3), torch.zeros(4, 4)]")
    assert not any("masked" in s.name for s in reference_of(tmp_path, state, "state").sets)


@pytest.mark.parametrize(
    ("condition", "test"),
    [
        ("x.shape[1] == 224", lambda v: v["x"].shape[1] == 224),
        ("x.shape[1] > 3 * x.shape[0] and x.shape[0] > 20", lambda v: v["x"].shape[1] > 3 * v["x"].shape[0] and v["x"].shape[0] > 20),
    ],
)
def test_sizes_that_the_source_compares_and_far_ratios_are_tried(tmp_path: Path, condition: str, test: Any) -> None:
    text = forward_file("x", f"return x * 2 if {condition} else x", "[torch.randn(3, 9)]", "{'x': {0: 'b', 1: 'n'}}")
    assert outcomes(reference_of(tmp_path, text), test) == {True, False}
