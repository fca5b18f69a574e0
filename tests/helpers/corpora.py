"""Small random corpora and their quantities by enumeration, for the tests of scores,
objective and inference.
"""

import numpy as np

from crfbook import brute
from crfbook.data.corpus import make_corpus
from crfbook.data.features import log_edge, observed


def random_corpus(
    rng, lengths=(3, 0, 1, 4, 2), n_labels=3, n_attrs=7, n_classes=1, valued=False, weighted=False
):
    """Attributes repeat within a token now and then; values are negative now and then."""
    n = sum(lengths)
    sizes = rng.integers(0, 5, n)
    nnz = int(sizes.sum())
    edges = {}
    if n_classes > 1:  # class k has the constant edge attribute and k more
        edges = {
            "edge_class": rng.integers(0, n_classes, n),
            "class_ptr": np.concatenate([[0], np.cumsum(1 + np.arange(n_classes))]),
            "class_attr": np.concatenate([np.arange(k + 1) for k in range(n_classes)]),
        }
    return make_corpus(
        np.cumsum([0, *lengths]), np.cumsum([0, *sizes]),
        rng.integers(0, n_attrs, nnz), labels=rng.integers(0, n_labels, n),
        attr_val=rng.normal(size=nnz) if valued else None,
        seq_weight=rng.random(len(lengths)) * 2 if weighted else None, **edges,
    )  # fmt: skip


def random_model(rng, corpus, n_labels=3, n_attrs=7, size=1.0, **options):
    """(features, w): what is observed, with Gaussian weights."""
    features = observed(corpus, n_labels, n_attrs, int(corpus.class_attr.max()) + 1, **options)
    return features, rng.normal(0.0, size, features.n_features)


def brute_node_scores(corpus, features, w):
    """log_node (N, L), loop by loop."""
    out = np.zeros((corpus.n_tokens, features.n_labels))
    for t in range(corpus.n_tokens):
        for i in range(corpus.attr_ptr[t], corpus.attr_ptr[t + 1]):
            a = corpus.attr_idx[i]
            for k in range(features.node_ptr[a], features.node_ptr[a + 1]):
                out[t, features.node_label[k]] += w[k] * (corpus.attr_val[i] if len(corpus.attr_val) else 1.0)
    return out


def chains_of(corpus, features, w, constraints=None):
    """(log_node, log_edge, edge_class) of every sequence, hard constraints applied."""
    node, edge = (
        brute_node_scores(corpus, features, w),
        log_edge(features, w, corpus.class_ptr, corpus.class_attr),
    )
    if constraints is not None:
        edge[:, ~constraints.allowed] = -np.inf
    for i in range(corpus.n_sequences):
        tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
        u = node[tokens].copy()
        if constraints is not None and len(u):
            u[0, ~constraints.start] = -np.inf
            u[-1, ~constraints.end] = -np.inf
        yield u, edge, corpus.edge_class[tokens]


def brute_value(corpus, features, w, c2=0.0, constraints=None):
    """Penalised negative log-likelihood by enumeration of all paths."""
    weight = corpus.seq_weight if len(corpus.seq_weight) else np.ones(corpus.n_sequences)
    total = c2 * float(w @ w) if c2 else 0.0
    for i, chain in enumerate(chains_of(corpus, features, w, constraints)):
        if len(chain[0]):
            labels = corpus.labels[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]]
            total -= weight[i] * brute.log_proba(*chain, labels)
    return total


def held_bytes(*things):
    """Bytes of arrays, and of those in tuples of arrays."""
    return sum(thing.nbytes if isinstance(thing, np.ndarray) else held_bytes(*thing) for thing in things)
