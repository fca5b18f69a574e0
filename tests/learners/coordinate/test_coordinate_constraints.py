"""Coordinate descent where hard constraints leave some of the label pairs: any number of them,
squares too.
"""

import numpy as np
import pytest

from crfbook.chain.objective import Objective
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus
from crfbook.data.features import observed, select
from crfbook.learners.coordinate.arrays import ModelSizes
from crfbook.learners.coordinate.descent import coordinate_descent
from crfbook.learners.coordinate.sweeps import Sweeper
from crfbook.learners.quasi_newton.lbfgs import minimize

pytestmark = pytest.mark.kernels
C1, C2 = 0.2, 0.05


def walks(allowed, rng, lengths=(4, 3, 5, 1, 0, 2, 4)):
    """Labels along allowed pairs; a sequence ends where none goes on."""
    n_labels, ptr, labels = len(allowed), [0], []
    for length in lengths:
        label = int(rng.integers(n_labels))
        for _ in range(length):
            labels.append(label)
            if not allowed[label].any():
                break
            label = int(rng.choice(np.flatnonzero(allowed[label])))
        ptr.append(len(labels))
    return np.array(ptr), np.array(labels)


@pytest.mark.parametrize("plain", [True, False], ids=["plain transitions", "none"])
@pytest.mark.parametrize(
    "n_labels, n_pairs", [(3, n) for n in range(1, 10)] + [(5, n) for n in (4, 9, 15, 16, 17, 19, 24, 25)]
)
def test_any_number_of_pairs_may_be_allowed(n_labels, n_pairs, plain):
    """With equal weights, as at w = 0, and where there are none,
    only all L * L pairs make a table of rank one.
    """
    rng = np.random.default_rng(100 * n_labels + n_pairs)
    allowed = (rng.permutation(n_labels**2) < n_pairs).reshape(n_labels, n_labels)
    constraints = Constraints(allowed, np.ones(n_labels, bool), np.ones(n_labels, bool))
    ptr, labels = walks(allowed, rng)
    corpus = make_corpus(ptr, np.arange(ptr[-1] + 1), rng.integers(0, 3, ptr[-1]), labels=labels)
    features = observed(corpus, n_labels, 3, 1, all_states=True, all_transitions=True)
    if not plain:
        features = select(features, np.arange(features.n_features) < features.n_node)
    fun, zero = Objective(corpus, features, c2=C2, constraints=constraints), np.zeros(features.n_features)
    run = Sweeper(corpus, features, ModelSizes(n_labels, 3, 1), constraints)
    run.set_rule(C1, C2)
    np.testing.assert_allclose(run.renew(), fun(zero)[0], rtol=1e-13)
    np.testing.assert_allclose(
        run.violation()[0], max(0.0, np.abs(fun(zero)[1]).max() - C1), rtol=1e-9, atol=1e-12
    )
    best = minimize(fun, zero, c1=C1, c2=C2, tol=1e-13)
    found = coordinate_descent(
        corpus, features, c1=C1, c2=C2, tol=1e-11, constraints=constraints, max_iterations=3000
    )
    np.testing.assert_allclose(found.objective, fun(found.w)[0] + C1 * np.abs(found.w).sum(), rtol=1e-12)
    np.testing.assert_allclose(found.objective, best.objective, rtol=1e-9)
