"""The first operator that introduces an error: where ONNX Runtime and PyTorch part.

locate_fault(case, path, one, signature) -> fault as a dict, or None where every output of the file is right on this set.
  node, op_type: the ONNX node; operator: the aten operator it stands for; file, line: where the person's source (else the library's)
  calls it; error_before, error_after: relative error of what it reads and of what it gives; output: the wrong output; cause: "",
  "graph-optimization" (the file is right with ONNX Runtime's optimiser off) or "capture" (the captured program is wrong already).
locate(path, program, reference, parity) -> the same between a captured program and the file.

All intermediate values of both sides are computed once: PyTorch's by a dispatch mode, those of the file as outputs of one session. They are
paired by value, not by name, so that files of any origin can be located. From the wrong output the walk goes up through values without a
partner until all inputs of a node have one: such a node reads what PyTorch reads (to 3e-5) and gives something else, so the error is its own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from autofix.pairing import CLOSE, EagerValue, Pairing, eager_values, merge_copies, program_values, relative_error
from autofix.trust import input_names, noted_operator, trusted_values

if TYPE_CHECKING:
    from autofix.case import Case
    from autofix.reference import Reference, ReferenceSet
    from autofix.verify import Parity

MOST_SUSPECTS = 12
SUSPICIOUS = 1e-6
"""Relative error of what a suspect reads, beyond which the search is repeated with a stricter idea of equality."""


def session_values(path: str, feed: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """(the model, {value name: array}) with every node's outputs of the main graph, optimiser off. bfloat16 is given as float32."""
    import onnx
    import onnxruntime as ort

    model = onnx.load(path, load_external_data=False)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    have = {o.name for o in model.graph.output}
    names = [n for n in dict.fromkeys(o for node in model.graph.node for o in node.output if o) if n not in have]
    session = open_with(model, path, names, [], options)
    narrow = [o.name for o in session.get_outputs() if o.type == "tensor(bfloat16)"]
    if narrow:  # NumPy has no such type: read them through casts
        session = open_with(model, path, [n for n in names if n not in narrow], narrow, options)
    asked = {o.name: o.name for o in session.get_outputs() if o.name not in narrow} | {n + ".float": n for n in narrow}
    got = zip(asked.values(), session.run(list(asked), feed), strict=True)
    return model, {n: v for n, v in got if isinstance(v, np.ndarray)}


def open_with(model: Any, path: str, names: list[str], narrow: list[str], options: Any) -> Any:
    """A session of the file with further outputs, those of `narrow` cast to float32. Serialised messages that follow one another are merged, so
    that the weights need not be written again; where they lie in a file of their own, through a temporary file beside it."""
    import onnx
    import onnxruntime as ort

    more = onnx.ModelProto()
    more.graph.node.extend(onnx.helper.make_node("Cast", [n], [n + ".float"], to=onnx.TensorProto.FLOAT) for n in narrow)
    more.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in [*names, *(n + ".float" for n in narrow)])
    with open(path, "rb") as file:
        data = file.read() + more.SerializeToString()
    if not any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer):
        return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    handle, name = tempfile.mkstemp(suffix=".onnx", dir=os.path.dirname(os.path.abspath(path)))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        return ort.InferenceSession(name, options, providers=["CPUExecutionProvider"])
    finally:
        os.unlink(name)


def locate_fault(case: Case, path: str, one: ReferenceSet, signature: dict[str, Any]) -> dict[str, Any] | None:
    """See the module's docstring. Raises what ONNX Runtime raises where the file does not run on this set."""
    return locate_between(lambda: eager_values(case, one), path, one, signature["inputs"])


def locate(path: Any, program: Any, reference: Reference, outcome: Parity) -> dict[str, Any] | None:
    """As locate_fault, between the captured program and the file, for the set that a Parity complains of. Where the program itself
    is wrong there, the fault was made by the capture: `cause` is "capture"."""
    import onnx

    from autofix.compare import as_array

    one = reference.named(outcome.facts["input_set"])
    values, outputs = program_values(program, one, frozenset(reference.facts.get("sources", {})))
    off = [relative_error(as_array(g), as_array(w)) for g, (_, w) in zip(outputs, one.outputs, strict=False) if hasattr(g, "shape")]
    if off and max(off) > CLOSE:
        return {"cause": "capture", "error_after": max(off)}
    graph = onnx.load(str(path), load_external_data=False).graph
    return locate_between(lambda: values, str(path), one, [i.name for i in graph.input])


def locate_between(make: Callable[[], list[EagerValue]], path: str, one: ReferenceSet, inputs: list[Any]) -> dict[str, Any] | None:
    """Pair the values that make() gives with those of the file, and name the first node that errs."""
    from autofix.compare import as_array
    from autofix.verify import make_feed

    feed = make_feed(one, inputs)
    model, values = session_values(path, feed)
    wanted = [(n, as_array(v)) for n, v in one.outputs]
    outputs = [o.name for o in model.graph.output][: len(wanted)]
    wrong = [(n, o) for o, (n, v) in zip(outputs, wanted, strict=False) if o not in values or not is_right(values[o], v)]
    if not wrong:
        return optimizer_fault(path, feed, outputs, wanted)
    values |= feed
    eager = make()
    merge_copies(eager)
    truth = {o: v for o, (_, v) in zip(outputs, wanted, strict=False)}
    pairing = Pairing(eager)
    fault = first_fault(model, values, pairing, wrong, truth)
    if fault is None or fault["error_before"] > SUSPICIOUS:  # what it reads may be wrong in small values beside large ones
        pairing.strict = True
        closer = first_fault(model, values, pairing, wrong, truth)
        if closer is not None and (fault is None or closer["error_before"] < fault["error_before"]):
            fault = closer
    return fault


def is_right(got: Any, want: Any) -> bool:
    """Whether an output is PyTorch's, to about its own round-off."""
    from autofix.compare import check_output

    return bool(got.shape == want.shape and relative_error(got, want) <= CLOSE and check_output(want, got)["ok"])


def first_fault(model: Any, values: dict[str, Any], pairing: Pairing, wrong: list[tuple[str, str]], truth: dict[str, Any]) -> dict[str, Any] | None:
    """The first node above the first wrong output that reads what is right and gives what is not."""
    eager = pairing.values
    producer = {name: node for node in model.graph.node for name in node.output if name}
    paired = {name: pairing.partner(array, name) for name, array in values.items()}
    trusted = trusted_values(model, values, paired, eager)
    trusted -= {o for _, o in wrong}
    suspects = suspects_above(wrong[0][1], producer, trusted)
    order = {id(node): i for i, node in enumerate(model.graph.node)}
    suspects = sorted(suspects, key=lambda n: order[id(n)])[:MOST_SUSPECTS]
    best: dict[str, Any] | None = None
    for node in suspects:
        fault = judge_suspect(node, model, values, paired, eager, producer, wrong[0], truth)
        if best is None or fault["error_after"] > 10 * best["error_after"]:
            best = fault
        if fault["operator"] and fault["error_after"] > CLOSE:
            best = fault
            break
    return best


def optimizer_fault(path: str, feed: dict[str, Any], outputs: list[str], wanted: list[tuple[str, Any]]) -> dict[str, Any] | None:
    """With the optimiser off all was right: whether it is wrong with it on."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    got = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(outputs, feed)
    off = max((relative_error(g, v) for g, (_, v) in zip(got, wanted, strict=True)), default=0.0)
    return {"cause": "graph-optimization", "error_before": 0.0, "error_after": off} if off > CLOSE else None


def suspects_above(start: str, producer: dict[str, Any], trusted: set[str]) -> list[Any]:
    """Nodes at the upper rim of the untrusted region above `start`: all their computed inputs are trusted, or they have none."""
    rim: list[Any] = []
    seen: set[str] = set()
    stack = [start]
    while stack:
        name = stack.pop()
        if name in seen or name not in producer:
            continue
        seen.add(name)
        node = producer[name]
        open_inputs = [i for i in input_names(node) if i in producer and producer[i].op_type != "Constant" and i not in trusted]
        stack += open_inputs
        if not open_inputs and node.op_type != "Constant" and not any(node is n for n in rim):
            rim.append(node)
    return rim


def judge_suspect(
    node: Any,
    model: Any,
    values: dict[str, Any],
    paired: dict[str, int | None],
    eager: list[EagerValue],
    producer: dict[str, Any],
    wrong: tuple[str, str],
    truth: dict[str, Any],
) -> dict[str, Any]:
    """The suspect as a fault: which eager operator it stands for, and how far its output is off from what that gave."""
    before = 0.0
    read: set[int] = set()
    for name in node.input:
        partner = paired.get(name)
        if partner is not None and partner >= 0 and name in values:
            before = max(before, relative_error(values[name], eager[partner].array))
            read.add(partner)
    fault: dict[str, Any] = {
        "node": node.name or (node.output[0] if node.output else ""),
        "op_type": node.op_type,
        "operator": "",
        "file": "",
        "line": 0,
        "output": wrong[0],
        "error_before": before,
        "error_after": 0.0,
        "cause": "",
    }
    matched = {p for p in paired.values() if p is not None and p >= 0}
    match = expected_of(node, values, eager, read, matched)
    if match is not None:
        fault.update(operator=match.operator, file=match.file, line=match.line)
        out = values.get(node.output[0])
        fault["error_after"] = relative_error(out, match.array) if out is not None and out.size == match.array.size else float("inf")
    elif wrong[1] in values:
        fault["error_after"] = relative_error(values[wrong[1]], truth[wrong[1]])
    fault["operator"] = noted_operator(node) or fault["operator"]
    return fault


def expected_of(node: Any, values: dict[str, Any], eager: list[EagerValue], read: set[int], matched: set[int]) -> EagerValue | None:
    """The eager operator that should have given this node's output: it reads the partners of the node's inputs (or views of them), has no
    partner in the file, and is the first such, preferring one whose result has the size of the node's output."""
    reach = set(read)
    candidates: list[tuple[int, EagerValue]] = []
    for i, value in enumerate(eager):
        if any(s in reach for s in value.sources):
            if value.is_copy:
                reach.add(i)
            elif i not in matched and value.inside not in matched:
                candidates.append((-len(reach & set(value.sources)), value))
    out = values.get(node.output[0]) if node.output else None
    candidates.sort(key=lambda c: (out is None or c[1].array.size != out.size, c[0]))
    if candidates:
        return candidates[0][1]
    # reads parameters and leaves only: the first operator in the file's order that nothing matches
    return next(
        (v for i, v in enumerate(eager) if i not in matched and not v.operator.startswith(("aten.detach", "aten.clone", "aten.view", "aten.t."))),
        None,
    )
