from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from cache_rows import ENV, MISSING, OLD, STOCK, TARGET, WRONG, case, failed, fix, opened, passed, stock
from click.testing import CliRunner

from autofix import migrations
from autofix.browse import collect_garbage, verify
from autofix.cache import Cache
from autofix.cache_cli import cache as command
from autofix.errors import CacheError
from autofix.recipe import Fix, Level
from autofix.target import Effect, Target
from autofix.trial import Stage, Trial, Verdict


def outcomes(cache: Cache) -> int:
    return int(cache.connection.execute("SELECT count(*) FROM outcomes").fetchone()[0])


def test_a_pass_is_known_again(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        assert cache.known_recipe(case().id, ENV, TARGET) is None
        cache.record(case(), ENV, TARGET, [stock(), failed(fix("other")), passed(fix(n=3))])
        assert cache.problem is None
    with opened(tmp_path) as cache:
        assert cache.known_recipe(case().id, ENV, TARGET) == passed(fix(n=3)).recipe
        assert cache.known_recipe("another", ENV, TARGET) is None
        assert outcomes(cache) == 3
        assert verify(cache.connection) == []


def test_recording_again_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        trials = [stock(), passed(fix())]
        for upto in (1, 2, 2):
            cache.record(case(), ENV, TARGET, trials[:upto])
        rows = list(cache.rows())
        assert outcomes(cache) == 2
        assert list(cache.rates().of("*")) == [("add_lgamma", "2.13|1.32", 1, 10, 2000)]
        cache.record(case(), ENV, TARGET, trials)
        assert list(cache.rows()) == rows


def test_a_parent_recorded_earlier_is_found(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock()])
        cache.record(case(), ENV, TARGET, [passed(fix())])
        body = next(r.body for r in cache.rows(["outcome"]) if r.body["verdict"] == "pass")
        assert (body["cause_symptom"], body["cause_operator"], body["cause_stage"], body["added"]) == (
            "unsupported-operator",
            "aten.lgamma.default",
            "convert",
            ["add_lgamma"],
        )


def test_only_what_the_last_fixes_were_proposed_for_counts(tmp_path: Path) -> None:
    """Two faults: the first fix made progress, the second passed; neither gets credit for the other."""
    first = failed(fix("first"), stage=Stage.PARITY, diagnosis=WRONG)
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), first, passed(fix("first"), fix("second"), parent=first.recipe)])
        assert list(cache.rates().of("symptom unsupported-operator")) == [("first", "2.13|1.32", 1, 6, 2000)]
        assert list(cache.rates().of("symptom mismatch-at-example")) == [("second", "2.13|1.32", 1, 10, 2000)]


def test_no_source_no_path_no_message_is_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), failed(fix(), stage=Stage.PARITY, diagnosis=WRONG)])
        text = "".join(row.line() for row in cache.rows())
    assert "/home/me" not in text and "off by 1" not in text


def test_effect_environment_and_target_decide_what_is_offered(tmp_path: Path) -> None:
    loose = Target(allow=frozenset({Effect.APPROXIMATE}))
    half, exact, old = passed(fix("half")), passed(fix("a"), fix("b")), passed(fix("old"))
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, loose, [stock(), half], effect_of=lambda recipe: Effect.APPROXIMATE)
        assert cache.known_recipe(case().id, ENV, TARGET) is None
        assert cache.known_recipe(case().id, ENV, loose) == half.recipe
        cache.record(case(), OLD, TARGET, [stock(), old])
        assert cache.known_recipe(case().id, ENV, TARGET) == old.recipe  # another environment is better than nothing
        cache.record(case(), ENV, TARGET, [stock(), exact])
        assert cache.known_recipe(case().id, ENV, TARGET) == exact.recipe
        assert cache.known_recipe(case().id, OLD, TARGET) == old.recipe
        assert cache.known_recipe(case().id, ENV, loose) == exact.recipe  # exact before approximate


def test_evidence_of_a_baked_branch_is_narrowing(tmp_path: Path) -> None:
    narrow = Target(allow=frozenset({Effect.NARROWING}))
    trial = Trial(passed(fix()).recipe, Stage.DONE, Verdict.PASS, effect_evidence=("tracer warning",), parent=STOCK.id)
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, narrow, [stock(), trial], effect_of=lambda recipe: Effect.EXACT)
        assert cache.known_recipe(case().id, ENV, TARGET) is None
        assert cache.known_recipe(case().id, ENV, narrow) == trial.recipe


def test_without_effects_the_worst_allowed_is_assumed(tmp_path: Path) -> None:
    loose = Target(allow=frozenset({Effect.APPROXIMATE}))
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, loose, [stock(), passed(fix())])
        assert cache.known_recipe(case().id, ENV, TARGET) is None


def test_a_recipe_that_fails_here_is_not_offered_here(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), OLD, TARGET, [stock(), passed(fix())])
        cache.record(case(), ENV, TARGET, [stock(), failed(fix())])
        assert cache.known_recipe(case().id, ENV, TARGET) is None
        assert cache.known_recipe(case().id, OLD, TARGET) == passed(fix()).recipe


def test_retraction_withdraws_what_was_seen_so_far(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), passed(fix())])
        assert cache.retract(case().id, passed(fix()).recipe.id, "wrong on other sizes") == 1
        assert cache.known_recipe(case().id, ENV, TARGET) is None
        assert not cache.rates().of("*")
        cache.record(case(), ENV, TARGET, [stock(), passed(fix())])  # the very same outcome stays withdrawn
        assert cache.known_recipe(case().id, ENV, TARGET) is None
        cache.record(case(), ENV, TARGET, [stock(), passed(fix(), seconds=2.5)])  # a new one counts
        assert cache.known_recipe(case().id, ENV, TARGET) == passed(fix()).recipe
        assert cache.retract("no such", "recipe", "") == 0
        assert verify(cache.connection) == []
        assert cache.stats()["origins"][0]["retracted"] == 1


def test_known_not_repairable_holds_for_these_versions_only(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), failed(fix(), stage=Stage.PARITY, diagnosis=WRONG)], stopped="exhausted", strategies="ab")
        found = cache.known_hopeless(case().id, ENV, TARGET, "ab")
        assert found and (found.trials, found.stage, found.symptom, str(found.nearest)) == (2, "parity", "mismatch-at-example", "add_lgamma()")
        assert found.environment["torch"] == "2.13.0+cpu"
        assert cache.known_hopeless(case().id, {**ENV, "torch": "2.14.0"}, TARGET, "ab") is None
        assert cache.known_hopeless(case().id, ENV, Target(max_opset=18), "ab") is None
        assert cache.known_hopeless(case().id, ENV, TARGET, "cd") is None  # other strategies are installed now
        cache.record(case("two"), ENV, TARGET, [stock()], stopped="budget", strategies="ab")
        assert cache.known_hopeless(case("two").id, ENV, TARGET, "ab") is None
        cache.record(case(), ENV, TARGET, [stock(), passed(fix("late"))])
        assert cache.known_hopeless(case().id, ENV, TARGET, "ab") is None


def test_layers_are_read_and_never_written(tmp_path: Path) -> None:
    with opened(tmp_path, "team.db") as team:
        team.record(case(), ENV, TARGET, [stock(), passed(fix())])
    before = (tmp_path / "team.db").read_bytes()
    with Cache.open(tmp_path / "mine.db", [tmp_path / "team.db", tmp_path / "none.db"], seed=False) as cache:
        assert cache.problem and "none.db" in cache.problem
        assert cache.known_recipe(case().id, ENV, TARGET) == passed(fix()).recipe
        assert list(cache.rates().of("*")) == [("add_lgamma", "2.13|1.32", 1, 10, 2000)]
        assert cache.retract(case().id, passed(fix()).recipe.id, "wrong here") == 1
        assert cache.known_recipe(case().id, ENV, TARGET) is None
    assert (tmp_path / "team.db").read_bytes() == before


@pytest.mark.parametrize("what", ["text", "cut", "stranger", "newer", "folder", "no parent"])
def test_a_file_that_is_no_cache_gives_one_clear_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / "cache.db"
    if what == "text":
        path.write_text("not a database " * 100)
    elif what == "cut":
        with opened(tmp_path) as cache:
            for n in range(50):
                cache.record(case(str(n)), ENV, TARGET, [stock(), passed(fix(n=n))])
        data = path.read_bytes()
        path.write_bytes(data[:5000] + b"\x00" * 3000)
    elif what == "stranger":
        sqlite3.connect(path).execute("CREATE TABLE mine (a)")
    elif what == "newer":
        opened(tmp_path).close()
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
    elif what == "folder":
        path.mkdir()
    else:
        path = tmp_path / "none" / "cache.db"
    was = path.read_bytes() if path.is_file() else None
    try:
        with Cache.open(path, seed=False) as cache:
            assert cache.known_recipe("x", ENV, TARGET) is None and verify(cache.connection)
            assert what == "cut"
    except CacheError as error:
        assert "\n" not in str(error) and str(path) in str(error)
        assert what != "newer" or "newer autofix" in str(error)
    assert was is None or what == "cut" or path.read_bytes() == was
    answer = CliRunner().invoke(command, ["stats", "--cache", str(path)])
    assert what == "cut" or (answer.exit_code == 2 and answer.output.count("\n") <= 4 and "Traceback" not in answer.output)


def test_a_place_that_cannot_be_written_still_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), passed(fix())])
    code = """
import os, sys
from autofix.cache import Cache
from cache_rows import *
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
cache = Cache.open(Path(sys.argv[1]), seed=False)
assert "can't be written" in cache.problem, cache.problem
assert cache.known_recipe(case().id, ENV, TARGET) == passed(fix()).recipe
cache.record(case("new"), ENV, TARGET, [stock()])
cache.retract(case().id, passed(fix()).recipe.id, "")
other = Cache.open(Path(sys.argv[1]).with_name("other.db"), seed=False)
assert "nothing will be kept" in other.problem
other.record(case(), ENV, TARGET, [stock(), passed(fix())])
assert other.known_recipe(case().id, ENV, TARGET)
"""
    (tmp_path / "cache.db").chmod(0o444)
    tmp_path.chmod(0o555)
    for parent in tmp_path.parents:
        if not parent.stat().st_mode & 0o001 and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    done = run_code(code, str(tmp_path / "cache.db"))
    tmp_path.chmod(0o755)
    assert done.returncode == 0, done.stderr


def run_code(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).resolve().parent
    path = os.pathsep.join([str(here.parent), str(here)])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


def test_the_default_place_may_be_impossible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("autofix.connect.default_path", lambda: tmp_path / "file" / "autofix" / "cache.db")
    with Cache.open(None, seed=False) as cache:
        assert cache.problem and "nothing will be kept" in cache.problem
        cache.record(case(), ENV, TARGET, [stock(), passed(fix())])
        assert cache.known_recipe(case().id, ENV, TARGET) == passed(fix()).recipe


def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), passed(fix())])
        pages = cache.connection.execute("PRAGMA page_count").fetchone()[0]
        cache.connection.execute(f"PRAGMA max_page_count = {pages}")
        for n in range(100):
            cache.record(case(f"c{n}"), ENV, TARGET, [stock(), passed(fix(n=n))])
        assert cache.problem and "full" in cache.problem
        assert cache.known_recipe(case().id, ENV, TARGET) == passed(fix()).recipe
        assert verify(cache.connection) == []
    with opened(tmp_path) as cache:
        assert verify(cache.connection) == []
        assert cache.known_recipe(case().id, ENV, TARGET) == passed(fix()).recipe


def test_what_is_no_row_is_left_out_and_said(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        bad = passed(Fix("Bad Name!", Level.ONNX, {}))
        cache.record(case(), ENV, TARGET, [stock(), bad, passed(fix())])
        assert outcomes(cache) == 2 and cache.problem and "bad strategy name" in cache.problem
    with opened(tmp_path) as cache:
        cache.record(case("../" * 40), ENV, TARGET, [stock()])
        assert cache.problem and "bad case_id" in cache.problem


def test_old_schemas_migrate(tmp_path: Path) -> None:
    with opened(tmp_path, "new.db") as new:
        new.record(case(), ENV, TARGET, [stock(), passed(fix())])
        rows = list(new.rows())
        for version in range(1, len(migrations.MIGRATIONS)):
            old = sqlite3.connect(tmp_path / f"v{version}.db", isolation_level=None)
            migrations.migrate(old, "old", upto=version)
            new.connection.execute("ATTACH ? AS old", (str(tmp_path / f"v{version}.db"),))
            for table in [*migrations.TABLES, *(["rates"] if version > 1 else [])]:
                new.connection.execute(f"INSERT INTO old.{table} SELECT * FROM main.{table}")
            new.connection.execute("DETACH old")
            old.close()
            with opened(tmp_path, f"v{version}.db") as migrated:
                assert list(migrated.rows()) == rows and verify(migrated.connection) == []
                assert migrated.rates().of("*") == new.rates().of("*")  # version 1 had none: counted by the next step


def test_an_older_team_cache_is_left_out_with_what_to_do(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "team.db", isolation_level=None)
    migrations.migrate(old, "old", upto=1)
    old.close()
    with Cache.open(tmp_path / "mine.db", [tmp_path / "team.db"], seed=False) as cache:
        assert cache.problem and "brings it up to date" in cache.problem and not cache.layers


def test_a_recipe_of_another_version_is_no_hint(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), passed(fix())])
        cache.connection.execute("UPDATE recipes SET body = json_set(body, '$.start.later', 1)")
        assert cache.known_recipe(case().id, ENV, TARGET) is None
        assert cache.show("one")[0]["recipe"] == "(of another version)"


def test_garbage_goes_and_the_rest_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), passed(fix("bad"))])
        cache.record(case("two"), ENV, TARGET, [stock(), passed(fix("good"))])
        cache.retract(case().id, passed(fix("bad")).recipe.id, "")
        assert collect_garbage(cache.connection, None)["outcomes"] == 1
        assert verify(cache.connection) == []
        assert cache.known_recipe(case("two").id, ENV, TARGET) == passed(fix("good")).recipe
        cache.connection.execute("UPDATE outcomes SET seen = seen - 10")
        assert collect_garbage(cache.connection, 30)["outcomes"] == 0
        assert collect_garbage(cache.connection, 5)["outcomes"] == 3
        assert not cache.rates().of("*") and verify(cache.connection) == []


def test_opening_needs_neither_torch_nor_numpy(tmp_path: Path) -> None:
    code = "import sys; from autofix.cache import Cache; from pathlib import Path; Cache.open(Path(sys.argv[1])).close(); import autofix.cache_cli\n"
    done = run_code(code + "assert not {'torch', 'numpy', 'sqlite_utils', 'fsspec'} & set(sys.modules)", str(tmp_path / "c.db"))
    assert done.returncode == 0, done.stderr


def test_it_is_a_plain_sqlite_utils_database(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), passed(fix())])
        assert {"cases", "environments", "targets", "recipes", "outcomes", "retractions"} <= set(cache.db.table_names())
        assert [row["verdict"] for row in cache.db.query("SELECT verdict FROM outcomes WHERE symptom = ?", [MISSING.symptom])] == ["fail"]
