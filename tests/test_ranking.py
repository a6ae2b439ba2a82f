from __future__ import annotations

from pathlib import Path

import pytest
from cache_rows import ENV, MISSING, OLD, STOCK, TARGET, WRONG, case, failed, fix, opened, passed, stock
from hypothesis import given, settings
from hypothesis import strategies as st

from autofix.cache import Cache
from autofix.ranking import PLAIN_TRIAL_SECONDS, Ranking, Rates, capture_of, gain_of, minor_versions, version_weight
from autofix.recipe import Fix, Level, Recipe
from autofix.target import ExportConfig
from autofix.trial import Diagnosis, Stage, Trial, Verdict


def test_without_a_record_the_prior_is_believed() -> None:
    ranking = Ranking(Rates(), ENV)
    assert ranking.probability("s", MISSING, "c", "export", 0.4) == 0.4
    assert ranking.seconds("s", 7.0) == 7.0


def test_the_root_is_the_formula_of_the_facts() -> None:
    ranking = Ranking(Rates(lambda key: [("s", "2.13|1.32", 4, 10, 8000)] if key == "*" else []), ENV)
    assert ranking.probability("s", MISSING, "c", "export", 0.12) == pytest.approx((1 + 0.3) / (4 + 2.5))


def test_particular_evidence_outweighs_general_evidence() -> None:
    counts = {
        "*": (100, 100),
        "symptom unsupported-operator": (10, 80),
        "kind unsupported-operator export aten.lgamma.default": (5, 50),
        "case c unsupported-operator": (3, 0),
    }
    ranking = Ranking(Rates(lambda key: [("s", "2.13|1.32", *counts[key], 1)] if key in counts else []), ENV)
    p = (10 + 2.5 * 0.3) / 102.5
    p = (8 + 2 * p) / 12
    p = (5 + 2 * p) / 7
    assert ranking.probability("s", MISSING, "other", "export", 0.3) == pytest.approx(p)
    assert ranking.probability("s", MISSING, "c", "export", 0.3) == pytest.approx(2 * p / 5)
    assert ranking.probability("s", MISSING, "other", "trace", 0.3) < p


def test_what_fails_in_this_search_sinks_at_once() -> None:
    ranking = Ranking(Rates(lambda key: [("a", "2.13|1.32", 10, 60, 9000), ("b", "2.13|1.32", 10, 55, 9000)] if key == "*" else []), ENV)

    def best() -> str:
        return max("ab", key=lambda s: ranking.probability(s, MISSING, "c", "export", 0.3))

    assert best() == "a"
    ranking.observe("a", MISSING, "c", "export", 0.0, 1.0)
    assert best() == "b"


def test_counts_halve_for_each_minor_version() -> None:
    assert minor_versions(ENV) == "2.13|1.32"
    assert minor_versions({}) == "?|?"
    assert version_weight("2.13|1.32", "2.13|1.32") == 1
    assert version_weight("2.12|1.32", "2.13|1.32") == 0.5
    assert version_weight("2.12|1.31", "2.13|1.32") == 0.25
    assert version_weight("2.13|1.32", "3.13|1.32") == 1 / 16
    assert version_weight("2.1|1.2", "2.13|1.32") == 1 / 64
    assert version_weight("?|1.32", "2.13|1.32") == 0.5
    rates = Rates(lambda key: [("s", "2.12|1.31", 8, 80, 8000)] if key == "*" else [])
    assert Ranking(rates, ENV).probability("s", MISSING, "c", "export", 0.0) == pytest.approx(2 / 4.5)
    assert Ranking(rates, OLD).probability("s", MISSING, "c", "export", 0.0) == pytest.approx(8 / 10.5)


def test_seconds_follow_the_record_and_this_search() -> None:
    ranking = Ranking(Rates(lambda key: [("s", "2.13|1.32", 98, 0, 196_000), ("t", "2.13|1.32", 98, 0, 98_000)] if key == "*" else []), ENV)
    assert ranking.seconds("s", 2.0) == pytest.approx(2.0, rel=0.01)
    # no record of its own: the mean of all trials, and what the strategy says it costs beyond a plain trial
    assert ranking.seconds("new", PLAIN_TRIAL_SECONDS) == pytest.approx((196 + 98 + 2 * 2.0) / (98 + 98 + 2))
    assert ranking.seconds("new", PLAIN_TRIAL_SECONDS + 3.0) == pytest.approx((196 + 98 + 2 * 2.0) / (98 + 98 + 2) + 3.0)
    for _ in range(50):
        ranking.observe("t", MISSING, "c", "export", 0.0, 10.0)  # a large model: ten times slower than usual
    assert ranking.seconds("s", 2.0) == pytest.approx(20, rel=0.1)
    assert ranking.seconds("new", 2.0) == pytest.approx(15, rel=0.1)


def test_a_familys_record_stands_between_its_kind_and_the_case() -> None:
    counts = {"kind unsupported-operator export aten.lgamma.default": (0, 8), "family f unsupported-operator": (2, 2)}
    rates = Rates(lambda key: [("s", "2.13|1.32", counts[key][1], 10 * counts[key][0], 1)] if key in counts else [])
    p = 2 * 0.3 / 10  # 0 of 8
    assert Ranking(rates, ENV).probability("s", MISSING, "c", "export", 0.3) == pytest.approx(p)
    assert Ranking(rates, ENV, "g").probability("s", MISSING, "c", "export", 0.3) == pytest.approx(p)
    assert Ranking(rates, ENV, "f").probability("s", MISSING, "c", "export", 0.3) == pytest.approx((2 + 2 * p) / 4)


def test_gain() -> None:
    assert gain_of(passed(fix()), stock()) == 1
    assert gain_of(failed(fix(), stage=Stage.PARITY, diagnosis=WRONG), stock()) == 0.6
    assert gain_of(failed(fix()), stock()) == 0
    assert gain_of(failed(fix(), stage=Stage.REWRITE), stock()) == 0
    other = Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.erfinv.default"})
    assert gain_of(failed(fix(), diagnosis=other), stock()) == 0.3
    assert gain_of(failed(fix(), diagnosis=Diagnosis("nothing-to-do", Stage.CONVERT)), stock()) == 0
    assert gain_of(failed(fix(), stage=Stage.PARITY, diagnosis=Diagnosis("nothing-to-do", Stage.PARITY)), stock()) == 0  # later, yet nothing
    assert gain_of(failed(fix()), None) == 0


def test_capture_of_a_recipe() -> None:
    assert capture_of(STOCK) == "export"
    assert capture_of(Recipe((), ExportConfig(capture="strict"))) == "strict"
    assert capture_of(Recipe((Fix("change_capture", Level.CONFIG, {"capture": "trace"}),))) == "trace"


FACTS = st.sampled_from(
    [MISSING, WRONG, Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.erfinv.default"}), Diagnosis("crash", Stage.RUN)]
    + [Diagnosis("nothing-to-do", Stage.CONVERT)]
)


@settings(deadline=None)
@given(stage=st.sampled_from(list(Stage)), diagnosis=FACTS, before=FACTS, ok=st.booleans())
def test_the_cache_counts_as_ranking_does(stage: Stage, diagnosis: Diagnosis, before: Diagnosis, ok: bool) -> None:
    """SQL (migrations.GAIN, KEYS) and Python (gain_of, keys_of) say the same twice; they must not drift apart."""
    parent = Trial(STOCK, before.stage, Verdict.FAIL, before)
    child = passed(fix()) if ok else failed(fix(), stage=stage, diagnosis=diagnosis)
    with Cache.memory(seed=False) as cache:
        cache.record(case(), ENV, TARGET, [parent, child])
        learned = Ranking(cache.rates(), ENV)
        fresh = Ranking(Rates(), ENV)
        fresh.observe("add_lgamma", before, case().id, "export", gain_of(child, parent), 2.0)
        for diagnosed, case_id in ((before, case().id), (before, "other"), (WRONG, "other")):
            a, b = (r.probability("add_lgamma", diagnosed, case_id, "export", 0.3) for r in (learned, fresh))
            assert a == pytest.approx(b)


def test_team_caches_are_not_counted_twice(tmp_path: Path) -> None:
    with opened(tmp_path, "team.db") as team, opened(tmp_path, "mine.db") as mine:
        for cache in (team, mine):
            cache.record(case(), ENV, TARGET, [stock(), passed(fix())])
        team.record(case("two"), ENV, TARGET, [stock(), passed(fix())])
        rates = Rates(*team.rates().sources, *mine.rates().sources)
        assert list(rates.of("symptom unsupported-operator")) == [("add_lgamma", "2.13|1.32", 2, 20, 4000)]


def test_sums_in_the_file_are_those_of_the_rows(tmp_path: Path) -> None:
    """Versions weigh the same whether SQL adds them up or Python does."""
    with opened(tmp_path, "mine.db") as cache:
        for n, torch_version in enumerate(("2.13.0", "2.12.1", "2.9.0")):
            for k in range(n + 1):
                cache.record(case(f"{n}-{k}"), {**ENV, "torch": torch_version}, TARGET, [stock(), passed(fix())])
        whole = cache.rates()
        for key in ("*", "symptom unsupported-operator", "symptom no-such"):
            rows = Rates(*whole.sources)
            for ours in ("2.13|1.32", "2.10|1.31"):
                added: dict[str, float] = {}
                for strategy, tries, _, _ in rows.weighted(key, ours):
                    added[strategy] = added.get(strategy, 0.0) + tries
                assert {strategy: tries for strategy, tries, _, _ in whole.weighted(key, ours)} == pytest.approx(added)
        assert {s: t for s, t, _, _ in whole.weighted("*", "2.13|1.32")} == pytest.approx({"add_lgamma": 1 + 2 / 2 + 3 / 16})
