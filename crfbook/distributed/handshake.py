"""Do all workers compute the same? Versions, the hash of the kernels, and a gradient that each computes.

Versions and kernels must agree, else nothing is begun. Where gradients differ in their last bits (other
processors, other BLAS libraries), results depend on who computes what: a warning says so.
"""

import hashlib
import platform
import warnings
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from crfbook import __version__
from crfbook._jit import _fingerprint as fingerprint
from crfbook.chain.objective import Objective
from crfbook.data.corpus import make_corpus, offsets
from crfbook.data.features import observed

PACKAGES = "numpy", "numba", "scipy", "dask", "distributed"
CLOSE = 1e-9  # relative: gradients that differ by more are wrong, not rounded


@lru_cache(maxsize=1)
def versions():
    """{name: version} of what this process would compute with."""
    found = {"python": platform.python_version(), "crfbook": __version__, "kernels": fingerprint()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


@lru_cache(maxsize=1)
def probe():
    """(hash of its bits, value) of the gradient of a small fixed problem."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 30, 200)
    n_tokens, n_attrs, n_labels = int(lengths.sum()), 300, 9
    attr_ptr = offsets(rng.integers(1, 6, n_tokens))
    corpus = make_corpus(
        offsets(lengths),
        attr_ptr,
        rng.integers(0, n_attrs, attr_ptr[-1]),
        labels=rng.integers(0, n_labels, n_tokens),
    )
    objective = Objective(corpus, observed(corpus, n_labels, n_attrs), form="batched")
    value, grad = objective(0.1 * rng.standard_normal(objective.features.n_features))
    return hashlib.sha256(grad.tobytes()).hexdigest(), value


def introduce():
    """What a worker says of itself."""
    return versions(), probe()


def check_workers(client, workers):
    """RuntimeError that lists the workers unlike this process; a warning where only rounding differs."""
    mine, (bits, value) = introduce()
    unlike, other_bits = [], []
    for worker, said in sorted(client.run(introduce, workers=workers, on_error="return").items()):
        if isinstance(said, OSError):  # it is lost; whoever comes in its place meets `check_here`
            continue
        if isinstance(said, BaseException):
            unlike.append(f"{worker} answers {type(said).__name__}: {said}")
            continue
        theirs, (their_bits, their_value) = said
        differs = [f"{n} {theirs.get(n)} (here {v})" for n, v in mine.items() if theirs.get(n) != v]
        if not abs(their_value - value) <= CLOSE * abs(value):
            differs.append(f"probe {their_value:.17g} (here {value:.17g})")
        if differs:
            unlike.append(f"{worker} has {', '.join(differs)}")
        elif their_bits != bits:
            other_bits.append(worker)
    if unlike:
        raise RuntimeError(f"client: expected workers like this process, got others: {'; '.join(unlike)}")
    if other_bits:
        warnings.warn(
            f"these workers round otherwise than this process, so the last bits of results depend on who "
            f"computes what: {', '.join(other_bits)}",
            UserWarning,
            stacklevel=4,
        )


def check_here(wanted):
    """RuntimeError in a worker that joined after the handshake, and is unlike the others."""
    mine = versions()
    differs = [
        f"{name} {mine.get(name)} (expected {value})"
        for name, value in wanted.items()
        if mine.get(name) != value
    ]
    if differs:
        raise RuntimeError(f"a worker that joined later is unlike the others: {', '.join(differs)}")
