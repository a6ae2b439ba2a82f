"""What ships with autofix: it orders a new user's first search, and does nothing else."""

import json

import pytest
from cache_rows import ENV, LINES, TARGET, case, fix, opened, passed, stock

from autofix import exchange
from autofix.browse import verify
from autofix.cache import Cache
from autofix.exchange import ANY_CASE, SHIPPED, export_lines, merge_lines
from autofix.frontier import Candidate, Frontier, Priors
from autofix.loader import load_strategies
from autofix.ranking import Ranking
from autofix.recipe import Recipe
from autofix.trial import Diagnosis, Stage, Trial, Verdict

ROWS = [json.loads(line) for line in exchange.seed_bytes().splitlines()]


def test_it_is_small_valid_and_knows_no_case():
    assert len(ROWS) > 500 and len(exchange.seed_bytes()) < 1_000_000
    assert {row["kind"] for row in ROWS} == {"outcome"}  # no recipes, cases, origins, environments
    assert {row["body"]["case_id"] for row in ROWS} == {SHIPPED}
    assert {row["body"]["parent_id"] for row in ROWS} == {row["body"]["origin_id"] for row in ROWS} == {""}
    assert len({row["body"]["recipe_id"] for row in ROWS}) == len(ROWS)  # made-up ids: none is a recipe's
    with Cache.memory() as cache:
        assert verify(cache.connection) == []
        assert cache.connection.execute("SELECT count(*) FROM outcomes").fetchone()[0] == len(ROWS)
        assert cache.stats()["cases_tried"] == 0 and cache.stats()["strategies"]
        assert all(cache.recipe(row["body"]["recipe_id"]) is None for row in ROWS)
        assert cache.known_recipe(SHIPPED, ENV, TARGET) is None


def first_proposals(ranker, symptom, operator, stage):
    """Names of the strategies that treat a symptom, in the order in which a search would try them."""
    frontier = Frontier(ranker, "new-case")
    parent = Trial(Recipe(), stage, Verdict.FAIL, Diagnosis(symptom, stage, {"operator": operator}))
    for strategy in load_strategies().values():
        if symptom in strategy.treats:
            frontier.add(Candidate(Recipe((strategy.fix(),)), parent, strategy.fix(), strategy, "export"))
    return [frontier.pop().strategy.name for _ in range(len(frontier))]


def test_a_new_users_first_search_is_ordered_by_it(tmp_path):
    asked = ("dtype-mismatch", "", Stage.PARITY)
    with Cache.open(tmp_path / "new.db") as new, Cache.open(tmp_path / "bare.db", seed=False) as bare:
        seeded, unseeded = (first_proposals(Ranking(c.rates(), ENV), *asked) for c in (new, bare))
        assert sorted(seeded) == sorted(unseeded) and seeded != unseeded
        rates = new.rates().of("symptom dtype-mismatch")
        helped = {name: gain / tries for name, _, tries, gain, _ in rates if tries >= 3}
        assert max(helped, key=lambda name: helped[name]) in seeded[:3]
        order = first_proposals(Ranking(new.rates(), ENV), "unsupported-operator", "aten.linalg_inv_ex.default", Stage.CONVERT)
        assert order.index("decompose_linalg") < order.index("custom_op_inline")


def test_what_a_user_sees_soon_outweighs_it(tmp_path):
    cause = Diagnosis("unsupported-operator", Stage.CONVERT, {"operator": "aten.lgamma.default"})
    with Cache.open(tmp_path / "new.db", origin={"team": "", "user": "me", "machine": "x"}) as cache:
        before = Ranking(cache.rates(), ENV).probability("add_lgamma", cause, "other", "export", 0.1)
        for n in range(4):
            cache.record(case(f"c{n}"), ENV, TARGET, [stock(), passed(fix(n=n))])
        assert Ranking(cache.rates(), ENV).probability("add_lgamma", cause, "other", "export", 0.1) > max(0.5, before)


BROKEN = {
    "rubbish": b"\x00\xff\xfe not json\n{\n[[[[\n\n",
    "half a line": exchange.seed_bytes()[:-200],
    "wrong hash": exchange.seed_bytes().replace(b'"ms":8', b'"ms":7', 3),
    "endless line": b"{" * 200_000 + b"\n",
    "empty": b"",
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_shipped_rows_do_no_harm(tmp_path, monkeypatch, what):
    monkeypatch.setattr(exchange, "seed_bytes", lambda: BROKEN[what])
    for _ in range(2):
        with Cache.open(tmp_path / "new.db") as cache:
            assert cache.problem is None and cache.writable and verify(cache.connection) == []
            kept = cache.connection.execute("SELECT count(*) FROM outcomes").fetchone()[0]
            assert kept >= len(ROWS) - 5 if what in ("half a line", "wrong hash") else kept == 0
            assert first_proposals(Ranking(cache.rates(), ENV), "dtype-mismatch", "", Stage.PARITY)
    assert first_proposals(Priors(), "dtype-mismatch", "", Stage.PARITY)


def test_a_new_edition_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    lines = exchange.seed_bytes().splitlines(keepends=True)
    with Cache.open(tmp_path / "c.db") as cache:
        cache.record(case(), ENV, TARGET, [stock(), passed(fix())])
    monkeypatch.setattr(exchange, "seed_bytes", lambda: b"".join(lines[:100]))
    with Cache.open(tmp_path / "c.db") as cache:
        count = "SELECT count(*) FROM outcomes WHERE case_id = ?"
        assert cache.connection.execute(count, [SHIPPED]).fetchone() == (100,)
        assert cache.connection.execute(count, [case().id]).fetchone() == (2,)
        assert verify(cache.connection) == []  # the counts too


def test_it_is_not_passed_on(tmp_path):
    with Cache.open(tmp_path / "c.db") as cache:
        assert SHIPPED not in "".join(export_lines(cache.connection))


def test_an_export_for_ranking_only_keeps_the_order_and_nothing_else(tmp_path):
    with Cache.memory(seed=False) as full, Cache.memory(seed=False) as bare, opened(tmp_path) as mine:
        merge_lines(full.connection, LINES)
        lines = list(export_lines(full.connection, ranking_only=True))
        assert lines == sorted(set(lines)) and not merge_lines(bare.connection, (line.encode() for line in lines)).refused
        bodies = [json.loads(line)["body"] for line in lines]
        assert {b["case_id"] for b in bodies} == {ANY_CASE} and {b["origin_id"] + b["parent_id"] for b in bodies} == {""}
        kept = "SELECT * FROM rates WHERE tries > 0 ORDER BY 1, 2, 3"
        assert bare.connection.execute(kept).fetchall() == full.connection.execute(kept).fetchall() != []
        assert bare.known_recipe(case("c0").id, ENV, TARGET) is None and bare.stats()["cases_tried"] == 0
        merge_lines(mine.connection, (line.encode() for line in lines * 2))  # again a set union
        assert mine.connection.execute(kept).fetchall() == full.connection.execute(kept).fetchall()
