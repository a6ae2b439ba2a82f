"""Answers that hang on the order of a set: Python orders strings in sets by hashes that differ from process to process.

A model whose source makes sets, or asks for hashes, is called once more in a fresh interpreter with another PYTHONHASHSEED.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autofix.case import CaseSpec

CALL_ONCE = """
import json, sys
sys.path[:0] = [sys.argv[1]]
import torch
torch.set_num_threads(1)
from autofix.case import CaseSpec, load_case
from autofix.eager import Eager
eager = Eager(load_case(CaseSpec.from_json(json.loads(sys.argv[2]))))
torch.save(eager.call(eager.example).outputs, sys.argv[3])
"""
"""Arguments: the folder that holds autofix, the spec as JSON, where the outputs go."""


def uses_hashes(sources: Mapping[str, str]) -> str:
    """`file:line` of the first set, frozenset or hash() in the sources, or an empty string."""
    for file, text in sources.items():
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if isinstance(node, (ast.Set, ast.SetComp)) or called in ("set", "frozenset", "hash"):
                return f"{file}:{getattr(node, 'lineno', 0)}"
    return ""


def outputs_elsewhere(spec: CaseSpec, folder: Path, seconds: float = 60.0) -> list[tuple[str, Any]] | None:
    """The example's outputs in a fresh interpreter with another hash seed; None where it does not run there."""
    import torch

    here = str(Path(__file__).resolve().parent.parent)
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    path = folder / "elsewhere.pt"
    command = [sys.executable, "-c", CALL_ONCE, here, json.dumps(spec.to_json()), str(path)]
    try:
        ended = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return None
    return list(torch.load(path, weights_only=False)) if ended.returncode == 0 and path.exists() else None
