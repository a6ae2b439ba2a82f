"""Is what an approximate recipe gives within its error budget? The comparison of one output; used by fix.py too.

The error of a float output is ||got - expected|| / ||expected|| over the places that are finite, `expected` being float32 eager PyTorch;
of an integer or boolean output, the share of places that differ.
"""

from __future__ import annotations

from typing import Any

from autofix.compare import as_array, comparison_failed, comparison_passed

BUDGET_RULE = "error budget"
OTHER_SIZES = 3.0
"""Generated inputs of other sizes are random, real ones are not: their error may be this many times the budget. A wrong graph is off by far more."""


def output_error(expected: Any, got: Any) -> float:
    """The error of one output of equal shape; see the module's docstring. Infinite where only the expected output is zero throughout."""
    import numpy as np

    exp, out = as_array(expected), as_array(got)
    if exp.dtype.kind == "c" and out.dtype.kind != "c":
        exp = np.stack([exp.real, exp.imag], -1)
    if exp.size == 0:
        return 0.0
    if exp.dtype.kind in "iub":
        return float(np.mean(exp != out))
    wide = np.complex128 if exp.dtype.kind == "c" else np.float64
    a, b = exp.astype(wide), out.astype(wide)
    finite = np.isfinite(a) & np.isfinite(b)
    size = float(np.linalg.norm(a[finite]))
    off = float(np.linalg.norm((b - np.where(finite, a, 0))[finite]))
    return off / size if size else (0.0 if off == 0 else float("inf"))


def check_budget(expected: Any, got: Any, budget: float) -> dict[str, Any]:
    """Compare one output with PyTorch's under an error budget; a dict as check_output's, with `error`.

    Names of problems: dtype, shape, nan, inf as in check_output, and "error" where the budget is exceeded. `ratio` is error / budget.
    """
    import numpy as np

    exp, out = as_array(expected), as_array(got)
    if exp.dtype.kind == "c" and out.dtype.kind == "f":
        exp = np.stack([exp.real, exp.imag], -1)
    if exp.dtype.name != out.dtype.name:
        return comparison_failed("dtype", f"dtype {out.dtype.name}, PyTorch gives {exp.dtype.name}", error=None)
    if exp.shape != out.shape:
        return comparison_failed("shape", f"shape {list(out.shape)}, PyTorch gives {list(exp.shape)}", error=None)
    if exp.dtype.kind not in "iub" and exp.size:
        a, b = (v.astype(np.complex128 if v.dtype.kind == "c" else np.float64) for v in (exp, out))
        for kind, test in (("nan", np.isnan), ("inf", np.isinf)):
            wrong = int((test(a) != test(b)).sum())
            if wrong:
                return comparison_failed(kind, f"{'NaN' if kind == 'nan' else 'infinity'} differs in {wrong} of {exp.size} places", error=None)
    error = output_error(exp, out)
    bounded = budget != float("inf")
    ratio = error / budget if bounded else 0.0
    text = f"relative error {error:.3g}" + (f", the budget is {budget:.3g}" if bounded else " on made-up values")
    if not error <= budget:
        return comparison_failed("error", text, error=error, ratio=ratio)
    gap = 0.0
    if exp.size and exp.dtype.kind not in "iub":
        gap = float(np.max(np.abs(np.nan_to_num(b - np.where(np.isfinite(a), a, b)))))
    return comparison_passed(BUDGET_RULE, error=error, ratio=ratio, message=text, max_abs=gap)


def budget_of(origin: str, kind: str, budget: float) -> float:
    """What a set's outputs may err: the budget on the person's own inputs, more at other sizes, anything on values made up to be extreme."""
    if origin != "generated":
        return budget
    return budget * OTHER_SIZES if kind == "sizes" else float("inf")


def excused(row: dict[str, Any]) -> bool:
    """Whether a failed row of an approximate recipe does not count: NaN and infinity on generated inputs that are extreme themselves.

    8-bit products spread or lose NaN, float16 overflows past 65504; types, shapes and the run itself count everywhere.
    """
    return row["origin"] == "generated" and row["kind"] != "sizes" and row["problem"] in ("nan", "inf", "error")
