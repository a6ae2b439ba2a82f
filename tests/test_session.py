"""Session settings and the runtimes behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from autofix.hardware import cpu_flags, has_int8_products, has_openvino
from autofix.session import SessionSettings, open_session

F32 = np.float32


@pytest.fixture
def doubled(tmp_path: Path) -> str:
    """y = 2 x + n, of any length; z holds the places of what is not 0."""
    value = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node("Add", ["x", "x"], ["twice"]), onnx.helper.make_node("Add", ["twice", "n"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", [value("x", 1, ["batch", 2]), value("n", 1, [])], [value("y", 1, ["batch", 2])])
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), str(path))
    return str(path)


def test_settings_as_json() -> None:
    plain = SessionSettings()
    assert "io_binding" not in plain.to_json() and "runtime" not in plain.to_json()
    full = SessionSettings("BASIC", ("A",), ("CPUExecutionProvider",), (("n", 2),), (("k", "v"),), True, "openvino")
    assert SessionSettings.from_json(full.to_json()) == full and SessionSettings.from_json(plain.to_json()) == plain


RUNTIMES = [SessionSettings(), SessionSettings(io_binding=True), SessionSettings(runtime="openvino")]


@pytest.mark.parametrize("settings", RUNTIMES, ids=["plain", "bound", "openvino"])
def test_runtimes_agree_and_results_stay(doubled: str, settings: SessionSettings) -> None:
    if settings.runtime == "openvino" and not has_openvino():
        pytest.skip("OpenVINO is not installed")
    session: Any = open_session(doubled, settings)
    assert [v.name for v in session.get_inputs()] == ["x", "n"] and session.get_outputs()[0].shape == ["batch", 2]
    assert session.get_inputs()[0].type == "tensor(float)"
    kept = []
    for size in (1, 3, 3, 2, 0):
        x = np.arange(2 * size, dtype=F32).reshape(size, 2)
        kept.append((2 * x + 1, session.run(None, {"x": x, "n": np.array(1, F32)})[0]))
        x += 100  # neither the caller's array nor a later call may change an earlier result
    for want, got in kept:
        assert got.dtype == F32 and np.array_equal(want, got)
    assert np.array_equal(session.run(["y"], {"x": np.ones((1, 2), F32), "n": np.array(0, F32)})[0], [[2, 2]])


def test_bound_buffers_refuse_what_onnxruntime_refuses(doubled: str) -> None:
    session = open_session(doubled, SessionSettings(io_binding=True))
    for feed in ({"x": np.ones((1, 2), np.float64), "n": np.array(1, F32)}, {"x": np.ones((1, 2), F32)}, {"x": np.ones((1, 3), F32), "n": F32(1)}):
        with pytest.raises(Exception):  # noqa: B017
            session.run(None, feed)
    slices = np.arange(12, dtype=F32).reshape(3, 4)[:, ::2]  # not contiguous
    assert np.array_equal(session.run(None, {"x": slices, "n": np.array(0, F32)})[0], 2 * slices)


def test_outputs_whose_size_depends_on_values(tmp_path: Path) -> None:
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([onnx.helper.make_node("NonZero", ["x"], ["y"])], "g", [value("x", 1, [4])], [value("y", 7, [1, "found"])])
    path = str(tmp_path / "m.onnx")
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)
    session = open_session(path, SessionSettings(io_binding=True))
    assert session.run(None, {"x": np.array([1, 0, 1, 0], F32)})[0].tolist() == [[0, 2]]
    assert session.run(None, {"x": np.array([0, 0, 1, 0], F32)})[0].tolist() == [[2]]


def test_processor_flags(tmp_path: Path) -> None:
    for name, flags, has in (("zen3", "fpu avx2 fma", False), ("zen4", "avx2 avx512_vnni", True), ("arm", "fp asimddp", True)):
        file = tmp_path / name
        file.write_text(f"processor : 0\n{'Features' if name == 'arm' else 'flags'} : {flags}\n")
        assert set(flags.split()) == cpu_flags(str(file)) and has_int8_products(str(file)) is has
    assert cpu_flags(str(tmp_path / "none")) == frozenset() and not has_int8_products(str(tmp_path / "none"))


@pytest.mark.skipif(not has_openvino(), reason="openvino is not installed")
def test_results_of_openvino_stay_what_they_were(tmp_path):
    """Fixed outputs are written where they stay: constants, inputs handed through, one value under two names."""
    nodes = [onnx.helper.make_node(*n) for n in (("Identity", ["x"], ["a"]), ("Identity", ["c"], ["b"]), ("Add", ["x", "c"], ["d"]))]
    nodes.append(onnx.helper.make_node("Identity", ["d"], ["e"]))
    value = onnx.helper.make_tensor_value_info
    outputs = [value(n, onnx.TensorProto.FLOAT, [] if n == "b" else [3]) for n in "abde"]
    constant = onnx.helper.make_tensor("c", onnx.TensorProto.FLOAT, [], [1.0])
    graph = onnx.helper.make_graph(nodes, "g", [value("x", onnx.TensorProto.FLOAT, [3])], outputs, [constant])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10), tmp_path / "m.onnx")
    session = open_session(str(tmp_path / "m.onnx"), SessionSettings(runtime="openvino"))
    first = session.run(None, {"x": np.array([1, 2, 3], np.float32)})
    second = session.run(None, {"x": np.array([-1, -2, -3], np.float32)})
    assert [r.tolist() for r in first] == [[1, 2, 3], 1, [2, 3, 4], [2, 3, 4]]
    assert [r.tolist() for r in second] == [[-1, -2, -3], 1, [0, -1, -2], [0, -1, -2]]
