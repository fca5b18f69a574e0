"""What elimination costs, what it remembers."""

import numpy as np
import pytest
from helpers.dynamic import dynamic_problem

from crfbook.dynamic import factorial, lay_out_template
from crfbook.dynamic.elimination import BYTES, elimination_rows
from crfbook.dynamic.objective import DynamicObjective
from crfbook.dynamic.viterbi import max_plus

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("name", ["one chain", "two chains", "skew", "three chains", "pairs of the text"])
def test_products_of_a_step_forward(name):
    """K (L_1 + .. + L_m), which for two chains is L_1 L_2^2 + L_1^2 L_2; skew edges cost none."""
    problem = dynamic_problem(name, lengths=(4, 1, 3, 2, 2))
    objective = DynamicObjective(*problem[:4])
    objective(problem.w)
    sizes = problem.layout.sizes
    steps = int(np.maximum(problem.corpus.lengths - 1, 0).sum())
    assert objective.parts[0].free.work_arrays().n_products[0] == steps * np.prod(sizes) * sum(sizes)
    if len(sizes) == 2:
        a, b = sizes
        assert np.prod(sizes) * sum(sizes) == a * b**2 + a**2 * b


@pytest.mark.parametrize("sizes", [(3, 2), (44, 22), (44, 3), (60, 50)])
def test_work_memory_is_bounded_whatever_the_corpus(sizes):
    names = {chain: list(range(n)) for chain, n in zip("ab", sizes, strict=True)}
    layout = lay_out_template(factorial("a", "b"), ("a", "b"), names)
    rows = elimination_rows(layout)
    assert rows == 4096 or 64 < rows <= BYTES / (8 * np.prod(sizes) * 2) or rows == 64


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 6, 4), (5, 7, 3), (3, 13, 8), (4, 5, 2)])
def test_products_with_maxima(shape):
    n, m, width = shape
    rng = np.random.default_rng(0)
    a, b, out = rng.normal(size=(n, m)), rng.normal(size=(m, width)), np.empty((n, width))
    a[rng.random(a.shape) < 0.3] = -np.inf
    max_plus(a, b, out)
    np.testing.assert_array_equal(out, (a[:, :, None] + b).max(axis=1))
