"""Is what ONNX Runtime gave right? The comparison of one output, also used by fix.py: NumPy and torch only.

check_output(expected, got, expected64=None, noise=None, rtol=None, atol=None) -> dict with
  ok (bool), rule ("exact", "allclose", "float64", "float64, ill-conditioned", "noise", "tie" or "" where it failed),
  problem ("", "dtype", "shape", "nan", "inf", "values"), message (one line, "" where ok), max_abs, max_rel,
  ratio (largest |got - expected| over its tolerance; at most 1 passes), ratio64 (error against float64 over PyTorch's own, or None).
"""

from __future__ import annotations

from typing import Any

import numpy as np

TOLERANCES: dict[str, tuple[float, float]] = {
    "float64": (1e-6, 1e-8),
    "float32": (1e-3, 1e-5),
    "float16": (1e-2, 1e-3),
    "bfloat16": (2e-2, 1e-2),
}
"""(rtol, atol) by dtype name; integers and booleans must be equal."""

LOOSEST = (1e-3, 1e-4)
"""(rtol, atol) that a float32 value must keep to, unless PyTorch's own error against float64 is as large."""

EPSILON: dict[str, float] = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def as_array(value: Any) -> Any:
    """A tensor, array or Python number as a NumPy array; bfloat16 as ml_dtypes.bfloat16."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):
        import torch

        tensor = value.detach().resolve_conj().resolve_neg().cpu()
        if tensor.layout != torch.strided:
            tensor = tensor.to_dense()
        if tensor.dtype is torch.bfloat16:
            import ml_dtypes

            return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()
    return np.asarray(value)


def is_float_name(name: str) -> bool:
    """Whether a dtype name is one of the floats that have tolerances."""
    return name in TOLERANCES


def comparison_failed(problem: str, message: str, **numbers: Any) -> dict[str, Any]:
    """The dict of a failed comparison."""
    return {
        "ok": False,
        "rule": "",
        "problem": problem,
        "message": message,
        "max_abs": None,
        "max_rel": None,
        "ratio": None,
        "ratio64": None,
        **numbers,
    }


def comparison_passed(rule: str, **numbers: Any) -> dict[str, Any]:
    """The dict of a comparison that passed."""
    return {"ok": True, "rule": rule, "problem": "", "message": "", "max_abs": 0.0, "max_rel": 0.0, "ratio": 0.0, "ratio64": None, **numbers}


def check_output(
    expected: Any,
    got: Any,
    expected64: Any = None,
    noise: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
    scaled: bool = False,
    tied: Any = None,
) -> dict[str, Any]:
    """Compare one output with PyTorch's; see the module's docstring.

    Order: dtype, shape, places of NaN and of +Inf and -Inf, then values. A float passes where |got - expected| <= atol + rtol |expected|
    (by dtype, or as given), or where its error against `expected64` is at most 4 times PyTorch's own plus 8 eps rms (measured on 64 good
    exports: median 0.99, maximum 2.76), or, without a float64 run, where it is within 4 times `noise` (largest change under benign
    perturbations, per element). Signs of zeros do not count. scaled: atol counts in units of the output's largest number, where that is
    above 1, as for inputs of huge magnitude: round-off grows with what is summed up. tied: places that hang on how equal entries are ordered
    (ties.py); there nothing is asked, and the rule is "tie" where something differs.
    """
    exp, out = as_array(expected), as_array(got)
    if exp.dtype.kind == "c" and out.dtype.kind == "f":
        exp = np.stack([exp.real, exp.imag], -1)
    if exp.dtype.name != out.dtype.name:
        return comparison_failed("dtype", f"dtype {out.dtype.name}, PyTorch gives {exp.dtype.name}")
    if exp.shape != out.shape:
        return comparison_failed("shape", f"shape {list(out.shape)}, PyTorch gives {list(exp.shape)}")
    if exp.size == 0:
        return comparison_passed("exact")
    if tied is not None and bool(as_array(tied).any()):
        here = as_array(tied)
        apart = int((here & (exp != out)).sum())
        found = check_output(expected, np.where(here, exp, out), expected64, noise, rtol, atol, scaled)
        text = f"{apart} of {exp.size} places differ, all of them where equal entries may stand in any order"
        return {**found, "rule": "tie", "message": text} if found["ok"] and apart else found
    other = None if expected64 is None else as_array(expected64)
    if other is not None and other.shape != exp.shape:
        other = None
    if exp.dtype.kind == "c":
        parts = [check_output(f(exp), f(out), None if other is None else f(other), None, rtol, atol, scaled) for f in (np.real, np.imag)]
        return min(parts, key=lambda p: (p["ok"], -(p["ratio"] or 0)))
    if not is_float_name(exp.dtype.name):
        return check_integers(exp, out, other)
    return check_floats(exp, out, other, None if noise is None else as_array(noise), rtol, atol, scaled)


def check_integers(exp: Any, out: Any, other: Any) -> dict[str, Any]:
    """Integers and booleans: equal, but where PyTorch in float64 decides otherwise than in float32 (a tie within noise)."""
    wrong = exp != out
    if not wrong.any():
        return comparison_passed("exact")
    count = int(wrong.sum())
    wide = [np.asarray(a, dtype=object if a.dtype.name == "uint64" else np.int64) for a in (exp, out)]
    worst = float(np.max(np.abs(wide[0] - wide[1])[wrong]))
    if other is not None and other.dtype.kind == exp.dtype.kind and not (wrong & (other == exp)).any():
        return comparison_passed("tie", max_abs=worst, message=f"{count} of {exp.size} places differ, all of them ties within float32 round-off")
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return comparison_failed("values", f"{count} of {exp.size} places differ, first at {list(at)}: {out[at]}, PyTorch gives {exp[at]}", max_abs=worst)


def check_floats(exp: Any, out: Any, other: Any, noise: Any, rtol: float | None, atol: float | None, scaled: bool = False) -> dict[str, Any]:
    """Floats: places of NaN and Inf, then values by the rules of `check_output`."""
    name = exp.dtype.name
    a, b = exp.astype(np.float64), out.astype(np.float64)
    for kind, test in (("nan", np.isnan), ("inf", lambda v: np.where(np.isinf(v), np.sign(v), 0))):
        here, there = test(a), test(b)
        if not np.array_equal(here, there):
            at = tuple(int(i) for i in np.argwhere(here != there)[0])
            where = f"{int((here != there).sum())} of {exp.size} places, first at {list(at)}: {b[at]:g}, PyTorch gives {a[at]:g}"
            return comparison_failed(kind, f"{'NaN' if kind == 'nan' else 'infinity'} differs in {where}")
    finite = np.isfinite(a)
    if not finite.any():
        return comparison_passed("exact")
    given = rtol is not None or atol is not None
    low_r, low_a = TOLERANCES[name]
    rel, low = (low_r if rtol is None else rtol), (low_a if atol is None else atol)
    diff = np.where(finite, np.abs(np.where(finite, b - np.where(finite, a, 0), 0)), 0)
    size = np.where(finite, np.abs(np.where(finite, a, 0)), 0)
    bound = low * (max(1.0, float(size.max())) if scaled else 1.0) + rel * size
    numbers = {
        "max_abs": float(diff.max()),
        "max_rel": float((diff / np.maximum(size, 1e-30)).max()) if (size > 0).any() else 0.0,
        "ratio": float((diff / np.maximum(bound, 1e-300)).max()),
        "ratio64": None,
    }
    wrong = diff > bound
    if other is not None and other.dtype.kind == "f":
        truth = np.where(finite, other.astype(np.float64), 0)
        if np.isfinite(truth).all():
            own, far = np.where(finite, np.abs(a - truth), 0), np.where(finite, np.abs(b - truth), 0)
            scale = float(np.sqrt(np.mean(truth[finite] ** 2)))
            slack = 8 * EPSILON[name] * scale
            numbers["ratio64"] = float(far.max() / max(float(own.max()), slack / 4, 1e-300))
            if wrong.any() and not given:
                close = far <= 4 * float(own.max()) + slack
                cap = max(low, LOOSEST[1]) + max(rel, LOOSEST[0]) * size
                # beyond the cap only where PyTorch itself is off by as much, on a value of about that size
                near = far <= 4 * own_error_of_size(own, size) + 64 * EPSILON[name] * size
                if (close | ~wrong).all() and (~wrong | (diff <= cap)).all():
                    return comparison_passed("float64", **numbers)
                if (near | ~wrong).all() and float(own.max()) > float(np.min(bound[wrong])) / 4:
                    return comparison_passed("float64, ill-conditioned", **numbers)
    elif noise is not None and wrong.any() and not given and noise.shape == a.shape:
        floor = np.where(np.isfinite(noise.astype(np.float64)), noise.astype(np.float64), 0)
        if (diff <= 4 * floor + bound).all():
            return comparison_passed("noise", **numbers)
    if not wrong.any():
        return comparison_passed("exact" if numbers["max_abs"] == 0 else "allclose", **numbers)
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.where(wrong, diff / np.maximum(bound, 1e-300), 0))), diff.shape))
    text = f"{int(wrong.sum())} of {exp.size} values differ, most at {list(at)}: {b[at]:.6g}, PyTorch gives {a[at]:.6g}"
    return comparison_failed("values", text, **numbers)


def own_error_of_size(own: Any, size: Any) -> Any:
    """PyTorch's largest own error among values of up to 8 times each value's size: a small value beside a huge one gets no
    allowance from the huge one's round-off."""
    order = np.argsort(size, axis=None)
    ranked, running = size.ravel()[order], np.maximum.accumulate(own.ravel()[order])
    last = np.searchsorted(ranked, 8 * size.ravel(), side="right") - 1
    return running[np.maximum(last, 0)].reshape(size.shape)
