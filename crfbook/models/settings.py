"""What the constructor of `CRF` was given, checked when `fit` is called: one sentence for each mistake."""

import math
import warnings
from typing import NamedTuple

from crfbook.optim.parallel import resolve_threads

ALGORITHMS = ("lbfgs", "owlqn")
# sklearn-crfsuite's other trainers, and those of later chapters
LATER = ("l2sgd", "ap", "averaged_perceptron", "pa", "arow", "sgd", "sgd_l1", "sag", "sdca", "coordinate", "boosting")
# Parameters of those trainers, or of CRFsuite's temporary model files: accepted, so that old code runs, and without effect.
INERT = ("calibration_eta", "calibration_rate", "calibration_samples", "calibration_candidates",
         "calibration_max_trials", "pa_type", "c", "error_sensitive", "averaging", "variance", "gamma",
         "linesearch", "model_filename", "keep_tempfiles", "trainer_cls")
SMALL_CHANGE = 1e-6                     # default of delta for c2 = 0, where nothing bounds the distance to the minimum


class Settings(NamedTuple):
    """The parameters as training uses them; None has become the default."""

    c1: float
    c2: float
    min_freq: float
    all_states: bool
    all_transitions: bool
    max_iterations: int | None
    memory: int
    epsilon: float | None
    relative_change: tuple | None       # (period, delta)
    tol: float
    max_linesearch: int
    n_threads: int
    patience: int | None
    drop: bool


def check_settings(model):
    """Settings of an estimator.

    Raises ValueError or TypeError naming the parameter, what was expected and what was given. Warns about
    parameters that have no effect here.
    """
    algorithm = "lbfgs" if model.algorithm is None else model.algorithm
    if algorithm not in ALGORITHMS:
        known = algorithm in LATER
        raise ValueError(f"algorithm: expected {' or '.join(map(repr, ALGORITHMS))}, got {algorithm!r}"
                         f"{', which this version does not have yet' if known else ''}")
    if model.on_violation not in ("raise", "drop"):
        raise ValueError(f"on_violation: expected 'raise' or 'drop', got {model.on_violation!r}")
    idle = [name for name in INERT if getattr(model, name) not in (None, False)]
    if idle:
        warnings.warn(f"no effect on algorithm={algorithm!r} of crfbook, ignored: {', '.join(idle)}",
                      UserWarning, stacklevel=3)
    period = integer(model, "period", 10)
    c2 = number(model, "c2", 1.0)
    delta = number(model, "delta", None if c2 > 0 else SMALL_CHANGE)
    return Settings(
        c1=number(model, "c1", 0.0),
        c2=c2,
        min_freq=number(model, "min_freq", 0.0),
        all_states=bool(model.all_possible_states),
        all_transitions=bool(model.all_possible_transitions),
        max_iterations=integer(model, "max_iterations", None, least=0),
        memory=integer(model, "num_memories", 6),
        epsilon=number(model, "epsilon", None),
        relative_change=None if delta is None else (period, delta),
        tol=number(model, "tol", 1e-6),
        max_linesearch=integer(model, "max_linesearch", 20),
        n_threads=thread_count(model.n_jobs),
        patience=integer(model, "patience", None),
        drop=model.on_violation == "drop",
    )


def thread_count(n_jobs):
    """Threads for `n_jobs` as scikit-learn means it: None is 1, -1 all processors, -2 all but one."""
    try:
        return resolve_threads(n_jobs)
    except ValueError as error:
        raise ValueError(f"n_jobs: {str(error).partition(': ')[2]}") from None


def number(model, name, default):
    """Parameter `name` of an estimator as a float >= 0; None is the default. TypeError or ValueError naming it."""
    value = getattr(model, name)
    if value is None:
        return default
    if isinstance(value, (str, bool)) or not hasattr(value, "__float__") or getattr(value, "ndim", 0):
        raise TypeError(f"{name}: expected a number >= 0, got {value!r}")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name}: expected a finite number >= 0, got {value!r}")
    return float(value)


def integer(model, name, default, least=1):
    """Parameter `name` of an estimator as an int >= least; None is the default. TypeError or ValueError naming it."""
    value = getattr(model, name)
    if value is None:
        return default
    if isinstance(value, (str, bool)) or not hasattr(value, "__float__") or getattr(value, "ndim", 0):
        raise TypeError(f"{name}: expected an integer >= {least}, got {value!r}")
    if not math.isfinite(value) or value != int(value) or value < least:
        raise ValueError(f"{name}: expected an integer >= {least}, got {value!r}")
    return int(value)
