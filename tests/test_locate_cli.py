"""`autofix locate`: the stock export is looked into where no file is named; exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autofix.cli import run
from autofix.locate_cli import locate_text

MODEL = """import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        h = torch.sin(x)
        return h.clamp(-0.5, 0.5).clamp(0.6, 1.0) + x

def get_inputs():
    return [torch.randn(2, 4)]
"""


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch, warm: Any) -> None:
    """Case processes are forked from this process, which has torch."""
    from autofix import isolate

    start = isolate.CaseProcess.__init__

    def forking(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **{**kwargs, "fork": True})

    monkeypatch.setattr(isolate.CaseProcess, "__init__", forking)


@pytest.mark.slow
def test_the_operator_that_the_exporter_spoils_is_named(forked: None, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "spoilt.py"
    file.write_text(MODEL)
    assert run(["locate", str(file), "--quiet"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("located: the stock export of spoilt.py") and "(Clip)" in text and "operator aten.clamp" in text
    assert "spoilt.py:7: return h.clamp(-0.5, 0.5)" in text
    file.write_text(MODEL.replace(".clamp(0.6, 1.0)", ""))
    assert run(["locate", str(file), "--quiet", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] and answer["fault"] == {} and answer["exit_code"] == 0


def test_a_file_that_is_not_there_is_exit_2(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "spoilt.py"
    file.write_text(MODEL)
    assert run(["locate", str(file), str(tmp_path / "none.onnx")]) == 2
    assert "none.onnx: no such file" in capsys.readouterr().err


def test_what_was_found_in_words() -> None:
    answer = {"ok": False, "symptom": "mismatch-at-example", "facts": {"message": "given: output: off"}, "notes": [], "fault": {}}
    assert locate_text(answer, "m.onnx", {}).startswith("not located: m.onnx\n  because   mismatch-at-example")
    fault = {
        "node": "n",
        "op_type": "Sin",
        "operator": "aten.cos",
        "file": "/a/m.py",
        "line": 2,
        "error_before": 0.0,
        "error_after": "beyond measure",
    }
    text = locate_text({**answer, "fault": fault | {"seconds": 0.5}}, "m.onnx", {"/a/m.py": "one\ntwo\n"})
    assert "n (Sin)" in text and "m.py:2: two" in text and "beyond measure after" in text and "0.5 s" in text
