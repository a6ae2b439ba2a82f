"""Many processes on one cache, and processes that die while they write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cache_rows import opened

from autofix.browse import verify
from autofix.cache import Cache

WRITER = Path(__file__).resolve().parent.parent / "benchmarks" / "cache.py"


def write(path: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(WRITER), "--write", str(path), name, str(count)], stdout=subprocess.PIPE)


def passes(path: Path, name: str) -> set[int]:
    with Cache.open(path, seed=False) as cache:
        assert verify(cache.connection) == []
        sql = "SELECT r.body FROM outcomes o JOIN recipes r ON r.id = o.recipe_id WHERE o.case_id = ? AND o.verdict = 'pass'"
        return {json.loads(body)["fixes"][0]["params"]["n"] for (body,) in cache.connection.execute(sql, (name,))}


def test_eight_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new.db"  # not there yet: they also race to make it
    processes = [write(path, f"case-{n}", 20) for n in range(8)]
    assert [p.communicate() and p.returncode for p in processes] == [0] * 8
    assert [passes(path, f"case-{n}") for n in range(8)] == [set(range(20))] * 8


def test_a_new_file_is_made_once_by_many(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for n in range(25):
            made = list(pool.map(lambda _, n=n: opened(tmp_path, f"{n}.db"), range(8)))  # type: ignore[misc]
            assert [cache.problem for cache in made] == [None] * 8
            for cache in made:
                cache.close()


def test_kill_9_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    for n in range(6):
        process = write(path, f"case-{n}", 100_000)
        assert process.stdout
        process.stdout.readline()
        time.sleep(0.007 * n)
        os.kill(process.pid, signal.SIGKILL)
        said = {0} | {int(line) for line in process.stdout.read().split(b"\n")[:-1]}
        process.wait()
        assert said <= passes(path, f"case-{n}")
