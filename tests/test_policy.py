"""A team's policy: where settings come from, and what the command line may not loosen."""

import json
import sys

import pytest
from cache_rows import ENV, TARGET, case, fix, opened, passed, stock

from autofix import remote
from autofix.cli import run
from autofix.env import environment
from autofix.locks import fits, looser
from autofix.target import Effect
from autofix.team import mirror_of, team_layers

POLICY = """
rtol = 0.001
allow = ["approximate"]
opset = "17-20"
max-latency = "8ms"
min-speedup = 1.2
without = ["capture_draft"]
jobs = 2
locked = ["rtol", "atol", "allow", "opset", "max-latency", "min-speedup", "without", "jobs", "strategies"]
"""
TIGHTER = ["--rtol=0.0001", "--opset=18", "--max-latency=7ms", "--min-speedup=1.3", "--allow=approximate", "--without=capture_draft", "--jobs=2"]
LOOSER = [
    "--rtol=0.01",
    "--atol=1",
    "--opset=16-20",
    "--opset=21",
    "--max-latency=9ms",
    "--min-speedup=1.1",
    "--allow=narrowing",
    "--allow=approximate,narrowing",
    "--without=simplify",
    "--jobs=1",
    "--strategies=.",
    "--no-policy",
]


@pytest.fixture
def asked(tmp_path, monkeypatch, capsys):
    """asked(text of autofix.toml, *options) -> (exit code, what repair was called with or None, stderr)."""
    import autofix.repair  # noqa: F401

    seen = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(sys.modules["autofix.repair"], "repair", lambda spec, target, settings, reporter: seen.append((target, settings)) or 1 / 0)
    (tmp_path / "model.py").write_text("")

    def call(text, *options):
        (tmp_path / "autofix.toml").write_text(text)
        seen.clear()
        code = run(["model.py", *options])
        return code, seen[0] if seen else None, capsys.readouterr().err

    return call


@pytest.mark.parametrize("option", LOOSER)
def test_a_locked_setting_can_not_be_loosened(asked, option):
    code, called, error = asked(POLICY, option)
    assert code == 2 and called is None
    assert option.split("=")[0] in error and "would loosen" in error and "autofix.toml" in error


@pytest.mark.parametrize("option", TIGHTER)
def test_a_locked_setting_can_be_tightened(asked, option):
    _, called, error = asked(POLICY, option)
    assert called is not None and "loosen" not in error


def test_what_is_not_locked_is_a_default_only(asked):
    _, called, _ = asked(POLICY.split("locked")[0], "--rtol=0.5", "--allow=narrowing", "--no-policy")
    assert called[0].rtol == 0.5 and called[0].allow == {Effect.NARROWING} and called[0].max_latency_ms is None
    _, called, _ = asked(POLICY)
    assert called[0].rtol == 0.001 and called[1].without == ("capture_draft",) and called[1].jobs == 2


def test_locked_true_means_all_that_is_set(asked):
    assert asked("rtol = 0.1\nlocked = true\n", "--rtol=0.2")[0] == 2
    assert asked("rtol = 0.1\nlocked = true\n", "--atol=0.2")[1] is not None


def test_a_replay_is_held_to_it_too(asked, tmp_path, capsys):
    fixes = {"start": {}, "fixes": []}
    (tmp_path / "loose.json").write_text(json.dumps({"recipe": fixes, "target": {**TARGET.to_json(), "rtol": 0.1}}))
    (tmp_path / "tight.json").write_text(json.dumps({"recipe": fixes, "target": {**TARGET.to_json(), "rtol": 1e-6}}))
    (tmp_path / "autofix.toml").write_text("rtol = 0.001\nlocked = ['rtol']\n")
    assert run(["replay", "loose.json", "model.py"]) == 2 and "would loosen rtol" in capsys.readouterr().err
    run(["replay", "tight.json", "model.py"])
    assert "would loosen" not in capsys.readouterr().err
    assert run(["replay", "tight.json", "model.py", "--rtol", "0.1"]) == 2


@pytest.mark.parametrize(
    ("name", "locked", "value", "worse"),
    [
        ("rtol", None, 0.1, True),  # tolerances by dtype
        ("rtol", 0.1, 0.1, False),
        ("max_latency", None, 5.0, False),  # a target where there was none
        ("min_speedup", None, 1.0, False),
        ("opset", None, (11, 24), False),
        ("opset", None, (7, 24), True),
        ("only", (), ("a",), False),
        ("only", ("a", "b"), ("a",), False),
        ("only", ("a",), ("b",), True),
        ("without", ("a",), ("a", "b"), False),
        ("without", ("a", "b"), ("a",), True),
        ("fastest", True, False, True),
        ("fastest", False, True, False),
        ("seed", 0, 1, True),
    ],
)
def test_what_is_looser(name, locked, value, worse):
    assert looser(name, locked, value) is worse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("locked = ['rtoll']\n", "locked names 'rtoll'"),
        ("locked = 'rtol'\n", "locked must be a list of texts or true"),
        ("versions = ['torch']\n", "versions must be a table"),
        ("[versions]\ntorch = 'new'\n", "'new' is no version specifier"),
        ("[versions]\ntorch = '<2'\n", "wants torch <2; installed is"),
        ("[versions]\nfoo = '<2'\n", "versions names 'foo'"),
        ("caches = 's3://x'\n", "caches must be a list of texts"),
        ("allowed = ['x']\n", "unknown setting 'allowed'"),
    ],
)
def test_a_policy_that_is_wrong_or_not_kept_is_one_line(asked, text, expected):
    code, called, error = asked(text)
    assert code == 2 and called is None and expected in error and len(error.splitlines()) == 1


def test_versions():
    for specifiers in (">=2.9", ">=2.9,<3", "==2.13.*", "==2.13", "!=2.12.*", "<=2.13.0", ">2.12.9"):
        assert fits("2.13.0+cpu", specifiers), specifiers
    for specifiers in (">2.13", "<2.13", "==2.1.*", "!=2.13.0", ">=2.9,<2.10"):
        assert not fits("2.13.0+cpu", specifiers), specifiers


def test_show_says_where_each_setting_is_from(asked, tmp_path, capsys):
    asked(POLICY + f'\n[versions]\ntorch = "=={environment()["torch"].split("+")[0]}"\n')
    assert run(["policy", "show", "--json", "--max-trials", "7", "--rtol", "0.0005"]) == 0
    data = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in data["settings"]}
    file = str(tmp_path / "autofix.toml")
    assert data["file"] == file
    assert rows["max-trials"] == {"name": "max-trials", "value": "7", "from": "command line", "locked": False}
    assert rows["rtol"] == {"name": "rtol", "value": "0.0005", "from": "command line", "locked": True}
    assert rows["allow"] == {"name": "allow", "value": "approximate", "from": file, "locked": True}
    assert rows["budget"]["from"] == "default" and rows["atol"] == {"name": "atol", "value": "not set", "from": "default", "locked": True}
    assert rows["versions.torch"]["locked"]
    assert run(["policy", "show"]) == 0
    text = capsys.readouterr().out
    assert "jobs = 2" in text and "autofix.toml, locked" in text
    assert run(["policy", "show", "--rtol", "1"]) == 2


def test_strategies_can_be_chosen_and_forbidden():
    from autofix.errors import StrategyError
    from autofix.loader import load_strategies
    from autofix.repair import Settings, permitted

    registry = load_strategies()
    assert permitted(registry, Settings()) == registry
    assert set(permitted(registry, Settings(only=("simplify", "capture_trace"), without=("simplify",)))) == {"capture_trace"}
    assert set(registry) - set(permitted(registry, Settings(without=("simplify",)))) == {"simplify"}
    for wrong in (Settings(only=("simplifi",)), Settings(without=("simplifi",))):
        with pytest.raises(StrategyError, match="simplifi"):
            permitted(registry, wrong)


def test_a_teams_caches_are_read_below_the_local_one(asked, tmp_path, capsys):
    place = (tmp_path / "shared").as_uri()
    with opened(tmp_path, "ann.db", "ann") as ann:
        ann.record(case(), ENV, TARGET, [stock(), passed(fix())])
        remote.push(ann.connection, place)
        (tmp_path / "old.jsonl").write_text("")
    _, called, error = asked(f'caches = ["{place}", "old.jsonl"]\n')
    assert [str(layer) for layer in called[1].layers] == [str(tmp_path / "old.jsonl"), str(mirror_of(place))] and "brought" not in error
    from autofix.cache import Cache

    with Cache.open(tmp_path / "mine.db", [mirror_of(place)], seed=False) as mine:
        assert mine.known_recipe(case().id, ENV, TARGET) == passed(fix()).recipe
        assert mine.connection.execute("SELECT count(*) FROM outcomes").fetchone() == (0,)
    with opened(tmp_path, "ann.db", "ann") as ann:
        ann.record(case("two"), ENV, TARGET, [stock(), passed(fix())])
        remote.push(ann.connection, place)
    for fresh, known in ((3600.0, False), (0.0, True)):  # not asked again within the hour
        team_layers([place], lambda text: pytest.fail(text), fresh)
        with Cache.open(tmp_path / "mine.db", [mirror_of(place)], seed=False) as mine:
            assert (mine.known_recipe(case("two").id, ENV, TARGET) is not None) is known
    _, called, _ = asked(f'caches = ["{place}"]\n', "--no-cache")
    assert called[1].layers == ()


def test_a_place_that_can_not_be_reached_is_said_and_the_repair_goes_on(asked):
    _, called, error = asked('caches = ["nosuchscheme://x/y"]\n')
    assert called is not None and "the team's cache was not brought up to date" in error


def test_a_folder_among_a_teams_caches_is_a_place(tmp_path):
    from autofix.policy import find_policy

    (tmp_path / "share").mkdir()
    (tmp_path / "autofix.toml").write_text('caches = ["share", "old.jsonl"]\n')
    policy = find_policy(tmp_path)
    assert policy.caches == ((tmp_path / "share").as_uri(),)
    assert [str(layer) for layer in policy.settings["layers"]] == [str(tmp_path / "old.jsonl")]
