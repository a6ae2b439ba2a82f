"""The search with fake strategies and a fake case process: no torch, no processes."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from autofix.recipe import Fix, Level, Recipe
from autofix.search import NOT_WORTH, NOTHING_LEFT, Budget, Search
from autofix.strategy import Strategy
from autofix.target import Effect, Target
from autofix.trial import Diagnosis, Stage, Trial, Verdict


@dataclass(frozen=True)
class Fault:
    """A fault of the fake model: shows at a stage until one of `cures` is in the recipe."""

    symptom: str
    stage: Stage
    cures: tuple[str, ...]


class World:
    """Stands in for CaseProcess: a recipe gets as far as its first fault that it does not cure."""

    case_id = "case"

    def __init__(self, *faults, evidence=None, seconds=0.0):
        self.faults, self.evidence, self.seconds = faults, evidence or {}, seconds
        self.asked, self.running, self.most = [], [], 0

    def start_attempt(self, recipe, seconds=float("inf")):
        self.asked.append(recipe)
        self.allowed = seconds
        self.running.append((len(self.asked), recipe))
        self.most = max(self.most, len(self.running))
        return len(self.asked)

    def collect(self):
        number, recipe = self.running.pop()  # the newest first: answers need not come in order
        time.sleep(min(self.seconds, self.allowed))
        return number, {}, {"recipe": recipe}, Path(f"trial-{number}")

    def finish_attempt(self, recipe, ended, answer, folder):
        assert answer["recipe"] == recipe
        if self.seconds > self.allowed:
            return Trial(recipe, Stage.CAPTURE, Verdict.TIMEOUT, Diagnosis("timeout", Stage.CAPTURE, {"message": "took too long"}))
        baked = tuple(text for name, text in self.evidence.items() if recipe.has(name) and not recipe.has("rewrite_branch"))
        for fault in self.faults:
            if not any(recipe.has(cure) for cure in fault.cures):
                return Trial(recipe, fault.stage, Verdict.FAIL, Diagnosis(fault.symptom, fault.stage, {"message": "broken"}))
        return Trial(recipe, Stage.DONE, Verdict.PASS, effect_evidence=baked)


def strategy(name, *treats, effect=Effect.EXACT, prior=0.3, group="", level=Level.CONFIG, proposals=({},)):
    def propose(self, evidence, target):
        if not evidence.recipe.has(name):
            yield from (self.fix(**params) for params in proposals)

    body = {"treats": treats, "effect": effect, "prior": prior, "group": group, "level": level}
    made = type(name, (Strategy,), {**body, "propose": propose, "apply": staticmethod(lambda artifact, **params: artifact)})()
    made.name = name
    return made


def search(world, *strategies, target=Target(), **more):
    return Search(world, {}, {s.name: s for s in strategies}, target, **more)


def names(recipe):
    return [f.strategy for f in recipe.fixes]


CAPTURE = Fault("capture-error", Stage.CAPTURE, ("cure_capture",))
CONVERT = Fault("convert-error", Stage.CONVERT, ("cure_convert",))
VALUES = Fault("mismatch-at-example", Stage.PARITY, ("cure_values",))
CURES = (
    strategy("cure_capture", "capture-error"),
    strategy("cure_convert", "convert-error"),
    strategy("cure_values", "mismatch-at-example"),
)
NOISE = tuple(strategy(f"noise_{i}", "capture-error", "convert-error", "mismatch-at-example") for i in range(3))


def test_a_model_without_fault_needs_one_trial():
    found = search(World(), *CURES).run()
    assert found.ok and len(found.trials) == 1 and not found.winner.recipe.fixes and not found.from_cache


@pytest.mark.parametrize("faults", [(CAPTURE, CONVERT), (CAPTURE, CONVERT, VALUES), (CONVERT, VALUES)])
def test_several_faults_are_cured_by_a_composed_recipe(faults):
    found = search(World(*faults), *CURES, *NOISE).run()
    assert found.ok
    assert sorted(names(found.winner.recipe)) == sorted(f.cures[0] for f in faults)


def test_every_recipe_is_tried_once():
    world = World(CAPTURE, CONVERT, VALUES)
    search(world, *CURES, *NOISE).run()
    assert len({r.id for r in world.asked}) == len(world.asked)


def test_fixes_that_are_not_needed_are_dropped():
    # `detour` moves the failure on, so it is built upon; `cure_all` cures both and makes it superfluous
    faults = (Fault("capture-error", Stage.CAPTURE, ("detour", "cure_all")), Fault("convert-error", Stage.CONVERT, ("cure_all",)))
    found = search(World(*faults), strategy("detour", "capture-error", prior=0.9), strategy("cure_all", "convert-error")).run()
    assert names(found.winner.recipe) == ["cure_all"]


def test_a_fix_that_leaves_the_failure_as_it_was_is_not_built_upon():
    world = World(CAPTURE)
    found = search(world, *NOISE).run()
    assert not found.ok and found.stopped == NOTHING_LEFT
    assert len(world.asked) == 1 + len(NOISE)
    assert found.nearest.recipe == Recipe()


def test_nearest_is_what_came_furthest():
    found = search(World(CAPTURE, CONVERT), CURES[0]).run()
    assert not found.ok and names(found.nearest.recipe) == ["cure_capture"] and found.nearest.stage is Stage.CONVERT


def test_a_search_ends_when_nothing_left_is_worth_its_time():
    many = strategy("many", "capture-error", prior=0.5, proposals=tuple({"n": n} for n in range(60)))
    found = search(World(CAPTURE), many, budget=Budget(trials=1000)).run()
    assert found.stopped == NOT_WORTH and 5 < len(found.trials) < 30  # each failure halves what it is given
    hopeful = search(World(CAPTURE), many, strategy("cure_capture", "capture-error", prior=0.01), budget=Budget(trials=1000)).run()
    assert hopeful.ok  # a hundredth of an hour is worth a trial


def test_the_budget_of_trials_is_kept_and_named():
    world = World(CAPTURE)
    found = search(world, *(strategy(f"n{i}", "capture-error") for i in range(20)), budget=Budget(trials=4)).run()
    assert len(found.trials) == 4 and "4 trials" in found.stopped


def test_the_budget_of_seconds_is_kept_and_named():
    found = search(World(CAPTURE, seconds=0.06), *(strategy(f"n{i}", "capture-error") for i in range(50)), budget=Budget(seconds=0.2)).run()
    assert len(found.trials) < 10 and "used up" in found.stopped


def test_a_disallowed_effect_is_offered_not_tried():
    narrow = strategy("cure_capture", "capture-error", effect=Effect.NARROWING)
    world = World(CAPTURE)
    found = search(world, narrow).run()
    assert not found.ok and len(world.asked) == 1
    assert [(fix.strategy, effect, symptom) for fix, effect, symptom in found.offers] == [("cure_capture", Effect.NARROWING, "capture-error")]
    assert search(World(CAPTURE), narrow, target=Target(allow=frozenset({Effect.NARROWING}))).run().ok


def test_evidence_of_a_baked_value_makes_a_green_trial_narrowing():
    evidence = {"cure_capture": "model.py:7: a tensor became a Python bool"}
    refused = search(World(CAPTURE, evidence=evidence), CURES[0]).run()
    assert not refused.ok
    assert refused.nearest.diagnosis.symptom == "baked-value"
    assert refused.nearest.diagnosis.where == "model.py:7"
    allowed = search(World(CAPTURE, evidence=evidence), CURES[0], target=Target(allow=frozenset({Effect.NARROWING}))).run()
    assert allowed.ok and allowed.winner.effect_evidence


def test_another_strategy_is_found_after_a_baked_value():
    evidence = {"cure_capture": "model.py:7: baked"}
    other = strategy("rewrite_branch", "baked-value", level=Level.SOURCE)
    world = World(Fault("capture-error", Stage.CAPTURE, ("cure_capture", "rewrite_branch")), evidence=evidence)
    found = search(world, CURES[0], other).run()
    assert found.ok and names(found.winner.recipe) == ["rewrite_branch"]  # and minimised to it


def test_what_the_cache_knows_is_tried_first_and_answers_in_one_trial():
    world = World(CAPTURE, CONVERT)
    known = Recipe().plus([CURES[0].fix(), CURES[1].fix()])
    found = search(world, *CURES, *NOISE, first=[known]).run()
    assert found.ok and found.from_cache and len(world.asked) == 1


def test_a_stale_hint_costs_one_trial_and_the_stock_export_comes_next():
    world = World(CAPTURE, CONVERT)
    stale = Recipe().plus([NOISE[0].fix()])
    found = search(world, *CURES, *NOISE, first=[stale]).run()
    assert found.ok and not found.from_cache
    assert world.asked[:2] == [stale, Recipe()]
    assert sorted(names(found.winner.recipe)) == ["cure_capture", "cure_convert"]


def test_jobs_run_side_by_side():
    world = World(CAPTURE, CONVERT, VALUES)
    found = search(world, *CURES, *NOISE, jobs=3).run()
    assert found.ok and world.most == 3 and not world.running
    assert len({t.recipe.id for t in found.trials}) == len(found.trials) == len(world.asked)


def test_strategies_of_one_group_replace_each_other():
    modes = [strategy(f"capture_{n}", "capture-error", "convert-error", group="capture") for n in ("a", "b", "c")]
    faults = (Fault("capture-error", Stage.CAPTURE, ("capture_a", "capture_b")), Fault("convert-error", Stage.CONVERT, ("capture_b",)))
    found = search(World(*faults), *modes).run()
    assert names(found.winner.recipe) == ["capture_b"]
    assert all(sum(f.strategy.startswith("capture_") for f in t.recipe.fixes) <= 1 for t in found.trials)


def test_the_order_follows_probability():
    world = World(Fault("capture-error", Stage.CAPTURE, ("likely",)))
    others = [strategy(f"n{i}", "capture-error", prior=0.1) for i in range(5)]
    search(world, *others, strategy("likely", "capture-error", prior=0.8)).run()
    assert len(world.asked) == 2


def test_one_strategys_proposals_are_tried_in_its_order():
    world = World(CAPTURE)
    search(world, strategy("several", "capture-error", proposals=[{"n": i} for i in range(3)])).run()
    assert [r.fixes[0].params["n"] for r in world.asked[1:]] == [0, 1, 2]


def test_nothing_to_do_is_a_dead_end():
    world = World(Fault("nothing-to-do", Stage.REWRITE, ()))
    found = search(world, strategy("n", "nothing-to-do")).run()
    assert not found.ok and len(world.asked) == 1


def test_a_strategy_that_raises_is_noted_and_the_search_goes_on():
    broken = strategy("broken", "capture-error")
    type(broken).propose = lambda self, evidence, target: 1 / 0
    found = search(World(CAPTURE), broken, CURES[0]).run()
    assert found.ok and "broken" in found.problems[0] and "ZeroDivisionError" in found.problems[0]


def test_interrupted_the_trials_so_far_remain():
    world = World(CAPTURE, CONVERT)
    one = search(world, *CURES, *NOISE)
    collect, world.collect = world.collect, lambda: (_ for _ in ()).throw(KeyboardInterrupt) if len(world.asked) == 3 else collect()
    with pytest.raises(KeyboardInterrupt):
        one.run()
    assert len(one.repair.trials) == 2 and not one.repair.ok


def test_a_trial_knows_its_parent():
    found = search(World(CAPTURE, CONVERT), *CURES).run()
    assert found.trials[0].parent is None
    assert all(t.parent in {o.recipe.id for o in found.trials} for t in found.trials[1:])


def test_a_recipe_orders_fixes_by_level_and_survives_json():
    late, early = Fix("late", Level.RUNTIME), Fix("early", Level.SOURCE, {"line": 3})
    recipe = Recipe().plus([late, early, late])
    assert names(recipe) == ["early", "late"]
    assert Recipe.from_json(recipe.to_json()).id == recipe.id == Recipe().plus([early, late]).id
    assert recipe.minus(late) == Recipe((early,)) and replace(recipe).id == recipe.id


def test_a_running_trial_ends_with_the_budget():
    found = search(World(seconds=30.0), *CURES, budget=Budget(seconds=1.1)).run()
    assert not found.ok and found.stopped == "the budget of 1 s is used up"
    assert [t.diagnosis.symptom for t in found.trials] == ["cut-off"] and found.seconds < 5
    assert search(World(seconds=0.1), *CURES, budget=Budget(seconds=60)).run().ok


def test_a_trial_that_the_budget_ended_is_not_remembered(tmp_path):
    from autofix.cache import Cache
    from autofix.case import CaseSpec
    from autofix.repair import Settings, repair

    file = tmp_path / "slow.py"
    lines = "import time, torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        if torch.compiler.is_exporting():\n"
    file.write_text(lines + "            time.sleep(60)\n        return x + 1\n\n\ndef get_inputs():\n    return [torch.ones(2)]\n")
    settings = Settings(output=tmp_path / "out", cache=tmp_path / "c.db", budget=Budget(seconds=3))
    found = repair(CaseSpec(str(file)), settings=settings, fork=True)
    assert not found.ok and found.stopped == "the budget of 3 s is used up" and found.trials[-1].diagnosis.symptom == "cut-off"
    with Cache.open(tmp_path / "c.db") as cache:
        assert cache.stats()["cases_tried"] == 0
