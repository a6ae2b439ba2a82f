"""The reference: what the untouched model gives in eager PyTorch on every input set, with facts about the model.

Runs in a child process forked from the one that loaded the case.

make_reference(case, target, folder) -> facts (plain JSON); writes folder/reference.pt; raises CaseError where forward raises on the person's
    own sets or is not deterministic.
load_reference(folder) -> Reference(sets, facts)
Reference.sets: ReferenceSet records, the given one first, then more, samples, generated.
facts: parameters, inputs, outputs, modules, module_files, operators, random_operators, sites, sources, mutated_buffers, mutated_parameters,
    mutated_attributes, input_sets, dropped_sets, weights_mb, eager_seconds, ill_conditioned, float64, notes.

Outputs are in eval mode, without gradients, on one thread; each set on a model as built, unless forward changes buffers: then
the person's own sets are consecutive calls on one model, and so are the generated ones after them (`state_before`/`state_after` record the buffers).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofix.case import Case, InputSet, one_line, user_line
from autofix.errors import CaseError

if TYPE_CHECKING:
    from autofix.eager import Eager, EagerCall, Leaves
    from autofix.inputs import Candidate
    from autofix.target import Target

ELSEWHERE = 8
"""How many sets of other sizes, and of the person's own, are asked for operators that the example does not run."""
BIG_SECONDS = 0.25
"""A forward slower than this makes the model big: few generated sets, float64 on two of them."""


@dataclass(frozen=True)
class ReferenceSet:
    """One call. leaves and outputs are [(name, value)]; outputs64, noise and tied (see ties.py) are lists of tensors in the outputs' order, or None.

    kind of a generated set: "values", "sizes", "empty" (an axis of size 0), "nonfinite", "numbers" (Python numbers changed).
    advisory: what the file does on it does not count against the file (say NaN that a matrix product has spread). sizes: {symbol: size} where
    they differ from the example's. resized: some dynamic axis differs from the example.
    """

    name: str
    origin: str
    args: list[Any]
    kwargs: dict[str, Any]
    leaves: list[tuple[str, Any]]
    outputs: list[tuple[str, Any]]
    outputs64: list[Any] | None = None
    noise: list[Any] | None = None
    tied: list[Any] | None = None
    resized: bool = False
    kind: str = ""
    advisory: bool = False
    sizes: dict[str, int] = field(default_factory=dict)
    state_before: dict[str, Any] = field(default_factory=dict)
    state_after: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reference:
    """All sets of a case and its facts."""

    sets: list[ReferenceSet]
    facts: dict[str, Any]

    def named(self, name: str) -> ReferenceSet:
        """The set of this name; raises KeyError."""
        for one in self.sets:
            if one.name == name:
                return one
        raise KeyError(name)


def load_reference(folder: str) -> Reference:
    """Read what make_reference wrote, and the sets that probe.py added. The person's module must be importable where inputs have types of its own."""
    import torch

    data = torch.load(os.path.join(folder, "reference.pt"), weights_only=False)
    extra = [one for path in sorted(Path(folder).glob("extra-*.pt")) for one in torch.load(path, weights_only=False)]
    return Reference([ReferenceSet(**one) for one in [*data["sets"], *extra]], data["facts"])


def make_reference(case: Case, target: Target, folder: str, skip: frozenset[str] = frozenset()) -> dict[str, Any]:
    """See the module's docstring. The set being generated is noted in folder/trying.txt; those named in `skip` are left out: eager
    crashed or hung on them before."""
    import torch

    torch.set_num_threads(1)
    from autofix.eager import Eager
    from autofix.facts import collect_facts, operators_elsewhere, watch_given
    from autofix.inputs import generate_sets
    from autofix.ties import SORTING

    start = time.perf_counter()
    os.makedirs(folder, exist_ok=True)
    trying = Path(folder) / "trying.txt"
    eager = Eager(case, trying=trying, skip=skip)
    first, log = first_calls(eager)
    watch = watch_given(eager)
    facts = collect_facts(eager, first, log, watch)
    eager.sorts = bool(SORTING.intersection(facts["operators"]))
    check_hashes(eager, first, Path(folder))
    sets = own_sets(eager, first, facts, log)
    eager.limit = max(3.0, 30 * first.seconds)
    kept, dropped, notes = generate_sets(eager, first, watch, facts)
    facts |= {"notes": notes, "dropped_sets": dropped}
    big = is_big(eager, first)
    seen64 = 0
    chain = eager.fresh() if eager.mutated_buffers else None
    for candidate in kept:
        trying.write_text(candidate.name)
        one, why = candidate_set(eager, candidate, facts, chain, anchor=not big or (seen64 < 1 and bool(candidate.sizes)), big=big)
        if one is None:
            dropped.append({"set": candidate.name, "why": why})
        else:
            seen64 += one.outputs64 is not None
            sets.append(one)
    if not big:
        elsewhere = [(s.leaves, (s.args, s.kwargs) if s.origin != "generated" else None) for s in sets[1:] if s.resized or s.origin != "generated"]
        facts["operators_elsewhere"] = operators_elsewhere(eager, elsewhere[:ELSEWHERE], facts["operators"])
    facts["input_sets"] = [
        {
            "name": s.name,
            "origin": s.origin,
            "kind": s.kind,
            "resized": s.resized,
            "advisory": s.advisory,
            "shapes": {n: list(v.shape) if hasattr(v, "shape") else v for n, v in s.leaves},
        }
        for s in sets
    ]
    facts |= {"float64": eager.why_no_float64 or "yes", "reference_seconds": round(time.perf_counter() - start, 3)}
    os.makedirs(folder, exist_ok=True)
    torch.save({"sets": [dict(vars(s)) for s in sets], "facts": facts}, os.path.join(folder, "reference.pt"))
    return facts


def is_big(eager: Eager, first: EagerCall) -> bool:
    """Whether runs are dear enough to be counted one by one."""
    return first.seconds > BIG_SECONDS or eager.bytes > 200 * 2**20


def first_calls(eager: Eager) -> tuple[EagerCall, Any]:
    """Call the example twice, each on a model as built, the second time listing operators. Raises CaseError where forward raises or
    the two differ."""
    from autofix.coverage import OperatorLog
    from autofix.traces import model_marks, same_tensor, traces_of

    files = frozenset(eager.case.sources)
    marks = model_marks(eager.model)
    try:
        first = eager.call(eager.example, eager.model)
    except (Exception, SystemExit) as error:
        raise forward_raised(error, eager.case, "the given inputs") from error
    if not first.outputs:
        raise CaseError("forward returns no tensor and no number", file=eager.case.spec.file)
    traces = traces_of(marks, eager.model)
    eager.mutated_buffers, eager.mutated_parameters, eager.mutated_attributes = traces.buffers, traces.parameters, traces.attributes
    eager.fresh_each_call = traces.any
    log = OperatorLog(files)
    try:
        if traces.any:  # now that the buffers are known, once more for their values
            first = eager.call(eager.example)
        with log:
            second = eager.call(eager.example)
    except (Exception, SystemExit) as error:
        if not log.operators:
            raise forward_raised(error, eager.case, "the given inputs") from error
        from autofix.eager import forget_compiled_code

        forget_compiled_code()
        second = eager.call(eager.example)  # the log itself disturbs the model
    first.seconds = min(first.seconds, second.seconds)  # the first call may have compiled something
    same = [n for n, _ in first.outputs] == [n for n, _ in second.outputs]
    if not same or not all(same_tensor(a, b) for (_, a), (_, b) in zip(first.outputs, second.outputs, strict=True)):
        again = eager.call(eager.example, eager.fresh())
        if not all(same_tensor(a, b) for (_, a), (_, b) in zip(first.outputs, again.outputs, strict=False)):
            if not log.random:
                third = eager.call(eager.example, eager.fresh())
                if all(same_tensor(a, b) for (_, a), (_, b) in zip(again.outputs, third.outputs, strict=False)):
                    # equal on fresh models: what differed was state that no mark shows
                    eager.fresh_each_call = True
                    return again, log
            raise not_deterministic(eager.case, log)
    # few draws may fall alike twice, such as which of six values are dropped
    for _ in range(0 if not log.random else 2 if is_big(eager, first) else 12):
        more = eager.call(eager.example)
        if not all(same_tensor(a, b) for (_, a), (_, b) in zip(first.outputs, more.outputs, strict=False)):
            raise not_deterministic(eager.case, log)
    return first, log


def forward_raised(error: BaseException, case: Case, on: str) -> CaseError:
    """The one line for a forward that raises."""
    file, line, _ = user_line(error, set(case.sources))
    return CaseError(f"forward raises on {on}: {one_line(error)}", file=file or case.spec.file, line=line)


def not_deterministic(case: Case, log: Any) -> CaseError:
    """The one line for a model that gives other outputs at each call."""
    if log.random:
        name, where = next(iter(log.random.items()))
        file, _, line = where.rpartition(":")
        return CaseError(
            f"the model is not deterministic: {name} draws other random numbers at each call; seed it in forward, "
            "or make the noise an input (--random inputs) or a constant (--random seeded)",
            file=file or case.spec.file,
            line=int(line) if line.isdigit() else 0,
        )
    return CaseError("the model is not deterministic: two calls on the same inputs differ", file=case.spec.file)


def check_hashes(eager: Eager, first: EagerCall, folder: Path) -> None:
    """Raises CaseError where the example's outputs differ in another process because sets are in another order there."""
    from autofix.eager import same_outputs
    from autofix.hashing import outputs_elsewhere, uses_hashes

    where = uses_hashes(eager.case.sources)
    there = outputs_elsewhere(eager.case.spec, folder) if where else None
    if there is not None and not same_outputs(there, first.outputs):
        file, _, line = where.rpartition(":")
        text = "the model is not deterministic: it gives other outputs in another process, where sets are in another order (PYTHONHASHSEED)"
        raise CaseError(text, file=file, line=int(line))


def own_sets(eager: Eager, first: EagerCall, facts: dict[str, Any], log: Any) -> list[ReferenceSet]:
    """The given, more and sample sets; raises CaseError where forward raises on one."""
    from autofix.adapter import input_leaves
    from autofix.conditioning import check_float64
    from autofix.eager import ordered_call

    check_float64(eager, first, facts, log)
    chain = eager.fresh() if eager.mutated_buffers else None
    sets: list[ReferenceSet] = []
    for one in eager.case.sets:
        try:
            template = ordered_call(eager.model.forward, one)
            leaves = input_leaves(eager.model.forward, *template)
            call = first if one is eager.case.given and chain is None else eager.call(leaves, chain, template)
        except (Exception, SystemExit) as error:
            raise forward_raised(error, eager.case, "the given inputs" if one is eager.case.given else f"input set {one.name!r}") from error
        made, why = finish_set(eager, one, leaves, call, template, anchor=True)
        if why:
            facts["ill_conditioned"].append({"set": one.name, "why": why})
        sets.append(made)
    return sets


def finish_set(
    eager: Eager, one: InputSet, leaves: Leaves, call: EagerCall, template: Any, *, anchor: bool, kind: str = "", advisory: bool = False
) -> tuple[ReferenceSet, str]:
    """The record of one call with its float64 outputs or noise floor, and why it is ill-conditioned (or "").

    Round-off is tried once (shake.py): a set on which outputs jump, or move by more than a quarter of what parity allows while float64
    says that they are accurate, is on a knife edge, unless every operator has one right result (IEEE 754). Where the example itself moves
    as much, that is the model's own condition.
    """
    from autofix.conditioning import KNIFE_EDGE, disagreement, gap_text
    from autofix.inputs import symbol_sizes
    from autofix.magnitudes import overflows_inside
    from autofix.saturation import saturates_inside
    from autofix.shake import shaken_change, shaken_ratio
    from autofix.ties import few_tied, tied_places

    wide = eager.call64(leaves, template, call.state_before) if anchor else None
    outputs64: list[Any] | None = None
    noise: list[Any] | None = None
    why = ""
    if wide is not None:
        gap = disagreement(call.outputs, wide)
        why = gap_text(gap) if gap > KNIFE_EDGE else ""
        outputs64 = [v for _, v in wide] if len(wide) == len(call.outputs) else None
    if kind == "magnitude" and overflows_inside(call.outputs, wide):
        why = why or "PyTorch itself overflows inside"
    if one.origin == "generated" and saturates_inside(eager, leaves):
        why = why or "PyTorch's sums of 8-bit products saturate on this processor"
    if anchor and eager.bytes < 200 * 2**20 and call.seconds < BIG_SECONDS and kind != "nonfinite":
        change, met = shaken_change(eager, leaves, call.outputs, template, draws=1 if wide is not None else 2, state=call.state_before)
        if change is None:
            why = why or "outputs jump when results move by one unit in the last place"
        elif change:
            ratio = shaken_ratio(call.outputs, change)
            if one.origin == "given":
                eager.own_ratio = ratio
                if ratio > 1:
                    why = why or f"round-off alone moves the outputs by {ratio:.1g} times what is allowed"
            if ratio > 0.25 and ratio > 4 * eager.own_ratio:
                why = why or f"round-off alone moves the outputs by {ratio:.1g} times what is allowed"
            if wide is None:
                noise = [v for _, v in change]
        advisory = advisory or (met.ties and one.origin == "generated")
        ties = met.ties and not advisory
        if why and change and not met.rounds:  # every result is the only right one in float32: float64 answers another question
            why, outputs64 = "", None
    else:
        ties = eager.sorts and not advisory
    places = tied_places(eager, leaves, call.outputs, template, call.state_before) if ties else None
    advisory = advisory or (one.origin == "generated" and any(bool(p.any()) for p in places or ()))
    here, there = symbol_sizes(eager.case.axes, eager.example), symbol_sizes(eager.case.axes, leaves)
    sizes = {s: n for s, n in there.items() if here.get(s) != n}
    args, kwargs = eager.arguments(leaves, template)
    record = ReferenceSet(
        name=one.name,
        origin=one.origin,
        args=args,
        kwargs=kwargs,
        leaves=list(leaves),
        outputs=call.outputs,
        outputs64=outputs64,
        noise=noise,
        tied=few_tied(places),
        resized=bool(sizes),
        kind=kind,
        advisory=advisory,
        sizes=sizes,
        state_before=call.state_before,
        state_after=call.state_after,
    )
    return record, why


def candidate_set(
    eager: Eager, candidate: Candidate, facts: dict[str, Any], chain: Any, *, anchor: bool, big: bool = False
) -> tuple[ReferenceSet | None, str]:
    """A generated candidate as a record, or None and why it is dropped: eager is not sure of its own answer there."""
    from autofix.eager import EagerCall, same_outputs

    known = candidate.outputs if chain is None and not facts["watch_changes_values"] else None
    try:
        if known is not None and big:
            call = EagerCall(known, candidate.seconds)
        else:
            call = eager.call(candidate.leaves, chain)
            if known is not None and not same_outputs(call.outputs, known) and not same_outputs(call.outputs, eager.call(candidate.leaves).outputs):
                return None, "eager does not repeat its own outputs"
    except Exception as error:
        return None, one_line(error)
    dtypes = [o["dtype"] for o in facts["outputs"]]
    if [str(v.dtype).removeprefix("torch.") for _, v in call.outputs] != dtypes:
        return None, "eager gives other dtypes or another number of outputs there, which no one file can have"
    one = InputSet(candidate.name, "generated", [], {})
    made, why = finish_set(eager, one, candidate.leaves, call, None, anchor=anchor, kind=candidate.kind, advisory=candidate.advisory)
    if why and candidate.kind != "nonfinite":
        return None, why
    return made, ""
