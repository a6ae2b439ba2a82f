from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache_rows import ENV, LINES, STOCK, TARGET, case, failed, fix, opened, passed, stock, text
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rows import HOSTILE

from autofix import exchange, remote, row_checks
from autofix.browse import origin_ids, verify
from autofix.cache import Cache
from autofix.connect import in_memory
from autofix.errors import CacheError
from autofix.exchange import export_file, export_lines, is_public, merge_file, merge_lines
from autofix.recipe import Fix, Level, Recipe
from autofix.remote import pull
from autofix.trial import Diagnosis, Stage, Trial, Verdict

DATA = Path(__file__).resolve().parent.parent / "cache" / "seed.jsonl"


SUBSETS = st.sets(st.integers(0, len(LINES) - 1)).map(lambda chosen: [LINES[n] for n in sorted(chosen)])


@contextlib.contextmanager
def merged(*parts: list[bytes]) -> Iterator[sqlite3.Connection]:
    connection = in_memory()
    for part in parts:
        assert not merge_lines(connection, part).refused
    try:
        assert verify(connection) == []  # every time: ids, shapes, and counts equal to those made anew
        yield connection
    finally:
        connection.close()


def everything(connection: sqlite3.Connection) -> tuple[str, list[tuple[object, ...]]]:
    return text(connection), connection.execute("SELECT * FROM rates ORDER BY 1, 2, 3").fetchall()


@settings(max_examples=40, deadline=None)
@given(a=SUBSETS, b=SUBSETS)
def test_merge_is_commutative(a: list[bytes], b: list[bytes]) -> None:
    with merged(a, b) as one, merged(b, a) as other:
        assert everything(one) == everything(other)


@settings(max_examples=40, deadline=None)
@given(a=SUBSETS, b=SUBSETS, c=SUBSETS)
def test_merge_is_associative(a: list[bytes], b: list[bytes], c: list[bytes]) -> None:
    with merged(b, c) as right, merged(a, b) as left:
        bc, ab = text(right).encode().splitlines(), text(left).encode().splitlines()
    with merged(a, bc) as one, merged(ab, c) as other:
        assert everything(one) == everything(other)


@settings(max_examples=40, deadline=None)
@given(a=SUBSETS, order=st.randoms(use_true_random=False))
def test_merge_is_idempotent(a: list[bytes], order: random.Random) -> None:
    shuffled = a * 2
    order.shuffle(shuffled)
    with merged(a) as once, merged(shuffled, a) as often:
        assert everything(once) == everything(often)


def test_two_teams_with_conflicting_outcomes_merge_to_the_same_bytes(tmp_path: Path) -> None:
    for user, trial in (("ann", passed(fix())), ("bob", failed(fix()))):
        with opened(tmp_path, f"{user}.db", user) as cache:
            cache.record(case(), ENV, TARGET, [stock(), trial], stopped="exhausted" if user == "bob" else "solved")
            cache.retract(case().id, trial.recipe.id, user)
            export_file(cache.connection, tmp_path / f"{user}.jsonl")
    for name, order in (("x", ("ann", "bob")), ("y", ("bob", "ann"))):
        with Cache.memory(seed=False) as cache:
            for user in order:
                merge_file(cache.connection, tmp_path / f"{user}.jsonl")
            export_file(cache.connection, tmp_path / f"{name}.jsonl")
    assert (tmp_path / "x.jsonl").read_bytes() == (tmp_path / "y.jsonl").read_bytes()


def test_an_export_is_sorted_and_a_union_of_lines_is_an_export(tmp_path: Path) -> None:
    half, rest = LINES[::2], LINES[1::2]
    (tmp_path / "union.jsonl").write_bytes(b"\n".join([*half, *rest, *half[:5]]) + b"\r\n\n")
    with Cache.memory(seed=False) as cache, merged(LINES) as whole:
        merge_file(cache.connection, tmp_path / "union.jsonl")
        assert text(cache.connection) == text(whole)
    keys = [(row_checks.KINDS.index(data["kind"]), data["id"]) for data in map(json.loads, text_of(LINES))]
    assert keys == sorted(keys)


def text_of(lines: list[bytes]) -> list[str]:
    with merged(lines) as connection:
        return text(connection).splitlines()


def test_a_cache_file_and_a_compressed_export_merge_too(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), passed(fix())])
        export_file(cache.connection, tmp_path / "e.jsonl.gz")
        whole = text(cache.connection)
        again = tmp_path / "again.jsonl.gz"
        export_file(cache.connection, again)
        assert again.read_bytes() == (tmp_path / "e.jsonl.gz").read_bytes()
        assert sorted(p.name for p in tmp_path.iterdir() if "jsonl" in p.name) == ["again.jsonl.gz", "e.jsonl.gz"]
    for name in ("cache.db", "e.jsonl.gz"):
        with Cache.memory(seed=False) as other:
            assert "2 outcome" in str(merge_file(other.connection, tmp_path / name))
            assert text(other.connection) == whole
    (tmp_path / "cut.jsonl.gz").write_bytes((tmp_path / "e.jsonl.gz").read_bytes()[:-30])
    with Cache.memory(seed=False) as other:
        with pytest.raises(CacheError):
            merge_file(other.connection, tmp_path / "cut.jsonl.gz")
        assert text(other.connection) == ""
        with pytest.raises(CacheError, match="not read"):
            merge_file(other.connection, tmp_path / "none.jsonl")


def test_hostile_rows_are_refused_with_a_reason_and_the_rest_is_kept() -> None:
    with Cache.memory(seed=False) as cache:
        mixed = list(itertools.chain.from_iterable(itertools.zip_longest(LINES, HOSTILE.values(), fillvalue=b"")))
        result = merge_lines(cache.connection, mixed)
        assert sum(result.refused.values()) == len(HOSTILE) and result.read == len(LINES)
        assert "refused" in str(result) and result.to_json()["refused"]["wrong hash"] == 2
        with merged(LINES) as clean:
            assert text(cache.connection) == text(clean)


def test_a_merge_that_breaks_off_adds_nothing() -> None:
    def broken() -> Iterator[bytes]:
        yield from LINES
        raise OSError("the disk went away")

    with Cache.memory(seed=False) as cache:
        with pytest.raises(CacheError, match="went away"):
            merge_lines(cache.connection, broken())
        assert text(cache.connection) == ""
        assert not merge_lines(cache.connection, LINES).refused


def test_a_line_without_end_is_refused_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"x" * 1_000_000 + b"\n" + LINES[0] + b"\n" + b"y" * 200_000)
    with Cache.memory(seed=False) as cache:
        result = merge_file(cache.connection, path)
    assert result.read == 1 and result.refused == {"line too long": 2}


def test_unknown_strategies_are_kept_as_data(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), passed(fix("from_the_future", n=1))])
        lines = text(cache.connection).encode().splitlines()
    with merged(lines) as other:
        assert text(other).encode().splitlines() == lines


def test_redaction_leaves_counts_and_takes_names_and_places(tmp_path: Path) -> None:
    local = passed(Fix("rewrite", Level.SOURCE, {"file": "/home/ann/secret.py", "function": "forward"}))
    relative = passed(Fix("rewrite", Level.SOURCE, {"file": "secret.py", "function": "forward"}), seconds=3)
    with opened(tmp_path) as cache:
        cache.record(case("secretmodel"), ENV, TARGET, [stock(), local, relative, passed(fix(n=1))])
        cache.retract(case("secretmodel").id, passed(fix(n=1)).recipe.id, "secret reason")
        plain, hidden = text(cache.connection), text(cache.connection, redact=True)
        ids = {json.loads(line)["id"] for line in plain.splitlines() if '"kind":"outcome"' in line}
    assert "/home/ann" not in plain and "secret.py" in plain
    for word in ("secret.py", "secret reason", "secretmodel.py", '"ann"', "blue", "platform", "GELU"):
        assert word not in hidden, word
    assert {json.loads(line)["id"] for line in hidden.splitlines() if '"kind":"outcome"' in line} == ids
    with merged(plain.encode().splitlines(), hidden.encode().splitlines()) as both, merged(plain.encode().splitlines()) as one:
        assert everything(both)[1] == everything(one)[1]
    with merged(hidden.encode().splitlines()) as other:
        assert text(other, redact=True) == hidden


def test_exports_can_be_limited_to_an_origin() -> None:
    with merged(LINES) as connection:
        chosen = origin_ids(connection, ["bob"])
        lines = [json.loads(line) for line in export_lines(connection, origins=chosen)]
        assert {line["body"]["user"] for line in lines if line["kind"] == "origin"} == {"bob"}
        assert {line["body"]["origin_id"] for line in lines if line["kind"] in ("outcome", "search", "retraction")} == chosen
        assert {line["kind"] for line in lines} == set(row_checks.KINDS)
        with pytest.raises(CacheError, match="no origin"):
            origin_ids(connection, ["eve"])


def test_the_shipped_outcomes_are_valid_and_planted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = in_memory()
    assert not merge_lines(connection, exchange.seed_bytes().splitlines()).refused
    monkeypatch.setattr(exchange, "seed_bytes", lambda: b"\n".join(LINES))
    with Cache.memory() as cache:
        assert text(cache.connection).encode().splitlines() == [line.encode() for line in text_of(LINES)]
        monkeypatch.setattr(exchange, "stage_rows", lambda *_: pytest.fail("planted again"))
        exchange.plant_seed(cache.connection)


def test_push_and_pull_through_a_folder(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/shared/team"
    with opened(tmp_path, "a.db", "ann") as a, opened(tmp_path, "b.db", "bob") as b:
        with pytest.raises(CacheError, match="no such folder"):
            remote.pull(a.connection, url)
        a.record(case("a"), ENV, TARGET, [stock(), passed(fix("of_ann"))])
        b.record(case("b"), ENV, TARGET, [stock(), passed(fix("of_bob"))])
        assert remote.push(a.connection, url).rows == len(list(a.rows()))
        assert remote.push(b.connection, url).rows == 5  # origin, case, recipe and two outcomes: the rest is there
        assert remote.push(a.connection, url).rows == 0
        for cache in (a, b, a):
            remote.pull(cache.connection, url)
        assert everything(a.connection) == everything(b.connection)
        assert b.known_recipe(case("a").id, ENV, TARGET) == passed(fix("of_ann")).recipe
        assert remote.push(b.connection, url).rows == 0
        assert len(list((tmp_path / "shared/team").iterdir())) == 2


def test_damaged_and_foreign_files_at_a_remote_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, folder = f"file://{tmp_path}/team", tmp_path / "team"
    with opened(tmp_path, "a.db") as a, opened(tmp_path, "b.db") as b:
        a.record(case("a"), ENV, TARGET, [stock(), passed(fix())])
        remote.push(a.connection, url)
        (segment,) = folder.iterdir()
        whole = segment.read_bytes()
        segment.write_bytes(whole[:100])  # an upload that broke off
        (folder / "README.md").write_text("hello")
        (folder / f"{'0' * 64}.jsonl.gz").write_bytes(gzip.compress(b"x"))
        result = remote.pull(b.connection, url)
        assert result.refused == {"segment damaged or half written": 2} and result.read == 0
        with opened(tmp_path, "c.db") as c:
            c.record(case("a"), ENV, TARGET, [stock(), passed(fix())])
            assert remote.push(c.connection, url).rows == len(list(c.rows()))  # done again
        assert segment.read_bytes() == whole
        monkeypatch.setattr(remote, "MAX_UNPACKED", 50)
        with pytest.raises(CacheError, match="unpacks to too much"):
            remote.pull(b.connection, url)
        assert text(b.connection) == ""
        for bad in ("nosuch://bucket/x", "file:///proc/none/x"):
            with pytest.raises(CacheError) as error:
                remote.push(a.connection, bad)
            assert "\n" not in str(error.value) and bad.split(":")[0] in str(error.value)


def test_recipes_with_tuples_keep_their_id(tmp_path: Path) -> None:
    recipe = Recipe((Fix("s", Level.ONNX, {"axes": (0, 1)}),))
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), passed(*recipe.fixes)])
        assert cache.problem is None
        known_again = cache.known_recipe(case().id, ENV, TARGET)
    assert known_again and known_again.id == recipe.id and STOCK.id != recipe.id


def test_push_and_pull_through_an_s3_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server_of = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        settings_ = {"ENDPOINT_URL": f"http://{host}:{port}", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y", "DEFAULT_REGION": "us-east-1"}
        for name, value in settings_.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        s3fs.S3FileSystem().mkdir("team")
        with opened(tmp_path, "a.db", "ann") as a, opened(tmp_path, "b.db", "bob") as b:
            a.record(case("a"), ENV, TARGET, [stock(), passed(fix("of_ann"))])
            b.record(case("b"), ENV, TARGET, [stock(), passed(fix("of_bob"))])
            for cache in (a, b, a):
                remote.push(cache.connection, "s3://team/autofix")
            for cache in (a, b):
                remote.pull(cache.connection, "s3://team/autofix")
            assert everything(a.connection) == everything(b.connection)
            assert len(s3fs.S3FileSystem().ls("team/autofix")) == 2
            with pytest.raises(CacheError, match="s3://no-such-bucket/x"):
                remote.push(a.connection, "s3://no-such-bucket/x")
    finally:
        server.stop()


def test_a_number_of_any_length_is_refused_and_the_rest_merged(tmp_path: Path) -> None:
    with opened(tmp_path) as mine, opened(tmp_path, "team.db") as team:
        team.record(case(), ENV, TARGET, [stock(), passed(fix())])
        lines = [line.encode() for line in export_lines(team.connection)]
        body = {"start": {}, "fixes": [{"strategy": "s", "level": "module", "params": {"n": 10**400}}]}
        huge = json.dumps({"kind": "recipe", "id": "0" * 32, "body": body}).encode()
        merged = merge_lines(mine.connection, iter([huge, *lines]))
        assert sum(merged.refused.values()) == 1 and merged.read == len(lines)
        assert text(mine.connection) == text(team.connection)


def test_a_models_own_operators_stay_at_home(tmp_path: Path) -> None:
    own = Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "acmesecret.topsecret_op.default"})
    with opened(tmp_path) as cache:
        root = Trial(Recipe(), Stage.CONVERT, Verdict.FAIL, own)
        cache.record(case(), ENV, TARGET, [root, passed(fix(operators=["acmesecret.topsecret_op.default"]), parent=root.recipe)])
        assert "acmesecret" in "".join(export_lines(cache.connection))
        for how in ({"redact": True}, {"ranking_only": True}):
            assert "acmesecret" not in "".join(export_lines(cache.connection, **how))
        assert "".join(export_lines(cache.connection, ranking_only=True)).count("unsupported-operator")
    assert [is_public(n) for n in ("", "Conv", "aten.lgamma.default", "prims.sign", "acme::op", "acme.op.default")] == [True] * 4 + [False] * 2


def test_an_export_replaces_files_only(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        with pytest.raises(CacheError, match="not an ordinary file"):
            export_file(cache.connection, tmp_path)
        target, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
        target.touch()
        link.symlink_to(target)
        export_file(cache.connection, link)
        assert link.is_symlink()


def test_a_place_that_is_not_there_is_said(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        for place in (tmp_path / "none", tmp_path / "c.db"):
            with pytest.raises(CacheError, match="no such folder"):
                pull(cache.connection, str(place))
