"""autofix.load: the session of an output folder, called with arrays, tensors and names."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

import autofix


def write_folder(folder, inputs=("x", "cache.key"), outputs=("y", "z"), session=None):
    """y = x + cache.key, z = x * cache.key."""
    nodes = [helper.make_node(kind, list(inputs), [out]) for kind, out in zip(("Add", "Mul"), outputs, strict=False)]
    values = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in (*inputs, *outputs)}
    graph = helper.make_graph(nodes, "g", [values[n] for n in inputs], [values[n] for n in outputs])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "model.onnx")
    if session:
        (folder / "session.json").write_text(json.dumps(session))
    return folder


def test_arrays_tensors_names_and_numbers(tmp_path):
    model = autofix.load(write_folder(tmp_path))
    a, b = np.array([1.0, 2.0], np.float32), np.array([3.0, 5.0], np.float32)
    assert (model.inputs, model.outputs) == (["x", "cache.key"], ["y", "z"])
    y, z = model(a, b)
    assert y.tolist() == [4, 7] and z.tolist() == [3, 10]
    y, z = model(torch.tensor(a), cache__key=torch.tensor(b))
    assert isinstance(y, torch.Tensor) and z.tolist() == [3, 10]
    assert model(a, [3, 5])[0].tolist() == [4, 7]
    assert [v.tolist() for v in model.run({"x": a, "cache.key": b})] == [[4, 7], [3, 10]]
    assert [v.tolist() for v in model.run(["z"], {"x": a, "cache.key": b})] == [[3, 10]]


def test_a_single_output_comes_alone(tmp_path):
    model = autofix.load(write_folder(tmp_path, outputs=("y",)))
    assert model(np.ones(3, np.float32), np.ones(3, np.float32)).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"), [((1,), {}, "missing: cache.key"), ((1, 2, 3), {}, "too many"), ((1, 2), {"k": 1}, "no input k")]
)
def test_wrong_calls_say_what_the_inputs_are(tmp_path, args, kwargs, message):
    model = autofix.load(write_folder(tmp_path))
    with pytest.raises(TypeError, match=message):
        model(*args, **kwargs)


def test_the_settings_beside_the_file_are_honoured(tmp_path):
    settings = {"level": "BASIC", "disabled_optimizers": ["SkipLayerNormFusion"], "providers": ["CPUExecutionProvider"]}
    model = autofix.load(write_folder(tmp_path, session=settings))
    assert (model.settings.level, model.settings.disabled_optimizers) == ("BASIC", ("SkipLayerNormFusion",))
    assert model.session.get_session_options().graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(autofix.UsageError, match="no model.onnx"):
        autofix.load(tmp_path)
