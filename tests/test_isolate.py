"""Trials in processes of their own: whatever a model does there is a recorded trial or a clean error."""

import os
import time
from dataclasses import replace

import psutil
import pytest

from autofix.case import CaseSpec
from autofix.errors import AutofixError, CaseError
from autofix.isolate import CaseProcess, Limits, default_memory_mb
from autofix.recipe import Recipe
from autofix.target import ExportConfig, Target
from autofix.trial import Stage, Verdict

pytestmark = pytest.mark.slow

MODEL = """
import ctypes, os, sys, time
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        if torch.compiler.is_exporting():
            {inside}
        return x + 1


def get_inputs():
    return [torch.ones(2, 3)]
"""
TRACED = Recipe(start=ExportConfig(capture="trace"))


@pytest.fixture
def attempt(warm, model_file):
    """attempt(what happens in forward while torch.export captures, limits of the trial) -> the trial, then that of a trace."""

    def run(inside, **limits):
        with CaseProcess(CaseSpec(model_file(MODEL.format(inside=inside))), Target(), fork=True) as process:
            process.reference()
            process.limits = replace(process.limits, **limits)
            trial, folder = process.attempt(Recipe())
            assert not (folder / "answer.part").exists()
            process.limits = Limits()
            after, _ = process.attempt(TRACED)
        assert after.ok  # the case process lives on
        return trial

    return run


def test_a_hang_is_a_timeout(attempt):
    started = time.monotonic()
    trial = attempt("time.sleep(600)", seconds=2)
    assert trial.verdict is Verdict.TIMEOUT and trial.diagnosis.symptom == "timeout" and trial.stage is Stage.CAPTURE
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("inside", ["os.kill(os.getpid(), 11)", "ctypes.string_at(0)"])
def test_a_segfault_is_a_crash(attempt, inside):
    trial = attempt(inside)
    assert trial.verdict is Verdict.CRASH and trial.diagnosis.facts["signal"] == "SIGSEGV" and trial.stage is Stage.CAPTURE


def test_memory_past_the_limit(attempt):
    trial = attempt("held = [(bytearray(b'x' * 2**26), time.sleep(0.05)) for _ in range(60)]", memory_mb=1200)
    assert trial.verdict is Verdict.OUT_OF_MEMORY and trial.diagnosis.symptom == "out-of-memory"


def test_a_memory_error_is_out_of_memory(attempt):
    assert attempt("raise MemoryError").verdict is Verdict.OUT_OF_MEMORY


@pytest.mark.parametrize("inside", ["sys.exit(3)", "raise SystemExit"])
def test_sys_exit_in_forward_is_a_failed_trial(attempt, inside):
    trial = attempt(inside)
    assert trial.verdict is Verdict.FAIL and trial.stage is Stage.CAPTURE


def test_leaving_without_a_word_is_a_crash(attempt):
    assert attempt("os._exit(0)").verdict is Verdict.CRASH


def test_a_killed_child_of_a_trial_leaves_nothing_behind(attempt):
    attempt("os.system('sleep 987 &'); time.sleep(600)", seconds=2)
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "987"]]


def test_output_of_the_model_does_not_reach_ours(attempt, capfd):
    attempt("print('noise' * 5, flush=True); os.write(2, b'noise')")
    caught = capfd.readouterr()
    assert "noise" not in caught.out + caught.err


def load(text, model_file, **limits):
    with CaseProcess(CaseSpec(model_file(text)), Target(), limits=Limits(**limits), fork=True) as process:
        return process.reference()


GOOD = MODEL.format(inside="pass")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import sys\nsys.exit(1)\n", "model.py:2: the model file can't be imported: SystemExit: 1"),
        ("import os\nos._exit(5)\n", "ended with exit code 5 while the model file was loaded"),
        ("import os\nos.kill(os.getpid(), 11)\n", "died by SIGSEGV while the model file was loaded"),
        (GOOD.replace("return x + 1", "os.kill(os.getpid(), 6)"), "eager PyTorch died by SIGABRT"),
        (GOOD.replace("return x + 1", "sys.exit(0)"), "model.py:11"),
        (GOOD.replace("return x + 1", "return x @ x"), "model.py:11"),
        (GOOD.replace("return x + 1", "return x + torch.rand(3)"), "rand"),
    ],
)
def test_a_model_that_cant_be_used_is_one_clear_line(warm, model_file, text, expected):
    with pytest.raises(CaseError) as caught:
        load(text, model_file)
    assert expected in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["import time\ntime.sleep(600)\n", GOOD.replace("return x + 1", "time.sleep(600)")])
def test_a_hang_before_the_first_trial(warm, model_file, text):
    with pytest.raises(CaseError, match="took more than 2 s"):
        load(text, model_file, seconds=2)


def test_a_case_process_that_dies_between_trials(warm, model_file):
    with CaseProcess(CaseSpec(model_file(GOOD)), Target(), fork=True) as process:
        process.reference()
        os.kill(process.pid, 9)
        with pytest.raises(AutofixError, match="died by SIGKILL between trials"):
            process.attempt(Recipe())


def test_nothing_lives_on_and_the_scratch_folder_is_gone(warm, model_file):
    with CaseProcess(CaseSpec(model_file(GOOD)), Target(), fork=True) as process:
        process.reference()
        process.start_attempt(Recipe())
        pid, folder = process.pid, process.folder
    assert not psutil.pid_exists(pid) and not folder.exists()


def test_a_fresh_process_ignores_what_lies_in_the_current_folder(tmp_path, monkeypatch, model_file):
    file = model_file(GOOD)
    elsewhere = tmp_path / "here"
    elsewhere.mkdir()
    (elsewhere / "onnx.py").write_text("raise RuntimeError('shadowed')")
    monkeypatch.chdir(elsewhere)
    with CaseProcess(CaseSpec(file), Target()) as process:
        process.reference()
        trial, folder = process.attempt(Recipe())
        assert trial.ok and (folder / "model.onnx").exists()


def test_the_memory_limit_is_a_part_of_the_machine():
    assert 100 < default_memory_mb() < psutil.virtual_memory().total / 2**20
