from __future__ import annotations

import json
from pathlib import Path

import pytest
from cache_rows import ENV, TARGET, case, fix, opened, passed, stock
from click.testing import CliRunner

from autofix.cache_cli import cache as command


def test_push_and_pull_without_a_place_use_those_of_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), passed(fix())])
    run = CliRunner().invoke
    answer = run(command, ["push", "--cache", str(tmp_path / "cache.db")])
    assert answer.exit_code == 2 and "give a URL" in answer.output and "[tool.autofix]" in answer.output
    (tmp_path / "autofix.toml").write_text(f'caches = ["file://{tmp_path}/one", "file://{tmp_path}/two"]\n')
    assert "rows pushed" in run(command, ["push", "--cache", str(tmp_path / "cache.db")]).output
    assert (tmp_path / "one").is_dir() and not (tmp_path / "two").exists()
    (tmp_path / "two").mkdir()
    answer = run(command, ["pull", "--cache", str(tmp_path / "other.db"), "--json"])
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.output)["added"]["outcome"] == 2


def test_the_commands(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        cache.record(case(), ENV, TARGET, [stock(), passed(fix())])
    place = ["--cache", str(tmp_path / "cache.db")]
    run = CliRunner().invoke

    def output(*words: str) -> str:
        answer = run(command, [*words, *place])
        assert answer.exit_code == 0, answer.output
        return answer.output

    assert json.loads(output("stats", "--json"))["rows"]["outcomes"] >= 2
    assert "add_lgamma" in output("stats") and "1 repaired" in output("stats")
    assert json.loads(output("show", "one", "--json"))[0]["recipe"] == "add_lgamma()"
    assert "one.py:Model" in output("show", "one")
    assert run(command, ["show", "zzz", *place]).exit_code == 2
    assert "all is well" in output("verify")
    assert output("export").count("\n") >= 8
    assert "rows written" in output("export", "-o", str(tmp_path / "e.jsonl.gz"))
    assert "nothing new" in output("merge", str(tmp_path / "e.jsonl.gz"))
    assert "rows pushed" in output("push", f"file://{tmp_path}/remote")
    assert "nothing new" in output("pull", f"file://{tmp_path}/remote")
    assert "1 outcomes withdrawn" in output("retract", "oneone", passed(fix()).recipe.id[:6], "--reason", "wrong")
    assert "dropped" in output("gc")
    assert run(command, ["push", "nosuch://x", *place]).exit_code == 2
    assert run(command, ["merge", str(tmp_path / "none"), *place]).exit_code == 2
