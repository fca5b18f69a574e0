"""Beam search: greedy, approximate, exact."""

import numpy as np
import pytest
from helpers.chains import Chain, batches, random_chain, run_viterbi_many
from helpers.decoders import CASES, check_exact, decode, rounded
from hypothesis import given
from hypothesis import strategies as st

from crfbook import brute
from crfbook.decoding import beam_many, beam_tables

pytestmark = pytest.mark.kernels


def run(sequences, width):
    return decode(beam_many, beam_tables(sequences[0].log_edge, width), sequences)


def beam(log_node, log_edge, edge_class, width):
    """Beam search over whole paths, in Python: (score, path)."""
    beams = [(0.0, ())]
    for t, node in enumerate(log_node):
        best = {}
        for score, path in beams:
            for y, e in enumerate(node):
                v = (score + log_edge[edge_class[t], path[-1], y] if t else 0.0) + e
                if v > -np.inf and (y not in best or (-v, path[::-1]) < (-best[y][0], best[y][1][-2::-1])):
                    best[y] = (v, (*path, y))
        beams = sorted(best.values(), key=lambda b: (-b[0], b[1][-1]))[:width]
    return beams[0] if beams else (-np.inf, (0,) * len(log_node))


@pytest.mark.parametrize("width", [1, 2, 3])
@given(sequences=batches(max_tokens=6, max_labels=7, forbidden=(0.0, 0.4)), rounding=st.booleans())
def test_equals_beams_of_paths(width, sequences, rounding):
    if rounding:
        sequences = rounded(sequences)
    scores, paths, counters = run(sequences, width)
    for s, chain in enumerate(sequences):
        score, path = beam(*chain, width)
        assert scores[s] == score
        np.testing.assert_array_equal(paths[s], path)
    assert counters[1] <= sum(len(c.log_node) - 1 for c in sequences) * width * chain.log_node.shape[1]


@pytest.mark.parametrize("more", [0, 5])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n_labels", [1, 2, 5, 17, 70])
def test_a_full_beam_is_viterbi(more, case, n_labels):
    """Scores and paths, bit for bit."""
    sequences = CASES[case](np.random.default_rng(n_labels), n_labels)
    scores, paths, _ = run(sequences, n_labels + more)
    wanted, best = run_viterbi_many(sequences, skip=False)
    np.testing.assert_array_equal(scores, wanted)
    np.testing.assert_array_equal(np.concatenate(paths), np.concatenate(best))


@given(sequences=batches(max_tokens=8, max_labels=9), width=st.integers(1, 9))
def test_never_above_the_best_path(sequences, width):
    scores, paths, _ = run(sequences, width)
    assert (scores <= run_viterbi_many(sequences, skip=False)[0]).all()
    for score, path, chain in zip(scores, paths, sequences, strict=True):
        if score > -np.inf:
            np.testing.assert_allclose(brute.path_score(*chain, path), score, rtol=1e-12, atol=1e-12)


def test_a_narrow_beam_runs_into_a_dead_end():
    """The kept label leads nowhere: no path is found although there is one."""
    log_edge = np.array([[[-np.inf, -np.inf], [0.0, 0.0]]])
    chain = Chain(np.array([[1.0, 0.0], [0.0, 0.0]]), log_edge, np.zeros(2, np.int32))
    scores, paths, _ = run([chain], 1)
    assert scores[0] == -np.inf and not paths[0].any()
    assert run([chain], 2)[0][0] == 0.0


def test_a_million_tokens():
    chain = random_chain(np.random.default_rng(9), 1_000_000, 4, 2)
    check_exact(*run([chain], 4)[:2], [chain])
    assert np.isfinite(run([chain], 1)[0][0])


@pytest.mark.parametrize("width", [0, -1, 1.5, "wide", None])
def test_a_width_that_is_none(width):
    with pytest.raises(ValueError, match="width: expected an integer >= 1"):
        beam_tables(np.zeros((1, 3, 3)), width)
