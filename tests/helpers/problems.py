"""Small problems that several test files solve, and the plainest way to check an answer."""

import numpy as np
from helpers.corpora import random_corpus, random_model

from crfbook.chain import token_layout
from crfbook.chain.objective import Objective
from crfbook.chain.token_layout import lay_out_online, sequence_work
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus, take_sequences
from crfbook.data.features import observed
from crfbook.learners.coordinate.arrays import ModelSizes, Sparse
from crfbook.learners.coordinate.sweeps import Sweeper

LENGTHS = (3, 0, 1, 4, 2, 6, 5, 3, 2)  # long enough for some attributes to get a dense row (8 occurrences)
KINDS = [{}, {"n_classes": 3}, {"valued": True, "weighted": True, "n_classes": 2}]
CASES = {
    "plain": {},
    "classes": {"n_classes": 3},
    "values": {"valued": True},
    "weights": {"weighted": True},
    "everything": {"n_classes": 2, "valued": True, "weighted": True},
    "two labels": {"n_labels": 2},
    "five labels": {"n_labels": 5, "lengths": (2, 0, 3, 1)},
    "one label": {"n_labels": 1},
}
C1, C2 = 0.3, 0.05


def problem(seed=0, constrained=False, lengths=LENGTHS, **kind):
    """(corpus, features, w, constraints) with attributes repeated inside tokens, dense rows and lists."""
    rng = np.random.default_rng(seed)
    corpus = random_corpus(rng, lengths=lengths, n_attrs=9, **kind)
    features, w = random_model(rng, corpus, n_attrs=9)
    constraints = None
    if constrained:  # everything that occurs is allowed, and little else
        allowed, start, end = np.zeros((3, 3), bool), np.zeros(3, bool), np.zeros(3, bool)
        for first, last in zip(corpus.seq_ptr[:-1], corpus.seq_ptr[1:], strict=True):
            y = corpus.labels[first:last]
            if len(y):
                start[y[0]] = end[y[-1]] = True
                allowed[y[:-1], y[1:]] = True
        # Every third token may have its label and the next one only.
        sets = np.vstack(
            [np.ones(3, bool), np.eye(3, dtype=bool) | np.roll(np.eye(3, dtype=bool), 1, axis=1)]
        )
        label_set = np.where(np.arange(corpus.n_tokens) % 3 == 0, 1 + corpus.labels, 0).astype(np.int32)
        corpus, constraints = corpus._replace(label_set=label_set), Constraints(allowed, start, end, sets)
    return corpus, features, w, constraints


def loss_of(corpus, features, i, constraints=None):
    """w -> (loss, gradient) of sequence i alone, its weight included."""
    return Objective(take_sequences(corpus, [i]), features, constraints=constraints)


def laid_out(corpus, features, constraints=None):
    layout, cells = lay_out_online(corpus, features, constraints)
    return layout, cells, sequence_work(corpus, layout.exists.shape[1])


def separable():
    """(corpus, features): the label is the attribute."""
    corpus = random_corpus(np.random.default_rng(0), lengths=(4,) * 10, n_attrs=9)
    corpus = corpus._replace(attr_idx=np.repeat(corpus.labels, np.diff(corpus.attr_ptr)))
    return corpus, observed(corpus, 3, 3)


def case(name, seed=0, size=1.0, **options):
    rng = np.random.default_rng(seed)
    settings = CASES[name]
    corpus = random_corpus(rng, **settings)
    features, w = random_model(rng, corpus, settings.get("n_labels", 3), size=size, **options)
    return corpus, features, w


def central_differences(function, w, step=1e-5):
    grad = np.empty(len(w))
    for k in range(len(w)):
        up, down = w.copy(), w.copy()
        up[k] += step
        down[k] -= step
        grad[k] = (function(up) - function(down)) / (2 * step)
    return grad


def constraints_for(corpus, n_labels=3):
    """Forbid what the labels of the corpus do not do: some transition, a first label, a last label."""
    tables = Constraints(
        np.zeros((n_labels, n_labels), bool), np.zeros(n_labels, bool), np.zeros(n_labels, bool)
    )
    for i in range(corpus.n_sequences):
        y = corpus.labels[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]]
        if len(y):
            tables.start[y[0]] = tables.end[y[-1]] = True
            tables.allowed[y[:-1], y[1:]] = True
    return tables


def kkt(fun, w, c1):
    """The largest violation of: g = -c1 sign(w) where w is not zero, |g| <= c1 where it is.
    Written apart from the kernels.
    """
    grad = fun(w)[1]
    return np.where(w != 0, np.abs(grad + c1 * np.sign(w)), np.maximum(np.abs(grad) - c1, 0.0)).max()


def symbols(seed=0, lengths=LENGTHS, n_symbols=3, n_labels=3, constant=True):
    """One symbol a token, as a node and as an edge attribute: blocks of both; `constant`:
    plain transitions too.
    """
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    x = rng.integers(0, n_symbols, n)
    labels = np.where(rng.random(n) < 0.6, x % n_labels, rng.integers(0, n_labels, n))
    classes = [[0, s + 1] if constant else [s + 1] for s in range(n_symbols)]
    corpus = make_corpus(
        np.cumsum([0, *lengths]),
        np.arange(n + 1),
        x,
        labels=labels,
        edge_class=x,
        class_ptr=np.cumsum([0, *map(len, classes)]),
        class_attr=np.concatenate(classes),
    )
    return corpus, observed(corpus, n_labels, n_symbols, n_symbols + 1, all_states=True, all_transitions=True)


def run_of(corpus, features, w=None, constraints=None, c1=C1, c2=C2, **options):
    run = Sweeper(
        corpus, features, ModelSizes(features.n_labels, features.n_attrs, features.n_edge_attrs), constraints
    )
    run.set_rule(c1, c2, **options)
    if w is not None:
        run.load(Sparse(features, w))
    run.renew()
    return run


def on_both(monkeypatch, learn):
    """What learn() finds on tables, and what it finds on lists of weights."""
    found = []
    for many in (10**9, 0):
        monkeypatch.setattr(token_layout, "MANY_LABELS", many)
        monkeypatch.setattr(token_layout, "FEW_PAIRS", 1.0)
        found.append(learn())
    return found


def dense_weights(features, w):
    """mu (A, L) and nu (B, L, L) of the flat weights w (F,); 0 where there is no feature."""
    n_labels, n_attrs, n_edge_attrs = features.sizes
    mu, nu = np.zeros((n_attrs, n_labels)), np.zeros((n_edge_attrs, n_labels, n_labels))
    mu[features.node_attr, features.node_label] = w[: features.n_node]
    nu[features.edge_attr, features.edge_prev, features.edge_next] = w[features.n_node :]
    return mu, nu
