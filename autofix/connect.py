"""Opening a cache file: to write, to read only, or in memory where the place can't be used; each failure is one clear line."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from autofix.errors import CacheError
from autofix.migrations import MIGRATIONS, migrate, version_of

BUSY_SECONDS = 60.0


def default_path() -> Path:
    """Where the cache is when nobody says otherwise."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("autofix")) / "cache.db"


def _configure(connection: sqlite3.Connection) -> sqlite3.Connection:
    # In WAL mode NORMAL loses nothing when a process dies, and nothing but the last moments when the power does.
    for pragma in ("synchronous = NORMAL", "cache_size = -16000", "temp.cache_size = -64000", "foreign_keys = OFF", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def in_memory() -> sqlite3.Connection:
    """An empty cache that lives as long as its connection."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    migrate(connection, "memory")
    return connection


def connect(path: Path | None) -> tuple[sqlite3.Connection, bool, str | None]:
    """(connection, writable, problem) for the local cache."""
    file = Path(path) if path is not None else default_path()
    try:
        folder = file.is_dir()
    except OSError as error:
        return _connect_less(file, error)
    if folder:
        raise CacheError(f"{file}: a folder, not a cache file; pass a file with --cache")
    try:
        if path is None:
            file.parent.mkdir(parents=True, exist_ok=True)
        elif not file.parent.is_dir():
            raise CacheError(f"{file}: folder {file.parent} does not exist; make it, or pass another file with --cache")
        connection = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            migrate(connection, str(file))
            connection.execute("BEGIN IMMEDIATE")  # finds out now, not at the end of a repair, whether the place can be written
            connection.execute("ROLLBACK")
            return _configure(connection), True, None
        except BaseException:
            connection.close()
            raise
    except (OSError, sqlite3.OperationalError) as error:
        if isinstance(error, sqlite3.OperationalError) and "malformed" in str(error):
            raise _broken(file) from None
        return _connect_less(file, error)
    except sqlite3.DatabaseError:
        raise _broken(file) from None


def _connect_less(file: Path, error: Exception) -> tuple[sqlite3.Connection, bool, str]:
    """Where writing is impossible: read what is there, else remember for this process only."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    try:
        return open_layer(file), False, f"{file}: can't be written ({why}): it is read, and nothing will be recorded"
    except (CacheError, sqlite3.Error, OSError):
        return in_memory(), True, f"{file}: can't be used ({why}): nothing will be kept after this repair"


def _broken(file: Path) -> CacheError:
    return CacheError(
        f"{file}: not a cache, or a damaged one; move it away, or pass another file with --cache (autofix cache verify FILE tells more)"
    )


def open_layer(file: Path) -> sqlite3.Connection:
    """A cache file opened read-only; a .jsonl export is read into memory. Raises CacheError, OSError or sqlite3.Error."""
    if not file.is_file():
        raise CacheError(f"{file}: no such file")
    if file.suffix == ".jsonl":
        from autofix.exchange import merge_file

        connection = in_memory()
        merge_file(connection, file)
        return connection
    uri = file.resolve().as_uri()
    # A WAL file in a folder that can't be written opens only as immutable, which is right as long as nobody writes it.
    for options in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{uri}?{options}", uri=True, timeout=5.0, isolation_level=None, check_same_thread=False)
        try:
            version = version_of(connection, str(file))
            if version < len(MIGRATIONS):
                older = f"written by an older autofix; `autofix cache stats --cache {file}` brings it up to date"
                raise CacheError(f"{file}: {older if version else 'an empty file'}")
            connection.execute("SELECT count(*) FROM rates WHERE key = ''").fetchone()
            return connection
        except sqlite3.OperationalError as error:
            connection.close()
            if "immutable" in options:
                raise CacheError(f"{file}: can't be read: {error}") from None
        except sqlite3.DatabaseError:
            connection.close()
            raise _broken(file) from None
        except CacheError:
            connection.close()
            raise
    raise AssertionError("unreachable")
