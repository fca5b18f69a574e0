"""The same objective as python-crfsuite: its trained weights, our value, to nine digits."""

import ctypes
import math
import struct

import numpy as np
import pytest
from helpers.corpora import random_corpus

from crfbook.chain import inference
from crfbook.chain.objective import Objective
from crfbook.data.features import observed
from crfbook.datasets import load_dataset
from crfbook.encoding import templates
from crfbook.encoding.encoder import Encoder
from crfbook.learners.online import online
from crfbook.learners.quasi_newton.lbfgs import minimize

pycrfsuite = pytest.importorskip("pycrfsuite", reason="extra `peers` is not installed")


def crfsuite_model(corpus, path, algorithm="lbfgs", **params):
    """Train; (tagger, {(attribute, label) or (label, label): weight}, loss that CRFsuite printed last).

    The weights are read from the model file, where they are doubles: `tagger.info()` rounds to six decimals.
    Its records stand in the order of ids, which CRFsuite gives to labels, and to attributes that it keeps,
    as they come.
    """
    trainer = pycrfsuite.Trainer(algorithm, verbose=False)
    for x, y in sentences(corpus):
        trainer.append(x, y)
    trainer.set_params(params)
    trainer.train(str(path))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    info = tagger.info()
    labels = list(dict.fromkeys(label for _, y in sentences(corpus) for label in y))
    kept = {attribute for attribute, _ in info.state_features}
    attributes = [
        a for a in dict.fromkeys(a for x, _ in sentences(corpus) for t in x for a in t) if a in kept
    ]
    raw = path.read_bytes()
    start = raw.index(b"FEAT")
    count = struct.unpack_from("<I", raw, start + 8)[0]
    state, transition = {}, {}
    for kind, source, target, weight in struct.iter_unpack(
        "<IIId", raw[start + 12 : start + 12 + 20 * count]
    ):
        if kind == 0:
            state[attributes[source], labels[target]] = weight
        else:
            transition[labels[source], labels[target]] = weight
    for exact, rounded in ((state, info.state_features), (transition, info.transitions)):
        assert exact.keys() == rounded.keys()
        assert all(abs(exact[key] - rounded[key]) < 1e-6 for key in exact), "the model file was read wrongly"
    return tagger, state, transition, trainer.logparser.last_iteration["loss"]


def sentences(corpus):
    """(attribute strings per token, labels) of each sequence."""
    for i in range(corpus.n_sequences):
        tokens = range(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
        yield (
            [[str(a) for a in corpus.attr_idx[corpus.attr_ptr[t] : corpus.attr_ptr[t + 1]]] for t in tokens],
            [str(corpus.labels[t]) for t in tokens],
        )


def in_our_order(features, state, transition):
    """CRFsuite's weights as a vector (F,); those that it pruned are 0."""
    w = np.zeros(features.n_features)
    for a in range(features.n_attrs):
        for k in range(features.node_ptr[a], features.node_ptr[a + 1]):
            w[k] = state.pop((str(a), str(features.node_label[k])), 0.0)
    for k in range(features.n_edge):
        w[features.n_node + k] = transition.pop((str(features.edge_prev[k]), str(features.edge_next[k])), 0.0)
    assert not state and not transition, "CRFsuite has weights that we do not"
    return w


def test_equal_weights_equal_objective(tmp_path):
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, lengths=tuple(rng.integers(1, 15, 300)), n_labels=5, n_attrs=200)
    features, c2 = observed(corpus, 5, 200), 0.5
    tagger, state, transition, loss = crfsuite_model(
        corpus, tmp_path / "m.crfsuite", c1=0.0, c2=c2, max_iterations=30
    )
    w = in_our_order(features, state, transition)
    value, _ = Objective(corpus, features, c2=c2)(w)
    assert value == pytest.approx(loss, rel=1e-9)  # printed with six decimals: 1.5e-10 of this value
    total = c2 * float(w @ w)  # CRFsuite's own inference, sequence by sequence
    log_proba = inference.log_proba(corpus, features, w)
    for (x, y), mine in zip(sentences(corpus), log_proba, strict=True):
        tagger.set(x)
        total -= math.log(tagger.probability(y))
        assert tagger.probability(y) == pytest.approx(math.exp(mine), rel=1e-9)
    assert value == pytest.approx(total, rel=1e-11)
    # Same best path, same marginals.
    path = [str(y) for y in inference.decode(corpus, features, w)]
    p_node = inference.node_marginals(corpus, features, w)
    for i, (x, _) in enumerate(sentences(corpus)):
        lo, hi = corpus.seq_ptr[i : i + 2]
        best = tagger.probability(tagger.tag(x))  # the path may differ where several are best
        assert tagger.probability(path[lo:hi]) == pytest.approx(best, rel=1e-9)
        theirs = [[tagger.marginal(str(y), t) for y in range(5)] for t in range(hi - lo)]
        np.testing.assert_allclose(p_node[lo:hi], theirs, rtol=1e-8, atol=1e-12)


def test_the_same_path_of_l_bfgs(tmp_path):
    """Objective and line-search trials of every iteration, as CRFsuite logs them: neither side is ahead."""
    train = load_dataset("conll2000", source="builtin").train.head(150)
    encoder = Encoder(templates.load("chunking"))
    corpus = encoder.fit_transform(train)
    features = observed(corpus, encoder.n_labels, encoder.n_attrs)
    trainer = pycrfsuite.Trainer(verbose=False)
    for x, y in sentences(corpus):
        trainer.append(x, y)
    trainer.set_params(
        {"c1": 0.0, "c2": 0.05, "num_memories": 6, "max_iterations": 50, "delta": 0.0, "epsilon": 0.0}
    )
    trainer.train(str(tmp_path / "m.crfsuite"))
    log = trainer.logparser.iterations
    ours = minimize(
        Objective(corpus, features, c2=0.05),
        np.zeros(features.n_features),
        c2=0.05,
        memory=6,
        tol=0.0,
        max_iterations=50,
    )
    assert len(log) == ours.n_iter == 50
    # printed with six decimals; rounding grows along the path
    np.testing.assert_allclose(
        [step.objective for step in ours.history], [step["loss"] for step in log], rtol=1e-6
    )
    assert ours.n_evaluations == 1 + sum(
        int(step["linesearch_trials"]) for step in log
    )  # they do not count w = 0


def crfsuite_orders(n, n_epochs, seed):
    """The orders in which CRFsuite visits n sequences: it swaps each with the rand() % n-th,
    epoch after epoch.
    """
    libc = ctypes.CDLL(None)
    libc.srand(seed)
    perm, orders = list(range(n)), []
    for _ in range(n_epochs):
        for i in range(n):
            j = libc.rand() % n
            perm[i], perm[j] = perm[j], perm[i]
        orders.append(np.array(perm))
    libc.srand(seed)  # for CRFsuite, which calls the same rand()
    return orders


@pytest.mark.parametrize(
    "algorithm, learner, params",
    [
        ("ap", online.perceptron, {}),
        ("pa", online.passive_aggressive, {"type": 0}),
        ("pa", online.passive_aggressive, {"type": 1, "c": 0.05}),
        (
            "pa",
            online.passive_aggressive,
            {"type": 2, "c": 0.1, "averaging": False, "error_sensitive": False},
        ),
        ("arow", online.arow, {"variance": 0.5, "gamma": 2.0}),
    ],
)
def test_the_same_steps_online(tmp_path, monkeypatch, algorithm, learner, params):
    """In CRFsuite's order of the sequences, its weights after six epochs,
    and the loss it prints for the last of them.
    """
    if not hasattr(ctypes.CDLL(None), "rand"):
        pytest.skip("no rand() to share with CRFsuite")
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, lengths=tuple(rng.integers(1, 9, 80)), n_labels=4, n_attrs=60)
    first = {
        y: i for i, y in enumerate(dict.fromkeys(corpus.labels.tolist()))
    }  # CRFsuite numbers labels as they come: ties
    corpus.labels[:] = [first[y] for y in corpus.labels.tolist()]
    features, n_epochs = observed(corpus, 4, 60), 6
    orders = crfsuite_orders(corpus.n_sequences, n_epochs, seed=7)
    monkeypatch.setattr(online, "epoch_order", lambda seed, epoch, n: orders[epoch])
    _, state, transition, loss = crfsuite_model(
        corpus, tmp_path / "m.crfsuite", algorithm, max_iterations=n_epochs, **params
    )
    ours = learner(
        corpus,
        features,
        max_iterations=n_epochs,
        **{{"type": "pa_type"}.get(k, k): v for k, v in params.items()},
    )
    np.testing.assert_allclose(ours.w, in_our_order(features, state, transition), rtol=0, atol=1e-9)
    assert ours.history[-1].violation * corpus.n_sequences == pytest.approx(
        loss, abs=1e-5
    )  # printed with six decimals
    other = learner(corpus, features, max_iterations=n_epochs, random_state=1, shuffle=False)
    assert np.abs(other.w - ours.w).max() > 1e-3, "the order did not matter, so nothing was compared"
