"""What is known before a search: precedents of a family, cases that nothing repaired, origins that were wrong."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cache_rows import ENV, OLD, STOCK, TARGET, case, failed, fix, opened, passed, stock

from autofix.browse import origins
from autofix.cache import Cache
from autofix.cli import run
from autofix.exchange import export_lines, merge_lines
from autofix.family import Precedent, family_id, rebuilt
from autofix.known import LEAST_WEIGHT, origin_weight
from autofix.recipe import Fix, Level, Recipe
from autofix.repair import how_it_ended
from autofix.search import NOT_WORTH, NOTHING_LEFT, Repair
from autofix.strategy import Strategy
from autofix.target import Effect, ExportConfig, Target
from autofix.trial import Stage, Trial, Verdict

FACTS = {
    "modules": {"Linear": ["a", "b"], "Model": [""]},
    "operators": {"aten.lgamma.default": "model.py:9", "aten.linear.default": "model.py:8"},
    "inputs": [{"name": "x", "kind": "tensor", "dtype": "float32", "shape": [2, 8], "axes": {"0": "batch"}}],
    "outputs": [{"name": "output", "dtype": "float32", "shape": [2, 4]}],
    "sites": [],
    "mutated_buffers": [],
    "random_operators": {},
}

CAUSE = ("unsupported-operator", "aten.lgamma.default", "convert")


def facts(**changed):
    return {**FACTS, **changed}


@pytest.mark.parametrize(
    "same",
    [
        {"modules": {"Model": [""], "Linear": ["a", "b", "c"]}},
        {"operators": {"aten.linear.default": "other.py:1", "aten.lgamma.default": "other.py:2"}},
        {"inputs": [{"name": "x", "kind": "tensor", "dtype": "float32", "shape": [3, 99], "axes": {"0": "n"}}]},
        {"outputs": [{"name": "output", "dtype": "float32", "shape": [3, 7]}]},
    ],
    ids=["layers", "lines", "sizes", "output sizes"],
)
def test_sizes_make_no_other_family(same):
    assert family_id(facts(**same)) == family_id(FACTS) != ""


@pytest.mark.parametrize(
    "other",
    [
        {"modules": {"Linear": ["a"], "Model": [""], "GRU": ["g"]}},
        {"operators": {"aten.linear.default": "model.py:8"}},
        {"inputs": [{"name": "x", "kind": "tensor", "dtype": "float16", "shape": [2, 8], "axes": {"0": "batch"}}]},
        {"inputs": [{"name": "x", "kind": "tensor", "dtype": "float32", "shape": [2, 8], "axes": {}}]},
        {"inputs": [{"name": "x", "kind": "tensor", "dtype": "float32", "shape": [2, 8, 1], "axes": {"0": "batch"}}]},
        {"sites": [{"kind": "bool", "file": "model.py", "line": 3}]},
        {"mutated_buffers": ["count"]},
        {"random_operators": {"aten.rand.default": 1}},
    ],
    ids=["class", "operator", "dtype", "axes", "rank", "branch", "buffers", "random"],
)
def test_what_matters_for_a_repair_makes_another_family(other):
    assert family_id(facts(**other)) != family_id(FACTS)


def test_the_branch_that_the_example_took_makes_no_other_family():
    site = [{"kind": "bool", "file": "model.py", "line": 3}]
    text = "class Model(nn.Module):\n    def forward(self, x):\n        return torch.lgamma(x.mul({})) if x.sum() > 0 else x\n"
    taken = facts(sites=site, sources={"model.py": text.format(2)})
    passed_by = facts(sites=site, sources={"other.py": text.format(7)}, operators={"aten.gt.Scalar": "other.py:3"})
    other = facts(sites=site, sources={"model.py": text.format(2).replace("lgamma", "digamma")})
    assert family_id(taken) == family_id(passed_by) != family_id(other)
    assert family_id(facts(sites=site, sources={"model.py": "class ("})) == family_id(facts(sites=site, sources={}))


def test_nothing_known_is_no_family():
    assert family_id({}) == ""


def member(name, family="f" * 32):
    return replace(case(name), family=family)


def test_a_precedent_is_of_the_family_these_versions_and_this_target(tmp_path):
    with opened(tmp_path) as cache:
        cache.record(member("one"), ENV, TARGET, [stock(), failed(fix("far")), passed(fix())])
        found = cache.family_precedent("f" * 32, case("two").id, ENV, TARGET)
        assert found == Precedent(
            Recipe((fix(),)), dict.fromkeys(("far", "add_lgamma"), (("unsupported-operator", "aten.lgamma.default", "convert"),))
        )
        assert cache.family_precedent("f" * 32, case("one").id, ENV, TARGET) is None  # a case is no precedent of itself
        assert cache.family_precedent("e" * 32, case("two").id, ENV, TARGET) is None
        assert cache.family_precedent("", case("two").id, ENV, TARGET) is None
        assert cache.family_precedent("f" * 32, case("two").id, OLD, TARGET) is None
        cache.retract(case("one").id, passed(fix()).recipe.id, "wrong")
        assert cache.family_precedent("f" * 32, case("two").id, ENV, TARGET) is None


def test_an_effect_that_is_not_allowed_is_no_precedent(tmp_path):
    loose = Target(allow=frozenset({Effect.APPROXIMATE}))
    with opened(tmp_path) as cache:
        cache.record(member("one"), ENV, loose, [stock(), passed(fix())], effect_of=lambda recipe: Effect.APPROXIMATE)
        assert cache.family_precedent("f" * 32, case("two").id, ENV, TARGET) is None
        assert cache.family_precedent("f" * 32, case("two").id, ENV, loose) is not None


def test_where_the_stock_export_has_passed_it_comes_first(tmp_path):
    with opened(tmp_path) as cache:
        cache.record(member("one"), ENV, TARGET, [stock(), passed(fix())])
        cache.record(member("two"), ENV, TARGET, [Trial(STOCK, Stage.DONE, Verdict.PASS)])
        assert cache.family_precedent("f" * 32, case("three").id, ENV, TARGET) is None


def test_families_travel_and_old_rows_without_one_stay_valid(tmp_path):
    with opened(tmp_path) as cache, Cache.memory(seed=False) as other:
        cache.record(member("one"), ENV, TARGET, [stock(), passed(fix())])
        cache.record(case("old"), ENV, TARGET, [stock(), passed(fix())])
        for redact in (True, False):
            merged = merge_lines(other.connection, (line.encode() for line in export_lines(cache.connection, redact=redact)))
            assert not merged.refused
            assert other.family_precedent("f" * 32, case("two").id, ENV, TARGET) is not None


def made(name, proposes, treats=("unsupported-operator",)):
    body = {"treats": treats, "level": Level.PROGRAM, "propose": proposes, "apply": staticmethod(lambda artifact, **params: artifact)}
    strategy = type(name, (Strategy,), body)()
    strategy.name = name
    return strategy


def config_of(recipe):
    return ExportConfig()


def test_a_hint_is_what_the_strategies_propose_for_this_model():
    def propose(self, evidence, target):
        assert evidence.diagnosis.facts == {"operator": "aten.lgamma.default"} and evidence.diagnosis.stage is Stage.CONVERT
        yield self.fix(width=1, exact=False)
        yield self.fix(width=evidence.facts["inputs"][0]["shape"][1], exact=True)
        yield self.fix(other=1)

    old = Recipe((Fix("add_lgamma", Level.PROGRAM, {"width": 64, "exact": True}),))
    found = rebuilt(Precedent(old, {"add_lgamma": (CAUSE,)}), {"add_lgamma": made("add_lgamma", propose)}, FACTS, TARGET, config_of)
    assert found == Recipe((Fix("add_lgamma", Level.PROGRAM, {"width": 8, "exact": True}),))


def nothing(self, evidence, target):
    yield from ()


def broken(self, evidence, target):
    yield self.fix(line=int(evidence.diagnosis.facts["line"]))


def narrowing(self, evidence, target):
    yield self.fix()


@pytest.mark.parametrize("proposes", [nothing, broken, None, narrowing], ids=["nothing", "needs more", "not installed", "not allowed"])
def test_no_hint_where_a_strategy_does_not_propose_again(proposes):
    registry = {"add_lgamma": made("add_lgamma", proposes)} if proposes else {}
    if proposes is narrowing:
        registry["add_lgamma"].effect_of = lambda fix: Effect.NARROWING
    assert rebuilt(Precedent(Recipe((fix(),)), {"add_lgamma": (CAUSE,)}), registry, FACTS, TARGET, config_of) is None


def test_an_origin_loses_weight_with_each_entry_that_proves_wrong(tmp_path):
    weights = [origin_weight(100, n) for n in range(5)]
    assert weights == sorted(weights, reverse=True) and weights[0] == 1
    assert origin_weight(5, 3) < LEAST_WEIGHT < origin_weight(5000, 3)
    with opened(tmp_path, "bad.db", "eve") as bad:
        for n in range(6):
            bad.record(case(f"c{n}"), ENV, TARGET, [stock(), passed(fix(n=n))])
        lines = [line.encode() for line in export_lines(bad.connection)]
    with opened(tmp_path, "mine.db", "me") as mine:
        merge_lines(mine.connection, lines)
        assert mine.known_recipe(case("c5").id, ENV, TARGET) == passed(fix(n=5)).recipe
        for n in range(4):
            mine.retract(case(f"c{n}").id, passed(fix(n=n)).recipe.id, "mismatch-at-example", environment=ENV)
        assert mine.known_recipe(case("c5").id, ENV, TARGET) is None  # no longer worth a trial
        (eve,) = [o for o in origins(mine.connection) if o["user"] == "eve"]
        assert eve["retracted"] == 4 and eve["weight"] < LEAST_WEIGHT
        mine.record(case("c5"), ENV, TARGET, [stock(), passed(fix(n=5), seconds=9.0)])  # seen with one's own eyes
        assert mine.known_recipe(case("c5").id, ENV, TARGET) == passed(fix(n=5)).recipe


def test_of_two_origins_the_one_that_was_seldom_wrong_comes_first(tmp_path):
    lines = []
    for user, chosen in (("ann", fix("of_ann")), ("bob", fix("of_bob"))):
        with opened(tmp_path, f"{user}.db", user) as cache:
            cache.record(case("x"), ENV, TARGET, [stock(), passed(chosen)])
            for n in range(30):
                cache.record(case(f"{user}{n}"), ENV, TARGET, [stock(), passed(chosen)])
            lines += [line.encode() for line in export_lines(cache.connection)]
    for wrong, right in (("ann", "of_bob"), ("bob", "of_ann")):
        with opened(tmp_path, f"mine-{wrong}.db", "me") as mine:
            merge_lines(mine.connection, lines)
            mine.retract(case(f"{wrong}0").id, passed(fix(f"of_{wrong}")).recipe.id, "wrong", environment=ENV)
            assert mine.known_recipe(case("x").id, ENV, TARGET) == passed(fix(right)).recipe


@pytest.mark.parametrize(
    ("stopped", "verdict", "ended"),
    [
        (NOTHING_LEFT, Verdict.FAIL, "exhausted"),
        (NOT_WORTH, Verdict.FAIL, "exhausted"),
        (NOTHING_LEFT, Verdict.CRASH, "exhausted"),
        (NOTHING_LEFT, Verdict.TIMEOUT, "limits"),
        (NOTHING_LEFT, Verdict.OUT_OF_MEMORY, "limits"),
        ("the budget of 4 trials is used up", Verdict.FAIL, "budget"),
        ("interrupted", Verdict.FAIL, "interrupted"),
    ],
)
def test_only_what_no_limit_decided_is_hopeless(stopped, verdict, ended):
    trials = [stock(), replace(failed(fix()), verdict=verdict)]
    assert how_it_ended(Repair("case", {}, TARGET, trials, stopped=stopped)) == ended


MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.linalg.eigvals(x).abs().sort().values


def get_inputs():
    return [torch.randn(3, 3)]
"""


@pytest.mark.slow
def test_what_nothing_repairs_is_answered_at_once_and_tried_again_when_something_changes(tmp_path, monkeypatch, warm, capsys):
    import functools

    import autofix.env
    import autofix.repair  # noqa: F401

    module = sys.modules["autofix.repair"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "repair", functools.partial(module.repair, fork=True))
    monkeypatch.setattr(module, "registry_id", lambda registry: "1" * 32)
    Path("hopeless.py").write_text(MODEL)

    def asked(*more):
        code = run(["hopeless.py", "--cache", "c.db", "--quiet", "--json", *more])
        return code, json.loads(capsys.readouterr().out)

    code, first = asked("--max-trials", "500")
    assert code == 1 and first["stopped"] in (NOTHING_LEFT, NOT_WORTH) and first["known_hopeless"] is None and first["trials"]
    code, again = asked()
    known = again["known_hopeless"]
    assert code == again["exit_code"] == 1 and not again["ok"] and again["trials"] == []
    assert known["trials"] == len(first["trials"]) and known["environment"]["torch"] in again["stopped"] and "--retry" in again["stopped"]
    assert (tmp_path / "hopeless-autofix" / "fixlog.md").exists() and not (tmp_path / "hopeless-autofix" / "model.onnx").exists()
    assert run(["hopeless.py", "--cache", "c.db", "--quiet"]) == 1
    assert capsys.readouterr().out.startswith("not repaired: hopeless.py (0 trials")

    for change in (["--retry"], ["--rtol", "0.01"], ["--opset", "18"]):
        assert asked(*change, "--max-trials", "1")[1]["trials"], change
    newer = dict(autofix.env.environment(), onnxruntime="1.99.0")
    with monkeypatch.context() as patched:
        patched.setattr(module, "environment", lambda: newer)
        assert asked("--max-trials", "1")[1]["trials"]
    with monkeypatch.context() as patched:
        patched.setattr(module, "registry_id", lambda registry: "0" * 32)
        assert asked("--max-trials", "1")[1]["trials"]
    assert asked()[1]["trials"] == []


def test_an_edited_strategy_or_engine_changes_what_hopeless_means(tmp_path):
    import shutil

    from autofix.repair import registry_id

    file = tmp_path / "one.py"
    file.write_text("a = 1")
    strategy = made("one", nothing)
    strategy.file = str(file)
    before = registry_id({"one": strategy})
    assert before == registry_id({"one": strategy})
    shutil.copy(__file__, file)
    assert registry_id({"one": strategy}) != before and registry_id({}) != before
