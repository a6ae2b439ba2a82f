"""The case process: loads the case once and is forked for every trial.

Reads one JSON request a line from a socket and answers one JSON line each, in the order in which they end. Every request
runs in a forked child with limits on time and memory; a hang, a crash or a leak of state stays there.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofix.errors import AutofixError, CaseError

POLL_SECONDS = 0.02
CASE_DIED = 3


@dataclass
class Child:
    """A forked child at work on a request."""

    request: dict[str, Any]
    started: float
    limit: str = ""
    peak: int = 0
    looked: float = 0.0


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def write_json(path: Path, data: Any) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data))
    os.replace(part, path)


WARM_IMPORTS = (
    "onnx",
    "onnxruntime",
    "torch._dynamo",
    "torch._export.passes.replace_autocast_with_hop_pass",
    "torch._export.passes.replace_set_grad_with_hop_pass",
    "torch._functorch.aot_autograd",
    "torch._inductor.fx_passes.dedupe_symint_uses",
    "torch.export._trace",
    "torch.fx.experimental.proxy_tensor",
    "torch.fx.experimental.validator",
    "torch.onnx._internal.exporter._compat",
    "sympy.tensor.tensor",
    "autofix.attempt",
    "autofix.export",
    "autofix.verify",
)
"""What an export imports only when it is called: without it here, 1 CPU-second in each child. A name that another torch lacks costs time only."""


def warm_exporter() -> None:
    """Import the exporter and keep its operator registry and decomposition table, which every export would rebuild.

    torch 2.13 parses 497 onnxscript functions at each torch.onnx.export call: 0.85 CPU-seconds.
    """
    import importlib
    import logging

    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)  # that torchvision is not installed
    for name in WARM_IMPORTS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError, AttributeError):
        keep_exporter_tables()


def keep_exporter_tables() -> None:
    """Make torch.onnx build its registry and decomposition table once in this process and its forks."""
    import torch
    from torch.onnx._internal.exporter import _decomp, _registration

    original_registry = _registration.ONNXRegistry.from_torchlib
    original_table = _decomp.create_onnx_friendly_decomposition_table
    registries: dict[int, Any] = {}
    tables: dict[int, Any] = {}

    def from_torchlib(cls: Any, opset_version: int = 18) -> Any:
        if opset_version not in registries:
            registries[opset_version] = original_registry(opset_version=opset_version)
        return registries[opset_version]

    def table(registered: Any) -> Any:
        if len(registered) not in tables:
            tables[len(registered)] = original_table(registered)
        return dict(tables[len(registered)])

    setattr(_registration.ONNXRegistry, "from_torchlib", classmethod(from_torchlib))  # noqa: B010
    setattr(_decomp, "create_onnx_friendly_decomposition_table", table)  # noqa: B010
    registry = _registration.ONNXRegistry.from_torchlib(opset_version=20)
    table(set(_decomp.get_onnx_implemented_overloads(registry)))
    torch.onnx.ops  # noqa: B018


class CaseWorker:
    """Serves requests about one case."""

    def __init__(self, channel: socket.socket, setup: dict[str, Any]) -> None:
        from autofix.case import CaseSpec
        from autofix.target import Target

        self.channel = channel
        self.spec = CaseSpec.from_json(setup["spec"])
        self.target = Target.from_json(setup["target"])
        self.folders = [Path(p) for p in setup["strategies"]]
        self.folder = Path(setup["folder"])
        self.children: dict[int, Child] = {}
        self.warm = bool(setup.get("warm"))
        self.buffer = b""

    def send(self, data: dict[str, Any]) -> None:
        """One JSON line to the controller."""
        self.channel.sendall(json.dumps(data).encode() + b"\n")

    def load(self) -> bool:
        """Load the case and say so; False when it can't be used."""
        import torch

        from autofix.calibration import VERIFIED_SAMPLES, calibration_sets
        from autofix.case import case_id, load_case

        torch.set_num_threads(1)
        try:
            self.case = load_case(self.spec)
            self.model = self.case.build()
            loaded = {"event": "loaded", "case_id": case_id(self.case, self.model), "modules": module_counts(self.model)}
            self.case.calibration = calibration_sets(self.target.calibration, self.model, self.case.given)
            self.case.sets += self.case.calibration[:VERIFIED_SAMPLES]
        except CaseError as error:
            self.send({"event": "error", "message": str(error), "file": error.file, "line": error.line})
            return False
        self.send(loaded)
        return True

    def serve(self) -> None:
        """Answer requests until the controller hangs up."""
        if not self.load():
            return
        while True:
            ready, _, _ = select.select([self.channel], [], [], POLL_SECONDS if self.children else None)
            if ready:
                data = self.channel.recv(1 << 20)
                if not data:
                    break
                self.buffer += data
                *lines, self.buffer = self.buffer.split(b"\n")
                for line in lines:
                    self.start(json.loads(line))
            if self.children and not self.warm and any(c.request["op"] == "reference" for c in self.children.values()):
                self.warm = True
                warm_exporter()
            self.watch()
        for pid in self.children:
            kill_group(pid)

    def start(self, request: dict[str, Any]) -> None:
        """Fork a child for a request."""
        if not self.warm:
            if request["op"] == "reference":
                import torch._dynamo  # noqa: F401  (an operator log imports it; the exporter does later)
            else:
                self.warm = True
                warm_exporter()
        if len(self.children) == 0:
            gc.collect()
            gc.freeze()
        Path(request["folder"]).mkdir(parents=True, exist_ok=True)
        pid = os.fork()
        if pid == 0:
            self.channel.close()
            run_child(self, request)
        self.children[pid] = Child(request, time.monotonic())

    def watch(self) -> None:
        """Enforce limits and answer for the children that ended."""
        for pid, child in list(self.children.items()):
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if not ended:
                self.enforce(pid, child)
                continue
            del self.children[pid]
            kill_group(pid)
            code = os.waitstatus_to_exitcode(status)
            self.send(
                {
                    "id": child.request["id"],
                    "exit": code,
                    "limit": child.limit,
                    "seconds": time.monotonic() - child.started,
                    "cpu_seconds": usage.ru_utime + usage.ru_stime,
                    "peak_mb": usage.ru_maxrss / 1024,
                }
            )

    def enforce(self, pid: int, child: Child) -> None:
        """Kill a child past its limits."""
        now = time.monotonic()
        if now - child.started > child.request["timeout"]:
            child.limit = "timeout"
            kill_group(pid)
        elif now - child.looked > 0.2:
            child.looked = now
            with contextlib.suppress(OSError, ValueError, IndexError):
                resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                if resident > child.request["memory_mb"] * 1024**2:
                    child.limit = "memory"
                    kill_group(pid)


def kill_group(pid: int) -> None:
    """Kill a child and whatever it started."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def module_counts(model: Any) -> dict[str, int]:
    """{short class name: how many} of a model's modules."""
    counts: dict[str, int] = {}
    for module in model.modules():
        counts[type(module).__name__] = counts.get(type(module).__name__, 0) + 1
    return counts


def run_child(worker: CaseWorker, request: dict[str, Any]) -> None:
    """The body of a forked child; never returns."""
    code = 1
    folder = Path(request["folder"])
    try:
        os.setpgid(0, 0)
        die_with_parent()
        log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.setdefault("PYTHONWARNINGS", "ignore")
        write_json(folder / "answer.json", answer(worker, request))
        code = 0
    except AutofixError as error:
        write_json(folder / "answer.json", {"error": str(error)})
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def answer(worker: CaseWorker, request: dict[str, Any]) -> dict[str, Any]:
    """What a child computes for a request."""
    op = request["op"]
    folder = Path(request["folder"])
    if op == "reference":
        from autofix.reference import make_reference

        return {"facts": make_reference(worker.case, worker.target, str(folder), frozenset(request.get("skip", ())))}
    if op == "attempt":
        from autofix.attempt import attempt
        from autofix.loader import check_recipe, load_strategies
        from autofix.recipe import Recipe
        from autofix.reference import load_reference

        recipe = Recipe.from_json(request["recipe"])
        registry = load_strategies(worker.folders, names={f.strategy for f in recipe.fixes}) if recipe.fixes else {}
        check_recipe(recipe, registry)
        reference = load_reference(str(worker.folder / "reference"))
        return attempt(worker.case, worker.model, reference, recipe, registry, worker.target, folder, request.get("parent")).to_json()
    if op == "probe":
        from autofix.probe import probe_file

        return probe_file(worker.case, worker.folder / "reference", Path(request["trial"]), request["signature"], request["sizes"], worker.target)
    if op == "latency":
        from autofix.latency import time_files
        from autofix.reference import load_reference

        reference = load_reference(str(worker.folder / "reference"))
        files = [Path(f) for f in request["files"]]
        seconds, racing = float(request["seconds"]), bool(request.get("racing"))
        return time_files(worker.model, reference, files, worker.target, seconds, racing, int(request.get("rounds", 0)))
    if op == "peak":
        from autofix.peak import peak_facts
        from autofix.reference import load_reference

        file = Path(request["trial"]) / "model.onnx" if "trial" in request else None
        return {"facts": peak_facts(worker.model, load_reference(str(worker.folder / "reference")), worker.target.threads, file)}
    if op == "profile":
        from autofix.profile import profile_file
        from autofix.reference import load_reference

        reference = load_reference(str(worker.folder / "reference"))
        return {"facts": profile_file(worker.model, reference, Path(request["trial"]), worker.target.threads)}
    if op == "check":
        from autofix.checkfile import check_file
        from autofix.reference import load_reference

        reference = load_reference(str(worker.folder / "reference"))
        return check_file(worker.case, worker.model, reference, Path(request["file"]), worker.target, folder)
    raise AssertionError(f"unknown request {op}")


def main() -> None:
    """Entry of `python -m autofix.worker FD`: the socket's file descriptor; the set-up is the first line on it."""
    die_with_parent()
    serve_channel(socket.socket(fileno=int(sys.argv[1])))


def serve_channel(channel: socket.socket) -> None:
    """Read the set-up line, then serve."""
    data = b""
    while b"\n" not in data:
        more = channel.recv(1 << 20)
        if not more:
            return
        data += more
    line, _, rest = data.partition(b"\n")
    worker = CaseWorker(channel, json.loads(line))
    worker.buffer = rest
    worker.serve()


if __name__ == "__main__":
    main()
