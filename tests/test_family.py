"""The second model of a family, from end to end."""

import subprocess
import sys

import pytest

GATE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear({width}, {width})

    def forward(self, x):
        y = self.layer(x)
        if y.mean() > 0:
            y = y * 2
        return y - x


def get_inputs():
    return [torch.randn(3, {width})]


dynamic_shapes = {{"x": {{0: "batch"}}}}
"""


VALUES = """
import importlib.util, sys
import numpy, onnxruntime, torch

for file, output in zip(sys.argv[1::2], sys.argv[2::2]):
    spec = importlib.util.spec_from_file_location("model", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    model = module.Model().eval()
    session = onnxruntime.InferenceSession(output)
    for rows, shift in ((5, 2), (1, -2), (2, 0)):  # other batch sizes
        for sign in (1, -1):  # both branches
            x = sign * (torch.randn(rows, model.layer.in_features) + shift)
            with torch.no_grad():
                numpy.testing.assert_allclose(session.run(None, {"x": x.numpy()})[0], model(x).numpy(), rtol=1e-4, atol=1e-5)
"""


@pytest.mark.slow
def test_the_second_model_of_a_family_takes_one_trial_and_gives_right_values(tmp_path, warm):
    from autofix import CaseSpec, Settings, repair
    from autofix.summary import summary_json, summary_text

    trials, files = [], []
    for width in (6, 11):
        file, output = tmp_path / f"gate_{width}.py", tmp_path / f"out_{width}"
        file.write_text(GATE.format(width=width))
        found = repair(CaseSpec(str(file)), settings=Settings(output=output, cache=tmp_path / "c.db", latency_seconds=0), fork=True)
        assert found.ok and found.winner.recipe.fixes and not found.from_cache and found.from_family is (width == 11)
        trials.append(len(found.trials))
        files += [str(file), str(output / "model.onnx")]
    assert trials[0] >= 2 * trials[1] == 2
    assert summary_json(found, output, 0)["from_family"] and "as another model of its family" in summary_text(found, str(file), {}, output)
    # in a process of its own: threads of ONNX Runtime in this one would not survive the forks of other tests
    subprocess.run([sys.executable, "-c", VALUES, *files], check=True, timeout=300)
