"""Decoding, marginals and log-probabilities of a corpus against enumeration."""

import numpy as np
import pytest
from helpers.corpora import brute_node_scores, chains_of, random_corpus, random_model
from helpers.problems import CASES, case, constraints_for

from crfbook import brute
from crfbook.chain import inference, packing
from crfbook.data.constraints import Constraints

pytestmark = pytest.mark.usefixtures("both_ways")
EVERY = dict(
    argvalues=[(name, False) for name in CASES] + [("plain", True), ("classes", True)],
    argnames=("name", "constrained"),
)


def setup(name, constrained, seed=0, size=1.0):
    corpus, features, w = case(name, seed, size)
    constraints = constraints_for(corpus, features.n_labels) if constrained else None
    return (corpus, features, w, constraints), list(chains_of(corpus, features, w, constraints))


@pytest.mark.parametrize(**EVERY)
@pytest.mark.parametrize("size", [1.0, 1000.0])
def test_node_and_edge_marginals(name, constrained, size):
    model, chains = setup(name, constrained, size=size)
    p_node = inference.node_marginals(*model)
    corpus, n_labels = model[0], model[1].n_labels
    n_seen = 0
    for i, p_edge in enumerate(inference.iter_edge_marginals(*model)):
        n_tokens = len(chains[i][0])
        assert p_edge.shape == (max(0, n_tokens - 1), n_labels, n_labels)
        if n_tokens:
            tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
            np.testing.assert_allclose(
                p_node[tokens], brute.node_marginals(*chains[i]), rtol=1e-8, atol=1e-11
            )
            np.testing.assert_allclose(p_edge, brute.edge_marginals(*chains[i])[1:], rtol=1e-8, atol=1e-11)
        n_seen += 1
    assert n_seen == corpus.n_sequences


@pytest.mark.parametrize(**EVERY)
def test_log_partition_and_log_proba(name, constrained):
    model, chains = setup(name, constrained)
    corpus = model[0]
    want_z = [brute.log_z(*chain) if len(chain[0]) else 0.0 for chain in chains]
    np.testing.assert_allclose(inference.log_partition(*model), want_z, rtol=1e-11, atol=1e-12)
    labels = [corpus.labels[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]] for i in range(corpus.n_sequences)]
    want = [brute.log_proba(*chain, y) if len(y) else 0.0 for chain, y in zip(chains, labels, strict=True)]
    np.testing.assert_allclose(inference.log_proba(*model), want, rtol=1e-10, atol=1e-11)
    score = inference.sequence_scores(*model)
    np.testing.assert_allclose(score - want_z, want, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(**EVERY)
@pytest.mark.parametrize("seed", range(3))
def test_decode_finds_the_best_path(name, constrained, seed):
    model, chains = setup(name, constrained, seed)
    path = inference.decode(*model)
    assert path.dtype == np.int32
    for i, chain in enumerate(chains):
        if len(chain[0]):
            mine = path[model[0].seq_ptr[i] : model[0].seq_ptr[i + 1]]
            best, paths = brute.best_paths(*chain)
            assert brute.path_score(*chain, mine) == pytest.approx(best, rel=1e-12)
            assert any(np.array_equal(mine, p) for p in paths)


def test_node_scores_and_long_corpora(monkeypatch):
    """Stretches of whole sequences, dense copies of frequent rows and threads change nothing."""
    rng = np.random.default_rng(2)
    corpus = random_corpus(rng, lengths=tuple(rng.integers(0, 9, 150)), valued=True)
    features, w = random_model(rng, corpus)
    np.testing.assert_allclose(
        inference.node_scores(corpus, features, w),
        brute_node_scores(corpus, features, w),
        rtol=1e-12,
        atol=1e-13,
    )
    path, scores = inference.decode(corpus, features, w), inference.sequence_scores(corpus, features, w)
    assert len(inference.ready_model(corpus, features, w, None, tiny=False).dense) > 0
    monkeypatch.setattr(packing, "STRETCH_ROWS", 50)
    monkeypatch.setattr(inference, "DENSE_BYTES", 0)
    monkeypatch.setattr(inference, "batch_rows", lambda n_classes, n_labels: 50)
    assert len(inference.stretches(corpus.seq_ptr, features.n_labels)) > 5
    np.testing.assert_array_equal(inference.decode(corpus, features, w, n_threads=3), path)
    np.testing.assert_allclose(inference.sequence_scores(corpus, features, w), scores, rtol=1e-12)
    np.testing.assert_array_equal(
        inference.node_marginals(corpus, features, w, n_threads=2),
        inference.node_marginals(corpus, features, w),
    )


@pytest.mark.parametrize("lengths", [(), (0,), (0, 0, 1)])
def test_hardly_any_tokens(lengths):
    rng = np.random.default_rng(3)
    features, w = random_model(rng, random_corpus(rng))
    corpus = random_corpus(rng, lengths=lengths)
    n = sum(lengths)
    assert inference.decode(corpus, features, w).shape == (n,)
    assert inference.node_marginals(corpus, features, w).shape == (n, 3)
    assert inference.log_proba(corpus, features, w).shape == (len(lengths),)
    assert len(list(inference.iter_edge_marginals(corpus, features, w))) == len(lengths)


def test_forbidden_labels_have_probability_zero():
    corpus, features, w = case("plain")
    no_start = np.ones(3, bool)
    no_start[corpus.labels[corpus.seq_ptr[3]]] = False
    constraints = Constraints(np.ones((3, 3), bool), no_start, np.ones(3, bool))
    assert inference.log_proba(corpus, features, w, constraints)[3] == -np.inf


def test_refusals():
    corpus, features, w = case("plain")
    alone = Constraints(np.zeros((3, 3), bool), np.ones(3, bool), np.ones(3, bool))
    for function in (
        inference.decode,
        inference.node_marginals,
        inference.log_partition,
        lambda *model: list(inference.iter_edge_marginals(*model)),
    ):
        with pytest.raises(
            ValueError, match="sequence 0: expected a path of finite score, but the constraints forbid"
        ):
            function(corpus, features, w, alone)
    labels = corpus.labels.copy()
    labels[3] = -1
    with pytest.raises(ValueError, match="sequence 2, token 0: expected a label id in 0..2, got -1"):
        inference.log_proba(corpus._replace(labels=labels), features, w)
    w[0] = np.inf
    with pytest.raises(ValueError, match="weights: expected finite numbers, got inf at position 0"):
        inference.decode(corpus, features, w)


def test_stretches_are_limited_in_tokens_and_in_bytes():
    seq_ptr = np.arange(0, 50_001, 10)
    for n_labels, most in ((1, 8500), (44, 8500), (2322, 1900), (10**9, 1)):
        pieces = inference.stretches(seq_ptr, n_labels)
        sizes = [tokens.stop - tokens.start for _, tokens in pieces]
        assert sum(sizes) == 50_000 and max(sizes) < most + 10
        assert [s.start for s, _ in pieces[1:]] == [s.stop for s, _ in pieces[:-1]]
        assert min(sizes) >= 10  # a whole sequence at least
    assert inference.stretches(np.array([0]), 5) == []
    counts = [packing.n_stretches(n, 44) for n in (0, 8192, 16383, 16384)]
    assert counts == [1, 1, 1, 2]  # none is shorter than it need be: each pays for its tables
