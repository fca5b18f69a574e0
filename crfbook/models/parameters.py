"""Two tables: the algorithms that train a `CRF`, and its parameters. Checks, defaults and warnings follow.

A row of ALGORITHMS says where the function is and which losses and penalties it minimises. A row of GROUPS
says what a parameter of `CRF` may be and which algorithms read it: their functions take it under its name.
Functions are imported when they are first used. All have the signature

    f(corpus, features, w0, *, constraints, max_iterations, callback, state, <parameters>) -> OptResult
"""

import warnings
from collections import namedtuple
from importlib import import_module
from typing import NamedTuple

import numpy as np

from crfbook._checks import number, one_of, shown, whole
from crfbook.chain.active.sequence import EPS, check_eps
from crfbook.chain.losses import LOSSES
from crfbook.training.threads import resolve_threads

# what an algorithm makes of a penalty; EITHER: not both 0
NONE, ANY, NEEDED, EITHER = "none", "any", "needed", "either"
Seed = int | np.random.RandomState | None
SMALL_CHANGE = 1e-6  # default of delta for c2 = 0, where nothing bounds the distance to the minimum


class Algorithm(NamedTuple):
    """One row of the table of algorithms."""

    function: str  # module:name
    losses: tuple = ("log",)  # the first is the default; (): it minimises none of them
    c1: str = NONE
    c2: str = NONE
    renamed: dict = {}  # parameter of CRF -> argument of the function, where the names differ
    memory: str = ""  # module:name of (corpus, features) -> bytes, where they are more than a few vectors
    one_pass: dict | None = None  # can take in new sequences later (partial_fit): with these arguments
    has_goal: bool = False  # to end at the default of max_iterations is to end before it: a warning says so
    virtual: bool = False  # trains where all weights exist and none is laid out
    partial: bool = False  # trains on labels that are known in part, with the log loss

    def load(self):
        """The function."""
        return _named(self.function)

    def bytes(self, corpus, features):
        """Memory it will take beside the corpus, where that is worth a word; else 0."""
        return _named(self.memory)(corpus, features) if self.memory else 0


def _named(place):
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


_LEARNERS = "crfbook.learners."
_QUASI_NEWTON = _LEARNERS + "quasi_newton:quasi_newton", LOSSES, ANY, ANY
_RULE = {"period": "relative_change", "delta": "relative_change"}  # one argument for both
_AS_THEY_COME, _NEW_DATA = {"shuffle": False}, {"new_data": True}
ALGORITHMS = {
    "auto": Algorithm(_LEARNERS + "stochastic:auto", *_QUASI_NEWTON[1:], _RULE),
    "lbfgs": Algorithm(*_QUASI_NEWTON, _RULE, partial=True),
    "owlqn": Algorithm(*_QUASI_NEWTON, _RULE, partial=True),
    "sbcd": Algorithm(_LEARNERS + "coordinate:sbcd", c1=EITHER, c2=EITHER, has_goal=True, virtual=True),
    "cd": Algorithm(_LEARNERS + "coordinate:cd", c1=EITHER, c2=EITHER, has_goal=True),
    "sgd": Algorithm(_LEARNERS + "stochastic:sgd", c2=ANY, one_pass=_NEW_DATA, has_goal=True),
    "sgd-l1": Algorithm(
        _LEARNERS + "stochastic:sgd_l1",
        c1=NEEDED, renamed={"calibration_eta": "eta0"}, one_pass=_NEW_DATA,
    ),
    "sag": Algorithm(
        _LEARNERS + "stochastic:sag",
        c2=ANY, memory=_LEARNERS + "stochastic.averaged:sag_memory", has_goal=True,
    ),
    "sdca": Algorithm(
        _LEARNERS + "stochastic:sdca",
        c2=NEEDED, memory=_LEARNERS + "stochastic.dual:sdca_memory", has_goal=True,
    ),
    "perceptron": Algorithm(
        _LEARNERS + "online:perceptron",
        (), renamed={"averaging": "average"}, one_pass=_AS_THEY_COME,
    ),
    "pa": Algorithm(
        _LEARNERS + "online:passive_aggressive", (), one_pass=_AS_THEY_COME
    ),
    "arow": Algorithm(_LEARNERS + "online:arow", (), one_pass=_AS_THEY_COME),
    "boosting": Algorithm(
        _LEARNERS + "boosting:boost",
        ("exp",), memory=_LEARNERS + "boosting.learner:state_bytes",
    ),
}  # fmt: skip
# the names that CRFsuite and sklearn-crfsuite have for them
ALIASES = {
    "l2sgd": "sgd", "ap": "perceptron", "averaged-perceptron": "perceptron", "passive-aggressive": "pa",
}  # fmt: skip


class Parameter(NamedTuple):
    """One row of the table of parameters."""

    kind: str  # key of CHECKS
    default: object = None  # of the constructor
    none: object = None  # what None stands for; None: the algorithm's own default, or one that depends
    least: int = 0  # of numbers and integers
    above: float | None = None  # in place of the least: it must be larger
    readers: tuple = ()  # the algorithms that take it; (): `CRF` itself reads it
    off: object = None  # the value, beside None, that asks for nothing
    idle: bool = True  # a warning names it where the algorithm does not read it
    choices: tuple = ()

    def concerns(self, key):
        """Whether to check it for an algorithm. One that "lbfgs" does not read is checked for its readers."""
        return key in self.readers or not (self.readers and self.idle) or "lbfgs" in self.readers


_ALL = tuple(ALGORITHMS)
_BATCH = tuple(key for key, row in ALGORITHMS.items() if row.losses == LOSSES)
_L1, _L2 = (tuple(k for k, row in ALGORITHMS.items() if getattr(row, c) != NONE) for c in ("c1", "c2"))
_SGD, _BOTH_SGD, _ONLINE = ("sgd",), ("sgd", "sgd-l1"), ("perceptron", "pa", "arow")
_SHUFFLED = "auto", *_BOTH_SGD, "sag", "sdca", *_ONLINE
_REMEMBER = "sag", "sdca", "boosting"
_ACTIVE = *_BATCH, *_BOTH_SGD  # take active sets
# as the docstring of `CRF` lists them; its signature has CRFsuite's order
GROUPS = {
    "What is minimised": {
        "algorithm": Parameter("algorithm", "lbfgs", none="lbfgs"),
        "loss": Parameter("loss", readers=_BATCH, idle=False),
        "clamp": Parameter("number", above=0.0, readers=_BATCH),
        "c1": Parameter("number", 0.0, none=0.0, readers=_L1, off=0.0),
        "c2": Parameter("number", readers=_L2, off=0.0),
    },
    "How it is minimised": {
        "max_iterations": Parameter("whole", readers=_ALL),
        "tol": Parameter("number", readers=(*_BATCH, "sbcd", "cd", *_REMEMBER)),
        "epsilon": Parameter("number", readers=(*_BATCH, *_ONLINE)),
        "period": Parameter("whole", none=10, least=1, readers=(*_BATCH, *_BOTH_SGD)),
        "delta": Parameter("number", readers=(*_BATCH, *_BOTH_SGD)),
        "inference": Parameter("choice", "exact", none="exact", choices=("exact", "active")),
        "eps": Parameter("number", readers=_ACTIVE, idle=False),
        "patience": Parameter("whole", least=1),
        "num_memories": Parameter("whole", least=1, readers=_BATCH, idle=False),
        "max_linesearch": Parameter("whole", none=20, least=1, readers=_BATCH),
        "calibration_eta": Parameter("number", above=0.0, readers=_BOTH_SGD),
        "calibration_rate": Parameter("number", above=1.0, readers=_SGD),
        "calibration_samples": Parameter("whole", least=1, readers=_SGD),
        "calibration_candidates": Parameter("whole", least=1, readers=_SGD),
        "calibration_max_trials": Parameter("whole", least=1, readers=_SGD),
        "pa_type": Parameter("choice", readers=("pa",), choices=(0, 1, 2)),
        "c": Parameter("number", above=0.0, readers=("pa",)),
        "error_sensitive": Parameter("flag", readers=("pa",)),
        "averaging": Parameter("flag", readers=("perceptron", "pa")),
        "variance": Parameter("number", above=0.0, readers=("arow",)),
        "gamma": Parameter("number", above=0.0, readers=("arow",)),
    },
    "Which weights exist": {
        "template": Parameter("any"),
        "min_freq": Parameter("number", 0, none=0.0),
        "all_possible_states": Parameter("flag", False, none=False),
        "all_possible_transitions": Parameter("flag", False, none=False),
        "warm_start": Parameter("flag", False, none=False),
    },
    "Labels and constraints": {
        "constraints": Parameter("any"),
        "on_violation": Parameter("choice", "raise", choices=("raise", "drop")),
        "tag_dictionary": Parameter("any"),
    },
    "Running it": {
        "random_state": Parameter("seed", 0, readers=_SHUFFLED, idle=False),
        "n_jobs": Parameter("threads", none=1, readers=(*_BATCH, "sbcd"), idle=False),
        "memory_limit": Parameter("number", 2e9, none=2e9, readers=(*_BATCH, *_REMEMBER), idle=False),
        "verbose": Parameter("any", False),
        "model_filename": Parameter("any"),
        # of CRFsuite's line search and temporary model files: accepted, so that old code runs
        "linesearch": Parameter("inert", off=False),
        "keep_tempfiles": Parameter("inert", off=False),
        "trainer_cls": Parameter("inert", off=False),
    },
}
PARAMETERS = {name: row for rows in GROUPS.values() for name, row in rows.items()}
_INERT = tuple(name for name, row in PARAMETERS.items() if row.kind == "inert")
_NAMED_LAST = ("max_linesearch", "tol", "c2", *_INERT)  # in a warning; the others in alphabetical order


class Settings(namedtuple("Settings", PARAMETERS)):  # type: ignore[misc]  # fields: the rows of the table
    """The parameters as training uses them: checked, and None has become the default where there is one."""

    __slots__ = ()

    @property
    def n_threads(self):
        return self.n_jobs

    @property
    def relative_change(self):
        """(period, delta) of the rule for small changes, or None: it is not used."""
        delta = SMALL_CHANGE if self.delta is None and not self.c2 > 0 else self.delta
        return None if delta is None else (self.period, delta)

    @property
    def virtual(self):
        """Whether all weights exist and none is laid out. The algorithm keeps the active ones."""
        every = self.all_possible_states and self.all_possible_transitions and not self.min_freq
        return bool(ALGORITHMS[self.algorithm].virtual and every and self.c1 > 0)

    def arguments(self):
        """Keyword arguments of the algorithm's function, but for those that have its own defaults."""
        taken = {
            argument: getattr(self, argument if hasattr(self, argument) else name)
            for name, argument in arguments_of(self.algorithm).items()
        }
        more = {"virtual": self.virtual} if ALGORITHMS[self.algorithm].virtual else {}
        return {name: value for name, value in taken.items() if value is not None} | more


def arguments_of(key):
    """{parameter: argument of the algorithm's function} of all parameters that the algorithm takes."""
    renamed = {"n_jobs": "n_threads", **ALGORITHMS[key].renamed}
    return {name: renamed.get(name, name) for name, row in PARAMETERS.items() if key in row.readers}


def check_settings(model):
    """`Settings` of a CRF.

    Raises ValueError or TypeError naming the parameter, what was expected and what was given. Warns about
    parameters that have no effect on the algorithm.
    """
    key = resolve(model.algorithm)
    values = {name: given(model, name) if row.concerns(key) else None for name, row in PARAMETERS.items()}
    row, loss, c1, c2 = ALGORITHMS[key], values["loss"], values["c1"], values["c2"]
    check_combination(key, loss, values["clamp"], c1, c2)
    values["eps"] = _eps(key, values["inference"], loss, values["eps"])
    _warn_of_idle(model, key)
    values["loss"] = loss or (row.losses or ("",))[0]
    values["c2"] = 0.0 if row.c2 == NONE else 1.0 if c2 is None else c2
    values["num_memories"] = values["num_memories"] or (10 if c1 else 6)
    return Settings(**values)


def _eps(key, inference, loss, eps):
    """What active sets leave out, or None: exact inference. ValueError where the algorithm has none."""
    if inference == "exact":
        if eps is not None:
            warnings.warn("no effect with inference='exact', ignored: eps", UserWarning, stacklevel=5)
        return None
    if key not in _ACTIVE or loss not in (None, "log"):
        which = f"algorithm={key!r}" if key not in _ACTIVE else f"loss={loss!r}"
        raise ValueError(
            f"inference='active' is for the log loss with {_listed(_ACTIVE)}, got {which}; "
            "'exact' goes with all"
        )
    return check_eps(EPS if eps is None else eps)


def given(model, name, default=None):
    """Parameter `name` of an estimator, checked as the table says.

    default : what None stands for, if not what the table says. Raises TypeError or ValueError naming it.
    """
    row, value = PARAMETERS[name], getattr(model, name)
    if value is None and (row.none is not None or row.default is None):
        return row.none if default is None else default
    return CHECKS[row.kind](name, value, row)


def _warn_of_idle(model, key):
    """One warning that names all parameters that were given and mean nothing to this algorithm."""
    idle = []
    for name, row in PARAMETERS.items():
        value = getattr(model, name)
        read = key in row.readers if row.readers else row.kind != "inert"
        if name == "epsilon" and key in _BATCH:
            read = model.loss in (None, "log")  # CRFsuite's rule is for its one loss
        if row.idle and not read and value is not None and (row.off is None or value != row.off):
            idle.append(name)
    if idle:
        idle.sort(key=lambda name: (_NAMED_LAST.index(name) if name in _NAMED_LAST else -1, name))
        warnings.warn(
            f"no effect on algorithm={model.algorithm!r} of crfbook, ignored: {', '.join(idle)}",
            UserWarning,
            stacklevel=4,
        )


def resolve(name):
    """The key of the table for what a user wrote. Raises ValueError with the list of names."""
    key = "lbfgs" if name is None else name.replace("_", "-") if isinstance(name, str) else name
    key = ALIASES.get(key, key) if isinstance(key, str) else key
    if not isinstance(key, str) or key not in ALGORITHMS:
        raise ValueError(
            f"algorithm: expected {_listed(ALGORITHMS)} (or {_listed(ALIASES)}), got {shown(name)}"
        )
    return key


def thread_count(n_jobs):
    """Threads for `n_jobs` as scikit-learn means it: None is 1, -1 all processors, -2 all but one."""
    return resolve_threads(n_jobs, "n_jobs")


def seed(random_state):
    """`random_state` as scikit-learn means it, as an int >= 0. An int is itself; else one is drawn."""
    an_int = isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool)
    if an_int and random_state >= 0:
        return int(random_state)
    from sklearn.utils import check_random_state

    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise ValueError(
            f"random_state: expected an integer >= 0, a RandomState or None, got {shown(random_state)}"
        ) from None


# kind of a parameter -> what takes (name, value, row), checks the value and returns it as it is used
CHECKS = {
    "number": lambda name, value, row: number(name, value, row.least, above=row.above, wrong=TypeError),
    "whole": lambda name, value, row: whole(name, value, row.least, wrong=TypeError),
    "flag": lambda name, value, row: bool(value),
    "choice": lambda name, value, row: one_of(name, value, row.choices),
    "algorithm": lambda name, value, row: resolve(value),
    "loss": lambda name, value, row: value.replace("_", "-") if isinstance(value, str) else value,
    "seed": lambda name, value, row: seed(value),
    "threads": lambda name, value, row: thread_count(value),
    "any": lambda name, value, row: value,  # checked where it is used
    "inert": lambda name, value, row: value,
}


def check_combination(key, loss, clamp, c1, c2):
    """ValueError, with the list of what works, for a loss or penalty that the algorithm cannot minimise.
    None: not given.
    """
    row, name = ALGORITHMS[key], f"algorithm={key!r}"
    if loss is not None and loss not in LOSSES:
        raise ValueError(f"loss: expected {_listed(LOSSES)}, got {shown(loss)}")
    if loss is not None and loss not in row.losses:
        what = _listed(row.losses) if row.losses else "no such loss, it corrects mistakes"
        _refuse(
            f"{name} minimises {what}, got loss={shown(loss)}; with that loss", lambda r: loss in r.losses
        )
    chosen = loss or (row.losses or ("log",))[0]
    if clamp is not None and not (chosen.endswith("exp") and row.losses == LOSSES):
        raise ValueError(
            f"clamp: it is for loss='exp' and 'pointwise-exp' with {_listed(_BATCH)}, "
            f"got clamp={shown(clamp)} with {name}, loss={shown(chosen)}"
        )
    if c1 and row.c1 == NONE:
        _refuse(f"{name} has no L1 penalty, got c1={shown(c1)}; with c1 > 0", lambda r: r.c1 != NONE)
    if not c1 and row.c1 == NEEDED:
        _refuse(f"{name} is for c1 > 0, got c1={shown(c1 or 0)}; with c1=0", lambda r: r.c1 != NEEDED)
    if c2 == 0 and row.c2 == NEEDED:
        _refuse(f"{name} needs an L2 penalty, got c2=0; with c2=0", lambda r: r.c2 != NEEDED)
    if row.c1 == EITHER and not c1 and c2 == 0:
        _refuse(
            f"{name} needs a penalty, got c1=0 and c2=0; with neither",
            lambda r: not {r.c1, r.c2} & {NEEDED, EITHER},
        )
    if c1 and c2 and row.c2 == NONE:
        what = f"{name} has no L2 penalty, got c2={shown(c2)}; with both penalties"
        _refuse(what, lambda r: NONE not in (r.c1, r.c2))


def _refuse(what, works):
    raise ValueError(f"{what} these work: {_listed(k for k, row in ALGORITHMS.items() if works(row))}")


def _listed(names):
    names = [repr(name) for name in names]
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
