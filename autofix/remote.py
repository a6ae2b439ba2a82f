"""Push and pull through fsspec (file, s3, gs, ssh, http read-only, ...): a folder of immutable segments, no server.

A segment is a compressed export named by the sha256 of its bytes, so that two that push at once can't overwrite each other, an
upload that broke off is noticed and done again, and what was read once is never read again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from autofix.errors import CacheError
from autofix.exchange import Merged, checked, export_rows, lines_of
from autofix.ids import text_id
from autofix.rows import Row
from autofix.store import commit_staged, stage_rows

ROWS_PER_SEGMENT = 20_000
MAX_SEGMENT = 64 * 2**20
MAX_UNPACKED = 512 * 2**20
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss"})
"""Stores without folders, where making one would make a bucket out of a slip of the pen."""
_NAME = re.compile(r"([0-9a-f]{64})\.jsonl\.gz")


@dataclass
class Pushed:
    """What a push came to."""

    segments: int = 0
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.rows} rows pushed in {self.segments} segments" if self.rows else "nothing new to push"


class _Bounded(io.RawIOBase):
    """A stream that ends in an error past MAX_UNPACKED bytes, so that a small file can't unpack to a huge one."""

    def __init__(self, inner: gzip.GzipFile) -> None:
        self.inner, self.left = inner, MAX_UNPACKED

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.inner.read(len(buffer))
        self.left -= len(data)
        if self.left < 0:
            raise OSError("segment unpacks to too much")
        buffer[: len(data)] = data
        return len(data)


def _shown(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", url)


@contextmanager
def _named(url: str) -> Iterator[None]:
    """Every fault of a remote place, whatever its library raises, becomes one line with the URL (without a password)."""
    try:
        yield
    except CacheError:
        raise
    except sqlite3.Error as error:
        raise CacheError(f"local cache: {error}") from None
    except Exception as error:  # s3fs, gcsfs and others raise their own kinds
        text = (str(error) or type(error).__name__).splitlines()[0]
        raise CacheError(f"{_shown(url)}: {text}") from None


def _place(url: str) -> tuple[Any, str]:
    import fsspec

    fs, root = fsspec.core.url_to_fs(url)
    return fs, root.rstrip("/")


def _names(fs: Any, root: str) -> list[str]:
    """Segment names; other files in the folder are left alone."""
    try:
        fs.invalidate_cache()
        entries = fs.ls(root, detail=False)
    except FileNotFoundError:
        return []
    return sorted(name for name in (str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in entries) if _NAME.fullmatch(name))


def _fetch(fs: Any, path: str, name: str, merged: Merged) -> bytes | None:
    """A segment's bytes, or None with a reason counted where they aren't what its name says."""
    with fs.open(path, "rb") as stream:
        data: bytes = stream.read(MAX_SEGMENT + 1)
    if len(data) > MAX_SEGMENT:
        merged.refused["segment too large"] += 1
    elif hashlib.sha256(data).hexdigest() + ".jsonl.gz" != name:
        merged.refused["segment damaged or half written"] += 1
    else:
        return data
    return None


def _rows_of(data: bytes, merged: Merged) -> Iterator[Row]:
    unpacked = io.BufferedReader(_Bounded(gzip.GzipFile(fileobj=io.BytesIO(data))))
    return checked(lines_of(unpacked), merged)


def _known(connection: sqlite3.Connection, remote: str, *, merged: bool) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM segments WHERE remote = ? AND merged >= ?", (remote, int(merged)))}


def _remember(connection: sqlite3.Connection, remote: str, name: str, ids: list[str], merged: bool) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany("INSERT OR IGNORE INTO shared VALUES (?, ?)", [(remote, id) for id in ids])
        connection.execute("INSERT OR REPLACE INTO segments VALUES (?, ?, ?)", (remote, name, int(merged)))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def pull(connection: sqlite3.Connection, url: str) -> Merged:
    """Merges the segments at `url` that were not merged before, each in one transaction. Raises CacheError."""
    total, remote = Merged(), text_id(url)
    with _named(url):
        fs, root = _place(url)
        names = _names(fs, root)
        if not names and (not fs.exists(root) or fs.isfile(root)):
            raise CacheError(f"{_shown(url)}: no such folder; autofix cache push makes it")
        for name in names:
            if name in _known(connection, remote, merged=True):
                continue
            data = _fetch(fs, f"{root}/{name}", name, total)
            if data is None:
                continue
            ids: list[str] = []
            stage_rows(connection, _noting(_rows_of(data, total), ids))
            for kind, count in commit_staged(connection).items():
                total.added[kind] = total.added.get(kind, 0) + count
            _remember(connection, remote, name, ids, True)
    return total


def _noting(rows: Iterator[Row], ids: list[str]) -> Iterator[Row]:
    for row in rows:
        ids.append(row.id)
        yield row


def push(connection: sqlite3.Connection, url: str, *, redact: bool = False, origins: set[str] | None = None) -> Pushed:
    """Adds what the place at `url` lacks as new segments. Raises CacheError; segments already written then stand."""
    pushed, remote = Pushed(), text_id(url)
    with _named(url):
        fs, root = _place(url)
        known = _known(connection, remote, merged=False)
        for name in _names(fs, root):
            if name not in known and (data := _fetch(fs, f"{root}/{name}", name, Merged())) is not None:
                _remember(connection, remote, name, [row.id for row in _rows_of(data, Merged())], False)
        there = {id for (id,) in connection.execute("SELECT id FROM shared WHERE remote = ?", (remote,))}
        batch: list[Row] = []
        for row in export_rows(connection, redact=redact, origins=origins):
            if row.id not in there:
                there.add(row.id)
                batch.append(row)
            if len(batch) == ROWS_PER_SEGMENT:
                _write(fs, root, remote, connection, batch, pushed)
        _write(fs, root, remote, connection, batch, pushed)
    return pushed


def _write(fs: Any, root: str, remote: str, connection: sqlite3.Connection, batch: list[Row], pushed: Pushed) -> None:
    if not batch:
        return
    data = gzip.compress("".join(row.line() + "\n" for row in batch).encode(), 6, mtime=0)
    name = hashlib.sha256(data).hexdigest() + ".jsonl.gz"
    if not _BUCKETS & ({fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)):
        fs.makedirs(root, exist_ok=True)
    fs.pipe_file(f"{root}/{name}", data)
    _remember(connection, remote, name, [row.id for row in batch], True)
    pushed.segments, pushed.rows = pushed.segments + 1, pushed.rows + len(batch)
    batch.clear()
