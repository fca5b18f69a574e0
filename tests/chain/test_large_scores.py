"""Scores so large that float64 has no digits left for probabilities: what is known, and what is refused."""

import numpy as np
import pytest
from helpers.chains import random_chain
from helpers.dynamic import dynamic_problem
from helpers.problems import problem

from crfbook import brute
from crfbook.chain import inference
from crfbook.chain.numpy_form import LARGE, LogChain
from crfbook.chain.objective import Objective
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus
from crfbook.data.features import observed
from crfbook.decoding import kbest
from crfbook.dynamic.inference import DynamicModel, marginals

pytestmark = pytest.mark.kernels
FORMS = ["numpy", "batched", "sparse", "default"]


@pytest.mark.parametrize("forbidden", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(20))
def test_a_log_chain_equals_enumeration(seed, forbidden):
    rng = np.random.default_rng(seed)
    chain = random_chain(rng, 4, 3, n_classes=2, forbidden=forbidden)
    if brute.log_z(*chain) == -np.inf:
        assert LogChain(*chain).log_z == -np.inf and not LogChain(*chain).p_node.any()
        return
    found = LogChain(*chain)
    assert found.log_z == pytest.approx(brute.log_z(*chain), rel=1e-13)
    np.testing.assert_allclose(found.p_node, brute.node_marginals(*chain), atol=1e-13)
    np.testing.assert_allclose(found.p_edge()[1:], brute.edge_marginals(*chain)[1:], atol=1e-13)
    paths, p = brute.path_probabilities(*chain)
    for path, share in zip(paths, p, strict=True):
        assert np.exp(found.log_proba(path)) == pytest.approx(share, abs=1e-13)
        inside = (paths[:, 1:3] == path[1:3]).all(axis=1)
        assert np.exp(found.log_proba(path[1:3], 1)) == pytest.approx(p[inside].sum(), abs=1e-13)
        among = np.isin(paths[:, 1], [0, 2]) & (paths[:, 2] == path[2])
        assert np.exp(found.log_proba([[0, 2], path[2]], 1)) == pytest.approx(p[among].sum(), abs=1e-13)


def chain_of(w_first, w_edge=(0.0, 0.0, 0.0, 0.0), n_tokens=3):
    """(corpus, features, w): a sequence, an attribute, two labels; its weights, and those of transitions."""
    corpus = make_corpus(
        [0, n_tokens], range(n_tokens + 1), [0] * n_tokens, labels=[0, 1] + [0] * (n_tokens - 2)
    )
    features = observed(corpus, 2, 1, all_states=True, all_transitions=True)
    return corpus, features, np.array([*w_first, *w_edge])


@pytest.mark.parametrize("size", [1e9, 1e14, 1e16, 1e18, 1e100])
def test_a_common_offset_costs_no_digit(size):
    """Both labels get the same from the attribute: what the transitions say stays as it is."""
    edges = 0.5, -1.0, 2.0, 0.25
    want = inference.node_marginals(*chain_of((0.0, 0.0), edges))
    for form in FORMS:
        np.testing.assert_allclose(inference.node_marginals(*chain_of((size, size), edges), form=form), want)
    log_p = inference.log_proba(*chain_of((size, size), edges))
    assert log_p == pytest.approx(inference.log_proba(*chain_of((0.0, 0.0), edges)), rel=1e-12)


@pytest.mark.parametrize("size", [1e9, 1e16, 1e100])
def test_one_label_far_above_the_other(size):
    for form in FORMS:
        p = inference.node_marginals(*chain_of((size, 0.0)), form=form)
        np.testing.assert_array_equal(p, [[1.0, 0.0]] * 3)
    assert inference.log_proba(*chain_of((size, 0.0)))[0] == pytest.approx(
        -size, rel=1e-12
    )  # its second label is the other one
    p_edge = next(inference.iter_edge_marginals(*chain_of((size, 0.0))))
    np.testing.assert_array_equal(p_edge, [[[1.0, 0.0], [0.0, 0.0]]] * 2)


@pytest.mark.parametrize("size", [1e10, 1e16, 1e100])
def test_differences_that_rounding_hides_are_refused_by_all_forms(size):
    """Two attributes take 3 nats from each other that are below the rounding of their sum."""
    corpus = make_corpus([0, 1], [0, 3], [0, 1, 2], labels=[0])
    features = observed(corpus, 2, 3, all_states=True)
    w = np.array([size / 3, 0.0, -size / 3, 0.0, 3.0, 1.0])
    for form in FORMS:
        with pytest.raises(
            ValueError, match="^sequence 0: expected scores whose differences float64 knows, got"
        ):
            inference.node_marginals(corpus, features, w, form=form)
    with pytest.raises(ValueError, match="float64 knows"):
        inference.log_proba(corpus, features, w)
    with pytest.raises(ValueError, match="float64 knows"):
        inference.span_log_proba(corpus, features, w, [(0, 0, [1])])
    assert np.isfinite(inference.log_partition(corpus, features, w)).all()


def test_the_best_labellings_are_not_chosen_by_what_their_sums_have_lost():
    """Both labels get 1e17 at the first token: beside it the transitions count for nothing in float64."""
    corpus, features, w = chain_of((1e17, 1e17), (0.0, 1.0, 2.0, 3.0), n_tokens=2)
    with pytest.raises(ValueError, match="^sequence 0: .* log probabilities may be off by .* nats"):
        kbest(corpus, features, w, k=1)
    corpus, features, w = chain_of((1e17, 0.0), (0.0, 1.0, 2.0, 3.0), n_tokens=2)
    best = kbest(corpus, features, w, k=1)
    assert best.path[:, 0].tolist() == [0, 0] and best.log_proba[0, 0] == 0.0


@pytest.mark.parametrize("large, less", [(1e20, 1e8 + 5000.0), (1e18, 1e9)])
def test_an_improbable_label_of_attributes_that_cancel(large, less):
    """Its score is off by the rounding of attributes that both labels have, and that cancel."""
    corpus = make_corpus([0, 1], [0, 3], [0, 1, 2], labels=[1])
    features = observed(corpus, 2, 3, all_states=True)
    w = np.array([large, large, less, 0.0, -large, -large])
    with pytest.raises(ValueError, match="float64 knows"):
        inference.log_proba(corpus, features, w)


@pytest.mark.parametrize("soft", [-1e9, -1e30, -1e100])
def test_a_weight_that_as_good_as_forbids_costs_the_others_nothing(soft):
    """Who has no constraints writes -1e9."""
    edges = np.array([0.5, soft, 2.0, 0.25])
    corpus, features, w = chain_of((0.3, -0.2), edges)
    corpus = corpus._replace(labels=np.zeros(3, np.int32))
    hard = Constraints(np.array([[True, False], [True, True]]), np.ones(2, bool), np.ones(2, bool))
    want = inference.node_marginals(corpus, features, np.where(w == soft, 0.0, w), hard)
    for form in FORMS:
        np.testing.assert_allclose(inference.node_marginals(corpus, features, w, form=form), want, atol=1e-7)


def test_large_values_that_meet_small_weights_are_no_large_scores():
    corpus, features, w, _ = problem(1, valued=True)
    corpus = corpus._replace(attr_val=corpus.attr_val * 1e9)
    w[: features.n_node] *= 1e-9
    w[features.n_node - 1] = 5.0  # of an attribute whose values are small
    corpus.attr_val[corpus.attr_idx == features.n_attrs - 1] = 1.0
    assert np.abs(w).max() * np.abs(corpus.attr_val).max() > LARGE
    assert inference.large_sequences(corpus, features, w) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1e14, 1e16, 1e18, 1e100])
def test_training_sees_finite_gradients_of_counts(form, size):
    """A form may be wrong there, but rows sum to one: a gradient is at most the count of its attribute."""
    corpus, features, w, _ = problem(2)
    value, grad = Objective(corpus, features, form=form)(w * size)
    counts = np.bincount(corpus.attr_idx, minlength=features.n_attrs)[features.node_attr]
    assert np.isfinite(grad).all() and (np.abs(grad[: features.n_node]) <= counts + 1e-6).all()


@pytest.mark.parametrize("engine", ["elimination", "junction", "block", "mean-field", "tree", "sync"])
def test_a_dynamic_crf_refuses_what_it_cannot_tell(engine):
    corpus, _, layout, features, w = dynamic_problem("two chains")
    model = DynamicModel(layout, features, w, engine)
    assert np.isfinite(marginals(corpus, model)[0]).all()
    for size in (1e9, 1e17):
        with pytest.raises(ValueError, match=r"^sequence 0: expected scores of at most 1e\+08 nats"):
            marginals(corpus, model._replace(w=w * size))
    for size in (1e3, 1e5):
        assert np.isfinite(marginals(corpus, model._replace(w=w * size))[0]).all()
