"""--random inputs and --random seeded: draws of forward as inputs of the file, with the values that follow from the noise, or as constants."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from autofix.case import CaseSpec, load_case
from autofix.errors import CaseError
from autofix.repair import Settings, repair

HEAD = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"


def model_file(folder: Path, body: str, inputs: str = "[torch.randn(4, 6)]", more: str = 'dynamic_shapes = {"x": {0: "batch"}}\n') -> Path:
    """A model file; `body` is what stands in the class."""
    file = folder / "drawing.py"
    text = "".join(f"    {line}\n" if line else "\n" for line in body.strip("\n").splitlines())
    file.write_text(f"{HEAD}{text}\n\ndef get_inputs():\n    return {inputs}\n\n\n{more}")
    return file


def forward(*lines: str) -> str:
    """forward(x) with these lines."""
    return "def forward(self, x):\n" + "\n".join(f"    {line}" for line in lines)


def exported(file: Path, random: str = "inputs") -> onnxruntime.InferenceSession:
    """The session of the verified file."""
    found = repair(CaseSpec(str(file), random=random), settings=Settings(output=file.parent / "out", use_cache=False), fork=True)
    assert found.ok, found.nearest
    return onnxruntime.InferenceSession(str(file.parent / "out" / "model.onnx"))


def test_dropout_and_noise_with_a_dynamic_batch(tmp_path):
    file = model_file(tmp_path, forward("x = x + 0.5 * torch.randn_like(x)", "return nn.functional.dropout(x, 0.25, training=True)"))
    session = exported(file)
    assert [i.name for i in session.get_inputs()] == ["x", "noise", "noise_1"]
    assert [i.shape for i in session.get_inputs()] == [["batch", 6]] * 3
    rng = np.random.default_rng(0)
    for batch in (1, 4, 7):
        x, z = rng.standard_normal((2, batch, 6), dtype=np.float32)
        u = rng.random((batch, 6), dtype=np.float32)
        u[0, :2] = 0.75, 0.74999994
        (got,) = session.run(None, {"x": x, "noise": z, "noise_1": u})
        np.testing.assert_allclose(got, np.where(u < 0.75, (x + 0.5 * z) / 0.75, 0), rtol=1e-5, atol=1e-6)
    log = (tmp_path / "out" / "fixlog.md").read_text()
    assert "noise: standard normal" in log and "noise_1: uniform in [0, 1)" in log and "drawing.py:7" in log and "drawing.py:8" in log
    assert "noise_1: uniform in [0, 1)" in (tmp_path / "out" / "report.html").read_text()
    run = subprocess.run([sys.executable, "fix.py", "--output", "again.onnx"], cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    again = onnxruntime.InferenceSession(str(tmp_path / "out" / "again.onnx"))
    feed = {"x": x, "noise": z, "noise_1": u}
    np.testing.assert_array_equal(again.run(None, feed)[0], got)


def test_other_draws(tmp_path):
    lines = (
        "a = torch.rand(6) + torch.normal(1.0, 2.0, (4, 6))",
        "b = torch.bernoulli(torch.sigmoid(x))",
        "c = torch.randint(3, 8, (4, 6))",
        "d = torch.multinomial(torch.softmax(x, -1), 1)",
        "e = torch.empty_like(x).exponential_(2.0)",
        "f = nn.functional.dropout1d(x[:, :, None].expand(-1, -1, 3), 0.5, True)",
        "return a, b, c, d, e, f",
    )
    session = exported(model_file(tmp_path, forward(*lines), more=""))
    feed = {i.name: np.random.default_rng(3).random(i.shape, dtype=np.float32) for i in session.get_inputs()}
    names = list(feed)
    assert names == ["x", "noise", *(f"noise_{i}" for i in range(1, 8))][: len(names)] and len(names) == 8
    x, u, z, bern, integers, choice, waiting, channels = feed.values()
    integers[0, :3] = 0, 0.99999994, 0.2
    a, b, c, d, e, f = session.run(None, feed)
    np.testing.assert_allclose(a, u + 1 + 2 * z, rtol=1e-6)
    np.testing.assert_array_equal(b, bern < 1 / (1 + np.exp(-x)))
    np.testing.assert_array_equal(c, 3 + np.floor(integers * np.float32(5)).astype(int))
    assert c.min() == 3 and c.max() == 7 and c.dtype == np.int64
    np.testing.assert_array_equal(d, np.argsort(-np.exp(x) / choice, axis=-1)[:, :1])
    np.testing.assert_allclose(e, waiting / 2, rtol=1e-6)
    assert channels.shape == (4, 6, 1)
    np.testing.assert_allclose(f, np.where(channels < 0.5, 2 * x[:, :, None], 0) * np.ones(3), rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "said", "line"),
    [
        (forward("return x[:, torch.randperm(6)]"), "aten.randperm.default can't be made an input", 7),
        (forward("return x + torch.rand(2 * x.shape[0], 6)[::2]"), "aten.rand.default can't be made an input.*axis 0", 7),
        (forward("n = x.shape[0]", "return x + torch.rand(6) if n > 4 else x + torch.rand(4, 6)"), "draws otherwise at batch=5", 8),
        (forward("return torch.multinomial(torch.softmax(x, -1), 2)"), "aten.multinomial.default can't be made an input", 7),
        (forward("return nn.functional.alpha_dropout(x, 0.5, True)"), "drawn out of reach", 7),
    ],
)
def test_refused_by_name_with_the_line(tmp_path, body, said, line):
    file = model_file(tmp_path, body)
    with pytest.raises(CaseError, match=said) as caught:
        load_case(CaseSpec(str(file), random="inputs"))
    assert caught.value.line == line and caught.value.file == str(file)


def test_without_the_option_the_model_is_refused_and_told_of_it(tmp_path):
    file = model_file(tmp_path, forward("return x + torch.randn_like(x)"))
    with pytest.raises(CaseError, match=r"aten\.randn_like\.default.*--random inputs") as caught:
        repair(CaseSpec(str(file)), settings=Settings(output=tmp_path / "out", use_cache=False), fork=True)
    assert "drawing.py:7: " in str(caught.value)


def test_recorded_draws_are_those_of_eager(tmp_path):
    import torch

    file = model_file(tmp_path, forward("return torch.where(torch.rand_like(x) < 0.5, x, torch.randn(6))"), more="")
    case = load_case(CaseSpec(str(file), seed=11, random="inputs"))
    torch.manual_seed(11)
    x = case.given.args[0]
    expected = torch.where(torch.rand(4, 6) < 0.5, x, torch.randn(6))
    got = case.build()(x, **case.given.kwargs)
    assert torch.equal(got, expected)
    assert [n["form"] for n in case.noise] == ["uniform", "normal"]


def test_nothing_changes_where_nothing_is_drawn(tmp_path):
    file = model_file(tmp_path, forward("return nn.functional.dropout(x, 0.5, self.training)"))
    case = load_case(CaseSpec(str(file), random="inputs"))
    assert not case.noise and not case.given.kwargs and list(case.axes) == ["x"]
    assert "random" not in CaseSpec("x.py").to_json()


def test_seeded_draws_are_constants_of_the_file(tmp_path):
    import torch

    file = model_file(
        tmp_path,
        forward("y = nn.functional.dropout(x.mean(0), 0.5, True) + 0.1 * torch.randn(6)", "return x + y[torch.randperm(6)]"),
    )
    session = exported(file, "seeded")
    assert [i.name for i in session.get_inputs()] == ["x"]
    for batch in (1, 4, 7):
        x = np.random.default_rng(batch).standard_normal((batch, 6), dtype=np.float32)
        torch.manual_seed(0)
        y = torch.nn.functional.dropout(torch.from_numpy(x).mean(0), 0.5, True) + 0.1 * torch.randn(6)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], x + y[torch.randperm(6)].numpy(), rtol=1e-5, atol=1e-6)
    log = json.loads((tmp_path / "out" / "fixlog.json").read_text())
    assert log["effect"] == "narrowing" and [d["line"] for d in log["seeded_draws"]] == [7, 7, 8]
    assert "aten.randn.default at drawing.py:7: the same noise at each call, drawn once and kept as a constant of shape [6]" in log["conceded"]
    assert "the same noise at each call" in (tmp_path / "out" / "fixlog.md").read_text()
    run = subprocess.run([sys.executable, "fix.py", "--output", "again.onnx"], cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    again = onnxruntime.InferenceSession(str(tmp_path / "out" / "again.onnx"))
    np.testing.assert_array_equal(again.run(None, {"x": x})[0], session.run(None, {"x": x})[0])


@pytest.mark.parametrize(
    "line", ["return x + torch.randn_like(x)", "return x + torch.rand(x.shape[0] // 2 + 1)[0]", "return nn.functional.dropout(x, 0.5, True)"]
)
def test_seeded_draws_that_move_with_a_dynamic_axis_are_refused(tmp_path, line):
    with pytest.raises(CaseError, match="can't be kept as a constant.*moves with the dynamic axis 'batch'") as caught:
        load_case(CaseSpec(str(model_file(tmp_path, forward(line))), random="seeded"))
    assert caught.value.line == 7


def test_seeded_python_and_numpy_draws_are_told(tmp_path):
    import random

    file = model_file(tmp_path, forward("import numpy, random", "return x + numpy.random.rand() + random.random()"), more="")
    case = load_case(CaseSpec(str(file), seed=3, random="seeded"))
    assert [d["operator"] for d in case.seeded] == ["random", "numpy.random"]
    expected = case.given.args[0] + np.random.RandomState(3).rand() + random.Random(3).random()
    np.testing.assert_allclose(case.build()(case.given.args[0]).numpy(), expected.numpy(), rtol=1e-6)


def test_draws_that_the_model_seeds_itself_are_left_alone(tmp_path):
    lines = ("torch.manual_seed(4)", "return nn.functional.dropout(x, 0.5, True) + torch.randn(6, generator=torch.Generator().manual_seed(1))")
    case = load_case(CaseSpec(str(model_file(tmp_path, forward(*lines))), random="seeded"))
    assert case.seeded == []
