"""Compare an answer with the expected one; nbgrader's test cells hold the source of this file whole."""

import numpy as np


def difference(expected, got, tol):
    """Why `got` is not `expected`, in a line that gives no number away; "" if it is."""
    parts = (list, tuple, dict, str, np.ndarray, type(None))
    if isinstance(expected, (list, tuple)) and any(isinstance(item, parts) for item in expected):
        got = list(got) if isinstance(got, np.ndarray) and got.ndim else got
        if not isinstance(got, (list, tuple)):
            return f"returned {_kind(got)}, expected {len(expected)} values"
        if len(got) != len(expected):
            return f"returned {len(got)} values, expected {len(expected)}"
        found = (difference(e, g, tol) for e, g in zip(expected, got, strict=True))
        return next((f"value {n}: {said}" for n, said in enumerate(found) if said), "")
    if isinstance(expected, dict):
        if not isinstance(got, dict) or set(got) != set(expected):
            return f"returned {_kind(got)}, expected a dict with {len(expected)} keys"
        found = (difference(expected[key], got[key], tol) for key in expected)
        return next((f"one entry: {said}" for said in found if said), "")
    if isinstance(expected, str) or expected is None:
        same = got is None if expected is None else isinstance(got, str) and got == expected
        return "" if same else f"returned {_kind(got)}, expected another value"
    return _of_numbers(np.asarray(expected), got, tol)


def _has_text(value):
    return isinstance(value, str) or isinstance(value, (list, tuple)) and any(map(_has_text, value))


def _of_numbers(expected, got, tol):
    if expected.dtype.kind in "biufc" and _has_text(got):  # which an array would fill up to the longest one
        return f"returned {_kind(got)}, expected numbers"
    try:
        found = np.asarray(got)
    except ValueError:
        return "returned a list of lists of unequal lengths"
    if found.dtype.kind not in "biufc" and expected.dtype.kind != found.dtype.kind:
        return f"returned {_kind(got)}, expected numbers"
    if found.shape != expected.shape:
        return f"returned shape {found.shape}, expected {expected.shape}"
    if expected.dtype.kind not in "fc":
        return "" if np.array_equal(expected, found) else "the values differ"
    scale = np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0)
    if np.allclose(found, expected, rtol=tol, atol=tol * min(scale, 1.0) + 1e-300, equal_nan=True):
        return ""
    bad = int(np.sum(~np.isclose(found, expected, rtol=tol, atol=tol, equal_nan=True)))
    extreme = "" if np.isfinite(found).all() or not np.isfinite(expected).all() else "; some are not finite"
    return f"{max(bad, 1)} of {expected.size} values differ{extreme}"


def _kind(value):
    return (
        "an array" if isinstance(value, np.ndarray) else "nothing" if value is None else type(value).__name__
    )
