"""Which of a family's operators a model needs replaced; plain strings, no torch."""

from __future__ import annotations

from collections.abc import Iterable

from autofix.strategy import Evidence

SAME_OPERATOR = {
    "inverse": "linalg_inv",
    "linalg_tensorinv": "linalg_inv",
    "logdet": "linalg_slogdet",
    "qr": "linalg_qr",
    "cholesky": "linalg_cholesky",
    "erf_inv": "erfinv",
    "bessel_i0": "i0",
    "bessel_i0e": "i0e",
    "bessel_i1": "i1",
    "bessel_i1e": "i1e",
    "grouped_mm_fallback": "grouped_mm",
    "special_modified_bessel_i0": "modified_bessel_i0",
    "special_modified_bessel_i1": "modified_bessel_i1",
}
"""Composite operators, and prims, by the operator that eager mode runs."""


OVERLOAD_MATTERS = ("aten.view.dtype", "aten.div.Tensor_mode", "aten.div.Scalar_mode")
"""Overloads that are another operator than the rest of their name."""


def operator_key(name: str) -> str:
    """The name that an operator shares with its variants: "aten._linalg_solve_ex.default", "linalg_solve" and "prims.linalg_solve.default"
    have one key."""
    if name in OVERLOAD_MATTERS:
        return name
    parts = name.split(".")
    bare = parts[1] if len(parts) > 1 else parts[0]
    bare = bare.strip("_").removesuffix("_ex").removesuffix("_forward")
    return SAME_OPERATOR.get(bare, bare.removeprefix("special_"))


def operators_to_replace(evidence: Evidence, names: Iterable[str]) -> list[str]:
    """Those of `names` (ATen names that a family can replace) that the model runs, the failing one included, sorted.

    Empty where another family's operator is at fault. An operator that eager mode does not run is a step of some other's decomposition and
    rules none out.
    """
    known = {name: operator_key(name) for name in names}
    failing = operator_key(evidence.fact("operator")) if evidence.fact("operator") else ""
    ran = {operator_key(name) for name in evidence.operators}
    inner = evidence.fact("operator").startswith("prims.") or (failing not in ran and evidence.diagnosis.symptom.startswith("mismatch"))
    if failing and failing not in known.values() and not inner:
        return []
    used = ran | {failing}
    return sorted(name for name, key in known.items() if key in used)
