"""Where the time goes: ONNX Runtime's profile of a file beside eager PyTorch's, both by source line.

profile_file(...) -> {"op_types", "slow"}: facts for the diagnosis "too-slow". `slow` lists the file's costliest operators, slowest first:
  op_type and node (of the file as it is before ONNX Runtime optimises it), kernel (what ONNX Runtime made of it), count (nodes alike are one
  row), ms and share (of the run), operator (aten), file, line, eager_ms (what PyTorch needs for the same calls, or None), why (slowness.py).

Both sides are taken by the wall clock and by the smallest of several runs, which is what a busy machine leaves undisturbed.
"""

from __future__ import annotations

import ast
import json
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_ROWS = 40
LARGEST_OPTIMIZED = 400_000_000
"""Bytes above which ONNX Runtime's optimised graph is not written to be read; fused nodes are then told by their names alone."""
BLOCKED = "nchwc:"
"""Stands before the names of kernels that work on blocks of channels."""
Key = tuple[str, str, int]
"""(module path, file, line): what one call of an operator is known by on both sides."""


@dataclass
class Row:
    """A costly operator; see the module's docstring. `nodes` are the names of all nodes that it stands for."""

    op_type: str
    node: str
    kernel: str
    operator: str
    key: Key
    ms: float
    count: int = 1
    share: float = 0.0
    eager_ms: float | None = None
    nodes: list[str] = field(default_factory=list)
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data, as strategies read it."""
        return {
            "op_type": self.op_type,
            "node": self.node,
            "kernel": self.kernel,
            "count": self.count,
            "share": round(self.share, 4),
            "ms": round(self.ms, 4),
            "operator": self.operator,
            "module": self.key[0],
            "file": self.key[1],
            "line": self.key[2],
            "eager_ms": None if self.eager_ms is None else round(self.eager_ms, 4),
            "why": self.why,
        }


def self_times(events: Iterable[Mapping[str, Any]]) -> list[dict[str, tuple[float, str]]]:
    """One entry a run: {node name: (ms without the nodes inside it, kernel)} from the events of ONNX Runtime's profile.

    A Loop's event spans those of its body; a node that runs several times in a run counts with all its times.
    """
    events = sorted((e for e in events if e.get("ph") == "X"), key=lambda e: (e["ts"], -e["dur"]))
    runs = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("name") == "model_run"]
    times: list[dict[str, tuple[float, str]]] = [{} for _ in runs]
    stack: list[tuple[float, str, dict[str, tuple[float, str]]]] = []
    place = 0
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") != "Node" or not name.endswith("_kernel_time"):
            continue
        start, end = event["ts"], event["ts"] + event["dur"]
        while place < len(runs) and runs[place][1] < start:
            place += 1
        if place == len(runs) or start < runs[place][0]:
            continue
        node, kernel = name.removesuffix("_kernel_time"), str(event.get("args", {}).get("op_name", ""))
        while stack and stack[-1][0] <= start:
            stack.pop()
        if stack:
            _, outer, into = stack[-1]
            into[outer] = (into[outer][0] - event["dur"] / 1000, into[outer][1])
        run = times[place]
        run[node] = (run.get(node, (0.0, kernel))[0] + event["dur"] / 1000, kernel)
        stack.append((end, node, run))
    return times


def smallest(runs: list[dict[str, tuple[float, str]]]) -> dict[str, tuple[float, str]]:
    """Each node's smallest time over the runs, the first left out where there are more: it warms up."""
    runs = runs[1:] or runs
    names = dict.fromkeys(n for run in runs for n in run)
    return {n: (max(0.0, min(run[n][0] for run in runs if n in run)), next(run[n][1] for run in runs if n in run)) for n in names}


def profile_session(folder: Path, feed: dict[str, Any], threads: int, seconds: float) -> tuple[dict[str, tuple[float, str]], Any]:
    """({node name of the optimised graph: (ms, kernel)}, that graph or None) of the model.onnx in a folder, opened as session.json says."""
    import onnx
    import onnxruntime as ort

    from autofix.session import SessionSettings, session_options

    path = folder / "model.onnx"
    settings = SessionSettings.from_json(json.loads((folder / "session.json").read_text()))
    size = sum(f.stat().st_size for f in (path, folder / "model.onnx.data") if f.exists())
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        options = session_options(settings, threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(scratch) / "profile")
        if size < LARGEST_OPTIMIZED:
            options.optimized_model_filepath = str(Path(scratch) / "optimized.onnx")
        disabled = {"disabled_optimizers": list(settings.disabled_optimizers)} if settings.disabled_optimizers else {}
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"], **disabled)
        start = time.perf_counter()
        for done in range(30):
            # noting each node slows a loop down tenfold: where one run takes long, it has to do
            if done >= 2 and time.perf_counter() - start > seconds or done and time.perf_counter() - start > 4 * seconds:
                break
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text())
        written = Path(scratch) / "optimized.onnx"
        graph = onnx.load(str(written), load_external_data=False).graph if written.exists() else None
    return smallest(self_times(events)), graph


class Graph:
    """The file's graph, subgraphs included: nodes by name and by output, and what stands behind a node of the optimised graph."""

    def __init__(self, graph: Any) -> None:
        self.nodes: list[Any] = []
        self.looped: set[str] = set()
        self.constants: dict[str, Any] = {}
        self.consumers: dict[str, list[Any]] = defaultdict(list)
        self.add(graph, False)
        self.by_name = {n.name: n for n in self.nodes if n.name}
        self.producer = {o: n for n in self.nodes for o in n.output if o}
        self.op_types = list(dict.fromkeys(n.op_type for n in self.nodes))

    def add(self, graph: Any, looped: bool) -> None:
        """Take in a graph and those inside its nodes; `looped` collects the names of what stands in the body of a Loop or Scan."""
        self.constants.update((t.name, t) for t in graph.initializer)
        for node in graph.node:
            self.nodes.append(node)
            if looped:
                self.looped.add(node.name)
            for name in node.input:
                self.consumers[name].append(node)
            for attribute in node.attribute:
                for inner in [attribute.g, *attribute.graphs] if attribute.type in (5, 10) else ():
                    self.add(inner, looped or node.op_type in ("Loop", "Scan"))

    def is_constant(self, name: str, depth: int = 4) -> bool:
        """Whether a value is a weight, or made of weights alone."""
        if name in self.constants:
            return True
        node = self.producer.get(name)
        if node is None or depth == 0:
            return False
        return node.op_type == "Constant" or (bool(node.input) and all(not i or self.is_constant(i, depth - 1) for i in node.input))

    def original(self, name: str, kernel: str, optimized: Graph | None) -> Any:
        """The file's node that a node of the optimised graph stands for, preferably one of the kernel's kind; None where it is new."""
        if name in self.by_name and self.by_name[name].op_type == kernel:
            return self.by_name[name]
        made = optimized.by_name.get(name) if optimized is not None else None
        plain = name.removesuffix("_nchwc")
        outputs = [*(made.output if made is not None else ()), plain]
        last = next((self.producer[o] for o in outputs if o in self.producer), self.by_name.get(plain))
        if last is None and made is not None and optimized is not None:  # say a reordering before a consumer that is known
            after = [n for o in made.output for n in optimized.consumers.get(o, ()) if n.name != name]
            return self.original(after[0].name, after[0].op_type, None) if after else None
        if last is None or last.op_type == kernel:
            return last
        return self.above(last, kernel, set(made.input) if made is not None else set()) or last

    def above(self, node: Any, kernel: str, stop: set[str], depth: int = 6) -> Any:
        """The nearest node of the kernel's kind above a node, short of the fused node's own inputs."""
        rim = [node]
        for _ in range(depth):
            rim = [self.producer[i] for n in rim for i in n.input if i and i not in stop and i in self.producer]
            for found in rim:
                if kernel in (found.op_type, "Fused" + found.op_type):
                    return found
        return None


def node_place(node: Any, files: frozenset[str]) -> tuple[str, Key]:
    """(aten operator, (module path, file, line)) that the exporter noted with a node; the path alone is in a TorchScript node's name."""
    from autofix.coverage import real_path

    props = {p.key: p.value for p in node.metadata_props}
    operator = re.search(r"target=torch\.ops\.([\w.]+)", props.get("pkg.torch.onnx.fx_node", ""))
    path = ""
    if "pkg.torch.onnx.name_scopes" in props:
        scopes = [str(s) for s in ast.literal_eval(props["pkg.torch.onnx.name_scopes"])]
        path = scopes[-2] if len(scopes) > 1 else ""
    elif node.name.startswith("/"):
        parts = node.name.split("/")[1:-1]
        path = parts[-1] if parts else ""
    frames = re.findall(r'File "([^"]+)", line (\d+)', props.get("pkg.torch.onnx.stack_trace", ""))
    own = [f for f in frames if real_path(f[0]) in files]
    library = [f for f in frames if "/torch/" not in f[0]]
    chosen = (own or library or frames or [("", "0")])[-1]
    path = path.removeprefix("model.") if path != "model" else ""
    return operator[1] if operator else "", (path, real_path(chosen[0]) if chosen[0] else "", int(chosen[1]))


def rows_of(times: Mapping[str, tuple[float, str]], graph: Graph, optimized: Graph | None, files: frozenset[str]) -> list[Row]:
    """The profile as rows, slowest first; nodes of one kind that stand for the same operator on the same line are one row."""
    rows: dict[tuple[str, str, Key], Row] = {}
    largest: dict[tuple[str, str, Key], float] = {}
    total = sum(ms for ms, _ in times.values()) or 1.0
    for name, (ms, kernel) in times.items():
        node = graph.original(name, kernel, optimized)
        kernel = f"{BLOCKED}{kernel}" if name.endswith("_nchwc") else kernel
        operator, key = node_place(node, files) if node is not None else ("", ("", "", 0))
        op_type = node.op_type if node is not None else kernel
        alike = (op_type, operator, key)
        shown = node.name if node is not None and node.name else name
        row = rows.setdefault(alike, Row(op_type, shown, kernel, operator, key, 0.0, 0))
        if ms > largest.get(alike, -1.0):
            largest[alike], row.node, row.kernel = ms, shown, kernel
        row.ms += ms
        row.count += 1
        row.nodes.append(shown)
    for row in rows.values():
        row.share = row.ms / total
    return sorted(rows.values(), key=lambda r: -r.ms)


def profile_file(model: Any, reference: Any, folder: Path, threads: int, seconds: float = 0.5) -> dict[str, str]:
    """The facts of the file in a trial's folder; see the module's docstring."""
    import onnx
    import torch

    from autofix.eager_profile import eager_calls, with_eager
    from autofix.latency import keep_memory
    from autofix.slowness import name_causes
    from autofix.verify import make_feed

    keep_memory()
    torch.set_num_threads(threads)
    given = reference.sets[0]
    proto = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    files = frozenset(reference.facts.get("sources", {}))
    times, optimized = profile_session(folder, make_feed(given, [i.name for i in proto.graph.input]), threads, seconds)
    graph = Graph(proto.graph)
    rows = rows_of(times, graph, Graph(optimized) if optimized is not None else None, files)
    with_eager(rows, eager_calls(model, given.args, given.kwargs, files, seconds), graph)
    name_causes(rows, graph, Graph(optimized) if optimized is not None else None)
    return {"op_types": ",".join(graph.op_types), "slow": json.dumps([r.to_json() for r in rows[:MOST_ROWS]])}
