"""What an attempt tells besides its verdict: the file's signature, and the sizes at which it must still be verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autofix.attempt import Workpiece


def describe_signature(session: Any) -> dict[str, Any]:
    """The fixlog's `signature`: name, source, dtype and shape of inputs and outputs."""

    def row(value: Any) -> dict[str, Any]:
        dtype = value.type.removeprefix("tensor(").removesuffix(")")
        source = value.name.removesuffix(".after") if value.name.startswith("buffers.") else value.name
        return {
            "name": value.name,
            "source": source,
            "dtype": {"float": "float32", "double": "float64"}.get(dtype, dtype),
            "shape": list(value.shape),
        }

    return {"inputs": [row(v) for v in session.get_inputs()], "outputs": [row(v) for v in session.get_outputs()]}


def wanted_probes(piece: Workpiece, example: Any) -> tuple[dict[str, Any], ...]:
    """Sizes that no input set had and at which some size test of the capture goes the other way, with the test's place."""
    from autofix.adapter import parameter_name
    from autofix.inputs import symbol_sizes
    from autofix.watch import unseen_sizes

    if piece.watch is None or not piece.case.axes:
        return ()
    known = [symbol_sizes(piece.case.axes, one.leaves) for one in [example, *piece.reference.sets] if not one.advisory]
    axes = {parameter_name(name): named for name, named in piece.case.axes.items()}
    found = unseen_sizes(piece.watch, axes, known)
    return tuple(
        {"sizes": sizes, "file": piece.files.get(site.file, site.file), "line": site.line, "code": site.code, "expression": site.expression}
        for sizes, site in found
    )
