"""A team's shared places: copied to a file of their own beside the user's cache, and read below it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from autofix.errors import CacheError
from autofix.ids import text_id

FRESH_SECONDS = 3600.0


def mirror_of(url: str) -> Path:
    """The file that holds what was pulled from a place."""
    from autofix.connect import default_path

    return default_path().parent / f"team-{text_id(url)[:16]}.db"


def team_layers(urls: Iterable[str], tell: Callable[[str], None], fresh: float = FRESH_SECONDS) -> list[Path]:
    """Files with what the places hold, pulled anew when older than `fresh` seconds; a place that can't be reached is said, and what was
    pulled before is used."""
    from autofix.cache import Cache
    from autofix.remote import pull

    layers = []
    for url in urls:
        file = mirror_of(url)
        if not file.exists() or time.time() - file.stat().st_mtime > fresh:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with Cache.open(file, seed=False) as mirror:
                    pull(mirror.connection, url)
                file.touch()
            except (CacheError, OSError) as error:
                tell(f"the team's cache was not brought up to date: {error}")
        if file.exists():
            layers.append(file)
    return layers
