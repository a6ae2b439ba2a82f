"""Export and merge: sorted JSON lines that diff well, and whose union (git's merge=union too) is again a valid export.

Lines from others are data that nobody vouches for. Each is checked on its own (size, shape, limits, content id); those that fail are
refused with a count and a reason, and the rest is added in one transaction. Unknown strategies are kept as data: only the search
decides what can be applied, and it applies installed strategies only.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import sqlite3
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from autofix.errors import CacheError
from autofix.ids import content_id
from autofix.row_checks import KINDS, Refused, portable
from autofix.rows import MAX_LINE, Row, parse_line
from autofix.store import commit_staged, drop_case, read_rows, stage_rows


@dataclass
class Merged:
    """What a merge came to: rows read, rows that were new by kind, lines refused by reason."""

    read: int = 0
    added: dict[str, int] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        return {"read": self.read, "added": self.added, "refused": dict(self.refused)}

    def __add__(self, other: Merged) -> Merged:
        added = {kind: self.added.get(kind, 0) + other.added.get(kind, 0) for kind in {**self.added, **other.added}}
        return Merged(self.read + other.read, added, self.refused + other.refused)

    def __str__(self) -> str:
        new = ", ".join(f"{count} {kind}" for kind, count in self.added.items() if count) or "nothing new"
        bad = "; refused " + ", ".join(f"{count} ({reason})" for reason, count in self.refused.most_common()) if self.refused else ""
        return f"{self.read} rows read: {new}{bad}"


SHIPPED = "shipped"
"""The case id of the outcomes that ship with autofix: they tell of symptoms and strategies, not of cases, and every autofix has them."""
ANY_CASE = "-"
"""The case id in an export that is made for ranking only."""


PUBLIC = ("", "aten", "prims", "prim", "quantized", "torch", "torchvision", "higher_order", "onnx", "com", "math", "operator", "_operator")
"""Name spaces of operators that everybody has; any other names the model's own."""


def is_public(operator: str) -> bool:
    """Whether an operator's name says nothing of whose model it is: one of a public name space, or a plain ONNX operator type."""
    return "." not in operator and "::" not in operator or re.split(r"[.:]", operator)[0] in PUBLIC


def for_ranking(row: Row) -> Row | None:
    """The outcome without its case, recipe and origin, or None where ranking does not count it. What its case was can't be told."""
    if row.kind != "outcome" or not row.body["added"] or not row.body["cause_symptom"]:
        return None
    own = {name: "" for name in ("cause_operator", "operator") if not is_public(row.body[name])}
    body = {**row.body, **own, "case_id": ANY_CASE, "recipe_id": content_id([row.id]), "parent_id": "", "origin_id": ""}
    return Row("outcome", content_id(body), body)


def _is_private(row: Row) -> bool:
    """Whether a recipe holds places in a source, or a recipe or an outcome names the model's own operators."""
    if row.kind == "outcome":
        return not (is_public(row.body["operator"]) and is_public(row.body["cause_operator"]))
    for fix in row.body["fixes"]:
        named = fix["params"].get("operators")
        if fix["level"] == "source" or any(not is_public(str(name)) for name in (named if isinstance(named, list) else ())):
            return True
    return False


def redacted(row: Row) -> Row | None:
    """The row without names, model source and paths, or None where nothing is left. Outcomes carry none of these, so that their ids stay;
    those at an operator of the model's own are left out."""
    body = row.body
    if row.kind == "case":
        body = {**body, "name": "", "modules": {}, "symptom": ""}
    elif row.kind == "retraction":
        body = {**body, "reason": ""}
    elif row.kind == "environment":
        body = {name: value for name, value in body.items() if name in ("torch", "onnx", "onnxruntime", "onnxscript", "python")}
        if body != row.body:
            return None
    elif row.kind == "origin" or (row.kind in ("recipe", "outcome") and _is_private(row)):
        return None
    return row if body is row.body else Row(row.kind, content_id(body), body)


def export_rows(
    connection: sqlite3.Connection, *, redact: bool = False, kinds: Iterable[str] | None = None, origins: set[str] | None = None
) -> Iterator[Row]:
    """Rows in export order. Recipes that name a place on this machine's disk stay at home, and what every autofix has already."""
    for row in read_rows(connection, kinds, origins):
        if (row.kind == "recipe" and not portable(row.body)) or (row.kind == "outcome" and row.body["case_id"] == SHIPPED):
            continue
        shared = redacted(row) if redact else row
        if shared is not None:
            yield shared


def export_lines(
    connection: sqlite3.Connection,
    *,
    redact: bool = False,
    kinds: Iterable[str] | None = None,
    origins: set[str] | None = None,
    ranking_only: bool = False,
) -> Iterator[str]:
    """Lines sorted by kind and id, each once. `ranking_only`: see `for_ranking`; retracted outcomes are left out."""
    if ranking_only:
        gone = {name for (name,) in connection.execute("SELECT outcome_id FROM retractions")}
        outcomes = (row for row in export_rows(connection, kinds=["outcome"], origins=origins) if row.id not in gone)
        yield from sorted(row.line() + "\n" for row in map(for_ranking, outcomes) if row is not None)
        return
    for kind in KINDS if kinds is None else kinds:
        rows = export_rows(connection, redact=redact, kinds=[kind], origins=origins)
        if redact and kind in ("case", "retraction"):  # their ids change, and different rows become one
            rows = iter([row for _, row in sorted({row.id: row for row in rows}.items())])
        for row in rows:
            yield row.line() + "\n"


def export_file(
    connection: sqlite3.Connection, path: Path, *, redact: bool = False, origins: set[str] | None = None, ranking_only: bool = False
) -> int:
    """Writes an export, whole or not at all; returns the number of lines. `.gz` is compressed. Raises CacheError."""
    count = 0
    if path.exists() and not path.is_file():
        raise CacheError(f"{path}: not an ordinary file; export to another place, or without -o to stdout")
    path = path.resolve()  # what a link names is written, not the link
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
        try:
            with os.fdopen(handle, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) if path.suffix == ".gz" else raw as out:
                for line in export_lines(connection, redact=redact, origins=origins, ranking_only=ranking_only):
                    out.write(line.encode())
                    count += 1
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise CacheError(f"{path}: not written: {error.strerror or error}") from None
    return count


def lines_of(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines without their ends; an endless line comes in one piece that is too long, never whole into memory."""
    while True:
        line = stream.readline(MAX_LINE + 2)
        if not line:
            return
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            while (rest := stream.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
        yield line.rstrip(b"\r\n")


def checked(lines: Iterable[bytes], merged: Merged) -> Iterator[Row]:
    """The rows that are believed; what is refused is counted in `merged`."""
    for line in lines:
        if not line.strip():
            continue
        try:
            row = parse_line(line)
        except Refused as refused:
            merged.refused[str(refused)] += 1
            continue
        merged.read += 1
        yield row


def merge_lines(connection: sqlite3.Connection, lines: Iterable[bytes]) -> Merged:
    """Adds the rows of an export in one transaction. Raises CacheError; then nothing was added."""
    merged = Merged()
    try:
        stage_rows(connection, checked(lines, merged))
        merged.added = commit_staged(connection)
    except (sqlite3.Error, EOFError, OSError, zlib.error) as error:
        raise CacheError(f"not merged: {error}") from None
    return merged


def merge_file(connection: sqlite3.Connection, path: Path) -> Merged:
    """Adds an export (.jsonl, .jsonl.gz) or another cache file. Raises CacheError with one line; then nothing was added."""
    try:
        with open(path, "rb") as raw:
            head = raw.read(16)
            raw.seek(0)
            if head.startswith(b"SQLite format 3"):
                return merge_database(connection, path)
            if head.startswith(b"\x1f\x8b"):
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    return merge_lines(connection, lines_of(unpacked))  # type: ignore[arg-type]
            return merge_lines(connection, lines_of(raw))
    except OSError as error:
        raise CacheError(f"{path}: not read: {error.strerror or error}") from None
    except CacheError as error:
        raise CacheError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def merge_database(connection: sqlite3.Connection, path: Path) -> Merged:
    """Adds all rows of another cache file, checked like any stranger's."""
    from autofix.connect import open_layer

    other = open_layer(path)
    try:
        return merge_lines(connection, (line.rstrip("\n").encode() for line in export_lines(other)))
    except (KeyError, ValueError, TypeError, IndexError):
        raise CacheError(f"{path}: a damaged cache; nothing was added") from None
    finally:
        other.close()


def plant_seed(connection: sqlite3.Connection) -> None:
    """Adds the outcomes that ship with autofix, in the place of those of an earlier edition. Raises sqlite3.Error or OSError."""
    data = seed_bytes()
    edition = hashlib.sha256(data).hexdigest()[:32]
    if not data or connection.execute("SELECT value FROM meta WHERE key = 'seed'").fetchall() == [(edition,)]:
        return
    stage_rows(connection, checked(data.split(b"\n"), Merged()))
    drop_case(connection, SHIPPED)
    commit_staged(connection)
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('seed', ?)", (edition,))


def seed_bytes() -> bytes:
    """The packaged cache/seed.jsonl, or the checkout's; empty where there is none."""
    import importlib.resources

    try:
        return (importlib.resources.files("autofix.seed") / "seed.jsonl").read_bytes()
    except (ModuleNotFoundError, FileNotFoundError, TypeError):
        beside = Path(__file__).resolve().parent.parent / "cache" / "seed.jsonl"
        return beside.read_bytes() if beside.is_file() else b""
