"""CarpeDiem against enumeration and Viterbi, with both bounds; what it opens."""

import numpy as np
import pytest
from helpers.chains import batches, chains, random_chain, run_viterbi_many
from helpers.decoders import CASES, check_enumeration, check_exact, decode, rounded
from hypothesis import given
from hypothesis import strategies as st

from crfbook.decoding import carpediem_many, carpediem_tables

pytestmark = pytest.mark.kernels
TIGHT = pytest.mark.parametrize("tight", [False, True])


def run(sequences, tight):
    return decode(carpediem_many, carpediem_tables(sequences[0].log_edge, tight), sequences)


def check_bits(sequences, tight):
    """Scores are those of Viterbi bit for bit."""
    scores, paths, counters = run(sequences, tight)
    np.testing.assert_array_equal(scores, run_viterbi_many(sequences, skip=False)[0])
    check_exact(scores, paths, sequences)
    return counters


@TIGHT
@given(chain=chains())
def test_equals_enumeration(tight, chain):
    scores, paths, _ = run([chain], tight)
    check_enumeration(chain, scores[0], paths[0])


@TIGHT
@given(sequences=batches(max_tokens=12, max_labels=11, forbidden=(0.0, 0.1, 0.6)), rounding=st.booleans())
def test_small_batches_equal_viterbi(tight, sequences, rounding):
    check_bits(rounded(sequences, 0.1) if rounding else sequences, tight)  # ties, and sums that round


@TIGHT
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n_labels", [1, 2, 3, 5, 8, 17, 33, 64, 70])
def test_equals_viterbi(tight, case, n_labels):
    """No transition is looked at twice."""
    sequences = CASES[case](np.random.default_rng(n_labels), n_labels)
    counters = check_bits(sequences, tight)
    assert counters[1] <= sum(max(0, len(c.log_node) - 1) for c in sequences) * n_labels**2
    assert counters[0] <= sum(len(c.log_node) for c in sequences) * n_labels
    assert counters[2] == sum(len(c.log_node) > 0 for c in sequences)


def test_where_node_scores_decide_one_label_a_token_is_opened():
    chain = random_chain(np.random.default_rng(3), 40, 64)
    chain.log_node[np.arange(40), np.random.default_rng(4).integers(0, 64, 40)] += 1000.0
    for tight in (False, True):
        counters = check_bits([chain], tight)
        assert counters[0] == 64 + 39 and counters[1] == 64 + 38


def test_the_tight_bound_opens_less():
    """Label 0 alone can be entered at a high score."""
    chain = random_chain(np.random.default_rng(5), 60, 30, size=1.0)
    chain.log_node[:] *= 4.0
    chain.log_edge[:, :, 0] += 5.0
    loose, tight = (check_bits([chain], t) for t in (False, True))
    assert tight[1] < 0.9 * loose[1]


@TIGHT
def test_a_million_tokens(tight):
    check_bits([random_chain(np.random.default_rng(9), 1_000_000, 3, 2)], tight)


@TIGHT
def test_a_long_way_back(tight):
    """Nothing but the first label is opened until the last token opens the second one of all before it."""
    T = 100_000
    chain = random_chain(np.random.default_rng(0), T, 2)
    chain.log_node[:] = 0.0, -0.5
    chain.log_node[-1] = -np.inf, 0.0
    chain.log_edge[:] = [[0.0, -1e9], [-1.0, 0.0]]
    check_bits([chain], tight)
