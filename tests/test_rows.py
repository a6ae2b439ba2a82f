from __future__ import annotations

import contextlib
import json

import pytest
from cache_rows import LINES
from hypothesis import given, settings
from hypothesis import strategies as st

from autofix import row_checks, rows
from autofix.ids import canonical_json, content_id
from autofix.row_checks import Refused
from autofix.rows import parse_line


def row(kind: str, body: dict[str, object]) -> bytes:
    """A line with the right hash, as an attacker would send it."""
    return canonical_json({"kind": kind, "id": content_id(body), "body": body}).encode()


OUTCOME = next(json.loads(line)["body"] for line in LINES if b'"kind":"outcome"' in line and b'"verdict":"pass"' in line)
RECIPE = {"start": {}, "fixes": [{"strategy": "s", "level": "onnx", "params": {"n": 1}}]}
TARGET_BODY = next(json.loads(line)["body"] for line in LINES if b'"kind":"target"' in line)


def recipe_with(value: object) -> bytes:
    return row("recipe", {**RECIPE, "fixes": [{**RECIPE["fixes"][0], "params": {"n": value}}]})  # type: ignore[index]


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


HOSTILE: dict[str, bytes] = {
    "SQL in an id": row("outcome", {**OUTCOME, "case_id": "x'); DROP TABLE outcomes; --"}),
    "SQL in a strategy": row("outcome", {**OUTCOME, "added": ["a'; DROP TABLE rates; --"]}),
    "SQL in a symptom": row("outcome", {**OUTCOME, "cause_symptom": "' OR 1=1"}),
    "line break in a field": row("outcome", {**OUTCOME, "case_id": "x\ny"}),
    "final line break": row("outcome", {**OUTCOME, "case_id": "x\n"}),
    "digits of another script": row("outcome", {**OUTCOME, "versions": "٢.13|1.32"}),
    "unsorted strategies": row("outcome", {**OUTCOME, "added": ["b", "a"]}),
    "a strategy twice": row("outcome", {**OUTCOME, "added": ["a", "a"]}),
    "too many strategies": row("outcome", {**OUTCOME, "added": sorted(f"s{n}" for n in range(40))}),
    "huge number": row("outcome", {**OUTCOME, "ms": 10**300}),
    "too many milliseconds": row("outcome", {**OUTCOME, "ms": 10**10 + 1}),
    "negative number": row("outcome", {**OUTCOME, "ms": -1}),
    "a float where a whole number belongs": row("outcome", {**OUTCOME, "ms": 1.5}),
    "a truth value where a number belongs": row("outcome", {**OUTCOME, "ms": True}),
    "unknown field": row("outcome", {**OUTCOME, "code": "import os"}),
    "missing field": row("outcome", {k: v for k, v in OUTCOME.items() if k != "verdict"}),
    "unknown verdict": row("outcome", {**OUTCOME, "verdict": "perfect"}),
    "wrong type": row("outcome", {**OUTCOME, "verdict": ["pass"]}),
    "wrong hash": row("outcome", OUTCOME).replace(b'"verdict":"pass"', b'"verdict":"fail"'),
    "no canonical text under a hash of its own": b'{"kind":"outcome","id":"%s","body":%s}' % (b"0" * 32, canonical_json(OUTCOME).encode()),
    "unknown kind": row("pickle", {}),
    "kind of a wrong type": b'{"body":{},"id":"x","kind":["outcome"]}',
    "not an object": b"[1, 2]",
    "body is a list": b'{"body":[],"id":"x","kind":"outcome"}',
    "not JSON": b"{",
    "not UTF-8": b'{"kind":"\xff"}',
    "lone surrogate": b'{"body":{"team":"\\ud800","user":"","machine":""},"id":"x","kind":"origin"}',
    "NaN": b'{"body":{"modules":{},"n":NaN},"id":"x","kind":"case"}',
    "deep nesting": b"[" * 50_000,
    "deep and closed": b'{"body":' + b"[" * 5000 + b"]" * 5000 + b',"id":"x","kind":"case"}',
    "too long": b'{"kind":"' + b"x" * 70_000 + b'"}',
    "absolute path": recipe_with("/etc/passwd"),
    "path traversal": recipe_with("../../secrets"),
    "path traversal on Windows": recipe_with("a\\..\\b"),
    "home folder": recipe_with("~/x"),
    "drive": recipe_with("C:\\x"),
    "URL": recipe_with("http://example.org/x"),
    "code": recipe_with("import os\nos.system('true')"),
    "deep parameters": recipe_with(nested(20)),
    "number past a double's whole numbers": recipe_with(2**60),
    "long text": recipe_with("x" * 5000),
    "right-to-left override": recipe_with("abc\u202edcba"),
    "zero width": recipe_with("a\u200bb"),
    "unsorted levels": row("recipe", {"start": {}, "fixes": [{"strategy": "s", "level": v, "params": {}} for v in ("onnx", "config")]}),
    "a fix twice": row("recipe", {"start": {}, "fixes": [RECIPE["fixes"][0]] * 2}),  # type: ignore[index]
    "unknown level": row("recipe", {"start": {}, "fixes": [{"strategy": "s", "level": "kernel", "params": {}}]}),
    "level in capitals": row("recipe", {"start": {}, "fixes": [{"strategy": "s", "level": "ONNX", "params": {}}]}),
    "strategy that is a path": row("recipe", {"start": {}, "fixes": [{"strategy": "../s", "level": "onnx", "params": {}}]}),
    "unknown start": row("recipe", {"start": {"exec": "x"}, "fixes": []}),
    "start of a wrong type": row("recipe", {"start": {"optimize": "yes"}, "fixes": []}),
    "capture mode that isn't": row("recipe", {"start": {"capture": "eval"}, "fixes": []}),
    "target with a text for a number": row("target", {**TARGET_BODY, "rtol": "big"}),
    "target that allows what isn't": row("target", {**TARGET_BODY, "allow": ["anything"]}),
    "target with a tolerance below zero": row("target", {**TARGET_BODY, "rtol": -1}),
    "target without threads": row("target", {**TARGET_BODY, "threads": 0}),
    "target with half an opset": row("target", {**TARGET_BODY, "min_opset": 11.5}),
    "target with no opset": row("target", {**TARGET_BODY, "min_opset": 24, "max_opset": 11}),
    "target with more": row("target", {**TARGET_BODY, "hook": 1}),
    "environment with a long version": row("environment", {"torch": "2" * 1000}),
    "environment of numbers": row("environment", {"torch": 2}),
    "case with odd characters": row("case", {"case_id": "a", "name": "a\u202eb", "modules": {}, "symptom": ""}),
    "case with odd counts": row("case", {"case_id": "a", "name": "a", "modules": {"Linear": -1}, "symptom": ""}),
    "case with too many modules": row("case", {"case_id": "a", "name": "a", "modules": {f"M{n}": 1 for n in range(600)}, "symptom": ""}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_rows_are_refused_with_a_reason(name: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_line(HOSTILE[name])
    assert 3 < len(str(refused.value)) < 60


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_random_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    """A line with a byte changed, dropped or doubled is refused, or says the same as before."""
    line = data.draw(st.sampled_from(LINES))
    at = data.draw(st.integers(0, len(line) - 1))
    piece = data.draw(st.one_of(st.binary(max_size=3), st.just(line[at : at + 1] * 2)))
    damaged = line[:at] + piece + line[at + 1 :]
    try:
        assert parse_line(damaged).line().encode() == line
    except Refused:
        pass


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    ),
    st.sampled_from(row_checks.KINDS),
)
def test_any_json_is_refused_or_a_row(body: object, kind: str) -> None:
    line = json.dumps({"kind": kind, "id": "0" * 32, "body": body}).encode()
    with contextlib.suppress(Refused):
        assert parse_line(line).kind == kind


def test_the_short_way_reads_what_the_long_way_reads() -> None:
    outcomes = [line for line in LINES if b'"kind":"outcome"' in line]
    assert outcomes
    for line in outcomes:
        assert rows._parse_outcome(line) == rows._parse_any(line)
    for line in (
        row("outcome", {**OUTCOME, "added": []}),
        row("outcome", {**OUTCOME, "ms": 0, "added": ["a", "b"], "cause_stage": "", "cause_symptom": ""}),
    ):
        assert rows._parse_outcome(line) == rows._parse_any(line)
        spaced = json.dumps(json.loads(line)).encode()
        assert rows._parse_outcome(spaced) is None and parse_line(spaced) == parse_line(line)  # the same row under the same id
    assert rows._parse_outcome(row("outcome", {**OUTCOME, "added": ["b", "a"]})) is None
