"""Tied transitions: the definition by enumeration, gradients, and eq. (10) as the paper prints it."""

import numpy as np
import pytest
from helpers.corpora import brute_node_scores, random_corpus, random_model
from helpers.problems import central_differences

from crfbook import brute
from crfbook.chain.active import (
    PseudoLikelihood,
    TiedObjective,
    after_another,
    near_default,
    printed,
    tied_features,
)
from crfbook.chain.inference import decode, sequence_scores
from crfbook.chain.objective import Objective
from crfbook.data.features import frequency_cutoff, log_edge

LENGTHS, C2 = (3, 0, 1, 4, 2, 5, 4), 0.3
KINDS = {"plain": {}, "values and weights": {"valued": True, "weighted": True}}


def problem(seed=0, least_count=1, per_label=True, **kind):
    """(corpus, features, extended corpus, tied objective, parameters): some pairs active, some not."""
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, lengths=LENGTHS, **kind)
    features, _ = random_model(rng, corpus)
    later, fewer = tied_features(corpus, features, least_count)
    assert least_count < 1 or 0 < fewer.n_edge < features.n_edge
    tied = TiedObjective(Objective(later, fewer), c2=C2, per_label=per_label)
    return corpus, features, later, tied, rng.normal(size=len(tied.start()))


def tied_chains(corpus, features, tied, parameters):
    """(log_node, log_edge, edge_class) of every sequence, with the table lam or eta[y], as in the paper."""
    n_eta, n_labels, n_edge = tied.n_eta, features.n_labels, tied.features.n_edge
    eta = np.broadcast_to(parameters[:n_eta], n_labels)
    table = np.tile(eta, (n_labels, 1))
    table[tied.features.edge_prev, tied.features.edge_next] = parameters[len(parameters) - n_edge :]
    w = np.concatenate([parameters[n_eta : n_eta + features.n_node], np.zeros(features.n_edge)])
    node = brute_node_scores(corpus, features, w)
    for lo, hi in zip(corpus.seq_ptr[:-1], corpus.seq_ptr[1:], strict=True):
        yield node[lo:hi], table[None], corpus.edge_class[lo:hi]


@pytest.mark.parametrize("per_label", [False, True], ids=["method 3", "method 4"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_value_is_that_of_the_tied_table(kind, per_label):
    for seed in range(3):
        corpus, features, _, tied, parameters = problem(seed, per_label=per_label, **KINDS[kind])
        want = C2 * parameters @ parameters
        for i, chain in enumerate(tied_chains(corpus, features, tied, parameters)):
            if len(chain[0]):
                labels = corpus.labels[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]]
                want -= corpus.weights[i] * brute.log_proba(*chain, labels)
        np.testing.assert_allclose(tied(parameters)[0], want, rtol=1e-12)


def test_folded_weights_score_and_decode_as_the_tied_table_does():
    corpus, features, later, tied, parameters = problem()
    w = tied.fold(parameters)
    score, path = sequence_scores(later, tied.features, w), decode(later, tied.features, w)
    for i, chain in enumerate(tied_chains(corpus, features, tied, parameters)):
        if len(chain[0]):
            tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
            np.testing.assert_allclose(score[i], brute.path_score(*chain, corpus.labels[tokens]), rtol=1e-12)
            assert any((path[tokens] == best).all() for best in brute.best_paths(*chain)[1])


@pytest.mark.parametrize("per_label", [False, True], ids=["method 3", "method 4"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_finite_differences(kind, per_label):
    *_, tied, parameters = problem(1, per_label=per_label, **KINDS[kind])
    want = central_differences(lambda p: tied(p)[0], parameters)
    np.testing.assert_allclose(tied(parameters)[1], want, rtol=1e-7, atol=1e-7)


def test_where_all_pairs_are_active_eta_feels_the_penalty_alone():
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, lengths=LENGTHS)
    features, _ = random_model(rng, corpus, all_transitions=True)
    for per_label in (False, True):
        later, every = tied_features(corpus, features, -1)
        assert every.n_edge == 9
        tied = TiedObjective(Objective(later, every), c2=C2, per_label=per_label)
        parameters = rng.normal(size=len(tied.start()))
        grad = tied(parameters)[1][: tied.n_eta]
        np.testing.assert_allclose(grad, 2 * C2 * parameters[: tied.n_eta], rtol=1e-9, atol=1e-12)


def test_eta_of_zero_is_method_2():
    """The same value and gradient as `Objective` on the features without rare pairs."""
    corpus, features, _, tied, parameters = problem(2)
    parameters[: tied.n_eta] = 0.0
    keep = frequency_cutoff(corpus, features, 2)
    keep[: features.n_node] = True
    w = np.zeros(features.n_features)
    w[keep] = parameters[tied.n_eta :]
    value, grad = Objective(corpus, features, c2=C2)(w)
    np.testing.assert_allclose(tied(parameters)[0], value, rtol=1e-12)
    np.testing.assert_allclose(tied(parameters)[1][tied.n_eta :], grad[keep], rtol=1e-9, atol=1e-9)


def test_one_eta_for_all_moves_no_path():
    """Under Method 3 without penalty, eta of all pairs, active ones too, changes no probability."""
    *_, tied, parameters = problem(3, per_label=False)
    tied.c2, moved = 0.0, parameters.copy()
    moved[0] += 2.0
    moved[len(moved) - tied.features.n_edge :] += 2.0
    np.testing.assert_allclose(tied(moved)[0], tied(parameters)[0], rtol=1e-12)


def test_it_ties_the_pseudo_likelihood():
    *_, later, tied, parameters = problem(4)
    pseudo = TiedObjective(PseudoLikelihood(later, tied.features), c2=C2, per_label=True)
    want = central_differences(lambda p: pseudo(p)[0], parameters)
    np.testing.assert_allclose(pseudo(parameters)[1], want, rtol=1e-7, atol=1e-7)


def as_printed(log_node, table, active):
    """(score, path) of eq. (10) as the paper prints it, for transitions that score 0 where inactive."""
    n_tokens, n_labels = log_node.shape
    delta, back = log_node[0], np.zeros((n_tokens, n_labels), int)
    for t in range(1, n_tokens):
        first = np.where(active, delta[:, None] + table, -np.inf)
        second = np.tile(delta[:, None], n_labels)  # of all previous labels, active or not
        both = np.maximum(first, second)
        back[t], delta = both.argmax(axis=0), both.max(axis=0) + log_node[t]
    path = [int(delta.argmax())]
    for t in range(n_tokens - 1, 0, -1):
        path.insert(0, back[t, path[0]])
    return delta.max(), path


def test_printed_is_eq_10_as_printed_and_never_below_the_exact_one():
    n_higher = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        corpus = random_corpus(rng, lengths=(5, 1, 4))
        features, w = random_model(rng, corpus, size=2.0)
        over = printed(features, w)
        path, exact = decode(corpus, features, over), decode(corpus, features, w)
        table = log_edge(features, w, corpus.class_ptr, corpus.class_attr)[0]
        active = np.zeros((3, 3), bool)
        active[features.edge_prev, features.edge_next] = True
        node = brute_node_scores(corpus, features, w)
        score = sequence_scores(corpus._replace(labels=path), features, over)
        true = sequence_scores(corpus._replace(labels=exact), features, w)
        for i in range(3):
            tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
            want, labels = as_printed(node[tokens], table, active)
            np.testing.assert_allclose(score[i], want, rtol=1e-12, atol=1e-12)
            np.testing.assert_array_equal(path[tokens], labels)
        assert (score >= true - 1e-12).all()
        n_higher += (score > true + 1e-9).any()
    assert n_higher > 5


@pytest.mark.parametrize("eps", [0.0, 0.2, 0.6])
def test_method_2_gives_pairs_within_eps_of_1_the_potential_1(eps):
    n_left_out = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        corpus = random_corpus(rng, lengths=(5, 1, 4))
        features, w = random_model(rng, corpus, size=0.6)
        few = near_default(features, w, eps)
        table = log_edge(features, w, corpus.class_ptr, corpus.class_attr)[0]
        other = np.where(np.abs(np.exp(table) - 1.0) > eps, table, 0.0)
        node, want, path = brute_node_scores(corpus, features, w), 0.0, decode(corpus, features, few)
        for lo, hi in zip(corpus.seq_ptr[:-1], corpus.seq_ptr[1:], strict=True):
            chain = node[lo:hi], other[None], np.zeros(hi - lo, int)
            want -= brute.log_proba(*chain, corpus.labels[lo:hi])
            assert path[lo:hi].tolist() in brute.best_paths(*chain)[1].tolist()
            off = brute.log_z(*chain) - brute.log_z(node[lo:hi], table[None], chain[2])
            assert abs(off) <= -(hi - lo - 1) * np.log1p(-eps) + 1e-12
        for form in ("default", "sparse", "batched"):
            np.testing.assert_allclose(Objective(corpus, features, form=form)(few)[0], want, rtol=1e-12)
        n_left_out += np.count_nonzero(w) - np.count_nonzero(few)
    assert (n_left_out > 20) == (eps > 0)
    with pytest.raises(ValueError, match="eps: expected a finite number >= 0, got -1"):
        near_default(features, w, -1)


def test_the_new_attribute_is_at_all_tokens_but_the_first():
    corpus = random_corpus(np.random.default_rng(0), lengths=LENGTHS, valued=True)
    later = after_another(corpus)
    for t in range(corpus.n_tokens):
        old = slice(corpus.attr_ptr[t], corpus.attr_ptr[t + 1])
        new = slice(later.attr_ptr[t], later.attr_ptr[t + 1])
        more = [0] if t in corpus.inner else []
        assert later.attr_idx[new].tolist() == more + (corpus.attr_idx[old] + 1).tolist()
        assert later.attr_val[new].tolist() == [1.0] * len(more) + corpus.attr_val[old].tolist()
    assert later.attr_idx.dtype == np.int32 and after_another(later._replace(attr_val=np.zeros(0)))


def test_what_cannot_be_tied_is_refused():
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, n_classes=3)
    features, _ = random_model(rng, corpus)
    with pytest.raises(ValueError, match="expected plain transitions, .* got 3 edge classes"):
        tied_features(corpus, features)
    corpus = random_corpus(rng)
    with pytest.raises(ValueError, match="expected c2=0, .* got c2=1"):
        TiedObjective(Objective(corpus, random_model(rng, corpus)[0], c2=1.0))
    with pytest.raises(ValueError, match="least_count"):
        tied_features(corpus, random_model(rng, corpus)[0], np.nan)
