"""The table, the figures and the goals of mutation.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def percent(part: int, whole: int) -> str:
    """`12/13 (92 %)`, rounded down."""
    return f"{part}/{whole} ({100 * part // whole} %)" if whole else "-"


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the goals speak of, and the counts by kind."""
    kinds: dict[str, dict[str, int]] = {}
    for mutant in (m for row in rows for m in row.get("mutants", [])):
        for kind in (mutant["kind"], "all"):
            c = kinds.setdefault(kind, dict.fromkeys(("planted", "trivial", "mattering", "caught", "baseline", "by_values", "right", "beyond"), 0))
            c["planted"] += 1
            if mutant["trivial"]:
                c["trivial"] += 1
            elif mutant["matters"]:
                c["mattering"] += 1
                c["caught"] += bool(mutant["caught"])
                c["baseline"] += bool(mutant["baseline"])
                c["by_values"] += bool(mutant["caught"]) and bool(mutant.get("by_values"))
                c["right"] += bool(mutant["caught"]) and bool(mutant.get("right"))
            else:
                c["beyond"] += bool(mutant["caught"])
    good = [r for r in rows if r.get("good")]
    return {
        "kinds": kinds,
        "models": len(rows),
        "good": len(good),
        "alarms": sum(bool(r["alarm"]) for r in good),
        "baseline_alarms": sum(bool(r["baseline_alarm"]) for r in good),
        "not_good": [r["model"] for r in rows if not r.get("good")],
    }


def table_text(found: dict[str, Any]) -> str:
    """The Markdown table."""
    lines = ["| kind of fault | planted | trivial | that matter | caught by the gate | caught by allclose on the given input | node named first |"]
    lines.append("|---|---|---|---|---|---|---|")
    for kind in [*sorted(k for k in found["kinds"] if k != "all"), "all"]:
        c = found["kinds"].get(kind)
        if c:
            cells = [kind, c["planted"], c["trivial"], c["mattering"], percent(c["caught"], c["mattering"])]
            lines.append("| " + " | ".join(map(str, [*cells, percent(c["baseline"], c["mattering"]), percent(c["right"], c["by_values"])])) + " |")
    lines.append(f"| false alarms on {found['good']} good exports | | | | {found['alarms']} | {found['baseline_alarms']} | |")
    return "\n".join(lines)


def goals_missed(found: dict[str, Any]) -> list[str]:
    """Which goals of goals.toml are missed."""
    goals = tomllib.loads((Path(__file__).parent / "goals.toml").read_text())["mutation"]
    c = found["kinds"].get("all") or dict.fromkeys(("caught", "mattering", "right", "by_values"), 0)
    checks = [
        (c["caught"] / max(c["mattering"], 1) >= goals["caught_min"], f"caught {percent(c['caught'], c['mattering'])}"),
        (c["right"] / max(c["by_values"], 1) >= goals["located_min"], f"located {percent(c['right'], c['by_values'])}"),
        (found["alarms"] / max(found["good"], 1) <= goals["false_alarms_max"], f"false alarms {percent(found['alarms'], found['good'])}"),
        (found["good"] >= goals["good_exports_min"], f"good exports {found['good']}"),
    ]
    return [f"goal missed: {text}" for met, text in checks if not met]


def progress(row: dict[str, Any]) -> str:
    """One line a model."""
    if "died" in row:
        return f"{row['model']}: {row['died'].strip().splitlines()[-1]}"
    m = row["mutants"]
    counts = f"{sum(bool(x['caught']) for x in m if x['matters'])} of {sum(bool(x['matters']) for x in m)} caught, {len(m)} planted"
    state = f"NOT GOOD {row['wrong'][:1]}" if not row["good"] else f"ALARM {row['alarm']}" if row["alarm"] else counts
    return (
        f"{row['model']}: {row['sets']} sets, {row['truth']} truth inputs ({row['unsure']} unsure), {state}; CPU {[round(c, 2) for c in row['cpu']]}"
    )


def misses(rows: list[dict[str, Any]]) -> list[str]:
    """What went wrong, a line each."""
    lines = []
    for row in rows:
        lines += [f"ALARM {row['model']}: {row['alarm']}"] if row.get("good") and row["alarm"] else []
        for m in row.get("mutants", []):
            where = f"{row['model']}: {m['kind']}: {m['text']}"
            if m["matters"] and not m["caught"]:
                lines.append(f"MISSED {where}: {m['matters']}")
            elif m["matters"] and m.get("by_values") and not m.get("right"):
                lines.append(f"NAMED {m['named'] or 'nothing'} {where}: {m.get('why', '')}")
            elif not m["matters"] and m["caught"]:
                lines.append(f"BEYOND {where}: {m['caught']}: {m.get('why', '')}")
    return lines
