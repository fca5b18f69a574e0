"""The pseudo-likelihood: its definition token by token, its gradient, and where it is the likelihood."""

import numpy as np
import pytest
from helpers.corpora import brute_node_scores, brute_value, random_corpus, random_model
from helpers.problems import CASES, case, central_differences

from crfbook.chain.active import PseudoLikelihood
from crfbook.chain.objective import Objective
from crfbook.data.constraints import Constraints
from crfbook.data.features import log_edge
from crfbook.learners.quasi_newton import minimize

PLAIN = [name for name, kind in CASES.items() if "n_classes" not in kind]


def by_definition(corpus, features, w, c2):
    """-log p(y_t | y_(t-1), y_(t+1), x) of every token, loop by loop."""
    node = brute_node_scores(corpus, features, w)
    table, value = log_edge(features, w, corpus.class_ptr, corpus.class_attr)[0], c2 * w @ w
    for i in range(corpus.n_sequences):
        lo, hi = corpus.seq_ptr[i : i + 2]
        for t in range(lo, hi):
            score = node[t].copy()
            if t > lo:
                score += table[corpus.labels[t - 1]]
            if t < hi - 1:
                score += table[:, corpus.labels[t + 1]]
            value -= corpus.weights[i] * (score[corpus.labels[t]] - np.log(np.exp(score).sum()))
    return value


@pytest.mark.parametrize("name", PLAIN)
def test_it_is_the_definition(name):
    for seed in range(3):
        corpus, features, w = case(name, seed)
        value = PseudoLikelihood(corpus, features, c2=0.2)(w)[0]
        np.testing.assert_allclose(value, by_definition(corpus, features, w, 0.2), rtol=1e-12)


@pytest.mark.parametrize("name", PLAIN)
def test_the_gradient_is_that_of_finite_differences(name):
    corpus, features, w = case(name, 1)
    pseudo = PseudoLikelihood(corpus, features, c2=0.2)
    want = central_differences(lambda w: pseudo(w)[0], w)
    np.testing.assert_allclose(pseudo(w)[1], want, rtol=1e-7, atol=1e-7)


def test_weights_whose_square_overflows_have_a_value_without_a_penalty():
    corpus, features, w = case("plain", 1)
    pseudo = PseudoLikelihood(corpus, features)
    np.testing.assert_allclose(pseudo(1e200 * w)[0], 1e100 * pseudo(1e100 * w)[0], rtol=1e-9)


def test_of_single_tokens_it_is_the_likelihood():
    rng = np.random.default_rng(2)
    corpus = random_corpus(rng, lengths=(1, 0, 1, 1, 1), n_labels=4)
    features, w = random_model(rng, corpus, 4, all_transitions=True)
    value, grad = PseudoLikelihood(corpus, features, c2=0.1)(w)
    np.testing.assert_allclose(value, brute_value(corpus, features, w, 0.1), rtol=1e-12)
    np.testing.assert_allclose(grad, Objective(corpus, features, c2=0.1)(w)[1], rtol=1e-10, atol=1e-12)


def test_a_few_iterations_lead_near_the_maximum_of_the_likelihood():
    corpus, features, _ = case("weights", 3)
    likelihood, zeros = Objective(corpus, features, c2=0.5), np.zeros(features.n_features)
    start = minimize(PseudoLikelihood(corpus, features, c2=0.5), zeros, c2=0.5, max_iterations=30).w
    best = minimize(likelihood, zeros, c2=0.5).objective
    assert likelihood(start)[0] - best < 0.3 * (likelihood(zeros)[0] - best)


def test_what_it_cannot_do_is_refused():
    corpus, features, _ = case("classes")
    with pytest.raises(ValueError, match="expected plain transitions, .* got 3 edge classes"):
        PseudoLikelihood(corpus, features)
    corpus, features, w = case("plain")
    everything = Constraints(np.ones((3, 3), bool), *np.ones((2, 3), bool))
    with pytest.raises(ValueError, match="expected no constraints"):
        PseudoLikelihood(corpus, features, constraints=everything)
    with pytest.raises(ValueError, match="expected no constraints"):
        PseudoLikelihood(corpus._replace(label_set=np.zeros(corpus.n_tokens, np.int32)), features)
    unknown = corpus._replace(labels=np.where(np.arange(corpus.n_tokens) == 3, -1, corpus.labels))
    with pytest.raises(ValueError, match="sequence 2, token 0: expected a label"):
        PseudoLikelihood(unknown.__class__(*unknown), features)
    with pytest.raises(ValueError, match=r"weights: expected shape"):
        PseudoLikelihood(corpus, features)(w[1:])
