"""The rows of the cache as plain data: their content ids and their JSON lines.

A row is (kind, body); its id is the content id of the body, so that equal rows have one name on every machine and a
merge is a set union.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from autofix.row_checks import KINDS, NAME, NUMBERS, OUTCOME_FIELDS, PATTERNS, Refused, check_body

MAX_LINE = 65_536
"""Bytes of one line; longer lines are refused unread."""


def _canonical_outcome() -> re.Pattern[bytes]:
    """The line of an outcome, written canonically, field by field."""
    parts = []
    for name in sorted(OUTCOME_FIELDS):
        if name == "added":
            inner = rf'\[(?P<added>(?:"{NAME}"(?:,"{NAME}")*)?)\]'
        else:
            inner = rf"(?P<{name}>0|[1-9][0-9]{{0,9}})" if name in NUMBERS else f'"(?P<{name}>{PATTERNS[name]})"'
        parts.append(f'"{name}":{inner}')
    return re.compile((r'\{"body":(?P<body>\{' + ",".join(parts) + r'\}),"id":"(?P<id>[0-9a-f]{32})","kind":"outcome"\}').encode())


_LINE = _canonical_outcome()


class Row(NamedTuple):
    """One checked row: its table, its content id, its body as plain data."""

    kind: str
    id: str
    body: dict[str, Any]

    def line(self) -> str:
        """The row as one line of canonical JSON."""
        return _dumps({"kind": self.kind, "id": self.id, "body": self.body})


_dumps: Callable[[Any], str] = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def new_row(kind: str, body: dict[str, Any]) -> Row:
    """A checked row of what this process itself observed. Raises Refused."""
    check_body(kind, body)
    return Row(kind, body_id(body), body)


def _no_constant(name: str) -> Any:
    raise Refused(f"number {name}")


# Made once: json.loads and json.dumps build theirs anew at each call with options, which is a third of the time of a merge.
_loads: Callable[[str], Any] = json.JSONDecoder(parse_constant=_no_constant).decode


def body_id(body: dict[str, Any]) -> str:
    """The same as ids.content_id."""
    return hashlib.sha256(_dumps(body).encode()).hexdigest()[:32]


def parse_line(line: bytes) -> Row:
    """A row from an untrusted line: limits, shape and hash are checked. Raises Refused."""
    if len(line) > MAX_LINE:
        raise Refused("line too long")
    return _parse_outcome(line) or _parse_any(line)


def _parse_outcome(line: bytes) -> Row | None:
    """A well-formed outcome in canonical form, in a third of the time; None for anything else, which `_parse_any` judges.

    The text between the braces is canonical because the pattern admits nothing else, so it is hashed as it stands.
    """
    found = _LINE.fullmatch(line)
    if found is None or hashlib.sha256(found["body"]).hexdigest()[:32] != found["id"].decode():
        return None
    body: dict[str, Any] = {name: value.decode("ascii") for name, value in found.groupdict().items()}
    del body["body"]
    right = body.pop("id")
    body["ms"], body["cpu_ms"] = int(body["ms"]), int(body["cpu_ms"])
    added = body["added"] = body["added"][1:-1].split('","') if body["added"] else []
    return Row("outcome", right, body) if len(added) <= 32 and sorted(set(added)) == added else None


def _parse_any(line: bytes) -> Row:
    if line.count(b"[") + line.count(b"{") > 500:
        raise Refused("nested too deeply")
    try:
        data = _loads(line.decode("utf-8"))
    except Refused:
        raise
    except (ValueError, RecursionError):
        raise Refused("not JSON") from None
    if type(data) is not dict or data.keys() != {"kind", "id", "body"}:
        raise Refused("not a row")
    kind, body = data["kind"], data["body"]
    if type(kind) is not str or kind not in KINDS:
        raise Refused("unknown kind")
    if type(body) is not dict:
        raise Refused("not a row")
    check_body(kind, body, foreign=True)
    try:
        right = body_id(body)
    except (ValueError, TypeError):
        raise Refused("not canonical") from None
    if data["id"] != right:
        raise Refused("wrong hash")
    return Row(kind, right, body)
