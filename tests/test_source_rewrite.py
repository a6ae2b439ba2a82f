# ruff: noqa: E501
"""Text-level tests of the source rewriter: what it changes, what it leaves alone, and that eager values stay the same."""

import numpy as np
import torch

from autofix.surgery.source_control import rewrite_source
from autofix.surgery.source_names import exposed
from autofix.surgery.source_patch import functions_at

HEAD = "import math\nimport torch\n\n\n"


def run(text, *args):
    scope = {}
    exec(compile(text, "<model>", "exec"), scope)
    return scope["f"](*args)


def rewritten(body, **options):
    text = HEAD + body
    new = rewrite_source(text, ["f"], **options)
    return text, new


def same(body, *inputs, **options):
    text, new = rewritten(body, **options)
    assert new != text
    for args in inputs:
        before, after = run(text, *args), run(new, *args)
        torch.testing.assert_close(after, before)
    return new


def test_branches_become_local_functions():
    body = "def f(x):\n    if x.sum() > 0:\n        y = x * 2\n    else:\n        y = x - 1\n    return y\n"
    new = same(body, (torch.ones(2),), (-torch.ones(2),))
    assert "traced_if(x.sum() > 0" in new


def test_early_returns_and_elif():
    body = (
        "def f(x):\n    m = x.mean()\n    if m > 1:\n        return x, 1\n    elif m > 0:\n        x = x + 1\n    y = x * 2\n"
        "    if y.max() > 3:\n        y = y - 1\n    return y, 2\n"
    )
    same(body, (torch.ones(2) * 3,), (torch.ones(2) * 0.6,), (-torch.ones(2),), (torch.ones(2),))


def test_loops_with_break_continue_and_return():
    body = (
        "def f(x):\n    out = []\n    for i in range(x.shape[0]):\n        if x[i] < 0:\n            continue\n        if x[i] > 5:\n            break\n"
        "        out.append(x[i] * 2)\n    n = 0\n    while n < 10:\n        if x.sum() > 100:\n            return x, n\n        x = x * 2\n        n += 1\n    return torch.stack(out), n\n"
    )
    same(body, (torch.tensor([1.0, -1.0, 2.0, 9.0, 3.0]),), (torch.tensor([0.0, 1e-6]),))


def test_guards_on_values_are_dropped():
    body = "def f(x):\n    assert torch.isfinite(x).all()\n    if x.max() > 1e9:\n        raise ValueError(x)\n    return x + 1\n"
    new = same(body, (torch.ones(2),))
    assert "raise ValueError" not in new and "assert torch" not in new


def test_numbers():
    body = "def f(x):\n    k = int(x.shape[0] * 0.7)\n    return x[:k] * math.sqrt(x.shape[0]) / x.shape[0] ** 0.5 + round(x.shape[0] * 0.25)\n"
    new = same(body, (torch.ones(10),), (torch.ones(7),))
    assert "whole_number(real_number(x.shape[0]) * real_number(0.7))" in new


def test_whole_numbers_of_math_stay_whole():
    body = "def f(x):\n    n = x.shape[0]\n    pad = math.ceil(n / 4) * 4 - n\n    return torch.nn.functional.pad(x, (0, pad)), pad\n"
    new = same(body, (torch.ones(10),), (torch.ones(8),))
    assert '(real_math("ceil"' not in new and '") * 4 - n' not in new and ") * 4 - n" in new


def test_items_of_tensors_are_no_numbers():
    body = (
        "def f(x):\n    y = x.cumsum(0)\n    out = []\n    for i in range(x.shape[0]):\n        out.append(y[i] * 0.9)\n    return torch.stack(out)\n"
    )
    new = same(body, (torch.ones(10),), (torch.ones(1),))
    assert "y[i] * 0.9" in new


def test_functions_of_torch_change_nothing():
    body = "def f(x):\n    if x.sum() > 0:\n        x, _ = torch.sort(x)\n    return x\n"
    assert "torch = UNSET" not in same(body, (torch.tensor([2.0, 1.0]),), (torch.tensor([-2.0, -3.0]),))


def test_static_tests_stay():
    body = "def f(x, mask=None):\n    if mask is None and isinstance(x, torch.Tensor):\n        x = x * 2\n    for i in range(3):\n        x = x + i\n    return x\n"
    text, new = rewritten(body)
    assert new == text


def test_exposed_names():
    import libcst as cst

    reads, sure = exposed(cst.parse_module("a = b\nif a:\n    c = d\nelse:\n    c = 1\ne[0] = c\n").body)
    assert reads == {"b", "d", "e"}
    assert {"a", "c"} <= sure


def test_functions_at():
    text = "class M:\n    def forward(self, x):\n        return x\n\n\ndef g(x):\n    return x\n"
    assert functions_at(text, [3, 7]) == ["M.forward", "g"]


def test_else_of_loops():
    body = (
        "def f(x):\n    for i in range(3):\n        if x.sum() > i * 10: break\n        x = x * 2\n    else:\n        x = -x\n"
        "    while x.max() < 4:\n        x = x + 1\n    else:\n        x = x * 3\n    return x, i\n"
    )
    new = same(body, (torch.ones(2),), (torch.ones(2) * 30,), (-torch.ones(2),))
    assert "none_of(broke)" in new


def test_names_in_tests():
    body = (
        "def f(x):\n    n = 0\n    while (r := (x * x).sum()) > 1:\n        x, n = x / 2, n + 1\n"
        "    if n > 90:\n        x = x + 1\n    elif (m := x.mean()) > 0.1:\n        x = x - m\n    return x, r, n\n"
    )
    same(body, (torch.ones(3) * 9,), (torch.zeros(2),), (torch.tensor([0.9, 0.3]),))


def test_match_on_values_and_sizes():
    body = (
        "def f(x, mode):\n    match int(mode):\n        case 0:\n            y = x + 1\n        case 1 | 2:\n            y = x * 3\n        case n:\n            y = x * n\n"
        "    match y.shape:\n        case (n, c) if n > 3:\n            return y.sum(0)\n        case (n, c):\n            return y.mean(0)\n"
    )
    new = same(body, *[(torch.ones(n, 2), torch.tensor(m)) for n, m in ((2, 0), (5, 1), (3, 2), (4, 7))], lines=[6])
    assert "match" not in new.split("def f(x, mode)")[1]


def test_any_and_all():
    body = (
        "def f(x, y):\n    if any(t.max() > 2 for t in (x, y)) and not all((t > 0).all() for t in [x, y]):\n        return x\n"
        "    if all(a.sum() > b.sum() for a, b in zip(x, y) if a[0] > 0):\n        return y\n    return x + y\n"
    )
    a, b = torch.ones(2, 2), torch.ones(2, 2) * 3
    same(body, (a, b), (b, a), (-a, b), (a, a), (-a, -b))


def test_try_whose_path_a_value_picks():
    body = (
        "def check(x):\n    if x.max() > 5:\n        raise ValueError('large')\n    return x + 1\n\n\n"
        "def f(x):\n    try:\n        y = check(x)\n        if y.min() < 0:\n            raise ValueError('small')\n    except ValueError:\n        y = x * 0\n    else:\n        y = y * 2\n    return y\n"
    )
    text = HEAD + body
    new = rewrite_source(text, ["f", "check"])
    assert "check_or_error" in new
    for x in (torch.ones(2), torch.ones(2) * 9, torch.tensor([1.0, -4.0])):
        torch.testing.assert_close(run(new, x), run(text, x))


def test_raises_that_may_be_caught_stay():
    body = (
        "def f(x):\n    if x.sum() > 99:\n        x = x - 1\n    for i in range(2):\n        try:\n            if x.max() > 5:\n                raise ValueError(x)\n"
        "            x = x + 1\n        except ValueError as error:\n            x = x * error.args[0]\n    return x\n"
    )
    text, new = rewritten(body)
    assert "raise ValueError(x)" in new
    for x in (torch.ones(2), torch.ones(2) * 9, -torch.ones(2)):
        torch.testing.assert_close(run(new, x), run(text, x))


def test_generators_give_lists():
    body = (
        "def windows(x, n):\n    at = 0\n    while at + n <= x.shape[0]:\n        yield x[at : at + n]\n        at += 2\n\n\n"
        "def f(x):\n    return torch.stack([w.sum() for w in windows(x, 3)]), sum(windows(x, 2))\n"
    )
    text = HEAD + body
    new = rewrite_source(text, ["f", "windows"])
    assert "yield x[" not in new
    torch.testing.assert_close(run(new, torch.arange(8.0)), run(text, torch.arange(8.0)))


def test_a_loop_keeps_the_value_that_a_branch_may_change():
    body = "def f(x, k):\n    for i in range(k):\n        y = x * i\n        if y.sum() > 3:\n            break\n    if x.mean() > 0:\n        y = y + 1\n    return y\n"
    same(body, (torch.ones(2), 4), (-torch.ones(2), 3))


def test_returns_inside_of_plain_if_and_with():
    body = (
        "def f(x, flag):\n    if flag:\n        if x.sum() > 0:\n            return x\n        x = x - 1\n    with torch.no_grad():\n        if x.mean() < -2:\n"
        "            return x * 5\n        x = x + 7\n    return -x\n"
    )
    same(body, *[(torch.ones(2) * v, flag) for v in (1.0, -1.0, -5.0) for flag in (True, False)])


def test_lines_of_the_rewritten_text_lead_back():
    from autofix.sources import original_lines, original_place

    old = "import torch\n\n\ndef forward(x):\n    if x.sum() > 0:\n        x = x * 2\n    return x\n"
    new = "import torch\nimport types\n\n\ndef forward(x):\n\n    def then(x):\n        x = x * 2\n        return (x,)\n    (x,) = traced_if(x.sum() > 0, then, x)\n    return x\n\n\ndef traced_if():\n    pass\n"
    lines = original_lines(old, new)
    assert [lines[i - 1] for i in (1, 5, 8, 11)] == [1, 4, 6, 7]
    assert lines[1] == 0 and set(lines[11:]) == {0}
    assert original_place([("a.py", 14), ("b.py", 1), ("a.py", 8)], {"a.py": (old, new)}) == ("6", "x = x * 2")
    assert original_place([("a.py", 14), ("a.py", 99)], {"a.py": (old, new)}) is None


def test_what_is_called_stands_behind_the_persons_lines_and_before_the_main_block():
    from autofix.surgery.source_patch import ADDED_BY, add_runtime

    text = "import torch\n\n\ndef forward(x):\n    return traced_if(x.sum() > 0, f, g, x)\n\n\nSIZES = {'x': dict(a=1)}\n\n# shown\nif __name__ == '__main__':\n    print(forward(1))\n"
    made = add_runtime(text, text)
    assert (
        made.index("def forward")
        < made.index("SIZES")
        < made.index(ADDED_BY)
        < made.index("\ndef traced_if")
        < made.index("# shown")
        < made.index("if __name__")
    )
    assert made.endswith("    print(forward(1))\n") and compile(made, "made.py", "exec")
    assert add_runtime(made, text) == made
    called = add_runtime(text.replace("SIZES = {'x': dict(a=1)}", "RESULT = forward(torch.ones(2))"), text)
    assert called.index("\ndef traced_if") < called.index("RESULT")


def test_functions_inside_of_functions(tmp_path):
    """A closure, a lambda, a hook made by a function and one defined in the constructor, which runs before the rewrite."""
    import onnxruntime

    from autofix.case import CaseSpec
    from autofix.repair import Settings, repair

    file = tmp_path / "hooked.py"
    file.write_text("""
import torch
from torch import nn


def leaky(slope):
    def hook(module, given, out):
        if out.mean() > 0:
            return out.clamp(min=0)
        return out * slope

    return hook


class Model(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.first, self.second = nn.Identity(), nn.Identity()
        self.first.register_forward_hook(leaky(0.1))
        self.second.register_forward_hook(lambda module, given, out: out + 1 if out.sum() > 1 else out - 1)

    def forward(self, x):
        def halved(y):
            if y.abs().max() > 4:
                y = y / 2
            return y

        return halved(self.second(self.first(x)))


def get_inputs():
    return [torch.tensor([[1.0, -2.0, 3.0]])]
""")
    found = repair(CaseSpec(str(file)), settings=Settings(output=tmp_path / "out", use_cache=False), fork=True)
    assert found.ok and [f.strategy for f in found.winner.recipe.fixes] == ["control_flow"]
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    for given, right in (
        ([1.0, -2, 3], [2.0, 1, 4]),
        ([-1, -2, -3], [-1.1, -1.2, -1.3]),
        ([8, 0, 0], [4.5, 0.5, 0.5]),
        ([-50, 0, 1], [-3.0, -0.5, -0.45]),
    ):
        np.testing.assert_allclose(session.run(None, {"x": np.array([given], np.float32)})[0], [right], rtol=1e-6)
