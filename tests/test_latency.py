"""Measuring, racing and adding up latency fixes, on times that are made up: nothing is timed here."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from autofix.elimination import Race, counts_as_gain, quartiles, ratios
from autofix.latency import latency_row, race_rounds, race_row, time_rounds
from autofix.latency_sessions import Timer, pick
from autofix.peak import peak_share, peak_text
from autofix.racing import Climb, meets, slow
from autofix.recipe import Fix, Level, Recipe
from autofix.reuse import extends, parent_file
from autofix.search import Candidate, Search, Silent
from autofix.stacking import Gain, carried, gainers, still_worth, united
from autofix.strategy import Strategy
from autofix.target import Effect, ExportConfig, Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict


def session(files, eager=None, control=None):
    return {"eager": eager or [10.0] * len(files[0]), "files": files, "control": control or list(files[0]), "threads": 1}


def test_quartiles_and_ratios():
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)
    assert ratios([2.0, 9.0, 4.0], [1.0, 3.0]) == [2.0, 3.0]


def test_every_round_calls_everything_and_the_first_rounds_do_not_count():
    made = []
    times = time_rounds({n: lambda n=n: made.append(n) for n in "abc"}, seconds=0.0, threads=1, least=3, most=3)
    assert {n: len(t) for n, t in times.items()} == {"a": 3, "b": 3, "c": 3}
    raced = race_rounds({n: lambda n=n: made.append(n) for n in "ab"}, seconds=0.0, threads=1, keep=["a"])
    assert len(raced["a"]) == len(raced["b"]) == 3


def test_a_latency_row_pools_rounds_and_keeps_each_session():
    one = session([[2.0, 2.0, 2.0]], eager=[10.0, 8.0, 12.0], control=[2.0, 2.0, 2.2])
    two = session([[4.0, 4.0, 4.0]], eager=[10.0, 8.0, 12.0], control=[5.0, 5.0, 5.0])
    row = latency_row([one, two], 0)
    assert (row["ort_ms"], row["rounds"], row["control"]) == (3.0, 6, 0.8)
    assert [s["speedup"] for s in row["sessions"]] == [5.0, 2.5]
    assert row["speedup_q1"] < row["speedup"] < row["speedup_q3"]


def test_a_race_row_compares_with_the_first_file_round_by_round():
    row = race_row(session([[10.0, 20.0, 30.0, 40.0], [5.0, 10.0, 15.0]]), 1)
    assert (row["gain"], row["gain_q1"], row["rounds"]) == (2.0, 2.0, 3)


@pytest.mark.parametrize(
    ("sessions", "counts"),
    [
        ([[1.2, 1.3, 1.1]], True),
        ([[1.02, 1.03, 1.04]], False),  # small, seen once
        ([[1.02, 1.03, 1.04]] * 3, True),
        ([[1.02, 1.03, 1.04]] * 2 + [[0.96, 1.02, 1.05]], False),
        ([[0.8, 0.9, 0.95]] * 3, False),
        ([], False),
    ],
)
def test_a_small_gain_counts_only_where_it_repeats(sessions, counts):
    assert counts_as_gain(sessions) is counts


def run_race(race, ms, seed=0, noise=0.03):
    rng = random.Random(seed)
    while not race.over:
        now = {n: ms[n] * rng.lognormvariate(0, noise) for n in race.next_round()}
        race.record(now, sum(now.values()))
    return race


def test_a_race_drops_what_is_clearly_slower_and_keeps_what_it_is_told_to():
    ms = {"base": 50.0, "slow": 100.0, "best": 10.0, "near": 10.1}
    race = run_race(Race(list(ms), 3000.0, keep=["base"]), ms)
    assert race.leader in ("best", "near")
    assert len(race.times["slow"]) == 3
    assert len(race.times["base"]) == race.rounds > 3


def test_a_race_ends_with_its_budget_and_with_one_file_left():
    ms = {str(i): 10.0 for i in range(8)}
    race = run_race(Race(list(ms), 1000.0), ms)
    assert race.spent >= 1000.0 and sum(len(t) for t in race.times.values()) < 8 * 20
    alone = run_race(Race(["a"], 1e9), {"a": 1.0})
    assert alone.rounds == 3


def test_a_race_finds_the_fastest_at_a_quarter_of_the_time():
    hits = 0
    for seed in range(40):
        ms = {str(i): 10.0 * 1.06**i for i in range(10)}
        exhaustive = 40 * sum(ms.values())
        race = run_race(Race(list(ms), exhaustive / 4, seed=seed), ms, seed)
        assert race.spent < exhaustive * 0.27
        hits += race.leader == "0"
    assert hits >= 38


def test_targets_judge_by_the_worse_quartile():
    row = {"ort_ms": 5.0, "q3_ms": 6.0, "speedup": 2.0, "speedup_q1": 1.4}
    assert meets(row, Target(min_speedup=1.4)) and not meets(row, Target(min_speedup=1.5))
    assert meets(row, Target(max_latency_ms=6.0)) and not meets(row, Target(max_latency_ms=5.5))
    assert meets(row, Target(fastest=True)) and Target(fastest=True).wants_latency


def test_the_machines_own_peak_is_told_in_words():
    row = {"ort_ms": 10.0, "gflop": 0.9, "peak_gflops": 100.0}
    assert peak_share(row) == pytest.approx(0.9)
    assert "90.0% of this machine's own 100 GFLOP/s" in peak_text(row) and "little is left" in peak_text(row)
    assert peak_share({**row, "gflop": 0.0}) is None and "no matrix products" in peak_text({**row, "gflop": 0.0})
    assert peak_text({"ort_ms": 1.0}) == ""
    eight = {**row, "peak_int8_gops": 200.0}  # float32's peak would make it look as if nothing were left
    assert peak_share(eight) == pytest.approx(0.45) and "45.0% of this machine's own 200 GOP/s for a large 8-bit matrix product" in peak_text(eight)
    assert "little is left" not in peak_text(eight) and "float32 peak: 100 GFLOP/s" in peak_text(eight)


def test_gainers_are_those_that_most_rounds_show():
    gains = [Gain("a", 1.3, 1.2), Gain("b", 1.5, 0.9), Gain("c", 1.01, 1.005), Gain("d", 2.0, 1.8)]
    assert [g.key for g in gainers(gains)] == ["d", "a"]


def test_a_fix_is_tried_again_where_its_saving_has_become_large():
    assert still_worth(None, 1.0)
    assert not still_worth(Gain("a", 1.01, 1.0, saved_ms=0.5), 100.0)
    assert still_worth(Gain("a", 1.01, 1.0, saved_ms=0.5), 10.0)
    assert not still_worth(Gain("failed", 0.0, 0.0), 0.001)


def test_settings_of_the_runtime_are_measured_anew_for_another_graph():
    known = {"form": Gain("form", 1.0, 1.0), "level": Gain("level", 0.0, 0.0, level=Level.RUNTIME)}
    plain, faster = Recipe(), Recipe((Fix("fast", Level.ONNX),))
    assert set(carried(known, plain, faster)) == {"form"}
    assert carried(known, faster, faster.plus([Fix("openvino_runtime", Level.RUNTIME)])) == {}


def test_pick_prefers_what_is_there_and_then_the_shorter_recipe():
    def three(*files):
        return [session([list(f) for f in files]) for _ in range(3)]

    assert pick(three([10.0] * 5, [10.0] * 5), 2) == 0
    assert pick(three([10.0] * 5, [5.0] * 5, [5.0] * 5), 3) == 1
    assert pick(three([10.0] * 5, [5.0] * 5, [4.0] * 5), 3) == 2


def strategy(name, level=Level.ONNX, group="", effect=Effect.EXACT, symptom="too-slow"):
    def propose(self, evidence, target):
        yield self.fix()

    body = {"treats": (symptom,), "level": level, "group": group, "effect": effect, "propose": propose}
    made = type(name, (Strategy,), {**body, "apply": staticmethod(lambda artifact, **params: artifact)})()
    made.name = name
    return made


class World:
    """Stands in for CaseProcess: each recipe's milliseconds are `ms` times the factors of its fixes, or the factor in `together` of all of them;
    `broken` recipes fail parity."""

    case_id = "case"

    def __init__(self, ms, eager, factors, broken=(), folder=Path("."), together=None):
        from autofix.isolate import Limits

        self.ms, self.eager, self.factors, self.broken, self.folder = ms, eager, factors, broken, folder
        self.together = together or {}
        self.limits = Limits()
        self.attempts, self.running, self.asked, self.recipes = [], [], [], {}

    def start_attempt(self, recipe, parent=None, seconds=0.0):
        self.attempts.append((str(recipe), bool(parent)))
        self.running.append(recipe)
        return len(self.attempts)

    def collect(self):
        recipe = self.running.pop()
        number = len(self.attempts)
        folder = self.folder / str(number)
        folder.mkdir(exist_ok=True)
        (folder / "model.onnx").touch()
        self.recipes[str(folder)] = recipe
        return number, {}, {}, folder

    def finish_attempt(self, recipe, ended, answer, folder):
        names = {f.strategy for f in recipe.fixes}
        if any(set(b) <= names for b in self.broken):
            return Trial(recipe, Stage.PARITY, Verdict.MISMATCH, Diagnosis("mismatch-at-example", Stage.PARITY, {"message": "wrong"}))
        return Trial(recipe, Stage.DONE, Verdict.PASS)

    def time_of(self, folder):
        ms = self.ms
        names = frozenset(f.strategy for f in self.recipes[folder].fixes)
        if names in self.together:
            return ms * self.together[names]
        for fix in self.recipes[folder].fixes:
            ms *= self.factors.get(fix.strategy, 1.0)
        return ms

    def ask(self, op, **more):
        self.asked.append(op)
        if op == "profile":
            return {}, {"facts": {"op_types": "Conv", "slow": json.dumps([])}}, self.folder
        if op == "peak":
            return {}, {"facts": {"gflop": 1.0, "peak_gflops": 100.0}}, self.folder
        rng = random.Random(len(self.asked))
        files = [[self.time_of(f) * rng.uniform(0.999, 1.001) for _ in range(7)] for f in more["files"]]
        return {}, session(files, eager=[self.eager] * 7), self.folder


def climbed(world, strategies, target, **budget):
    from autofix.search import Budget

    search = Search(world, {}, {s.name: s for s in strategies}, target, Budget(**{"seconds": 100.0, "trials": 40, **budget}))
    found = search.run()
    Climb(Timer(world, found, 1.0), found, search, Silent()).run()
    return found


def names(found):
    return sorted(f.strategy for f in found.winner.recipe.fixes)


def test_without_a_target_one_measurement_is_all(tmp_path):
    world = World(20.0, 10.0, {"a": 0.5}, folder=tmp_path)
    found = climbed(world, [strategy("a")], Target())
    assert found.ok and world.asked == ["latency"] and not found.winner.recipe.fixes


def test_independent_fixes_are_tried_together_first(tmp_path):
    world = World(40.0, 10.0, {"a": 0.5, "b": 0.6, "c": 0.5, "d": 1.2}, folder=tmp_path)
    found = climbed(world, [strategy(n) for n in "abcd"], Target(min_speedup=1.5))
    assert found.ok and names(found) == ["a", "b", "c"]
    assert len(world.attempts) == 6  # stock, four alone, one union
    assert found.winner.latency["before_ms"] == pytest.approx(40, rel=0.01)
    assert all(reused for _, reused in world.attempts[1:])


def test_fixes_that_do_not_pass_together_are_added_one_by_one(tmp_path):
    world = World(40.0, 10.0, {"a": 0.5, "b": 0.6, "c": 0.7}, broken=[("a", "b")], folder=tmp_path)
    found = climbed(world, [strategy(n) for n in "abc"], Target(fastest=True))
    assert found.ok and names(found) == ["a", "c"]


def test_a_fix_that_slows_the_others_down_is_left_out_in_the_end(tmp_path):
    together = {frozenset("abc"): 0.3, frozenset("bc"): 0.2, frozenset("ab"): 0.4, frozenset("ac"): 0.4}
    world = World(40.0, 10.0, {"a": 0.5, "b": 0.6, "c": 0.7}, folder=tmp_path, together=together)
    found = climbed(world, [strategy(n) for n in "abc"], Target(fastest=True))
    assert found.ok and names(found) == ["b", "c"]
    assert found.winner.latency["ort_ms"] == pytest.approx(8, rel=0.01)


def test_the_search_ends_early_once_the_target_is_met_clearly(tmp_path):
    world = World(40.0, 10.0, {"a": 0.1, "b": 0.5}, folder=tmp_path)
    found = climbed(world, [strategy("a"), strategy("b")], Target(min_speedup=1.0))
    assert found.ok and names(found) == ["a"] and len(world.attempts) == 2


def test_a_target_out_of_reach_says_so_with_the_peak(tmp_path):
    world = World(40.0, 10.0, {"a": 0.5}, folder=tmp_path)
    found = climbed(world, [strategy("a"), strategy("noise")], Target(min_speedup=3.0))
    assert not found.ok and names(found) == ["a"] and found.stopped == "no strategy makes it faster"
    assert found.winner.diagnosis.symptom == "too-slow" and "5.0% of this machine's" not in found.winner.diagnosis.facts["message"]
    assert (
        "wanted at least 3.0x eager" in found.winner.diagnosis.facts["message"] and "of this machine's own" in found.winner.diagnosis.facts["message"]
    )


def test_an_interrupted_climb_claims_nothing(tmp_path):
    world = World(40.0, 10.0, {"a": 0.5}, folder=tmp_path)
    ask, asked = world.ask, []

    def interrupted(op, **more):
        asked.append(op)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return ask(op, **more)

    world.ask = interrupted
    search = Search(world, {}, {"a": strategy("a")}, Target(min_speedup=3.0))
    found = search.run()
    with pytest.raises(KeyboardInterrupt):
        Climb(Timer(world, found, 1.0), found, search, Silent()).run()
    assert not found.ok and found.winner is not None


def test_the_log_tells_fixes_that_gained_nothing(tmp_path):
    world = World(40.0, 10.0, {"a": 0.5}, folder=tmp_path)
    found = climbed(world, [strategy("a"), strategy("same")], Target(fastest=True))
    verdicts = {str(t.recipe): (t.verdict, t.diagnosis.facts["message"] if t.diagnosis else "") for t in found.trials}
    assert verdicts["a()"][0] is Verdict.PASS and found.ok
    assert verdicts["same()"][0] is Verdict.SLOW and "no faster: 1.00x" in verdicts["same()"][1]
    assert verdicts["stock export"][0] is Verdict.SLOW


def test_fastest_succeeds_with_what_it_found(tmp_path):
    world = World(40.0, 10.0, {}, folder=tmp_path)
    found = climbed(world, [strategy("useless")], Target(fastest=True))
    assert found.ok and names(found) == []


def test_eight_bits_are_tried_in_both_runtimes(tmp_path):
    together = {frozenset({"lossy", "openvino_runtime"}): 1.3}
    world = World(40.0, 10.0, {"openvino_runtime": 0.9, "lossy": 0.5}, folder=tmp_path, together=together)
    strategies = [strategy("openvino_runtime", level=Level.RUNTIME), strategy("lossy", effect=Effect.APPROXIMATE)]
    found = climbed(world, strategies, Target(fastest=True, allow=frozenset({Effect.APPROXIMATE})))
    assert found.ok and names(found) == ["lossy"]
    assert found.winner.latency["ort_ms"] == pytest.approx(20, rel=0.01)


def test_fixes_for_one_runtime_are_tried_together_without_the_other(tmp_path):
    """Together they are faster than the other runtime, in which they do nothing, though none is alone."""
    factors = {"openvino_runtime": 0.5, "a": 0.6, "b": 0.6}
    together = {frozenset({"openvino_runtime", *more}): 0.5 for more in ("a", "b", "ab")}
    world = World(40.0, 10.0, factors, folder=tmp_path, together=together)
    strategies = [strategy("openvino_runtime", level=Level.RUNTIME), strategy("a"), strategy("b")]
    found = climbed(world, strategies, Target(fastest=True))
    assert found.ok and names(found) == ["a", "b"]


def test_fixes_that_do_not_pass_together_join_the_best_of_them(tmp_path):
    """The other runtime is the best; of the two fixes one passes in it, and that pair beats the two without it."""
    factors = {"openvino_runtime": 0.4, "a": 0.6, "b": 0.7}
    world = World(40.0, 10.0, factors, broken=[("openvino_runtime", "b")], folder=tmp_path)
    strategies = [strategy("openvino_runtime", level=Level.RUNTIME), strategy("a"), strategy("b")]
    found = climbed(world, strategies, Target(fastest=True))
    assert found.ok and names(found) == ["a", "openvino_runtime"]
    assert world.asked.count("profile") == 2  # found in the first round; the second finds nothing


def test_approximate_fixes_come_only_after_the_exact_ones(tmp_path):
    world = World(20.0, 10.0, {"exact": 0.4, "lossy": 0.1}, folder=tmp_path)
    strategies = [strategy("exact"), strategy("lossy", effect=Effect.APPROXIMATE)]
    found = climbed(world, strategies, Target(min_speedup=1.1, allow=frozenset({Effect.APPROXIMATE})))
    assert names(found) == ["exact"] and all("lossy" not in text for text, _ in world.attempts)


def test_the_budget_ends_the_climb(tmp_path):
    world = World(40.0, 10.0, {"a": 0.5}, folder=tmp_path)
    found = climbed(world, [strategy("a"), strategy("b")], Target(min_speedup=3.0), trials=2)
    assert not found.ok and found.stopped == "the budget of 2 trials is used up"


def test_a_group_holds_one_fix_and_a_runtime_setting_is_one(tmp_path):
    strategies = {s.name: s for s in (strategy("one", group="g"), strategy("two", group="g"), strategy("level", level=Level.RUNTIME))}
    search = Search(World(1.0, 1.0, {}, folder=tmp_path), {}, strategies, Target())
    fixes = [(s.fix(), s) for s in strategies.values()] + [(strategies["level"].fix(other=1), strategies["level"])]
    assert [str(f) for f in united(Recipe(), fixes, search).fixes] == ["one()", "level()"]
    fuse = strategy("fuse")  # two sets of fusions that were proposed beside one another: the second would find nothing left to do
    assert [str(f) for f in united(Recipe(), [(fuse.fix(), fuse), (fuse.fix(other=1), fuse)], search).fixes] == ["fuse()"]


def test_a_file_is_taken_over_only_where_the_recipe_adds_onnx_and_runtime_fixes(tmp_path):
    module, first, second, level = (Fix(n, at) for n, at in (("m", Level.MODULE), ("o1", Level.ONNX), ("o2", Level.ONNX), ("r", Level.RUNTIME)))
    parent = Recipe().plus([module, first])
    assert extends(parent.plus([second, level]), parent)
    assert not extends(Recipe().plus([first, second]), parent)
    assert not extends(Recipe((module, second, first)), parent)
    assert not extends(parent.plus([Fix("p", Level.PROGRAM)]), parent)
    assert not extends(Recipe(parent.plus([second]).fixes, ExportConfig(capture="trace")), parent)
    trial = Trial(parent, Stage.LATENCY, Verdict.SLOW, effect_evidence=("x.py:3",))
    candidate = Candidate(parent.plus([level]), trial)
    (tmp_path / "model.onnx").touch()
    registry = {n: strategy(n) for n in ("m", "o1", "o2", "r")}
    assert parent_file(candidate, {parent.id: tmp_path}, registry)["parent"]["baked"] == ["x.py:3"]
    assert parent_file(candidate, {}, registry) == {}
    failed = replace(candidate, parent=replace(trial, stage=Stage.PARITY))
    assert parent_file(failed, {parent.id: tmp_path}, registry) == {}


def test_the_diagnosis_tells_the_spread_and_carries_the_profile():
    row = {"ort_ms": 5.0, "q1_ms": 4.8, "q3_ms": 5.3, "speedup": 0.9, "speedup_q1": 0.85, "speedup_q3": 0.95}
    shown = slow(Trial(Recipe(), Stage.DONE, Verdict.PASS, latency=row), Target(min_speedup=1.0), {"op_types": "Conv"})
    facts = shown.diagnosis.facts
    assert facts["op_types"] == "Conv" and "0.90x eager (0.85 to 0.95); wanted at least 1.0x eager" in facts["message"]


@pytest.mark.slow
def test_large_files_are_taken_over_with_their_weights(tmp_path, monkeypatch):
    from autofix.case import CaseSpec
    from autofix.isolate import CaseProcess

    monkeypatch.setattr("autofix.attempt.LARGE_FILE", 1000)
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body = nn.Linear(64, 64)\n\n    def forward(self, x):\n        return nn.functional.softmax(self.body(x), -1)\n\n\n"
        "def get_inputs():\n    torch.manual_seed(0)\n    return [torch.randn(2, 64)]\n"
    )
    with CaseProcess(CaseSpec(str(file)), Target(), fork=True) as process:
        process.reference()
        stock, first = process.attempt(Recipe())
        assert stock.ok and (first / "model.onnx.data").exists()
        parent = {"folder": str(first), "recipe": Recipe().to_json(), "baked": []}
        for level in ("BASIC", "DISABLE_ALL"):
            recipe = Recipe((Fix("graph_level", Level.RUNTIME, {"level": level}),))
            process.start_attempt(recipe, parent)
            _, ended, answer, folder = process.collect()
            trial = process.finish_attempt(recipe, ended, answer, folder)
            assert trial.ok, trial.diagnosis
            assert json.loads((folder / "session.json").read_text())["level"] == level
            assert (folder / "model.onnx.data").read_bytes() == (first / "model.onnx.data").read_bytes()
        lossy = Recipe((Fix("half_precision", Level.ONNX, {}),))
        process.start_attempt(lossy, parent)
        _, ended, answer, folder = process.collect()
        assert process.finish_attempt(lossy, ended, answer, folder).stage > Stage.CONVERT
