"""The parity gate: what passes, what fails, by which rule, and the symptom that is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from autofix.compare import check_output
from autofix.reference import Reference, ReferenceSet
from autofix.target import Target
from autofix.verify import make_feed, verify_sets

F32 = np.float32


def test_equal_and_close_values_pass() -> None:
    x = torch.randn(4, 5)
    assert check_output(x, x.numpy())["rule"] == "exact"
    near = check_output(x, (x * (1 + 1e-5)).numpy())
    assert near["ok"] and near["rule"] == "allclose" and 0 < near["ratio"] < 1


@pytest.mark.parametrize(
    ("want", "got", "problem"),
    [
        (np.zeros(3, F32), np.zeros(3, np.float64), "dtype"),
        (np.zeros(3, np.int32), np.zeros(3, np.int64), "dtype"),
        (np.zeros((3, 1), F32), np.zeros(3, F32), "shape"),
        (np.zeros((0, 3), F32), np.zeros((0, 4), F32), "shape"),
        (np.array([1, np.nan], F32), np.array([1, 0], F32), "nan"),
        (np.array([1, 2], F32), np.array([1, np.nan], F32), "nan"),
        (np.array([np.inf], F32), np.array([-np.inf], F32), "inf"),
        (np.array([1e30], F32), np.array([np.inf], F32), "inf"),
        (np.array([1, 2], F32), np.array([1, 2.01], F32), "values"),
        (np.array([1, 2]), np.array([1, 3]), "values"),
        (np.array([True, False]), np.array([True, True]), "values"),
    ],
)
def test_what_fails(want: Any, got: Any, problem: str) -> None:
    found = check_output(want, got)
    assert not found["ok"] and found["problem"] == problem and found["message"]


def test_signs_of_zeros_and_equal_infinities_pass() -> None:
    assert check_output(np.array([0.0, np.inf, np.nan], F32), np.array([-0.0, np.inf, np.nan], F32))["ok"]


def test_tolerances_by_dtype_and_as_given() -> None:
    one = torch.ones(3)
    assert check_output(one.half(), (one + 5e-3).half().numpy())["ok"]
    assert not check_output(one, (one + 5e-3).numpy())["ok"]
    assert check_output(one, (one + 5e-3).numpy(), rtol=1e-2)["ok"]
    assert not check_output(one, (one + 5e-4).numpy(), rtol=1e-5, atol=0.0)["ok"]
    assert not check_output(one.double(), (one.double() + 1e-4).numpy())["ok"]
    big = one.bfloat16()
    import ml_dtypes

    assert check_output(big, np.array([1, 1, 1.0078125], ml_dtypes.bfloat16))["ok"]
    assert not check_output(big, np.array([1, 1, 2], ml_dtypes.bfloat16))["ok"]


def test_float64_excuses_what_pytorch_itself_gets_wrong_and_nothing_else() -> None:
    truth = np.array([1.0, 1e-4])
    own = np.array([1.0, 1.3e-4], F32)  # PyTorch is off by 3e-5 on the second value
    got = np.array([1.0, 0.7e-4], F32)
    assert not check_output(own, got)["ok"]
    assert check_output(own, got, truth)["rule"] == "float64"
    exact = truth.astype(F32)
    assert not check_output(exact, got + F32(1e-4), truth)["ok"]
    wild = check_output(np.array([10.0, 3.0], F32), np.array([9.0, 2.5], F32), np.array([9.5, 2.8]))
    assert wild["ok"] and wild["rule"] == "float64, ill-conditioned"


def test_a_huge_value_gives_no_allowance_to_a_small_one() -> None:
    truth = np.array([1e8 + 5, 3.0])
    own = truth.astype(F32)
    assert not check_output(own, np.array([1e8, 2.0], F32), truth)["ok"]


def test_noise_floor_where_float64_can_not_run() -> None:
    want, got = np.array([1.0, 2.0], F32), np.array([1.0, 2.02], F32)
    assert check_output(want, got, None, np.array([0.0, 0.01]))["rule"] == "noise"
    assert not check_output(want, got, None, np.array([0.0, 0.001]))["ok"]


def test_an_integer_tie_within_noise() -> None:
    want, got = np.array([4, 1]), np.array([4, 2])
    assert not check_output(want, got)["ok"]
    assert not check_output(want, got, np.array([4, 1]))["ok"]
    assert check_output(want, got, np.array([4, 2]))["rule"] == "tie"


def test_complex_outputs_may_be_pairs() -> None:
    z = torch.randn(3, dtype=torch.complex64)
    assert check_output(z, torch.view_as_real(z).numpy())["ok"]
    assert check_output(z, z.numpy())["ok"]


def one_set(name: str, x: Any, y: Any, **more: Any) -> ReferenceSet:
    return ReferenceSet(
        name, "given" if name == "given" else "generated", [x], {}, [("x", x), ("cache.0", torch.ones(1)), ("n", 3)], [("output", y)], **more
    )


def doubled(name: str, *shape: int, **more: Any) -> ReferenceSet:
    x = torch.randn(*shape)
    return one_set(name, x, x * 2, **more)


SIGNATURE = {"inputs": ["x"], "outputs": ["output"]}


def test_feeds() -> None:
    one = doubled("given", 2, 2, state_before={"k": torch.zeros(2)})
    feed = make_feed(one, ["x", "cache_0", "n", {"name": "k_in", "source": "buffers.k"}])
    assert feed["cache_0"].tolist() == [1] and feed["n"].dtype == np.int64 and feed["n"].shape == () and feed["k_in"].shape == (2,)
    assert make_feed(one, [{"name": "cache.0", "source": "cache.0"}])["cache.0"].shape == (1,)
    with pytest.raises(KeyError):
        make_feed(one, ["y"])


def frozen(feed: dict[str, Any]) -> list[Any]:
    if feed["x"].shape != (2, 2):
        raise RuntimeError("Reshape failed")
    return [feed["x"] * F32(2)]


@pytest.mark.parametrize(
    ("run", "symptom", "which"),
    [
        (lambda f: [f["x"] * F32(2)], "", ""),
        (lambda f: [f["x"] * F32(2.1)], "mismatch-at-example", "given"),
        (lambda f: [np.where(f["x"].sum() > 1e3, f["x"], f["x"] * F32(2)).astype(F32)], "mismatch-at-other-values", "large"),
        (lambda f: [f["x"] * F32(f["x"].shape[0])], "mismatch-at-other-sizes", "three"),
        (frozen, "run-error-at-other-sizes", "three"),
        (lambda f: [(f["x"] * F32(2)).astype(np.float64)], "dtype-mismatch", "given"),
        (lambda f: [f["x"][:1] * F32(2)], "shape-mismatch", "given"),
        (lambda f: [f["x"], f["x"]], "outputs-mismatch", "given"),
        (lambda f: [np.nan_to_num(f["x"]) * F32(2)], "mismatch-nonfinite", "odd"),
    ],
)
def test_symptoms(run: Any, symptom: str, which: str) -> None:
    odd = torch.tensor([[1.0, float("nan")], [2.0, 3.0]])
    large = torch.full((2, 2), 1e3)
    sets = [
        doubled("given", 2, 2),
        one_set("large", large, large * 2, kind="values"),
        doubled("three", 3, 2, resized=True, kind="sizes", sizes={"n": 3}),
        one_set("odd", odd, odd * 2, kind="nonfinite"),
    ]
    parity = verify_sets(Reference(sets, {}), run, Target(), SIGNATURE)
    assert parity.symptom == symptom and parity.ok == (symptom == "") and len(parity.rows) == 4
    if which:
        assert parity.facts["input_set"] == which and parity.facts["message"]


def test_advisory_sets_do_not_count_but_are_named() -> None:
    sets = [doubled("given", 2, 2), doubled("three", 3, 2, resized=True, advisory=True)]
    parity = verify_sets(Reference(sets, {}), frozen, Target(), SIGNATURE)
    assert parity.ok and parity.advisory == ("three",) and not parity.rows[1]["ok"]


def test_tolerance_of_the_target_decides() -> None:
    sets = [doubled("given", 2, 2)]
    assert verify_sets(Reference(sets, {}), lambda f: [f["x"] * F32(2.001)], Target(rtol=1e-2), SIGNATURE).ok
    assert not verify_sets(Reference(sets, {}), lambda f: [f["x"] * F32(2.001)], Target(rtol=1e-6, atol=0.0), SIGNATURE).ok


def chain() -> Reference:
    sets, total = [], torch.zeros(1)
    for name in ("given", "second"):
        x = torch.ones(1)
        after = total + x
        sets.append(one_set(name, x, after.clone(), state_before={"total": total}, state_after={"total": after}))
        total = after
    return Reference(sets, {"mutated_buffers": ["total"]})


def test_buffers_kept_constant_are_named_and_lifted_ones_checked() -> None:
    parity = verify_sets(chain(), lambda f: [f["x"]], Target(), SIGNATURE)
    assert parity.symptom == "mutated-buffers" and parity.facts["input_set"] == "second"
    lifted = {"inputs": ["x", "buffers.total"], "outputs": ["output", {"name": "buffers.total.after", "source": "buffers.total"}]}
    assert verify_sets(chain(), lambda f: [f["x"] + f["buffers.total"]] * 2, Target(), lifted).ok
    wrong = verify_sets(chain(), lambda f: [f["x"] + f["buffers.total"], f["x"] * 5], Target(), lifted)
    assert not wrong.ok and wrong.facts["output"] == "buffers.total.after"


def test_scaled_tolerance_grows_with_the_output():
    import numpy as np

    from autofix.compare import check_output

    right = np.array([4e19, 0.0, -1e19], np.float32)
    near, far = right + np.array([0, 2e12, 0], np.float32), right + np.array([0, 2e16, 0], np.float32)
    assert not check_output(right, near)["ok"] and check_output(right, near, scaled=True)["ok"]
    assert not check_output(right, far, scaled=True)["ok"]
    assert not check_output(right, np.array([4e19, np.inf, -1e19], np.float32), scaled=True)["ok"]
    small = np.array([0.5, 1e-3], np.float32)
    assert not check_output(small, small + np.float32(1e-4), scaled=True)["ok"]
