"""Both Viterbi decoders against enumeration and against each other."""

import numpy as np
import pytest
from helpers.chains import Chain, batches, chains, random_chain, run_viterbi, run_viterbi_many
from helpers.corpora import random_corpus, random_model
from hypothesis import given
from hypothesis import strategies as st

from crfbook import brute

pytestmark = pytest.mark.kernels


@given(chain=chains())
def test_equals_enumeration(chain):
    score, path = run_viterbi(chain)
    best, paths = brute.best_paths(*chain)
    if best == -np.inf:
        assert score == -np.inf and not path.any()
        return
    np.testing.assert_allclose(score, best, rtol=1e-13, atol=1e-13)
    assert any((path == p).all() for p in paths)
    np.testing.assert_allclose(brute.path_score(*chain, path), best, rtol=1e-12, atol=1e-12)


def smallest_backward(log_node, log_edge, edge_class):
    """What "ties to the smallest label at every step" means, by enumeration:
    compare from the last label on.
    """
    paths, scores = brute.all_scores(log_node, log_edge, edge_class)
    best = [tuple(reversed(p)) for p, s in zip(paths.tolist(), scores, strict=True) if s == scores.max()]
    return np.array(list(reversed(min(best))))


@given(chain=chains(forbidden=(0.0, 0.3)), seed=st.integers(0, 10**6))
def test_ties_go_to_the_smallest_label(chain, seed):
    """Scores of 0, 1 and 2 add up exactly, so that ties are ties."""
    rng = np.random.default_rng(seed)
    tied = Chain(
        np.where(np.isfinite(chain.log_node), rng.integers(0, 3, chain.log_node.shape), -np.inf),
        np.where(np.isfinite(chain.log_edge), rng.integers(0, 2, chain.log_edge.shape), -np.inf),
        chain.edge_class,
    )
    score, path = run_viterbi(tied)
    if score > -np.inf:
        np.testing.assert_array_equal(path, smallest_backward(*tied))
    for skip in (False, True):
        scores, paths = run_viterbi_many([tied], skip)
        assert scores[0] == score
        np.testing.assert_array_equal(paths[0], path)


@pytest.mark.parametrize("skip", [False, True])
@given(sequences=batches(max_tokens=12, max_labels=11, forbidden=(0.0, 0.1, 0.6)), rounding=st.booleans())
def test_many_is_bit_for_bit_the_reference(skip, sequences, rounding):
    if rounding:  # many exact ties, and sums that round
        sequences = [c._replace(log_node=np.round(c.log_node) * 0.1) for c in sequences]
        log_edge = np.round(sequences[0].log_edge) * 0.1
        sequences = [c._replace(log_edge=log_edge) for c in sequences]
    scores, paths = run_viterbi_many(sequences, skip)
    for s, chain in enumerate(sequences):
        score, path = run_viterbi(chain)
        assert scores[s] == score
        np.testing.assert_array_equal(paths[s], path)


@pytest.mark.parametrize("n_labels", [1, 2, 3, 4, 5, 8, 22, 24, 33, 64, 130])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e8])
def test_many_labels(n_labels, scale):
    """Large scores leave few significant digits to differences:
    the margin of the skipping rule is at work.
    """
    rng = np.random.default_rng(n_labels)
    sequences = [random_chain(rng, n, n_labels, 2, 1.0) for n in (1, 30, 7, 2)]
    sequences = [
        c._replace(log_node=c.log_node * scale + 100.0, log_edge=sequences[0].log_edge) for c in sequences
    ]
    for skip in (False, True):
        scores, paths = run_viterbi_many(sequences, skip)
        for s, chain in enumerate(sequences):
            score, path = run_viterbi(chain)
            assert scores[s] == score
            np.testing.assert_array_equal(paths[s], path)


def test_skipping_leaves_room_for_rounding():
    """Label 0 is ahead by 1e-16 in the end, which 1 - (-1e-16) = 1 loses:
    by that bound it could never win.
    """
    log_edge = np.array([[[1.0, 1.0], [-1e-16, -1e-16]]])
    chain = Chain(np.array([[-1.0, 2.0**-60], [0.0, 0.0]]), log_edge, np.zeros(2, np.int32))
    assert run_viterbi(chain)[1].tolist() == [0, 0]
    assert run_viterbi_many([chain])[1][0].tolist() == [0, 0]


def test_ties_made_by_rounding():
    """Near 1e16 doubles are 2 apart: 1e16 - 2 + 1.1 and 1e16 + 0.2 are the same number,
    and label 0 wins the tie.
    """
    log_edge = np.array([[[1.1, 1.1], [0.2, 0.2]]])
    chain = Chain(np.array([[1e16 - 2.0, 1e16], [0.0, 0.0]]), log_edge, np.zeros(2, np.int32))
    assert run_viterbi(chain)[1].tolist() == [0, 0]
    assert run_viterbi_many([chain])[1][0].tolist() == [0, 0]


@given(chain=chains(sizes=(1.0,), forbidden=(0.0,)), seed=st.integers(0, 10**6))
def test_shift_and_renaming(chain, seed):
    rng = np.random.default_rng(seed)
    score, path = run_viterbi(chain)
    shift = np.round(rng.normal(0.0, 5.0, (len(path), 1)))
    shifted = run_viterbi(chain._replace(log_node=chain.log_node + shift))
    np.testing.assert_allclose(shifted[0], score + shift.sum(), atol=1e-11)
    if len(brute.best_paths(*chain)[1]) == 1:
        np.testing.assert_array_equal(shifted[1], path)
        p = rng.permutation(chain.log_node.shape[1])
        renamed = Chain(chain.log_node[:, p].copy(), chain.log_edge[:, p][:, :, p].copy(), chain.edge_class)
        np.testing.assert_array_equal(p[run_viterbi(renamed)[1]], path)


def test_empty_sequences_and_dead_ends():
    chain = random_chain(np.random.default_rng(0), 3, 4)
    empty = chain._replace(log_node=chain.log_node[:0], edge_class=chain.edge_class[:0])
    dead = chain._replace(log_node=np.where(np.arange(3)[:, None] == 1, -np.inf, chain.log_node))
    scores, paths = run_viterbi_many([empty, chain, dead, empty])
    assert scores[0] == 0.0 and scores[3] == 0.0 and scores[2] == -np.inf
    assert not paths[2].any() and len(paths[0]) == 0
    np.testing.assert_array_equal(paths[1], run_viterbi(chain)[1])


def test_a_million_tokens():
    chain = random_chain(np.random.default_rng(9), 1_000_000, 3, 2)
    score, path = run_viterbi(chain)
    scores, paths = run_viterbi_many([chain])
    assert scores[0] == score and np.isfinite(score)
    np.testing.assert_array_equal(paths[0], path)


def test_the_tables_of_a_corpus_are_made_once(monkeypatch):
    """However many stretches it has; they read no exponentials."""
    from crfbook.chain import forms, inference, packing
    from crfbook.chain import viterbi as module

    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, rng.integers(1, 9, 40), 5, 7, 2)
    features, w = random_model(rng, corpus, 5, 7, all_transitions=True)
    want, made = inference.decode(corpus, features, w, form="sparse"), []
    original = module.bounds_of_losers
    monkeypatch.setattr(packing, "STRETCH_ROWS", 20)
    monkeypatch.setattr(module, "bounds_of_losers", lambda *args: made.append(args[2]) or original(*args))
    monkeypatch.setattr(forms, "exp_edges", None)
    np.testing.assert_array_equal(inference.decode(corpus, features, w, form="dense"), want)
    assert made == [corpus.n_tokens] and len(inference.stretches(corpus.seq_ptr, 5)) > 3
