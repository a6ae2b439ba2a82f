"""What the strategies for slow operators look at when they propose; plain data only."""

from __future__ import annotations

import json
from collections.abc import Mapping

from autofix.strategy import Evidence


def slow_types(evidence: Evidence, hints: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The ONNX operators of `hints` that the measured file has, those first that take most of its time.

    Where the diagnosis tells no operators (`op_types`), those whose hints, parts of aten names, stand among the operators that eager ran.
    """
    listed = evidence.fact("op_types")
    if listed:
        have = set(listed.split(","))
    else:
        names = " ".join(evidence.operators)
        have = {op for op, parts in hints.items() if any(part in names for part in parts)}
    try:
        slow = [str(row.get("op_type")) for row in json.loads(evidence.fact("slow") or "[]")]
    except ValueError:
        slow = []
    place = {op: slow.index(op) for op in set(slow)}
    return sorted((op for op in hints if op in have), key=lambda op: place.get(op, len(slow)))
