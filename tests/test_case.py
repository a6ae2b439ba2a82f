"""Intake: every accepted shape of model file, and one clear line with the person's own file and line for the rest."""

import numpy as np
import pytest

from autofix.case import CaseSpec, case_id, load_case
from autofix.errors import CaseError

pytestmark = pytest.mark.slow

HEAD = "import torch\nfrom torch import nn\n\n\n"
MODEL = HEAD + "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(3, 2)\n\n"
MODEL += "    def forward(self, x, scale=None):\n        return self.fc(x)\n\n\n"
INPUTS = "def get_inputs():\n    return [torch.randn(4, 3)]\n"
GOOD = MODEL + INPUTS


@pytest.fixture
def case(warm, model_file):
    def load(text, name="model.py", **spec):
        return load_case(CaseSpec(model_file(text, name), **spec))

    return load


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(:\n", "model.py:1: the model file can't be imported: SyntaxError"),
        ("import torch\nimport no_such_module\n", "model.py:2: the model file can't be imported: ModuleNotFoundError"),
        (HEAD + "1 / 0\n", "model.py:5: the model file can't be imported: ZeroDivisionError"),
        (HEAD + INPUTS, "model.py: defines no class Model, no build_model() and no model"),
        (MODEL, "model.py: defines neither get_inputs() nor example_inputs"),
        (GOOD.replace("nn.Linear(3, 2)", "nn.Linear(3)"), "model.py:8: the model can't be built: TypeError"),
        (GOOD.replace("self.fc = nn.Linear(3, 2)", "exit(0)"), "model.py:8: the model can't be built: SystemExit"),
        (HEAD + INPUTS + "model = 3\n", "the model can't be built: TypeError: is a int, not a torch.nn.Module"),
        (HEAD + INPUTS + "def build_model():\n    return None\n", "not a torch.nn.Module"),
        (GOOD.replace("torch.randn(4, 3)", "torch.randn(4, 'a')"), "model.py:15: get_inputs() raised: TypeError"),
        (GOOD + "def get_more_inputs():\n    raise ValueError('none')\n", "get_more_inputs() raised: ValueError: none"),
        (GOOD.replace("return [torch.randn(4, 3)]", "return [1, 2, 3]"), "forward does not take the given inputs"),
        (GOOD + "dynamic_shapes = {'y': {0: 'batch'}}\n", "dynamic_shapes names 'y', forward has x"),
        (GOOD + "dynamic_shapes = {'x': {2: 'batch'}}\n", "dynamic axis 2 of 'x' does not exist: its shape is [4, 3]"),
        (GOOD + "dynamic_shapes = {'x': 7}\n", "dynamic_shapes of 'x' is a int"),
    ],
)
def test_a_file_that_cant_be_used(case, text, expected):
    with pytest.raises(CaseError) as caught:
        case(text)
    assert expected in str(caught.value) and "\n" not in str(caught.value)


def test_the_line_of_an_imported_module_of_ones_own_is_named(case, model_file):
    model_file("def half(n):\n    return n / 0\n", "own_helper.py")
    with pytest.raises(CaseError, match=r"own_helper.py:2: the model file can't be imported: ZeroDivisionError"):
        case("from own_helper import half\nhalf(3)\n")


@pytest.mark.parametrize("name", ["nothing_here.py", ""])
def test_a_path_that_is_no_file(warm, tmp_path, name):
    with pytest.raises(CaseError, match="no such file" if name else "is a folder"):
        load_case(CaseSpec(str(tmp_path / name)))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"dynamic": ("x",)}, "is not NAME:AXIS=SYMBOL"),
        ({"dynamic": ("x:a=batch",)}, "'a' is not an axis number"),
        ({"dynamic": ("y:0=batch",)}, "'y', which is no tensor input; there are x"),
        ({"inputs": ("x=float99[2]",)}, "is not NAME=DTYPE"),
        ({"inputs": ("y=float32[2,3]",)}, "forward does not take the given inputs"),
        ({"class_name": "Nothing"}, "has no class Nothing"),
    ],
)
def test_options_that_do_not_fit(case, spec, expected):
    with pytest.raises(CaseError, match=expected):
        case(GOOD, **spec)


def test_the_common_convention(case):
    more = "def get_more_inputs():\n    return [[torch.ones(1, 3)], [torch.ones(9, 3)]]\ndynamic_shapes = {'x': {0: 'batch'}}\n"
    found = case(GOOD + more)
    assert [s.name for s in found.sets] == ["given", "more 1", "more 2"]
    assert found.axes == {"x": {0: "batch"}} and not found.build().training


@pytest.mark.parametrize(
    ("tail", "inputs"),
    [
        ("model = Model()\n", INPUTS),
        ("def build_model():\n    return Model()\n", INPUTS),
        ("model = Model()\n", "example_inputs = (torch.randn(4, 3),)\n"),
        ("model = Model()\n", "def get_inputs():\n    return {'x': torch.randn(4, 3)}\n"),
        ("model = Model()\n", INPUTS + "def get_kwargs():\n    return {'scale': None}\n"),
    ],
)
def test_other_accepted_shapes(case, tail, inputs):
    found = case((MODEL + tail + inputs).replace("Model", "Net"))
    assert found.build()(*found.given.args, **found.given.kwargs).shape == (4, 2)


def test_init_inputs(case):
    text = GOOD.replace("def __init__(self):", "def __init__(self, n):").replace("nn.Linear(3, 2)", "nn.Linear(3, n)")
    assert case(text + "def get_init_inputs():\n    return [5]\n").build().fc.out_features == 5
    assert case(text + "def get_init_inputs():\n    return {'n': 6}\n", "by_name.py").build().fc.out_features == 6


def test_a_class_and_inputs_from_the_command_line(case):
    found = case(MODEL.replace("Model", "Net"), class_name="Net", inputs=("x=float32[batch:7,3]",))
    assert found.given.kwargs["x"].shape == (7, 3) and found.axes == {"x": {0: "batch"}}


def test_integers_and_booleans_from_the_command_line(case):
    text = HEAD + "class Net(nn.Module):\n    def forward(self, ids, mask):\n        return ids * mask\n"
    found = case(text, class_name="Net", inputs=("ids=int64[batch,seq]{5..9}", "mask=bool[batch,seq]"))
    ids, mask = found.given.kwargs["ids"], found.given.kwargs["mask"]
    assert int(ids.min()) >= 5 and int(ids.max()) <= 9 and str(mask.dtype) == "torch.bool"
    assert found.axes == {"ids": {0: "batch", 1: "seq"}, "mask": {0: "batch", 1: "seq"}}


def test_axes_from_the_command_line(case):
    assert case(GOOD, dynamic=("x:0=batch,-1=width",)).axes == {"x": {0: "batch", 1: "width"}}


def test_the_seed_makes_weights_and_inputs_equal_every_time(case):
    one, two, other = case(GOOD), case(GOOD), case(GOOD, seed=1)
    assert one.build().fc.weight.equal(two.build().fc.weight) and one.build().fc.weight.equal(one.build().fc.weight)
    assert one.given.args[0].equal(two.given.args[0])
    assert not one.build().fc.weight.equal(other.build().fc.weight)


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_weights(case, tmp_path, ending):
    import torch
    from safetensors.torch import save_file

    state = {"fc.weight": torch.full((2, 3), 7.0), "fc.bias": torch.zeros(2)}
    path = tmp_path / f"weights{ending}"
    torch.save({"state_dict": state}, path) if ending == ".pt" else save_file(state, path)
    assert float(case(GOOD, weights=str(path)).build().fc.weight[0, 0]) == 7.0


def test_weights_that_do_not_fit(case, tmp_path):
    import torch

    torch.save({"other": torch.zeros(1)}, tmp_path / "w.pt")
    with pytest.raises(CaseError, match="the model can't be built"):
        case(GOOD, weights=str(tmp_path / "w.pt"))


def test_samples(case, tmp_path):
    import torch

    np.savez(tmp_path / "s.npz", **{"a/x": np.ones((2, 3), np.float32), "b/x": np.zeros((5, 3), np.float32)})
    torch.save([[torch.ones(6, 3)], [torch.ones(7, 3)]], tmp_path / "s.pt")
    sets = case(GOOD, samples=str(tmp_path / "s.npz")).sets
    assert [(s.origin, tuple(s.args[0].shape)) for s in sets[1:]] == [("sample", (2, 3)), ("sample", (5, 3))]
    assert [len(s.args[0]) for s in case(GOOD, samples=str(tmp_path / "s.pt")).sets] == [4, 6, 7]
    np.savez(tmp_path / "bad.npz", y=np.ones(3))
    with pytest.raises(CaseError, match="names y; forward's inputs are x"):
        case(GOOD, samples=str(tmp_path / "bad.npz"))
    (tmp_path / "broken.pt").write_bytes(b"no archive")
    with pytest.raises(CaseError, match="the samples can't be read"):
        case(GOOD, samples=str(tmp_path / "broken.pt"))


def ident(found):
    return case_id(found, found.build())


def test_the_case_id_is_of_what_is_written_not_of_where_or_which_weights(case, tmp_path, model_file):
    import torch

    torch.save({"fc.weight": torch.ones(2, 3), "fc.bias": torch.ones(2)}, tmp_path / "w.pt")
    first = ident(case(GOOD))
    (tmp_path / "elsewhere").mkdir()
    assert ident(case(GOOD, "elsewhere/model.py")) == first
    assert ident(case(GOOD, weights=str(tmp_path / "w.pt"))) == first
    assert ident(case(GOOD.replace("self.fc(x)", "self.fc(x) + 1"))) != first
    assert ident(case(GOOD, dynamic=("x:0=batch",))) != first
    assert ident(case(GOOD.replace("torch.randn(4, 3)", "torch.randn(5, 3)"))) != first


def test_the_case_id_covers_imported_modules_of_ones_own(warm, tmp_path):
    import sys

    ids = []
    for i, half in enumerate((2, 4)):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / "my_numbers.py").write_text(f"HALF = {half}\n")
        (folder / "model.py").write_text("import my_numbers\n" + GOOD)
        ids.append(ident(load_case(CaseSpec(str(folder / "model.py")))))
        sys.modules.pop("my_numbers")
    assert ids[0] != ids[1]
