"""A falling path of c1: every solution starts from the one before it,
so that the first sweeps are cheap and memory stays small.

    encoder = Encoder("ngrams_5")
    corpus = encoder.fit_transform(train)
    points = solve_path(corpus, c1=falling(largest_c1(corpus), 0.5, 10), sweeps=2)  # all weights, virtually
    features, w = points[-1].result.features, points[-1].result.w
    labels = inference.decode(encoder.transform(test), features, w)  # chain/inference.py

`CRF(algorithm="sbcd", all_possible_states=True, all_possible_transitions=True)` is the same for one c1,
as an estimator.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from crfbook._checks import function_or_none, is_number, shown, whole
from crfbook.learners.coordinate.descent import (
    SparseResult,
    checked_edge_attrs,
    coordinate_descent,
    prepare,
    sizes_of,
)
from crfbook.learners.coordinate.sweeps import Sweeper
from crfbook.training.loop import stages
from crfbook.training.threads import one_blas_thread

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Corpus, FeatureSet, Limits


class PathPoint(NamedTuple):
    """The solution for one c1."""

    c1: float
    n_active: int
    result: SparseResult


def largest_c1(
    corpus: Corpus, features: FeatureSet | None = None, *, sizes: Sequence[int] | None = None,
    edge_attrs: ArrayLike | None = None, constraints: Limits = None, joint: bool = True,
) -> float:  # fmt: skip
    """The smallest c1 for which no weight survives: the largest |derivative| of the loss at w = 0.

    Arguments as in `coordinate_descent`. One pass over all candidates.
    """
    sizes = sizes_of(corpus, features, sizes)
    edge_attrs = checked_edge_attrs(edge_attrs, sizes.n_edge_attrs)
    sweeper = Sweeper(corpus, features, sizes, constraints, joint=joint, edge_attrs=edge_attrs)
    sweeper.set_rule(np.finfo(float).tiny, 0.0, screening=False)
    with one_blas_thread():
        sweeper.renew()
        return sweeper.violation()[0]


def falling(highest: float, lowest: float, n: int) -> np.ndarray:
    """n values of c1 from highest to lowest, evenly spaced in logarithms."""
    if not (is_number(highest) and is_number(lowest) and math.inf > highest >= lowest > 0):
        raise ValueError(
            f"a path falls: expected finite numbers highest >= lowest > 0, "
            f"got {shown(highest)}, {shown(lowest)}"
        )
    n = whole("n", n, 1)
    return np.geomspace(highest, lowest, n) if n > 1 else np.array([float(lowest)])


def _falling_values(c1):
    try:
        values = np.atleast_1d(np.asarray(c1, dtype=float))
    except (TypeError, ValueError):
        raise ValueError(f"c1: expected numbers >= 0 that fall, got {shown(c1)}") from None
    if (
        values.ndim > 1
        or not len(values)
        or not np.isfinite(values).all()
        or (np.diff(values) > 0).any()
        or values[-1] < 0
    ):
        raise ValueError(
            f"c1: expected finite values >= 0 that fall, got {np.array2string(values, threshold=6)}"
        )
    return values


def _check_options(options):
    for name, why in (
        ("max_iterations", "a path counts the sweeps of each value, give sweeps"),
        (
            "w0",
            "a path begins without weights and goes on from each solution; "
            "coordinate_descent begins where it is told",
        ),
        (
            "state",
            "a path begins without weights and goes on from each solution; "
            "coordinate_descent goes on from a state",
        ),
    ):
        if name in options:
            raise ValueError(f"{name}: {why}")
    unknown = sorted(set(options) - set(inspect.signature(coordinate_descent).parameters))
    if unknown:
        raise TypeError(
            f"solve_path: there is no option {shown(unknown[0])}; options are those of coordinate_descent"
        )


def solve_path(
    corpus: Corpus, features: FeatureSet | None = None, *, c1: ArrayLike,
    sweeps: int | Sequence[int] | None = None, callback: Callable[..., object] | None = None,
    keep: bool = True, **options: Any,
) -> list[PathPoint]:  # fmt: skip
    """`coordinate_descent` for each value of c1, from the largest to the smallest,
    each from the weights of the one before.

    Parameters
    ----------
    corpus, features, options : as in `coordinate_descent` (options: c2, step, tol, ...; not w0,
        max_iterations and state).
    c1 : values >= 0, falling (`falling` makes them); > 0 where c2 = 0.
    sweeps : sweeps at most for each value: an integer >= 1, or one for each; None: 100.
    callback : called with (c1, Step, w) after each sweep; True ends the path.
    keep : False: only the last result keeps its state, so that memory does not grow with the path.

    Returns a list of `PathPoint`. Ctrl-C, or a callback that stops, ends the path: it keeps what it has.

    Raises ValueError for values that do not fall, sweeps that are none, and as `coordinate_descent`.
    """
    _check_options(options)
    function_or_none("callback", callback)
    values = _falling_values(c1)
    if values[-1] == 0 and options.get("c2", 0.0) == 0:
        raise ValueError("c1: expected values > 0, where c2 = 0, got 0: coordinate descent needs a penalty")
    most = (
        [100] * len(values)
        if sweeps is None
        else [sweeps] * len(values)
        if is_number(sweeps)
        else list(sweeps)
    )
    if len(most) != len(values):
        raise ValueError(
            f"sweeps: expected an integer, or one for each of the {len(values)} values of c1, got {len(most)}"
        )
    most = [whole("sweeps", n, 1) for n in most]
    learner, points = prepare(corpus, features, c1=values[0], **options), []

    def script(training):
        for value, n in zip(values.tolist(), most, strict=True):
            found = yield learner.go_to(value, n)
            if points and not keep:
                points[-1] = points[-1]._replace(result=points[-1].result._replace(state={}))
            result = learner.result(found)
            points.append(PathPoint(value, int(np.count_nonzero(result.w)), result))
            if found.status in ("interrupted", "stopped by callback", "non-finite objective"):
                break
        return found

    watch = None if callback is None else lambda step, w: callback(learner.rules.c1, step, w)
    stages(script, watch)
    return points
