"""The command line: exit codes, what goes where, one clear line for what is wrong, no torch where it is not needed."""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autofix.cli import run
from autofix.options import parse_duration, parse_effects, parse_latency, parse_memory, parse_opset
from autofix.recipe import Fix, Level, Recipe
from autofix.search import Repair
from autofix.summary import summary_text
from autofix.target import Effect, Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict

ROOT = Path(__file__).resolve().parent.parent
GOOD = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.mul(3).relu()


def get_inputs():
    return [torch.randn(2, 3)]


dynamic_shapes = {"x": {0: "batch"}}
"""
BRANCH = GOOD.replace("        return x.mul(3)", "        if x.sum() > 0:\n            x = x + 1\n        return x.mul(3)")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of its own as the current one, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "branch.py").write_text(BRANCH)
    return tmp_path


@pytest.fixture
def forked(warm, monkeypatch):
    """Commands fork this process, which has torch, instead of starting a fresh interpreter."""
    import autofix.isolate
    import autofix.repair  # noqa: F401

    module = sys.modules["autofix.repair"]
    monkeypatch.setattr(module, "repair", functools.partial(module.repair, fork=True))
    monkeypatch.setattr(autofix.isolate, "CaseProcess", functools.partial(autofix.isolate.CaseProcess, fork=True))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["strategies"],
        ["strategies", "--symptoms", "--json"],
        ["explain", "change_opset"],
        ["policy", "show"],
        ["cache", "--help"],
    ],
    ids=" ".join,
)
def test_what_answers_without_torch(here, arguments):
    code = "import sys; from autofix.cli import run; code = run(sys.argv[1:])"
    code += "; assert not {'torch', 'onnx', 'onnxruntime', 'numpy'} & set(sys.modules); sys.exit(code)"
    env = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["frobnicate"], "frobnicate: neither a file nor a command"),
        (["nothing.py"], "nothing.py: no such file"),
        (["good.py", "--opset", "x"], "'x' is not an opset such as 17 or a range"),
        (["good.py", "--opset", "18-13"], "is not an opset"),
        (["good.py", "--budget", "soon"], "'soon' is not a duration"),
        (["good.py", "--allow", "anything"], "is not approximate, narrowing or both"),
        (["good.py", "--max-latency", "-1"], "is not a latency"),
        (["good.py", "--jobs", "0"], "--jobs"),
        (["good.py", "--frob"], "No such option"),
        (["good.py", "--weights", "none.pt"], "none.pt: no such file"),
        (["good.py", "--strategies", "none"], "--strategies none: no such folder"),
        (["check", "good.py"], "Missing argument 'FILE.onnx'"),
        (["check", "good.py", "none.onnx"], "none.onnx: no such file"),
        (["explain", "change_opzet"], "did you mean change_opset?"),
        (["replay", "none.json"], "none.json"),
        (["test", "none"], "none: no such folder"),
        (["good.py", "--cache", "none/cache.db"], "none"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_that_makes_no_sense_is_one_line_and_exit_2(here, forked_if_needed, arguments, expected, capsys):
    assert run(arguments) == 2
    caught = capsys.readouterr()
    last = caught.err.strip().splitlines()[-1]
    assert last.startswith("autofix: ") and expected in last and "Traceback" not in caught.err and not caught.out


@pytest.fixture
def forked_if_needed(request):
    """Only what gets as far as loading the model needs torch."""
    if "nothing.py" in request.node.callspec.params["arguments"]:
        request.getfixturevalue("forked")


@pytest.mark.slow
def test_a_repair_from_end_to_end(here, forked, capsys):
    assert run(["branch.py", "--cache", "c.db"]) == 0
    first = capsys.readouterr()
    lines = first.out.splitlines()
    assert lines[0].startswith("repaired: branch.py") and len(lines) <= 24
    assert "data-dependent-branch at branch.py:8: `if x.sum() > 0:`" in " ".join(first.out.split())
    assert "running the model in eager PyTorch" in first.err and "running" not in first.out
    assert (here / "branch-autofix" / "model.onnx").exists()

    assert run(["branch.py", "--cache", "c.db", "--quiet", "--json"]) == 0
    second = capsys.readouterr()
    log = json.loads(second.out)
    assert second.err == "" and log["from_cache"] and len(log["trials"]) == 1 and log["ok"] and log["exit_code"] == 0
    assert log["recipe"]["fixes"] and log["verdict"] == "pass" and "model.onnx" in log["files"]

    assert run(["check", "branch.py", "branch-autofix/model.onnx", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]
    (here / "other.py").write_text(BRANCH.replace("x + 1", "x + 2"))
    assert run(["check", "other.py", "branch-autofix/model.onnx"]) == 1
    assert "not right" in capsys.readouterr().out

    assert run(["replay", "branch-autofix/fixlog.json", "-o", "again", "--quiet"]) == 0
    assert (here / "again" / "model.onnx").exists() and "1 trial," in capsys.readouterr().out
    assert run(["replay", "branch-autofix/fixlog.json", "other.py", "--quiet"]) == 0
    assert "repaired: other.py" in capsys.readouterr().out

    (here / "branch.py").write_text(BRANCH.replace("x + 1", "x + 4"))  # an edited model is another case
    assert run(["branch.py", "--cache", "c.db", "--quiet", "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["from_cache"]


@pytest.mark.slow
def test_not_repaired_is_exit_1_and_leaves_no_model(here, forked, capsys):
    assert run(["branch.py", "--max-trials", "1", "--no-cache"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("not repaired: branch.py (1 trial") and "the budget of 1 trials is used up" in text
    assert "nearest stock export: reached capture" in text and "because data-dependent-branch at branch.py:8: `if x.sum() > 0:`" in text
    left = {p.name for p in (here / "branch-autofix").iterdir()}
    assert "fixlog.md" in left and "fixlog.json" in left and "model.onnx" not in left


@pytest.mark.slow
def test_a_latency_target_out_of_reach_is_exit_1(here, forked, capsys):
    assert run(["good.py", "--max-latency", "0.001us", "--no-cache", "--quiet", "--max-trials", "2"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("too slow: good.py") and "wanted at most" in text
    assert not (here / "good-autofix" / "model.onnx").exists()


@pytest.mark.slow
def test_a_broken_model_with_json_is_a_document_too(here, forked, capsys):
    (here / "bad.py").write_text(GOOD.replace("x.mul(3)", "x.nothing()"))
    assert run(["bad.py", "--json", "--no-cache"]) == 2
    assert "bad.py:8" in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.slow
def test_check_of_a_file_that_is_none(here, forked, capsys):
    (here / "none.onnx").write_bytes(b"not a model")
    assert run(["check", "good.py", "none.onnx"]) == 1
    assert "invalid-graph" in capsys.readouterr().out


def test_an_internal_error_is_one_line_and_a_log(here, monkeypatch, capsys):
    import autofix.repair  # noqa: F401

    monkeypatch.setattr(sys.modules["autofix.repair"], "repair", lambda *a, **k: 1 / 0)
    assert run(["good.py"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    log = Path(line.rpartition(" in ")[2])
    assert "internal error, ZeroDivisionError" in line and "Traceback" in log.read_text()
    log.unlink()


@pytest.mark.slow
def test_interrupted(here):
    hangs = GOOD.replace(
        "        return x.mul(3)",
        "        open('seen', 'a').close()\n"
        "        if type(x) is not torch.Tensor or torch._C._get_tracing_state() is not None:\n"
        "            if __import__('os').path.exists('once'):\n                __import__('time').sleep(300)\n"
        "            open('once', 'w').close()\n            raise RuntimeError('not yet')\n        return x.mul(3)",
    )
    (here / "hangs.py").write_text(hangs)
    env = dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1")
    command = [sys.executable, "-m", "autofix.cli", "hangs.py", "--cache", "c.db"]

    def listen() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # what a shell starts in the background ignores Ctrl-C

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=here, env=env, preexec_fn=listen, **pipes) as process:
        for line in process.stderr:
            if line.startswith("  1 "):
                break
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert err.strip().splitlines()[-1] == "autofix: interrupted" and "Traceback" not in err
    log = json.loads((here / "hangs-autofix" / "fixlog.json").read_text())
    assert log["stopped"] == "interrupted" and log["trials"] and not any(t["verdict"] == "pass" for t in log["trials"])
    assert not (here / "hangs-autofix" / "model.onnx").exists()
    assert run(["cache", "verify", "--cache", str(here / "c.db")]) == 0


def test_a_teams_policy_gives_the_defaults(here, monkeypatch, capsys):
    import autofix.repair  # noqa: F401

    seen = []
    monkeypatch.setattr(sys.modules["autofix.repair"], "repair", lambda spec, target, settings, reporter: seen.append((target, settings)) or 1 / 0)
    (here / "below").mkdir()
    (here / "pyproject.toml").write_text('[tool.autofix]\nrtol = 0.5\nallow = ["narrowing"]\nmax-trials = 3\ncache = "team.db"\nopset = 17\n')
    monkeypatch.chdir(here / "below")
    run(["../good.py", "--max-trials", "4"])
    target, settings = seen[0]
    assert target.rtol == 0.5 and target.allow == {Effect.NARROWING} and (target.min_opset, target.max_opset) == (17, 17)
    assert settings.budget.trials == 4 and settings.cache == here / "team.db"
    run(["../good.py", "--no-policy"])
    assert seen[1][0].rtol is None
    (here / "autofix.toml").write_text("rtol = 0.25\n")  # wins over pyproject.toml beside it
    capsys.readouterr()
    assert run(["policy", "show"]) == 0 and "rtol = 0.25" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rtoll = 1\n", "unknown setting 'rtoll'"),
        ("rtol = \n", "autofix.toml: "),
        ("rtol = true\n", "rtol must be"),
        ("rtol = nan\n", "nan is no finite number"),
        ("budget = 'soon'\n", "'soon' is not a duration"),
        ("no_cache = 3\n", "no_cache must be true or false"),
    ],
)
def test_a_policy_that_is_wrong_is_one_line(here, capsys, text, expected):
    (here / "autofix.toml").write_text(text)
    assert run(["good.py"]) == 2
    assert expected in capsys.readouterr().err


def test_the_values_of_options():
    assert [parse_duration(t) for t in ("90", "90s", "10m", "1.5h")] == [90, 90, 600, 5400]
    assert [round(parse_latency(t), 6) for t in ("8", "8ms", "800us", "0.5s")] == [8, 8, 0.8, 500]
    assert [parse_memory(t) for t in ("512", "512M", "8G")] == [512, 512, 8192]
    assert parse_opset("17") == (17, 17) and parse_opset("13-20") == (13, 20)
    with pytest.raises(ValueError, match="newest that the installed onnx knows"):
        parse_opset("17-99")
    assert parse_effects("approximate, narrowing") == {Effect.APPROXIMATE, Effect.NARROWING} and parse_effects("") == frozenset()


def test_the_summary_says_what_came_nearest_and_what_allow_would_offer(tmp_path):
    near = Diagnosis("mismatch-at-other-values", Stage.PARITY, {"message": "more 1: 3 of 4 differ", "file": "m.py", "line": "2"})
    row = {"set": "more 1", "ok": False, "advisory": False, "message": "3 of 4 differ", "max_abs": 3.0, "max_ratio": 1e5}
    fix = Fix("bake", Level.CONFIG, {"n": 1})
    trials = [
        Trial(Recipe(), Stage.CAPTURE, Verdict.FAIL, Diagnosis("capture-error", Stage.CAPTURE, {})),
        Trial(Recipe((fix,)), Stage.PARITY, Verdict.MISMATCH, near, parity=(row,)),
    ]
    found = Repair(
        "id", {"sources": {"/a/m.py": "import torch\nx = y.item()\n"}}, Target(), trials, stopped="no strategy has anything left to propose"
    )
    found.offers.append((Fix("narrow", Level.CONFIG), Effect.NARROWING, "capture-error"))
    text = " ".join(summary_text(found, "m.py", {}, tmp_path, width=120).split())
    for part in (
        "not repaired: m.py (2 trials",
        "stopped no strategy",
        "fault stock export: capture-error",
        "nearest bake(n=1): reached parity",
        "because mismatch-at-other-values at m.py:2: `x = y.item()` more 1: 3 of 4 differ",
        "parity 0 of 1 input sets pass",
        "offer --allow narrowing would also try narrow()",
    ):
        assert part in text, part
