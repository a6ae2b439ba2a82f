"""Writes cache/seed.jsonl, the outcomes that ship with autofix, from recorded trials: `python benchmarks/make_seed.py [RECORDED.jsonl]`.

They give an order and nothing else. Each is a strategy, what it was proposed for, and what came of it; all stand under the one case id
SHIPPED, so that no model is recognised, and no recipe is written, so that none can be reused.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from search import HERE, cost_of, read

from autofix.exchange import (
    SHIPPED,
    is_public,  # noqa: E402
)
from autofix.ids import content_id
from autofix.ranking import minor_versions
from autofix.rows import Row, new_row
from autofix.target import Target


def public(operator: str) -> str:
    """The operator, unless it is some model's own."""
    return operator if is_public(operator) else ""


def rows_of(file: Path) -> Iterator[Row]:
    """One outcome for each recorded fix that treats what it was tried for."""
    recorded = read(file)
    versions = minor_versions(recorded.environment)
    same = {"case_id": SHIPPED, "environment_id": content_id(recorded.environment), "target_id": content_id(Target().to_json())}
    for case in recorded.cases:
        for row in case["trials"]:
            cause = case["trials"][row["parent"]] if row["parent"] >= 0 and row["treated"] else None
            if cause is None or not cause["symptom"]:
                continue
            body = {
                **same,
                "recipe_id": content_id([case["folder"], case["case"], row["recipe"]]),
                "parent_id": "",
                "origin_id": "",
                "added": [row["strategy"]],
                "cause_symptom": cause["symptom"],
                "cause_operator": public(cause["operator"]),
                "cause_stage": cause["stage"],
                "symptom": row["symptom"],
                "operator": public(row["operator"]),
                "stage": row["stage"],
                "verdict": row["verdict"],
                "capture": cause["capture"],
                "effect": "exact",
                "versions": versions,
                "ms": round(1000 * cost_of(row)),
                "cpu_ms": 0,
            }
            yield new_row("outcome", body)


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "recorded.jsonl"
    lines = sorted({row.id: row.line() for row in rows_of(file)}.items())
    seed = HERE.parent / "cache" / "seed.jsonl"
    seed.write_text("".join(line + "\n" for _, line in lines))
    print(json.dumps({"outcomes": len(lines), "bytes": seed.stat().st_size}))


if __name__ == "__main__":
    main()
