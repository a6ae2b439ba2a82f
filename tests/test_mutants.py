"""Mutation operators: what they plant is well-formed, one change, and changes values; the table of models is well-formed."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


sys.path.append(str(BENCHMARKS))  # its modules import each other


def load(name: str) -> ModuleType:
    """A module of the benchmarks folder."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mutants = load("mutants")
models = load("mutation_models")
WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 6 - 0.9


def a_model(*nodes: Any, outputs: tuple[str, ...] = ("y",), extra: dict[str, Any] | None = None) -> Any:
    """A model that reads x, float [2, 4, 4], and the constants w, b, and `extra`."""
    arrays = {"w": WEIGHT, "b": np.array([0.1, -0.2, 0.3], np.float32), **(extra or {})}
    used = {i for n in nodes for i in n.input}
    weights = [numpy_helper.from_array(v, k) for k, v in arrays.items() if k in used]
    made = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    graph = helper.make_graph(list(nodes), "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, 4])], made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def run(model: Any, x: Any, names: list[str] | None = None) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return list(onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(names, {"x": x}))


def planted(model: Any) -> dict[str, Any]:
    """{text: mutant} of a model, with the values of its intermediates on an example."""
    x = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
    shown = onnx.ModelProto.FromString(model.SerializeToString())
    names = [o for n in model.graph.node for o in n.output]
    have = {o.name for o in model.graph.output}
    shown.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in names if n not in have)
    values = dict(zip([o.name for o in shown.graph.output], run(shown, x), strict=True))
    return {f"{m.kind}: {m.text}": m for m in mutants.mutants_of(model, values | {"x": x})}


NODE = helper.make_node
SLICE = {"f": np.array([1]), "l": np.array([3]), "a": np.array([2])}


@pytest.mark.parametrize(
    ("nodes", "extra", "kind", "text"),
    [
        ([NODE("Softmax", ["x"], ["y"], "s", axis=2)], {}, "axis", "axis 2 -> 1"),
        ([NODE("ReduceSum", ["x", "a"], ["y"], "s", keepdims=0)], {"a": np.array([2])}, "axis", "axes [2] -> [0]"),
        ([NODE("Pad", ["x", "p"], ["y"], "s")], {"p": np.array([0, 1, 0, 0, 1, 0])}, "pads, strides", "[0, 0, 0, 0, 2, 0]"),
        ([NODE("Floor", ["x"], ["y"], "s")], {}, "rounding", "Floor -> Ceil"),
        ([NODE("Add", ["m", "b"], ["y"], "s"), NODE("MatMul", ["x", "w"], ["m"], "t")][::-1], {}, "broadcast", "moved by one place"),
        ([NODE("Relu", ["x"], ["y"], "s")], {}, "dtype", "through int32"),
        ([NODE("Sub", ["x", "h"], ["y"], "s"), NODE("Sin", ["x"], ["h"], "t")][::-1], {}, "swapped inputs", "inputs 0 and 1"),
        ([NODE("MatMul", ["x", "w"], ["y"], "s")], {}, "weights", "1e-3 noise on operand 1"),
        (
            [NODE("Slice", ["x", "f", "l", "a"], ["y"], "s")],
            {"f": np.array([1]), "l": np.array([3]), "a": np.array([2])},
            "off by one",
            "moved by one",
        ),
        ([NODE("Relu", ["x"], ["y"], "s")], {}, "dropped", "Relu left out"),
        ([NODE("Transpose", ["x"], ["y"], "s", perm=[0, 2, 1])], {}, "layout", "perm"),
        ([NODE("ReduceMean", ["x"], ["y"], "s")], {}, "reduction", "ReduceMean -> ReduceSum"),
        ([NODE("Mul", ["x", "c"], ["y"], "s")], {"c": np.array(2.0, np.float32)}, "constant", "off by 1 %"),
        ([NODE("Sin", ["x"], ["y"], "s")], {}, "operator", "Sin -> Cos"),
        ([NODE("Add", ["x", "h"], ["y"], "s"), NODE("Sin", ["x"], ["h"], "t")][::-1], {}, "wrong edge", "input 0 reads h"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_is_planted_changes_the_values(nodes: list[Any], extra: dict[str, Any], kind: str, text: str) -> None:
    model = a_model(*nodes, extra=extra)
    before = model.SerializeToString()
    found = planted(model)
    chosen = [m for name, m in found.items() if name.startswith(kind) and text in name]
    assert chosen, list(found)
    x = 3 * np.random.default_rng(1).standard_normal((2, 4, 4)).astype(np.float32)
    changed = run(chosen[0].apply(model), x)[0]
    good = run(model, x)[0]
    assert changed.shape != good.shape or not np.array_equal(changed, good)
    assert chosen[0].nodes == ("s",) and model.SerializeToString() == before


def test_a_branch_and_what_stands_in_it() -> None:
    branches = {
        name: helper.make_graph([NODE(op, ["x"], [name], name)], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])
        for name, op in (("then", "Sin"), ("else", "Cos"))
    }
    test = [NODE("ReduceMax", ["x"], ["m"], "max", keepdims=0), NODE("Greater", ["m", "z"], ["c"], "test")]
    model = a_model(
        *test, NODE("If", ["c"], ["y"], "if", then_branch=branches["then"], else_branch=branches["else"]), extra={"z": np.array(0.0, np.float32)}
    )
    found = planted(model)
    x = np.ones((2, 4, 4), np.float32)
    assert np.allclose(run(model, x)[0], np.sin(x))
    for name, m in found.items():
        if "condition negated" in name or "always the False" in name or "Sin then: Sin -> Cos" in name:
            assert m.nodes == ("if",) and np.allclose(run(m.apply(model), x)[0], np.cos(x)), name
    assert sum(k in n for n in found for k in ("condition negated", "always the False", "Sin then: Sin -> Cos")) == 3


def test_the_same_seed_plants_the_same() -> None:
    model = a_model(NODE("MatMul", ["x", "w"], ["y"], "s"))
    one, other = (planted(model) for _ in range(2))
    assert list(one) == list(other)
    assert all(one[k].apply(model).SerializeToString() == other[k].apply(model).SerializeToString() for k in one)


def test_the_table_of_models_is_well_formed() -> None:
    every = list(models.all_models())
    assert len({m.name for m in every}) == len(every) >= 300
    for one in every:
        tree = ast.parse(one.text)
        assert {"Model", "get_inputs"} <= {getattr(n, "name", "") for n in tree.body}, one.name
        assert one.dynamic == ("dynamic_shapes" in one.text)


def test_truth_inputs_keep_to_the_declared_axes() -> None:
    one = next(m for m in models.all_models() if m.name == "gather_axis_dynamic")
    draws = list(models.truth_inputs(one, 12, 5))
    assert {tuple(x.shape)[1] for x, _ in draws} == {6} and len({tuple(x.shape)[0] for x, _ in draws}) > 2
    assert all(x.shape[0] == i.shape[0] and int(i.min()) >= 0 and int(i.max()) < 6 for x, i in draws)
    again = list(models.truth_inputs(one, 12, 5))
    assert all(bool((a[0] == b[0]).all()) for a, b in zip(draws, again, strict=True))
