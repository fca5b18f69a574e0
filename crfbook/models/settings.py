"""What the constructor of `CRF` was given, checked when `fit` is called: one sentence for each mistake."""

import warnings
from typing import NamedTuple

import numpy as np

from crfbook._checks import number, one_of, whole
from crfbook.models.algorithms import ALGORITHMS, NONE, READ, check_combination, resolve
from crfbook.training.threads import resolve_threads

# Parameters of CRFsuite's line search and temporary model files: accepted, so that old code runs, and without
# effect.
INERT = ("linesearch", "model_filename", "keep_tempfiles", "trainer_cls")
SMALL_CHANGE = 1e-6  # default of delta for c2 = 0, where nothing bounds the distance to the minimum
WHOLE = ("period", "calibration_samples", "calibration_candidates", "calibration_max_trials", "pa_type")
YES_NO = ("error_sensitive", "averaging")


class Settings(NamedTuple):
    """The parameters as training uses them; None has become the default."""

    algorithm: str  # key of ALGORITHMS
    loss: str  # "" for learners that have none of the four
    clamp: float | None
    c1: float
    c2: float
    random_state: int
    memory_limit: float  # bytes
    min_freq: float
    all_states: bool
    all_transitions: bool
    max_iterations: int | None  # None: the algorithm's own default
    num_memories: int
    epsilon: float | None
    relative_change: tuple | None  # (period, delta)
    tol: float | None  # None: the algorithm's own default
    max_linesearch: int
    n_threads: int
    patience: int | None
    drop: bool
    options: dict  # arguments that only this algorithm has

    @property
    def virtual(self):
        """All weights exist and none is laid out: the algorithm keeps those that are active,
        `features_` will be these.
        """
        able = "virtual" in ALGORITHMS[self.algorithm].settings
        return bool(able and self.all_states and self.all_transitions and self.c1 > 0 and not self.min_freq)

    def arguments(self):
        """Keyword arguments of the algorithm's function: settings, and what was given of its options."""
        own = {name: getattr(self, name) for name in ALGORITHMS[self.algorithm].settings}
        own |= self.options
        if self.max_iterations is not None:
            own["max_iterations"] = self.max_iterations
        return {name: value for name, value in own.items() if name != "tol" or value is not None}


def check_settings(model):
    """Settings of an estimator.

    Raises ValueError or TypeError naming the parameter, what was expected and what was given. Warns about
    parameters that have no effect on the algorithm.
    """
    key = resolve(model.algorithm)
    row = ALGORITHMS[key]
    one_of("on_violation", model.on_violation, ("raise", "drop"))
    c1, given, clamp = (
        given_number(model, "c1", 0.0),
        given_number(model, "c2", None),
        given_number(model, "clamp", None),
    )
    loss = model.loss.replace("_", "-") if isinstance(model.loss, str) else model.loss
    check_combination(key, loss, clamp, c1, given)
    c2 = 0.0 if row.c2 == NONE else 1.0 if given is None else given
    _warn_of_idle(model, row, given)
    period = given_whole(model, "period", 10)
    delta = given_number(model, "delta", None if c2 > 0 else SMALL_CHANGE)
    return Settings(
        algorithm=key,
        loss=loss or (row.losses or ("",))[0],
        clamp=clamp,
        c1=c1,
        c2=c2,
        random_state=seed(model.random_state),
        memory_limit=given_number(model, "memory_limit", 2e9),
        min_freq=given_number(model, "min_freq", 0.0),
        all_states=bool(model.all_possible_states),
        all_transitions=bool(model.all_possible_transitions),
        max_iterations=given_whole(model, "max_iterations", None, least=0),
        num_memories=given_whole(model, "num_memories", 30 if c1 else 6),
        epsilon=given_number(model, "epsilon", None),
        relative_change=None if delta is None else (period, delta),
        tol=given_number(model, "tol", None),
        max_linesearch=given_whole(model, "max_linesearch", 20),
        n_threads=thread_count(model.n_jobs),
        patience=given_whole(model, "patience", None),
        drop=model.on_violation == "drop",
        options={
            argument: _option(model, name)
            for name, argument in row.options.items()
            if getattr(model, name) is not None
        },
    )


def _option(model, name):
    if name in YES_NO:
        return bool(getattr(model, name))
    return (
        given_whole(model, name, None, least=0 if name == "pa_type" else 1)
        if name in WHOLE
        else given_number(model, name, None)
    )


def _warn_of_idle(model, row, c2):
    """One warning that names all parameters that were given and mean nothing to this algorithm."""
    read = {
        *row.options,
        *(row.settings if "relative_change" not in row.settings else (*row.settings, "period", "delta")),
    }
    idle = [
        name
        for name in (*READ, "max_linesearch", "tol")
        if name not in read and getattr(model, name) is not None
    ]
    if model.epsilon is not None and "epsilon" in row.settings and model.loss not in (None, "log"):
        idle.append("epsilon")  # CRFsuite's rule is for its one loss
    idle += ["c2"] if c2 and row.c2 == NONE else []
    idle += [name for name in INERT if getattr(model, name) not in (None, False)]
    if idle:
        warnings.warn(
            f"no effect on algorithm={model.algorithm!r} of crfbook, ignored: {', '.join(idle)}",
            UserWarning,
            stacklevel=4,
        )


def thread_count(n_jobs):
    """Threads for `n_jobs` as scikit-learn means it: None is 1, -1 all processors, -2 all but one."""
    try:
        return resolve_threads(n_jobs)
    except ValueError as error:
        raise ValueError(f"n_jobs: {str(error).partition(': ')[2]}") from None


def seed(random_state):
    """`random_state` as scikit-learn means it, as an int >= 0: an int is itself,
    anything else is drawn from once.
    """
    if (
        isinstance(random_state, (int, np.integer))
        and not isinstance(random_state, bool)
        and random_state >= 0
    ):
        return int(random_state)
    from sklearn.utils import check_random_state

    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise ValueError(
            f"random_state: expected an integer >= 0, a RandomState or None, got {random_state!r}"
        ) from None


def given_number(model, name, default):
    """Parameter `name` of an estimator as a float >= 0; None is the default.
    TypeError or ValueError naming it.
    """
    value = getattr(model, name)
    return default if value is None else number(name, value, wrong=TypeError)


def given_whole(model, name, default, least=1):
    """Parameter `name` of an estimator as an int >= least; None is the default.
    TypeError or ValueError naming it.
    """
    value = getattr(model, name)
    return default if value is None else whole(name, value, least, wrong=TypeError)
