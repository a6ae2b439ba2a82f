"""Real inputs for approximate fixes: what `--calibration FILE` holds, and the feeds that a fix sees while it is applied."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

CALIBRATION_FEEDS: ContextVar[tuple[dict[str, Any], ...]] = ContextVar("CALIBRATION_FEEDS", default=())
VERIFIED_SAMPLES = 4
"""Calibration samples on which the error is measured as well; the rest only calibrate."""


@contextlib.contextmanager
def calibrating(feeds: list[dict[str, Any]]) -> Iterator[None]:
    """Let the fixes applied inside see these feeds, {ONNX input name: array} each."""
    token = CALIBRATION_FEEDS.set(tuple(feeds))
    try:
        yield
    finally:
        CALIBRATION_FEEDS.reset(token)


def calibration_feeds() -> list[dict[str, Any]]:
    """The feeds of the person's own inputs: given, more, samples, then the calibration file's."""
    return [dict(feed) for feed in CALIBRATION_FEEDS.get()]


def calibration_sets(file: str, model: Any, given: Any) -> list[Any]:
    """The input sets of a calibration file, [] without one; raises CaseError where it can't be read."""
    from dataclasses import replace

    from autofix.samples import sample_sets

    sets = sample_sets(file, model, given) if file else []
    return [replace(one, name=f"calibration {i}", origin="calibration") for i, one in enumerate(sets, 1)]


def feeds_of(model: Any, sets: list[Any], names: list[str]) -> list[dict[str, Any]]:
    """{ONNX input name: array} of each input set that has all of these inputs (sets with other leaves say nothing about the file)."""
    from autofix.adapter import input_leaves, parameter_name
    from autofix.verify import number_array

    feeds = []
    for one in sets:
        leaves = {}
        for name, value in input_leaves(model.forward, one.args, one.kwargs):
            leaves[name] = leaves[parameter_name(name)] = value
        if all(name in leaves for name in names):
            feeds.append({name: number_array(leaves[name]) for name in names})
    return feeds
