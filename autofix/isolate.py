"""The controller's side of the case process: start it, ask it, and turn crashes and limits into trials."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autofix.case import CaseSpec
from autofix.errors import AutofixError, CaseError
from autofix.recipe import Recipe
from autofix.target import Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict

START_WORKER = """
import sys
here = sys.argv.pop(1)
sys.path[:] = ([] if here in sys.path else [here]) + [p for p in sys.path if p]
from autofix.worker import main
main()
"""
"""The case process's first lines: this very autofix, and not what happens to lie in the current folder (as `-m` would have it)."""


@dataclass(frozen=True)
class Limits:
    """Of one trial: wall seconds and MiB of resident memory."""

    seconds: float = 240.0
    memory_mb: float = 12_000.0


def default_memory_mb() -> float:
    """Three quarters of the machine's memory, in MiB."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**2 * 0.75


class CaseProcess:
    """One case loaded in one process, forked for each trial. Use as a context manager.

    fork: fork this process instead of starting a fresh interpreter (tests and benchmarks, which have torch loaded already).
    Raises CaseError where the file can't be used.
    """

    def __init__(
        self,
        spec: CaseSpec,
        target: Target,
        strategies: Iterable[Path] = (),
        limits: Limits = Limits(),
        fork: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.spec, self.target, self.limits = spec, target, limits
        self.strategies = list(strategies)
        self.scratch = tempfile.TemporaryDirectory(prefix="autofix-") if folder is None else None
        self.folder = Path(self.scratch.name) if self.scratch else Path(folder or ".")
        self.fork = fork
        self.count = 0
        self.buffer = b""
        self.waiting: dict[int, tuple[str, Path]] = {}
        self.early: list[dict[str, Any]] = []
        self.load_seconds = 0.0

    def __enter__(self) -> CaseProcess:
        started = time.monotonic()
        try:
            self.launch()
            hello = self.read_line(self.limits.seconds)
        except BaseException:
            self.kill()
            self.close()
            raise
        if hello is None or hello.get("event") == "error":
            message = hello["message"] if hello else self.death_message("while the model file was loaded")
            self.kill()
            self.close()
            raise CaseError(message)
        self.case_id: str = hello["case_id"]
        self.modules: dict[str, int] = hello["modules"]
        self.load_seconds = time.monotonic() - started
        return self

    def launch(self) -> None:
        """Start the case process and send it the set-up."""
        ours, theirs = socket.socketpair()
        self.channel = ours
        setup = {
            "spec": self.spec.to_json(),
            "target": self.target.to_json(),
            "strategies": [str(p.resolve()) for p in self.strategies],
            "folder": str(self.folder),
            "warm": self.fork,
        }
        log = open(self.folder / "case.log", "ab")  # noqa: SIM115
        if self.fork:
            self.pid = os.fork()
            if self.pid == 0:
                self.child_main(ours, theirs, log.fileno())
            self.process = None
        else:
            env = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
            here = str(Path(__file__).resolve().parent.parent)
            self.process = subprocess.Popen(
                [sys.executable, "-c", START_WORKER, here, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=env,
                start_new_session=True,
            )
            self.pid = self.process.pid
        log.close()
        theirs.close()
        self.channel.sendall(json.dumps(setup).encode() + b"\n")

    def child_main(self, ours: socket.socket, theirs: socket.socket, log: int) -> None:
        """The forked case process; never returns."""
        import faulthandler
        import traceback

        from autofix.worker import die_with_parent, serve_channel

        code = 1
        try:
            os.setsid()
            faulthandler.disable()  # a crash here is a trial's business, not the parent's output
            die_with_parent()
            ours.close()
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.stdout = os.fdopen(1, "w", closefd=False)  # ours may be somebody's capture
            sys.stderr = os.fdopen(2, "w", closefd=False)
            serve_channel(theirs)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def read_line(self, timeout: float) -> dict[str, Any] | None:
        """The next answer; None when the process died or the time is over."""
        end = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.channel], [], [], left)[0]:
                return None
            try:
                data = self.channel.recv(1 << 20)
            except OSError:
                return None
            if not data:
                return None
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return dict(json.loads(line))

    def death_message(self, when: str) -> str:
        """Why the case process did not answer."""
        code = self.exit_code()
        if code is None:
            return f"{self.spec.file}: took more than {self.limits.seconds:.0f} s {when}"
        lines = (self.folder / "case.log").read_text(errors="replace").strip().splitlines()
        last = f" ({lines[-1][:200]})" if lines else ""
        how = f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{self.spec.file}: the process {how} {when}{last}"

    def exit_code(self) -> int | None:
        """The case process's exit code (negative: a signal), or None where it lives on after a second."""
        for _ in range(50):
            if self.process is not None:
                code = self.process.poll()
            else:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                code = os.waitstatus_to_exitcode(status) if ended else None
            if code is not None:
                return code
            time.sleep(0.02)
        return None

    def request(self, op: str, **more: Any) -> int:
        """Send a request; returns its number."""
        self.count += 1
        name = "reference" if op == "reference" else f"{self.count:03d}-{op}"
        folder = self.folder / name
        timeout = more.pop("timeout", self.limits.seconds)
        data = {"op": op, "id": self.count, "folder": str(folder), "timeout": timeout, "memory_mb": self.limits.memory_mb, **more}
        self.waiting[self.count] = (op, folder)
        try:
            self.channel.sendall(json.dumps(data).encode() + b"\n")
        except OSError as error:
            raise AutofixError(self.death_message("between trials")) from error
        return self.count

    def collect(self) -> tuple[int, dict[str, Any], dict[str, Any] | None, Path]:
        """The next finished request: (its number, how it ended, its answer or None, its folder)."""
        return self.open_answer(self.early.pop(0) if self.early else self.next_ended())

    def next_ended(self) -> dict[str, Any]:
        """How the next request ended."""
        ended = self.read_line(self.limits.seconds + 60)
        if ended is None:
            raise AutofixError(self.death_message("between trials"))
        return ended

    def open_answer(self, ended: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, Any] | None, Path]:
        """What an ended request left."""
        _, folder = self.waiting.pop(ended["id"])
        path = folder / "answer.json"
        answer = json.loads(path.read_text()) if ended["exit"] == 0 and path.exists() else None
        return ended["id"], ended, answer, folder

    def ask(self, op: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any] | None, Path]:
        """One request, waited for; what ends meanwhile is kept for `collect`."""
        number = self.request(op, **more)
        ended = self.next_ended()
        while ended["id"] != number:
            self.early.append(ended)
            ended = self.next_ended()
        _, ended, answer, folder = self.open_answer(ended)
        return ended, answer, folder

    def reference(self) -> dict[str, Any]:
        """Compute the reference outputs; returns the facts. Raises CaseError where eager itself fails on the person's own
        inputs; a generated set on which it crashes or hangs is left out."""
        skip: list[str] = []
        ended, answer, folder = self.ask("reference")
        while answer is None and len(skip) < 6 and (folder / "trying.txt").exists():
            skip.append((folder / "trying.txt").read_text())
            (folder / "trying.txt").unlink()
            ended, answer, folder = self.ask("reference", skip=skip)
        if answer is None:
            raise CaseError(f"{self.spec.file}: eager PyTorch {how_it_ended(ended, self.limits)} on the given inputs{last_words(folder)}")
        if "error" in answer:
            raise CaseError(answer["error"])
        self.facts = dict(answer["facts"])
        return self.facts

    def check(self, file: Path) -> dict[str, Any]:
        """What checkfile.py finds out about an existing .onnx file."""
        ended, answer, folder = self.ask("check", file=str(file))
        if answer is None:
            raise CaseError(f"{file}: ONNX Runtime {how_it_ended(ended, self.limits)} while it was checked{last_words(folder)}")
        if "error" in answer:
            raise AutofixError(answer["error"])
        return dict(answer)

    def start_attempt(self, recipe: Recipe, parent: dict[str, Any] | None = None, seconds: float = float("inf")) -> int:
        """Begin a trial of `seconds` at most, where that is less than the limit; parent: a file that it can take over (see reuse.py)."""
        return self.request("attempt", recipe=recipe.to_json(), parent=parent, timeout=min(seconds, self.limits.seconds))

    def finish_attempt(self, recipe: Recipe, ended: dict[str, Any], answer: dict[str, Any] | None, folder: Path) -> Trial:
        """The trial of an attempt that ended, however it did."""
        if answer is not None and "error" in answer:
            raise AutofixError(answer["error"])
        if answer is not None:
            trial = Trial.from_json(answer)
        else:
            trial = died_trial(recipe, ended, folder, self.limits)
        return replace(trial, seconds=ended["seconds"], cpu_seconds=ended["cpu_seconds"], peak_mb=ended["peak_mb"])

    def attempt(self, recipe: Recipe) -> tuple[Trial, Path]:
        """One trial, waited for: (trial, folder with what it left)."""
        self.start_attempt(recipe)
        _, ended, answer, folder = self.collect()
        return self.finish_attempt(recipe, ended, answer, folder), folder

    def close(self) -> None:
        """End the case process and its children; remove the scratch folder."""
        with contextlib.suppress(OSError, AttributeError):
            self.channel.close()
        if getattr(self, "process", None) is not None and self.process is not None:
            try:
                self.process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                self.kill()
                self.process.wait()
        elif getattr(self, "pid", 0):
            self.kill()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        if self.scratch:
            self.scratch.cleanup()

    def kill(self) -> None:
        """Kill the case process; its children die with it."""
        with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
            os.killpg(self.pid, signal.SIGKILL)

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            self.kill()
        self.close()


def how_it_ended(ended: dict[str, Any], limits: Limits) -> str:
    """In words, why there is no answer."""
    if ended["limit"] == "timeout":
        return f"took more than {limits.seconds:.0f} s"
    if ended["limit"] == "memory":
        return f"used more than {limits.memory_mb:.0f} MiB"
    if ended["exit"] < 0:
        return f"died by {signal.Signals(-ended['exit']).name}"
    return f"ended with exit code {ended['exit']}"


def last_words(folder: Path) -> str:
    """The last line of a child's log, if any."""
    try:
        lines = (folder / "log.txt").read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f" ({lines[-1][:200]})" if lines else ""


def died_trial(recipe: Recipe, ended: dict[str, Any], folder: Path, limits: Limits) -> Trial:
    """A trial whose process left no answer: crash, timeout or out of memory, at the stage it had reached."""
    stage, detail = Stage.REWRITE, ""
    with contextlib.suppress(OSError, ValueError, KeyError):
        progress = json.loads((folder / "progress.json").read_text())
        stage, detail = Stage[progress["stage"].upper()], progress["detail"]
    symptom, verdict = {"timeout": ("timeout", Verdict.TIMEOUT), "memory": ("out-of-memory", Verdict.OUT_OF_MEMORY)}.get(
        ended["limit"], ("crash", Verdict.CRASH)
    )
    facts = {"message": f"the process {how_it_ended(ended, limits)} at stage {stage.name.lower()}{last_words(folder)}"}
    if ended["exit"] < 0:
        facts["signal"] = signal.Signals(-ended["exit"]).name
    if detail:
        facts["input_set"] = detail
    if stage >= Stage.RUN and detail not in ("", "load", "given") and symptom == "crash":
        facts["during"] = "other-sizes" if stage is Stage.DYNAMIC else "other-values"
    return Trial(recipe, stage, verdict, Diagnosis(symptom, stage, facts))
