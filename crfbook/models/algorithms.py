"""Which algorithm trains what: one table, and one sentence for each combination that makes no sense.

A row says where the function is, which losses and penalties it minimises, and which parameters of `CRF` it
reads under which names. Functions are imported when they are first used. All have the signature

    f(corpus, features, w0, *, constraints, max_iterations, callback, state, <settings>,
    <options>) -> OptResult
"""

from importlib import import_module
from typing import NamedTuple

from crfbook.chain.losses.form import LOSSES

# what an algorithm makes of a penalty; EITHER: not both 0
NONE, ANY, NEEDED, EITHER = "none", "any", "needed", "either"


class Algorithm(NamedTuple):
    """One row of the table."""

    function: str  # module:name
    kernel: str  # the kernel that takes longest to compile
    losses: tuple = ("log",)  # the first is the default; (): it minimises none of them
    c1: str = NONE
    c2: str = NONE
    settings: tuple = ()  # of Settings, handed on under their own names
    options: dict = {}  # parameter of CRF -> argument of the function, if given
    memory: str = (
        ""  # module:name of (corpus, features) -> bytes, where that is more than a few vectors of weights
    )
    one_pass: dict | None = None  # can take in new sequences later (partial_fit): with these arguments

    def load(self):
        """The function."""
        return _named(self.function)

    def bytes(self, corpus, features):
        """Memory it will take beside the corpus, where that is worth a word; else 0."""
        return _named(self.memory)(corpus, features) if self.memory else 0


def _named(place):
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


_BATCH = (
    "c1",
    "c2",
    "loss",
    "clamp",
    "n_threads",
    "tol",
    "epsilon",
    "relative_change",
    "num_memories",
    "max_linesearch",
)
_PASSES = {"period": "period", "delta": "delta"}
_ONLINE = {"epsilon": "epsilon"}
_AS_THEY_COME = {"shuffle": False}
_NEW_DATA = {"new_data": True}
_CALIBRATION = {
    name: name
    for name in (
        "calibration_eta",
        "calibration_rate",
        "calibration_samples",
        "calibration_candidates",
        "calibration_max_trials",
    )
}

_QUASI_NEWTON = "crfbook.learners.quasi_newton:quasi_newton"
ALGORITHMS = {
    "auto": Algorithm(
        "crfbook.learners.stochastic:auto",
        "shard_likelihood",
        LOSSES,
        ANY,
        ANY,
        (*_BATCH, "random_state", "memory_limit"),
    ),
    "lbfgs": Algorithm(_QUASI_NEWTON, "shard_likelihood", LOSSES, ANY, ANY, _BATCH),
    "owlqn": Algorithm(_QUASI_NEWTON, "shard_likelihood", LOSSES, ANY, ANY, _BATCH),
    "sbcd": Algorithm(
        "crfbook.learners.coordinate:sbcd",
        "block_gradient",
        c1=EITHER,
        c2=EITHER,
        settings=("c1", "c2", "n_threads", "tol", "virtual"),
    ),
    "cd": Algorithm(
        "crfbook.learners.coordinate:cd", "block_gradient", c1=EITHER, c2=EITHER, settings=("c1", "c2", "tol")
    ),
    "sgd": Algorithm(
        "crfbook.learners.stochastic:sgd",
        "sgd_steps",
        c2=ANY,
        settings=("c2", "random_state"),
        options=_PASSES | _CALIBRATION,
        one_pass=_NEW_DATA,
    ),
    "sgd-l1": Algorithm(
        "crfbook.learners.stochastic:sgd_l1",
        "sgd_l1_steps",
        c1=NEEDED,
        settings=("c1", "random_state"),
        options=_PASSES | {"calibration_eta": "eta0"},
        one_pass=_NEW_DATA,
    ),
    "sag": Algorithm(
        "crfbook.learners.stochastic:sag",
        "sag_steps",
        c2=ANY,
        settings=("c2", "random_state", "memory_limit", "tol"),
        memory="crfbook.learners.stochastic.averaged:sag_memory",
    ),
    "sdca": Algorithm(
        "crfbook.learners.stochastic:sdca",
        "sdca_epoch",
        c2=NEEDED,
        settings=("c2", "random_state", "memory_limit", "tol"),
        memory="crfbook.learners.stochastic.dual:sdca_memory",
    ),
    "perceptron": Algorithm(
        "crfbook.learners.online:perceptron",
        "perceptron_epoch",
        (),
        settings=("random_state",),
        options=_ONLINE | {"averaging": "average"},
        one_pass=_AS_THEY_COME,
    ),
    "pa": Algorithm(
        "crfbook.learners.online:passive_aggressive",
        "passive_aggressive_epoch",
        (),
        settings=("random_state",),
        options=_ONLINE | {name: name for name in ("pa_type", "c", "error_sensitive", "averaging")},
        one_pass=_AS_THEY_COME,
    ),
    "arow": Algorithm(
        "crfbook.learners.online:arow",
        "arow_epoch",
        (),
        settings=("random_state",),
        options=_ONLINE | {"variance": "variance", "gamma": "gamma"},
        one_pass=_AS_THEY_COME,
    ),
    "boosting": Algorithm(
        "crfbook.learners.boosting:boost",
        "boost_rounds",
        ("exp",),
        settings=("memory_limit", "tol"),
        memory="crfbook.learners.boosting.layout:state_bytes",
    ),
}
# the names that CRFsuite and sklearn-crfsuite have for them
ALIASES = {
    "l2sgd": "sgd",
    "ap": "perceptron",
    "averaged-perceptron": "perceptron",
    "passive-aggressive": "pa",
}
# parameters of CRF that one algorithm or another reads
READ = sorted({name for row in ALGORITHMS.values() for name in row.options})


def resolve(name):
    """The key of the table for what a user wrote. Raises ValueError with the list of names."""
    key = "lbfgs" if name is None else name.replace("_", "-") if isinstance(name, str) else name
    key = ALIASES.get(key, key) if isinstance(key, str) else key
    if not isinstance(key, str) or key not in ALGORITHMS:
        raise ValueError(f"algorithm: expected {_listed(ALGORITHMS)} (or {_listed(ALIASES)}), got {name!r}")
    return key


def check_combination(key, loss, clamp, c1, c2):
    """ValueError, with the list of what works, for a loss or penalty that the algorithm cannot minimise.
    None: not given.
    """
    row = ALGORITHMS[key]
    if loss is not None and loss not in LOSSES:
        raise ValueError(f"loss: expected {_listed(LOSSES)}, got {loss!r}")
    if loss is not None and loss not in row.losses:
        what = (
            f"minimises {_listed(row.losses)}"
            if row.losses
            else "minimises no such loss, it corrects mistakes"
        )
        raise ValueError(
            f"algorithm={key!r} {what}, got loss={loss!r}; with that loss these work: "
            f"{_listed(k for k, r in ALGORITHMS.items() if loss in r.losses)}"
        )
    chosen = loss or (row.losses or ("log",))[0]
    if clamp is not None and not (chosen.endswith("exp") and row.losses == LOSSES):
        raise ValueError(
            f"clamp: it is for loss='exp' and 'pointwise-exp' with {_listed(_with(losses=LOSSES))}, "
            f"got clamp={clamp!r} with algorithm={key!r}, loss={chosen!r}"
        )
    if c1 and row.c1 == NONE:
        raise ValueError(
            f"algorithm={key!r} has no L1 penalty, got c1={c1!r}; with c1 > 0 these work: "
            f"{_listed(k for k, r in ALGORITHMS.items() if r.c1 != NONE)}"
        )
    if not c1 and row.c1 == NEEDED:
        raise ValueError(
            f"algorithm={key!r} is for c1 > 0, got c1={c1 or 0!r}; with c1=0 these work: "
            f"{_listed(k for k, r in ALGORITHMS.items() if r.c1 != NEEDED)}"
        )
    if c2 == 0 and row.c2 == NEEDED:
        raise ValueError(
            f"algorithm={key!r} needs an L2 penalty, got c2=0; with c2=0 these work: "
            f"{_listed(k for k, r in ALGORITHMS.items() if r.c2 != NEEDED)}"
        )
    if row.c1 == EITHER and not c1 and c2 == 0:
        raise ValueError(
            f"algorithm={key!r} needs a penalty: node and edge weights of a symbol are redundant "
            f"without one; got c1=0 and c2=0; with neither these work: "
            f"{_listed(k for k, r in ALGORITHMS.items() if not {r.c1, r.c2} & {NEEDED, EITHER})}"
        )
    if c1 and c2 and row.c2 == NONE:
        raise ValueError(
            f"algorithm={key!r} has no L2 penalty, got c2={c2!r}; with both penalties these work: "
            f"{_listed(k for k, r in ALGORITHMS.items() if r.c1 != NONE and r.c2 != NONE)}"
        )


def _with(losses):
    return (key for key, row in ALGORITHMS.items() if row.losses == losses)


def _listed(names):
    names = [repr(name) for name in names]
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
