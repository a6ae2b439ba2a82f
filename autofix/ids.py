"""Content ids: sha256 of canonical JSON, so that equal data has one name on every machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(data: Any) -> str:
    """JSON with sorted keys and no white space; raises ValueError on NaN and Infinity, which JSON lacks."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_id(data: Any) -> str:
    """The first 32 hex digits of the sha256 of `data` as canonical JSON."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()[:32]


def text_id(text: str) -> str:
    """The first 32 hex digits of the sha256 of `text`."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
