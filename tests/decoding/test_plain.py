"""Viterbi over all pairs, the measure of the others: exact, and its counts are those of the recursion."""

import numpy as np
import pytest
from helpers.decoders import CASES, check_exact, decode

from crfbook.decoding import plain_many

pytestmark = pytest.mark.kernels


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n_labels", [1, 2, 7])
def test_exact_with_the_counts_of_the_recursion(case, n_labels):
    sequences = CASES[case](np.random.default_rng(n_labels), n_labels)
    log_edge = sequences[0].log_edge
    scores, paths, counters = decode(plain_many, (log_edge, log_edge.transpose(0, 2, 1).copy()), sequences)
    check_exact(scores, paths, sequences)
    lengths = np.array([len(chain.log_node) for chain in sequences])
    tokens, steps = lengths.sum(), np.maximum(lengths - 1, 0).sum()
    np.testing.assert_array_equal(counters, [tokens * n_labels, steps * n_labels**2, (lengths > 0).sum()])
