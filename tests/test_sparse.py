"""Sparse forward-backward, Viterbi and objective against enumeration and against the dense forms; products counted."""

import numpy as np
import pytest
from random_corpora import brute_value, chains_of, random_corpus, random_model
from test_objective import constraints_for

from crfbook import brute
from crfbook.data.features import log_edge, select
from crfbook.models import inference
from crfbook.models.sparse import sparsify
from crfbook.optim.objective import Objective
from crfbook.optim.sparse_chain import sparse_edges, sparse_scores

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
KINDS = ("plain", "no base", "constrained", "weighted", "wide", "extreme")


def case(kind, seed, lengths=(3, 0, 1, 4, 2, 5), n_labels=3, n_classes=4):
    """(corpus, features, w, constraints): several edge attributes a token, about half of the edge weights 0."""
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, lengths, n_labels, 7, n_classes, valued=seed % 2 == 1, weighted=kind == "weighted")
    features, w = random_model(rng, corpus, n_labels, 7, all_transitions=seed % 3 > 0)
    edge = w[features.n_node:]
    edge[rng.random(len(edge)) < rng.random()] = 0.0
    edge *= {"wide": 40.0, "extreme": 1000.0}.get(kind, 1.0)
    if kind == "no base":
        edge[:features.edge_ptr[1]] = 0.0
    return corpus, features, w, constraints_for(corpus, n_labels) if kind == "constrained" else None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_value_is_that_of_enumeration_and_gradient_that_of_tables(kind, seed):
    corpus, features, w, constraints = case(kind, seed)
    sparse = Objective(corpus, features, c2=0.3, constraints=constraints, form="sparse")
    value, grad = sparse(w)
    np.testing.assert_allclose(value, brute_value(corpus, features, w, 0.3, constraints), **CLOSE)
    _, wanted = Objective(corpus, features, c2=0.3, constraints=constraints, form="batched")(w)
    np.testing.assert_allclose(grad, wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_marginals_are_those_of_enumeration(kind, seed):
    corpus, features, w, constraints = case(kind, seed)
    found = inference.node_marginals(corpus, features, w, constraints, form="sparse")
    log_z = inference.log_partition(corpus, features, w, constraints, form="sparse")
    for i, chain in enumerate(chains_of(corpus, features, w, constraints)):
        tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
        if len(chain[0]):
            np.testing.assert_allclose(found[tokens], brute.node_marginals(*chain), **CLOSE)
            np.testing.assert_allclose(log_z[i], brute.log_z(*chain), **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_the_best_path_is_that_of_the_dense_form(kind, seed):
    corpus, features, w, constraints = case(kind, seed, lengths=(3, 0, 1, 4, 2, 30), n_labels=5)
    dense, sparse = (inference.decode(corpus, features, w, constraints, form=form) for form in ("dense", "sparse"))
    np.testing.assert_array_equal(sparse, dense)
