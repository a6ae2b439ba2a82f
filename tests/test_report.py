"""The output folder: what stands in it after a repair and after a failure, and what is left alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from autofix.case import CaseSpec
from autofix.errors import AutofixError
from autofix.loader import load_strategies
from autofix.notebook import figure, source_at, telling_hunks, tried
from autofix.recipe import Fix, Level, Recipe
from autofix.report import OUR_FILES, source_diff, write_folder
from autofix.search import Repair
from autofix.target import Effect, Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict

REGISTRY = load_strategies(entry_points=False)
TRACE, SCRIPT = Fix("capture_trace", Level.CONFIG), Fix("capture_script", Level.CONFIG)
ROW = {
    "set": "given",
    "origin": "given",
    "kind": "",
    "advisory": False,
    "resized": False,
    "ok": True,
    "rule": "allclose",
    "problem": "",
    "output": "output",
}
ROW |= {"message": "", "max_abs": 1e-7, "max_ratio": 0.01, "ratio64": float("inf")}
SOURCE = "import torch\n\n\ndef forward(x):\n    if x.sum() > 0:\n        return x\n"


@pytest.fixture
def spec(tmp_path: Path) -> CaseSpec:
    file = tmp_path / "home" / "stubborn.py"
    file.parent.mkdir()
    file.write_text(SOURCE)
    return CaseSpec(str(file))


def a_repair(tmp_path: Path, spec: CaseSpec, good: bool = True) -> Repair:
    """A search of two trials, the second one of which is right or not."""
    diagnosis = Diagnosis(
        "data-dependent-branch",
        Stage.CAPTURE,
        {"message": "GuardError: can't\n guard <u0>", "file": "stubborn.py", "line": "5", "function": "forward"},
    )
    first = Trial(Recipe(), Stage.CAPTURE, Verdict.FAIL, diagnosis, seconds=1.25)
    signature = {
        "inputs": [{"name": "x", "source": "x", "dtype": "float32", "shape": ["batch", 4]}],
        "outputs": [{"name": "output", "source": "output", "dtype": "float32", "shape": []}],
    }
    wrong = Diagnosis("mismatch-at-other-values", Stage.PARITY, {"message": "more 1: output: 3 of 8 values differ", "input_set": "more 1"})
    stage, verdict, diagnosis = (Stage.DONE, Verdict.PASS, None) if good else (Stage.PARITY, Verdict.MISMATCH, wrong)
    second = Trial(Recipe((TRACE,)), stage, verdict, diagnosis, (ROW,), None, signature, parent=first.recipe.id)
    folder = tmp_path / "scratch" / "002-attempt"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(b"a model")
    (folder / "session.json").write_text('{"level": "ALL"}')
    facts = {
        "inputs": [{"name": "x", "axes": {"0": "batch"}}],
        "sources": {str(Path(spec.file).resolve()): SOURCE},
        "dropped_sets": [{"set": "zeros", "why": "eager raises"}],
    }
    found = Repair(
        "c0ffee",
        facts,
        Target(),
        [first, second],
        {second.recipe.id: folder},
        second if good else None,
        "every target passes" if good else "no strategy has anything left",
    )
    if not good:
        found.offers.append((Fix("capture_draft", Level.CONFIG), Effect.NARROWING, "data-dependent-branch"))
    return found


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def test_a_repair_leaves_the_whole_folder(tmp_path: Path, spec: CaseSpec) -> None:
    out = tmp_path / "deep" / "out"
    write_folder(out, spec, a_repair(tmp_path, spec), REGISTRY)
    assert names(out) == {"model.onnx", "session.json", "fix.py", "fixlog.json", "fixlog.md", "report.html"}
    assert (out / "model.onnx").read_bytes() == b"a model"
    log = json.loads((out / "fixlog.json").read_text(), parse_constant=lambda c: pytest.fail(f"{c} is no JSON"))
    fields = {"schema", "autofix", "case", "target", "verdict", "effect", "recipe", "signature", "parity", "latency", "trials"}
    fields |= {"environment", "stopped", "offers", "nearest"}
    assert fields <= set(log)
    assert log["verdict"] == "pass" and log["effect"] == "exact" and log["recipe"]["fixes"][0]["strategy"] == "capture_trace"
    assert log["case"]["file"] == str(Path(spec.file).resolve()) and log["case"]["axes"] == {"x": {"0": "batch"}}
    assert [Trial.from_json(t).verdict for t in log["trials"]] == [Verdict.FAIL, Verdict.PASS]


def test_the_notebook_tells_what_was_seen_concluded_and_tried(tmp_path: Path, spec: CaseSpec) -> None:
    out = tmp_path / "out"
    write_folder(out, spec, a_repair(tmp_path, spec), REGISTRY)
    text = (out / "fixlog.md").read_text()
    assert text.startswith("# stubborn.py: repaired\n\nRepaired by capture_trace(). Effect: exact.\n\nNothing was conceded")
    assert "**Seen:** GuardError: can't guard <u0>" in text
    assert "**Where:** stubborn.py:5 in forward: `if x.sum() > 0:`" in text
    assert "**Concluded:** data-dependent-branch, that is, Python control flow" in text
    assert "**Why:** Trial 1 showed data-dependent-branch, which capture_trace treats" in text
    assert "| given | given | right | allclose | output | 1e-07 | 0.01 | inf |" in text
    assert "'zeros' was dropped: eager raises" in text and "Traceback" not in text
    assert not re.search(r"\n\n\n", text)


class Well(HTMLParser):
    """Collects what a page loads and whether its tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [v or "" for k, v in attrs if k in ("src", "href")]
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_html_report_is_self_contained_and_escaped(tmp_path: Path, spec: CaseSpec) -> None:
    out = tmp_path / "out"
    write_folder(out, spec, a_repair(tmp_path, spec), REGISTRY)
    page = (out / "report.html").read_text()
    parser = Well()
    parser.feed(page)
    assert parser.open == [] and parser.loads == [] and "url(" not in page
    assert "guard &lt;u0&gt;" in page and "<u0>" not in page


def test_what_was_conceded_stands_first(tmp_path: Path, spec: CaseSpec) -> None:
    found = a_repair(tmp_path, spec)
    found.winner = replace(found.winner, effect_evidence=("stubborn.py:5: a tensor became a bool",))
    found.trials[1] = found.winner
    out = tmp_path / "out"
    write_folder(out, spec, found, REGISTRY)
    head = "\n".join((out / "fixlog.md").read_text().splitlines()[:8])
    assert "Effect: narrowing" in head and "baked in at stubborn.py:5" in head
    assert json.loads((out / "fixlog.json").read_text())["effect"] == "narrowing"
    assert "Conceded:" in (out / "fix.py").read_text()[:900]


def test_a_failure_leaves_no_model_and_says_what_came_nearest(tmp_path: Path, spec: CaseSpec) -> None:
    out = tmp_path / "out"
    write_folder(out, spec, a_repair(tmp_path, spec, good=False), REGISTRY)
    assert names(out) == {"fixlog.json", "fixlog.md", "report.html"}
    log = json.loads((out / "fixlog.json").read_text())
    assert log["verdict"] == "mismatch" and log["recipe"] is None and log["effect"] is None and log["nearest"] == log["trials"][1]["id"]
    text = (out / "fixlog.md").read_text()
    assert "not repaired" in text.splitlines()[0] and "Nearest: capture_trace(), which reached parity" in text
    assert "It fell short because: mismatch-at-other-values: more 1: output: 3 of 8 values differ" in text
    assert "`capture_draft()` (`--allow narrowing`)" in text


def test_files_of_an_earlier_run_go_and_other_files_stay(tmp_path: Path, spec: CaseSpec) -> None:
    out = tmp_path / "out"
    write_folder(out, spec, a_repair(tmp_path, spec), REGISTRY)
    (out / "notes.txt").write_text("mine")
    (out / "model.onnx.data").write_bytes(b"old weights")
    write_folder(out, spec, a_repair(tmp_path, spec, good=False), REGISTRY)
    assert names(out) == {"fixlog.json", "fixlog.md", "report.html", "notes.txt"}
    assert (out / "notes.txt").read_text() == "mine"


def test_a_model_of_somebody_else_is_not_removed(tmp_path: Path, spec: CaseSpec) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.onnx").write_bytes(b"not ours")
    write_folder(out, spec, a_repair(tmp_path, spec, good=False), REGISTRY)
    assert (out / "model.onnx").read_bytes() == b"not ours"


def test_a_slow_winner_is_no_repair(tmp_path: Path, spec: CaseSpec) -> None:
    found = a_repair(tmp_path, spec)
    latency = {
        "eager_ms": 2.0,
        "ort_ms": 1.5,
        "q1_ms": 1.4,
        "q3_ms": 1.6,
        "speedup": 1.33,
        "speedup_q1": 1.2,
        "speedup_q3": 1.4,
        "control": 1.01,
        "rounds": 40,
        "threads": 1,
    }
    found.winner = replace(
        found.winner,
        verdict=Verdict.SLOW,
        stage=Stage.LATENCY,
        latency=latency,
        diagnosis=Diagnosis("too-slow", Stage.LATENCY, {"message": "1.5 ms; wanted 1"}),
    )
    found.trials[1] = found.winner
    out = tmp_path / "out"
    write_folder(out, spec, found, REGISTRY)
    assert "model.onnx" not in names(out) and json.loads((out / "fixlog.json").read_text())["verdict"] == "slow"
    text = (out / "fixlog.md").read_text()
    assert "| ONNX Runtime | 1.5 | 1.4 to 1.6 | 1.33 (1.2 to 1.4) |" in text and "too-slow" in text


def test_no_trial_at_all(tmp_path: Path, spec: CaseSpec) -> None:
    out = tmp_path / "out"
    write_folder(out, spec, Repair("c0ffee", {}, Target(), stopped="interrupted"), REGISTRY)
    assert json.loads((out / "fixlog.json").read_text())["verdict"] == "fail"
    assert "Not repaired: interrupted." in (out / "fixlog.md").read_text()


def test_a_folder_that_can_not_be_written_is_one_line(tmp_path: Path, spec: CaseSpec) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file")
    for output in (blocked, blocked / "below"):
        with pytest.raises(AutofixError, match="can't be written") as error:
            write_folder(output, spec, a_repair(tmp_path, spec), REGISTRY)
        assert "\n" not in str(error.value)
    assert blocked.read_text() == "a file"


def test_nothing_is_left_half_written(tmp_path: Path, spec: CaseSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    found = a_repair(tmp_path, spec)
    monkeypatch.setattr("autofix.report.render", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(AutofixError, match="No space left"):
        write_folder(out, spec, found, REGISTRY)
    assert names(out) == set()


@pytest.mark.parametrize("ending", ["\n", "", "\r\n"])
def test_the_patch_applies_with_git(tmp_path: Path, spec: CaseSpec, ending: str) -> None:
    old = "a = 1\nb = 2\n" + "\n" * 9 + "c = 3\n"
    new = old.replace("b = 2", "b = 2\nd = 4").replace("c = 3", "c = 5")
    if ending == "":
        old, new = old.rstrip("\n"), new.rstrip("\n")
    file = Path(spec.file).parent / "sub" / "part.py"
    file.parent.mkdir()
    file.write_bytes((old.replace("\n", "\r\n") if ending == "\r\n" else old).encode())
    sources = {"sub/part.py": {"module": "part", "old": old, "new": new}, "torch.nn.functional": {"module": "x", "old": "a = 1\n", "new": "a = 2\n"}}
    patch, libraries = source_diff(sources, spec)
    assert libraries == ["torch.nn.functional"] and "functional" not in patch
    (tmp_path / "fix.patch").write_bytes(patch.encode())
    subprocess.run(
        ["git", "apply", str(tmp_path / "fix.patch")], cwd=file.parent.parent, check=True, env=os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path)}
    )
    assert file.read_bytes().decode().replace("\r\n", "\n") == new and (b"\r\n" in file.read_bytes()) == (ending == "\r\n")


def test_rewritten_source_stands_in_patch_and_script(tmp_path: Path, spec: CaseSpec) -> None:
    found = a_repair(tmp_path, spec)
    folder = found.folders[found.winner.recipe.id]
    new = SOURCE.replace("    if x.sum() > 0:\n        return x\n", "    return torch.where(x.sum() > 0, x, -x)\n")
    (folder / "sources.json").write_text(json.dumps({"stubborn.py": {"module": "stubborn", "old": SOURCE, "new": new}}))
    out = tmp_path / "out"
    write_folder(out, spec, found, REGISTRY)
    assert "+    return torch.where" in (out / "fix.patch").read_text()
    assert "    return torch.where(x.sum() > 0, x, -x)" in (out / "fix.py").read_text()
    assert "fix.patch changes your source" in (out / "fixlog.md").read_text()
    assert set(names(out)) <= set(OUR_FILES)


def test_headings_name_what_is_new() -> None:
    stock, one = Trial(Recipe(), Stage.RUN, Verdict.FAIL), Trial(Recipe((TRACE,)), Stage.RUN, Verdict.FAIL)
    two = Trial(Recipe((TRACE, SCRIPT)), Stage.RUN, Verdict.FAIL)
    assert [tried(stock, None), tried(one, stock), tried(two, one), tried(one, two)] == [
        "stock export",
        "capture_trace()",
        "capture_script()",
        "without capture_script()",
    ]


def test_figures() -> None:
    assert [figure(v) for v in (None, 0.0, 1234.5678, float("nan"), True, 7)] == ["-", "0", "1.23e+03", "nan", "-", "7"]


def test_a_library_line_is_shown_from_site_packages_on(spec: CaseSpec) -> None:
    import jinja2

    trial = Trial(Recipe(), Stage.RUN, Verdict.FAIL, Diagnosis("crash", Stage.RUN, {"file": jinja2.__file__, "line": "1"}))
    shown = source_at(trial, Repair("x", {}, Target()), spec)
    assert shown is not None and shown["where"] == "jinja2/__init__.py:1" and shown["code"].startswith('"""')


def test_a_long_patch_is_shown_where_it_changes_lines() -> None:
    added = "".join(f"+line {i}\n" for i in range(200))
    patch = "--- a/m.py\n+++ b/m.py\n@@ -1,1 +1,201 @@\n a\n" + added + "@@ -9,2 +209,2 @@\n b\n-c\n+d\n"
    shown = telling_hunks(patch)
    assert "-c\n+d\n" in shown and "line 100" not in shown and "(200 lines are only added here" in shown
    assert telling_hunks("--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-c\n+d\n").endswith("+d\n")


def test_an_operator_without_a_line_is_shown_where_it_is_called(spec: CaseSpec) -> None:
    trial = Trial(Recipe(), Stage.CONVERT, Verdict.FAIL, Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "prims.erf_inv.default"}))
    facts = {
        "operators": {"aten.mul.Tensor": "/x/y.py:1", "aten.erfinv.default": f"{Path(spec.file).resolve()}:5"},
        "sources": {str(Path(spec.file).resolve()): SOURCE},
    }
    shown = source_at(trial, Repair("x", facts, Target()), spec)
    assert shown == {"where": "stubborn.py:5", "code": "if x.sum() > 0:", "function": ""}


def test_buffers_that_became_inputs_are_told():
    from autofix.summary import state_lines

    row = {"dtype": "float32", "shape": [3]}
    carried = {"inputs": [{"name": "x", "source": "x", **row}, {"name": "buffers.total", "source": "buffers.total", **row}]}
    carried["outputs"] = [{"name": "output", "source": "output", **row}, {"name": "buffers.total.after", "source": "buffers.total", **row}]
    trial = Trial(Recipe(), Stage.DONE, Verdict.PASS, signature=carried)
    assert state_lines(trial) == ["forward changes the buffer total: feed buffers.total its value, then what buffers.total.after gave last"]
    assert state_lines(Trial(Recipe(), Stage.DONE, Verdict.PASS)) == []
