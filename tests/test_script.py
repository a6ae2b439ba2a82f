"""fix.py: source text is flattened, names are told apart, nothing of autofix is imported."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

from autofix.bundle import Bundle
from autofix.case import CaseSpec
from autofix.loader import load_strategies
from autofix.recipe import Fix, Level, Recipe
from autofix.scopes import undefined_names
from autofix.script import call_text, quoted, script_text
from autofix.sourcefile import BundleError, read_source_file
from autofix.target import Target

STRATEGIES = load_strategies(entry_points=False)

WITHOUT_AUTOFIX = """
import sys, runpy
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "autofix":
            raise ImportError("autofix is not here")
sys.meta_path.insert(0, Blocker())
sys.argv = ["fix.py"]
runpy.run_path("fix.py", run_name="__main__")
"""


def flatten(folder: Path, files: dict[str, str], *names: str) -> str:
    """The bundle of the named strategies among these files, checked."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    lines = "".join(f"from autofix.strategies.{n} import {n}\n" for n in names)
    entry = read_source_file("repair", "", lines + "\n\ndef entry():\n    return [" + ", ".join(names) + "]\n")
    text = Bundle([entry], {n: str(folder / f"{n}.py") for n in names}).text()
    check_bundle(text)
    return text


def check_bundle(text: str) -> None:
    """It compiles, reads no undefined name and imports nothing of ours."""
    compile(text, "fix.py", "exec")
    assert undefined_names(text) == []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0 and (node.module or "").partition(".")[0] != "autofix"
        elif isinstance(node, ast.Import):
            assert all(a.name.partition(".")[0] != "autofix" for a in node.names)


def run(text: str, name: str, *args: object, **params: object) -> object:
    module = sys.modules["bundled_for_test"] = types.ModuleType("bundled_for_test")  # dataclasses look their module up
    exec(text, module.__dict__)
    return getattr(module, name)(*args, **params)


def strategy(body: str, top: str = "", more: str = "") -> str:
    """A strategy file with this body of apply."""
    inner = textwrap.indent(textwrap.dedent(body).strip(), "        ")
    return (
        "from __future__ import annotations\n"
        + textwrap.dedent(top)
        + '\nclass Some(Base):\n    """Do something.\n\n    Why it is safe: it is a test.\n    """\n\n    treats = ("crash",)\n\n'
        + "    def propose(self, evidence, target):\n        yield undefined_in_propose\n\n"
        + "    @staticmethod\n    def apply(x, *, k=1):\n"
        + inner
        + "\n\n    REPAIRS = (Example(undefined_example, 'crash'),)\n"
        + textwrap.dedent(more)
    )


def test_two_files_may_use_one_name(tmp_path: Path) -> None:
    files = {
        "left": "LIMIT = 2\ndef scale(x):\n    return x * LIMIT\n",
        "right": "LIMIT = 10\ndef scale(x):\n    return x * LIMIT\ndef both(x):\n    return int(f'{scale(x)}')\n",
        "one": strategy("from .right import both\nreturn scale(x) + both(x)", "from .left import scale\n"),
    }
    text = flatten(tmp_path, files, "one")
    assert run(text, "one", 1) == 12
    assert text.count("def scale") == 2 and "undefined_in_propose" not in text and "REPAIRS" not in text


def test_a_local_name_does_not_hide_what_is_imported_under_another(tmp_path: Path) -> None:
    files = {
        "tools": "def weight(x):\n    return x + 1\n",
        "one": strategy("weight = 5\nreturn heavy(x) + weight", "from .tools import weight as heavy\n"),
    }
    assert run(flatten(tmp_path, files, "one"), "one", 1) == 7


def test_builtins_stay_builtins(tmp_path: Path) -> None:
    files = {
        "tools": "def sum(x):\n    return -1\ndef odd(x):\n    return sum(x)\n",
        "one": strategy("from .tools import odd\nreturn sum(x) + odd(x)"),
    }
    assert run(flatten(tmp_path, files, "one"), "one", [1, 2]) == 2


def test_imports_of_one_name_are_told_apart(tmp_path: Path) -> None:
    files = {
        "tools": "from math import log2 as log\nimport os.path\ndef two(x):\n    return log(x) + len(os.path.join('a', 'b'))\n",
        "one": strategy("from .tools import two\nreturn log(x) + two(x)", "from math import log\n"),
    }
    assert run(flatten(tmp_path, files, "one"), "one", 1) == 3


def test_constants_tables_recursion_and_classes_come_along(tmp_path: Path) -> None:
    top = '''
    from dataclasses import dataclass, field
    from functools import lru_cache

    STEPS = 3
    """How many steps."""
    # first and last
    FIRST, (LAST, *REST) = 1, (2, 3)
    UNUSED = undefined_and_not_needed if False else 0


    def double(x: int) -> int:
        return x * 2


    TABLE = {"double": double}
    TABLE["triple"] = lambda v: v * 3
    for _name in ("same",):
        TABLE[_name] = double


    class Base0:
        base = STEPS


    @dataclass
    class Box(Base0):
        """A box."""

        value: int = STEPS
        more: list[int] = field(default_factory=list)

        def grow(self, by: int = LAST) -> Box:
            return Box(self.value + by + self.base)


    @lru_cache(maxsize=None)
    def countdown(n: int) -> int:
        return 0 if n == 0 else 1 + countdown(n - 1)
    '''
    body = """
    def inner(v, f=TABLE["double"]):
        text = f"{countdown(v)}/{STEPS!r}"
        return f(v), text, [FIRST + i for i in range(LAST)]
    return inner(x), TABLE["triple"](x), TABLE["same"](x), Box().grow().value, REST, k
    """
    text = flatten(tmp_path, {"one": strategy(body, top)}, "one")
    assert run(text, "one", 2, k=9) == ((4, "2/3", [1, 2]), 6, 4, 8, [3], 9)
    assert "UNUSED" not in text and '"""How many steps."""' in text and "# first and last" in text


def test_the_classs_docstring_documents_the_function(tmp_path: Path) -> None:
    text = flatten(tmp_path, {"one": strategy("return x")}, "one")
    assert 'def one(x, *, k=1):\n    """Do something.\n\n    Why it is safe: it is a test.\n    """\n    return x' in text


def test_strings_that_span_lines_keep_their_indentation(tmp_path: Path) -> None:
    body = 'return """\n            a\n  b"""'
    file = "class Some:\n    @staticmethod\n    def apply(x):\n        " + body + "\n"
    assert run(flatten(tmp_path, {"one": file}, "one"), "one", 1) == "\n            a\n  b"


def test_names_in_annotations_alone_are_not_dragged_in(tmp_path: Path) -> None:
    top = """
    from typing import TYPE_CHECKING
    if TYPE_CHECKING:
        from fractions import Fraction
        from .heavy import Heavy
    Pair = tuple[int, int]


    def of(x: Heavy, y: Fraction | None = None) -> Pair:
        z: Heavy = x
        return (z, z)
    """
    files = {"heavy": "import not_installed\nclass Heavy:\n    pass\n", "one": strategy("return of(x)", top)}
    text = flatten(tmp_path, files, "one")
    assert "Heavy" not in text and "Pair = tuple[int, int]" in text and "from fractions import Fraction" in text
    assert run(text, "one", 1) == (1, 1)


def test_imports_under_try(tmp_path: Path) -> None:
    top = """
    try:
        import not_installed_anywhere as fast
    except ImportError:
        fast = None
    try:
        from .tools import given
    except ImportError:
        given = None
    """
    files = {"tools": "given = 3\n", "one": strategy("return fast, given", top)}
    assert run(flatten(tmp_path, files, "one"), "one", 0) == (None, 3)


def test_a_function_left_without_body_passes(tmp_path: Path) -> None:
    top = "def prepare():\n    from .tools import given\n\n\ndef ready():\n    if True:\n        from .tools import given\n    return given\n"
    files = {"tools": "given = 3\n", "one": strategy("prepare()\nreturn ready()", top)}
    assert run(flatten(tmp_path, files, "one"), "one", 0) == 3


def test_global_statements_and_modules_as_names(tmp_path: Path) -> None:
    files = {
        "tools": "COUNT = 0\n\n\ndef more():\n    global COUNT\n    COUNT += 1\n    return COUNT\n",
        "other": "COUNT = 10\n\n\ndef fixed():\n    return COUNT\n",
        "one": strategy("from .other import fixed\ntools.more()\nreturn tools.more() + fixed()", "from . import tools\n"),
    }
    assert run(flatten(tmp_path, files, "one"), "one", 0) == 12


def test_what_is_used_at_load_time_comes_first(tmp_path: Path) -> None:
    files = {
        "low": "from .lowest import make\n\n\nclass Low:\n    value = make(4)\n",
        "lowest": "def make(n):\n    return helper(n)\n\n\ndef helper(n):\n    return n + 1\n",
        "one": strategy("return High().value", "from .low import Low\n\n\nclass High(Low):\n    pass\n"),
    }
    assert run(flatten(tmp_path, files, "one"), "one", 0) == 5


def test_the_text_is_the_same_in_every_process(tmp_path: Path) -> None:
    name = "decompose_linalg" if "decompose_linalg" in STRATEGIES else sorted(STRATEGIES)[0]
    code = (
        "from autofix.bundle import Bundle; from autofix.sourcefile import read_source_file\n"
        f"entry = read_source_file('repair', '', 'from autofix.strategies.{name} import {name}\\nX = [{name}]\\n')\n"
        f"print(Bundle([entry], {{{name!r}: {STRATEGIES[name].file!r}}}).text())"
    )
    root = str(Path(__file__).resolve().parent.parent)
    texts = set()
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": root}
        texts.add(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env, cwd=tmp_path).stdout)
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"one": strategy("return nowhere(x)")}, "nowhere is not defined"),
        ({"one": strategy("return f(x)", "from .tools import *\n"), "tools": "f = 1\n"}, r"\* import"),
        ({"one": strategy("return Some.treats")}, "Some is not defined"),
        ({"one": strategy("return g(x)", "from .missing import g\n")}, "no such file"),
        ({"one": "class Some:\n    def apply(self, x):\n        return x\n"}, "no class with a static apply"),
        ({"one": "class Some(:\n"}, "can't be read"),
    ],
)
def test_what_can_not_stand_alone_is_refused(tmp_path: Path, files: dict[str, str], says: str) -> None:
    with pytest.raises(BundleError, match=says):
        flatten(tmp_path, files, "one")


@pytest.mark.parametrize("name", sorted(n for n, s in STRATEGIES.items() if s.level in (Level.MODULE, Level.PROGRAM, Level.ONNX)))
def test_every_strategy_stands_alone(name: str) -> None:
    entry = read_source_file("repair", "", f"from autofix.strategies.{name} import {name}\n\n\ndef entry():\n    return {name}\n")
    check_bundle(Bundle([entry], {name: STRATEGIES[name].file}).text())


def test_the_whole_script_stands_alone_and_needs_no_torch_to_be_written(tmp_path: Path) -> None:
    recipe = Recipe((Fix("capture_trace", Level.CONFIG),))
    facts = {"inputs": [{"name": "x", "axes": {"0": "batch"}}], "float64": "yes"}
    sources = {"m.py": {"module": "m", "old": "def f():\n    return 1\n", "new": "def f():\n    return \"\\n'''\"\n"}}
    text = script_text(
        CaseSpec("m.py", inputs=("x=float32[batch,3]",)), recipe, facts, Target(), {"inputs": [], "outputs": []}, {}, sources, STRATEGIES, tmp_path,
        effect="narrowing", conceded=['a """quoted\\" line'], version="0",
    )  # fmt: skip
    check_bundle(text)
    assert "Effect: narrowing." in text.partition("import")[0] and "'opset': 17" in text


@pytest.mark.parametrize("text", ["def f():\n    return 1\n", "s = '''a'''\n", 't = """a"""\n', "u = '\\n'\n", "v = '''a'''; w = \"\"\"\\b\"\"\"\n"])
def test_quoted_source_reads_back(text: str) -> None:
    assert ast.literal_eval(quoted(text)).removeprefix("\n") == text


def test_a_fix_reads_as_a_call() -> None:
    assert call_text(Fix("swap", Level.MODULE, {"size": 3, "names": ["a"]}), "model") == "model = swap(model, size=3, names=['a'])"


MODEL = '''
import torch
from torch import nn

from helper_beside import shift


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.act = nn.SiLU()

    def forward(self, x):
        """Doc."""
        if x.sum() > 0:
            y = self.fc(x)
        else:
            y = -self.fc(x)
        return self.act(shift(y))


def get_inputs():
    return [torch.randn(2, 4)]


def get_more_inputs():
    return [[-torch.ones(3, 4)], [torch.ones(1, 4)]]


dynamic_shapes = {"x": {0: "batch"}}
'''

HELPER = """
import torch


def shift(y):
    assert bool((y == y).all())
    return y + 1
"""


WHERE = '''
"""Strategy for a test."""

from __future__ import annotations

from autofix.strategy import Example, SourceStrategy

BRANCH = """        if x.sum() > 0:
            y = self.fc(x)
        else:
            y = -self.fc(x)
"""

MORE = """

TAG: str = 'kept'


class Picker:
    def pick(self, *args):
        return torch.where(*args)


def pick(*args):
    return Picker().pick(*args)
"""


class UseWhere(SourceStrategy):
    """Choose with torch.where."""

    treats = ("data-dependent-branch",)

    def propose(self, evidence, target):
        yield self.fix(file="stubborn.py")

    @staticmethod
    def apply(text: str) -> str:
        changed = text.replace(BRANCH, "        y = pick(x.sum() > 0, self.fc(x), -self.fc(x))\\n")
        return changed.replace("\\n\\nclass Model", MORE + "\\n\\nclass Model")

    REPAIRS = (Example("", symptom="data-dependent-branch"),)
'''

DROP = '''
"""Strategy for a test."""

from __future__ import annotations

from autofix.strategy import Example, SourceStrategy


class DropAssert(SourceStrategy):
    """Drop an assertion in a helper."""

    treats = ("data-dependent-branch",)

    def propose(self, evidence, target):
        yield self.fix(file="helper_beside.py")

    @staticmethod
    def apply(text: str) -> str:
        return text.replace("    assert bool((y == y).all())\\n", "")

    REPAIRS = (Example("", symptom="data-dependent-branch"),)
'''

SWAP = '''
"""Strategy for a test."""

from __future__ import annotations

from typing import Any

from autofix.errors import NothingToDo
from autofix.strategy import Example, ModuleStrategy


def swap_children(module: Any, kind: Any, new: Any) -> int:
    count = 0
    for name, child in list(module.named_children()):
        if isinstance(child, kind):
            setattr(module, name, new())
            count += 1
        count += swap_children(child, kind, new)
    return count


class SwapSilu(ModuleStrategy):
    """Write SiLU with sigmoid."""

    treats = ("data-dependent-branch",)

    def propose(self, evidence, target):
        yield self.fix()

    @staticmethod
    def apply(model: Any) -> Any:
        import torch

        class Plain(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return x * torch.sigmoid(x)

        if not swap_children(model, torch.nn.SiLU, Plain):
            raise NothingToDo("no SiLU")
        return model

    REPAIRS = (Example("", symptom="data-dependent-branch"),)
'''


@pytest.mark.slow
def test_fix_py_reproduces_a_repair_without_autofix(tmp_path: Path) -> None:
    from autofix.repair import Settings, repair

    strategies, home, out = tmp_path / "strategies", tmp_path / "home", tmp_path / "out"
    strategies.mkdir()
    home.mkdir()
    for name, text in {"use_where": WHERE, "drop_assert": DROP, "swap_silu": SWAP}.items():
        (strategies / f"{name}.py").write_text(text)
    model, helper = home / "stubborn.py", home / "helper_beside.py"
    model.write_text(MODEL)
    helper.write_text(HELPER)
    fixes = [Fix("use_where", Level.SOURCE, {"file": "stubborn.py"}), Fix("drop_assert", Level.SOURCE, {"file": "helper_beside.py"})]
    recipe = Recipe((*fixes, Fix("swap_silu", Level.MODULE)))
    settings = Settings(output=out, strategies=(strategies,), use_cache=False, recipe=recipe, latency_seconds=0)
    found = repair(CaseSpec(str(model)), settings=settings)
    assert found.ok and {f.strategy for f in found.winner.recipe.fixes} >= {"use_where", "drop_assert"}, found.winner
    (out / "model.onnx").unlink()

    def run_fix(*options: str) -> subprocess.CompletedProcess[str]:
        text = WITHOUT_AUTOFIX.replace('["fix.py"]', repr(["fix.py", *options]))
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run([sys.executable, "-c", text], cwd=out, capture_output=True, text=True, env=env)

    done = run_fix()
    assert done.returncode == 0, done.stderr
    assert (out / "model.onnx").exists() and "more 2: right" in done.stdout
    # the patch applies where the model file is, and the patched model is repaired too
    subprocess.run(["git", "apply", "--check", str(out / "fix.patch")], cwd=home, check=True)
    subprocess.run(["git", "apply", str(out / "fix.patch")], cwd=home, check=True)
    (out / "model.onnx").unlink()
    done = run_fix()
    assert done.returncode == 0, done.stderr
    # a model that has changed since is not repaired by force
    model.write_text(MODEL.replace("y = self.fc(x)\n", "y = self.fc(x) * 2\n", 1))
    helper.write_text(HELPER)
    (out / "model.onnx").unlink()
    done = run_fix()
    assert done.returncode == 1 and "no longer what was repaired" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (out / "model.onnx").exists()
    done = run_fix("nowhere.py")
    assert done.returncode == 1 and "no model file" in done.stderr


def test_resized_offsets_still_rise() -> None:
    import torch

    from autofix.fixrun import resized_leaf

    assert resized_leaf(torch.tensor([0, 3, 5]), [5]).tolist() == [0, 0, 3, 3, 5]
    assert resized_leaf(torch.tensor([0.0, 0.5, 0.25]), [5]).tolist() == [0.0, 0.5, 0.25, 0.0, 0.5]
    assert resized_leaf(torch.tensor([[1, 2], [0, 4]]), [3, 3]).tolist() == [[1, 1, 2], [0, 0, 4], [1, 1, 2]]
    assert resized_leaf(torch.tensor([True, False]), [3]).tolist() == [True, False, True]
    assert resized_leaf(2, 7) == 7


def test_the_captured_set_is_made_where_it_is_not_among_the_verified_ones() -> None:
    from types import SimpleNamespace
    from typing import Any

    import torch

    from autofix.fixrun import FixSet, resized_set

    x = torch.tensor([[3.0, 1.0]])
    given = FixSet("given", [x], {"mask": None}, [("x", x)], [("output", x)], None, None, {}, {})
    plan: Any = SimpleNamespace(shapes={"larger sizes": {"x": [2, 3]}})
    made = resized_set(plan, given, "larger sizes")
    assert made.args[0].tolist() == [[3.0, 1.0, 3.0], [3.0, 1.0, 3.0]] and made.kwargs == {"mask": None}
    assert [n for n, _ in made.outputs] == ["output"] and dict(made.leaves)["x"] is made.args[0]
