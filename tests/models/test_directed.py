"""HMM and MEMM against their definitions: joint probabilities listed one by one, counts by hand,
label bias.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from crfbook.chain.sequence import feature_matrix
from crfbook.data.corpus import make_corpus, offsets
from crfbook.data.features import log_edge, observed
from crfbook.models.crf import CRF
from crfbook.models.directed import (
    HMM,
    MEMM,
    LocalObjective,
    emission_scores,
    local_loss_plain,
    move_normalisers,
)

X = [
    [["the"], ["dog"], ["runs"]],
    [["a"], ["dog"]],
    [["the"], ["cat"], ["sees"], ["the"], ["mouse"]],
    [],
    [["run"]],
]
Y = [["D", "N", "V"], ["D", "N"], ["D", "N", "V", "D", "N"], [], ["V"]]


def random_corpus(seed, n_sequences=12, n_labels=3, n_attrs=7, n_classes=2, values=True):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, n_sequences)
    n = int(lengths.sum())
    sizes = rng.integers(0, 4, n)
    labels = rng.integers(0, n_labels, n)
    labels[: min(n, n_labels)] = np.arange(min(n, n_labels))
    return make_corpus(
        offsets(lengths), offsets(sizes), rng.integers(0, n_attrs, sizes.sum()),
        attr_val=rng.exponential(1.0, sizes.sum()) if values else None, labels=labels,
        edge_class=rng.integers(0, n_classes, n), class_ptr=offsets([1] + [2] * (n_classes - 1)),
        class_attr=[0] + [x for k in range(1, n_classes) for x in (0, k)],
        seq_weight=rng.uniform(0.5, 2.0, n_sequences),
    )  # fmt: skip


def sequences(corpus):
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(corpus.seq_ptr)]


def local_log_proba(node, edges, classes, path):
    """log p(y | x) of a MEMM from its definition; node (T, L), edges (K, L, L)."""
    total = 0.0
    for t, y in enumerate(path):
        scores = node[t] if t == 0 else node[t] + edges[classes[t], path[t - 1]]
        total += scores[y] - math.log(sum(math.exp(v) for v in scores))
    return total


def tokens_scores(corpus, features, w, t):
    scores = np.zeros(features.n_labels)
    for i in range(corpus.attr_ptr[t], corpus.attr_ptr[t + 1]):
        for k in range(features.node_ptr[corpus.attr_idx[i]], features.node_ptr[corpus.attr_idx[i] + 1]):
            scores[features.node_label[k]] += w[k] * (corpus.attr_val[i] if len(corpus.attr_val) else 1.0)
    return scores


def tables(corpus, features, w):
    node = np.array([tokens_scores(corpus, features, w, t) for t in range(corpus.n_tokens)]).reshape(
        -1, features.n_labels
    )
    return node, log_edge(features, w, corpus.class_ptr, corpus.class_attr)


# ---- MEMM


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("all_states", [False, True])
def test_local_objective_is_the_definition(seed, all_states):
    corpus = random_corpus(seed, values=seed % 2 == 0)
    features = observed(corpus, 3, 7, 2, all_states=all_states, all_transitions=all_states)
    objective = LocalObjective(corpus, features, c2=0.3)
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(features.n_features)
    node, edges = tables(corpus, features, w)
    expected = 0.3 * w @ w
    for s, weight in zip(sequences(corpus), corpus.seq_weight, strict=True):
        expected -= weight * local_log_proba(node[s], edges, corpus.edge_class[s], corpus.labels[s])
    assert objective(w)[0] == pytest.approx(expected, rel=1e-12)
    for point in (w, np.zeros_like(w)):
        error = check_grad(lambda v: objective(v)[0], lambda v: objective(v)[1], point, epsilon=1e-6)
        assert error < 1e-4
    assert objective(w)[1].tolist() == LocalObjective(corpus, features, c2=0.3, n_threads=2)(w)[1].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_the_readable_sister_has_the_same_loss_and_gradient(seed):
    corpus = random_corpus(seed, values=seed % 2 == 0)
    features = observed(corpus, 3, 7, 2)
    w = np.random.default_rng(seed).standard_normal(features.n_features)
    value, grad = 0.0, np.zeros_like(w)
    for s in corpus.visited:
        X, _ = feature_matrix(s, corpus, features)
        loss, slope = local_loss_plain(X @ w, corpus.labels[slice(*corpus.seq_ptr[s : s + 2])], 3)
        value, grad = value + corpus.weights[s] * loss, grad + corpus.weights[s] * (X.T @ slope)
    found = LocalObjective(corpus, features)(w)
    assert found[0] == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(found[1], grad, rtol=0, atol=1e-11)


def test_moved_normalisers_leave_every_probability():
    corpus = random_corpus(5, values=False)
    features = observed(corpus, 3, 7, 2, all_states=True, all_transitions=True)
    w = np.random.default_rng(5).standard_normal(features.n_features) * 3
    node, edges = tables(corpus, features, w)
    moved = node.copy()
    move_normalisers(moved, edges, corpus.edge_class, corpus.seq_ptr)
    for s in sequences(corpus):
        classes, total = corpus.edge_class[s], 0.0
        for path in itertools.product(range(3), repeat=s.stop - s.start):
            score = sum(
                moved[s][t, y] + (edges[classes[t], path[t - 1], y] if t else 0.0) for t, y in enumerate(path)
            )
            assert score == pytest.approx(local_log_proba(node[s], edges, classes, path), abs=1e-12)
            total += math.exp(score)
        assert total == pytest.approx(1.0)


def test_memm_predictions_by_enumeration():
    corpus = random_corpus(6, n_sequences=15)
    model = MEMM(c2=0.1).fit(corpus)
    node, edges = tables(corpus, model.features_, model.weights_)
    found, p_node, p_edge = (
        model.predict_array(corpus),
        model.predict_marginals_array(corpus),
        model.predict_edge_marginals(corpus),
    )
    log_proba = model.log_proba(corpus)
    for i, (s, pair) in enumerate(zip(sequences(corpus), p_edge, strict=True)):
        n = s.stop - s.start
        paths = list(itertools.product(range(3), repeat=n))
        logs = [local_log_proba(node[s], edges, corpus.edge_class[s], path) for path in paths]
        expected, expected_pair = np.zeros((n, 3)), np.zeros((max(n - 1, 0), 3, 3))
        for path, log_p in zip(paths, logs, strict=True):
            for t, y in enumerate(path):
                expected[t, y] += math.exp(log_p)
                if t:
                    expected_pair[t - 1, path[t - 1], y] += math.exp(log_p)
        np.testing.assert_allclose(p_node[i], expected, atol=1e-12)
        np.testing.assert_allclose(pair, expected_pair, atol=1e-12)
        assert logs[paths.index(tuple(found[i]))] == pytest.approx(max(logs), abs=1e-12)
        assert log_proba[i] == pytest.approx(logs[paths.index(tuple(corpus.labels[s]))], abs=1e-12)


def test_one_token_sequences_make_memm_and_crf_the_same():
    corpus = random_corpus(7, n_classes=1)
    single = make_corpus(
        np.arange(corpus.n_tokens + 1),
        corpus.attr_ptr,
        corpus.attr_idx,
        attr_val=corpus.attr_val,
        labels=corpus.labels,
    )
    memm, crf = MEMM(c2=0.5, tol=1e-10).fit(single), CRF(c2=0.5, tol=1e-10).fit(single)
    assert memm.objective_ == pytest.approx(crf.objective_, rel=1e-9)
    np.testing.assert_allclose(memm.weights_, crf.weights_, atol=1e-4)


# ---- label bias


def test_label_bias_machine():
    """rib and rob: states 1, 2 after r, 4, 5 after o or i. State 1 has one successor,
    so a MEMM ignores what it sees there.
    """
    words = {"rib": ["1", "2", "3"], "rob": ["4", "5", "3"]}
    counts = {"rib": 3, "rob": 1}
    x = [[[letter] for letter in word] for word, n in counts.items() for _ in range(n)]
    y = [states for word, states in words.items() for _ in range(counts[word])]
    names = sorted({state for states in y for state in states})
    seen = {pair for states in y for pair in itertools.pairwise(states)} | {("3", "3")}
    allowed = np.array([[(a, b) in seen for b in names] for a in names])
    memm, crf = MEMM(c2=1e-4, constraints=allowed).fit(x, y), CRF(c2=1e-4, constraints=allowed).fit(x, y)
    rib, rob = ([[letter] for letter in word] for word in words)
    # after r both can only guess; the MEMM has no way to take its guess back
    for word in (rib, rob):
        p = np.exp(memm.log_proba([word, word], list(words.values())))
        np.testing.assert_allclose(p, [0.75, 0.25], atol=0.01)
        pair = next(iter(memm.predict_edge_marginals([word])))[0]
        row = pair[names.index("1")]
        assert row[names.index("2")] == pytest.approx(row.sum())  # one successor: whatever the letter
    assert memm.predict([rob]) == [words["rib"]] and crf.predict([rob]) == [words["rob"]]
    assert np.exp(crf.log_proba([rib, rob], list(words.values()))).min() > 0.98
    assert HMM().fit(x, y).predict([rob]) == [words["rob"]]
    # with no constraints the letter's own weight, learnt at state 4, helps out: p is neither right nor the
    # prior
    free = np.exp(MEMM(c2=1e-4).fit(x, y).log_proba([rob], [words["rib"]]))
    assert 0.1 < free[0] < 0.7


def test_constraints_bind_training_and_prediction():
    names = ["B-A", "I-A", "O"]
    rng = np.random.default_rng(0)
    x = [[[str(rng.integers(5))] for _ in range(5)] for _ in range(20)]
    y = [["O", "B-A", "I-A", "O", "B-A"] if i % 2 else ["B-A", "O", "O", "B-A", "I-A"] for i in range(20)]
    model = MEMM(constraints="BIO", c2=0.1).fit(x, y)
    inner = names.index("I-A")
    for p_node, p_edge in zip(model.predict_marginals_array(x), model.predict_edge_marginals(x), strict=True):
        assert p_node[0, inner] == 0.0 and (p_edge[:, names.index("O"), inner] == 0.0).all()
        np.testing.assert_allclose(p_node.sum(axis=1), 1.0)
    assert model.objective_ < MEMM(c2=0.1).fit(x, y).objective_
    with pytest.raises(ValueError, match="violate the constraints: sequence 0, token 0"):
        MEMM(constraints="BIO").fit(x, [["I-A"] * 5] * 20)
    # a label without successor: what remains is renormalised
    dead = MEMM(constraints={"allowed": np.array([[True, True], [False, False]])}, c2=0.1)
    dead.fit([[["a"], ["b"]], [["a"], ["a"]]], [["0", "1"], ["0", "0"]])
    np.testing.assert_allclose(dead.predict_marginals_array([[["b"], ["b"], ["b"]]])[0].sum(axis=1), 1.0)
    assert dead.predict([[["b"], ["b"], ["b"]]])[0][:2] == ["0", "0"]


# ---- HMM


def test_hmm_counts_by_hand():
    model = HMM(smoothing=0.5).fit(X, Y)
    assert model.classes_ == ["D", "N", "V"]
    names = {name: i for i, name in enumerate(model.encoder_.attribute_names())}
    features = model.features_

    def emission(word, label):
        row = slice(features.node_ptr[names[word]], features.node_ptr[names[word] + 1])
        hit = np.flatnonzero(features.node_label[row] == label)
        return math.exp(model.emission_[row][hit[0]] if len(hit) else model.absent_[label])

    # words: the dog runs a cat sees mouse run (A = 8); once: runs a cat sees mouse run; V: runs sees run
    assert len(names) == 8
    np.testing.assert_allclose(np.exp(model.start_), [3.5 / 5.5, 0.5 / 5.5, 1.5 / 5.5])
    np.testing.assert_allclose(np.exp(model.transition_[0]), [0.5 / 5.5, 4.5 / 5.5, 0.5 / 5.5])
    np.testing.assert_allclose(np.exp(model.transition_[1]), [0.5 / 3.5, 0.5 / 3.5, 2.5 / 3.5])
    # D: the 3, a 1; hapax a; N: dog 2, cat, mouse; V: runs, sees, run, all of them once
    assert emission("the", 0) == pytest.approx(3.5 / (4 + 1 + 4.5))
    assert emission("the", 2) == pytest.approx(0.5 / (3 + 3 + 4.5))
    assert math.exp(model.unknown_[2]) == pytest.approx(3.5 / (3 + 3 + 4.5))
    for label in range(3):
        total = sum(emission(word, label) for word in names) + math.exp(model.unknown_[label])
        assert total == pytest.approx(1.0)
    np.testing.assert_allclose(np.exp(model.transition_).sum(axis=1), 1.0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 2.0])
def test_hmm_by_enumeration(smoothing):
    corpus = random_corpus(8, n_sequences=15, values=True)
    model = HMM(smoothing=smoothing).fit(corpus)
    log_b = np.repeat(model.absent_[None], 7, axis=0)
    row = np.repeat(np.arange(7), np.diff(model.features_.node_ptr))
    log_b[row, model.features_.node_label] = model.emission_
    found, p_node, log_proba = (
        model.predict_array(corpus),
        model.predict_marginals_array(corpus),
        model.log_proba(corpus),
    )
    log_joint = model.log_joint(corpus)
    for i, s in enumerate(sequences(corpus)):
        n = s.stop - s.start
        paths = list(itertools.product(range(3), repeat=n))
        joint = []
        for path in paths:
            log_p = 0.0
            for t, y in enumerate(path):
                log_p += model.start_[y] if t == 0 else model.transition_[path[t - 1], y]
                here = range(corpus.attr_ptr[s.start + t], corpus.attr_ptr[s.start + t + 1])
                log_p += (
                    sum(corpus.attr_val[k] * log_b[corpus.attr_idx[k], y] for k in here)
                    if here
                    else model.unknown_[y]
                )
            joint.append(math.exp(log_p))
        total, gold = sum(joint), joint[paths.index(tuple(corpus.labels[s]))]
        expected = np.zeros((n, 3))
        for path, p in zip(paths, joint, strict=True):
            expected[range(n), path] += p / total
        np.testing.assert_allclose(p_node[i], expected, rtol=1e-9, atol=1e-12)
        assert joint[paths.index(tuple(found[i]))] == pytest.approx(max(joint))
        assert log_joint[i] == pytest.approx(math.log(gold) if gold else -math.inf)
        assert log_proba[i] == pytest.approx(math.log(gold / total) if gold else -math.inf)


def test_hmm_unknown_words_and_no_smoothing():
    model = HMM(smoothing=0.1).fit(X, Y)
    assert model.predict([[["the"], ["platypus"], ["runs"]]]) == [["D", "N", "V"]]
    assert model.predict([[["run", "platypus"]]]) == model.predict([[["run"]]])
    certain = HMM(smoothing=0).fit(X, Y)
    assert certain.predict([[["the"], ["dog"]]]) == [["D", "N"]]
    with pytest.raises(ValueError, match="sequence 1: every labelling has probability 0"):
        certain.predict([[["the"]], [["dog"]]])  # no sentence began with N
    with pytest.raises(ValueError, match="sequence 0: every labelling"):
        certain.predict_marginals([[["dog"]]])


def test_hmm_weights_are_counts():
    doubled = HMM().fit([*X, X[0]], [*Y, Y[0]])
    weighted = HMM().fit(X, Y, sample_weight=[2.0, 1.0, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(weighted.start_, doubled.start_)
    np.testing.assert_allclose(weighted.transition_, doubled.transition_)


def test_hmm_counts_in_units_of_the_sample_weights():
    """Weights and smoothing three times as large change no probability: all counts carry the weights,
    `unknown_` too.
    """
    weight = np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    one = HMM(smoothing=0.2).fit(X, Y, sample_weight=weight)
    three = HMM(smoothing=0.6).fit(X, Y, sample_weight=3.0 * weight)
    for name in ("start_", "transition_", "emission_", "absent_", "unknown_"):
        np.testing.assert_allclose(getattr(three, name), getattr(one, name), rtol=1e-13)


def test_emission_of_a_certain_zero():
    """A value of 0 counts nothing, and 0 * -inf must not become nan."""
    log_node = np.empty((2, 2))
    emission_scores(
        np.log([0.5]),
        np.full(2, -np.inf),
        np.log([0.3, 0.7]),
        np.array([0, 1]),
        np.array([0], np.int32),
        np.array([0, 1, 2]),
        np.array([0, 0], np.int32),
        np.array([0.0, 2.0]),
        log_node,
        np.empty(2),
    )
    np.testing.assert_allclose(log_node, [[0.0, 0.0], [2 * math.log(0.5), -np.inf]])


# ---- as scikit-learn has it


@pytest.mark.parametrize(
    "model", [HMM(smoothing=0.2), MEMM(c2=0.1, c1=0.01), MEMM(c2=0.0, max_iterations=30)]
)
def test_estimators(model):
    with pytest.raises(NotFittedError):
        clone(model).predict(X)
    fitted = clone(model).fit(X, Y)
    assert fitted.predict(X) == Y and fitted.score(X, Y) == 1.0
    assert fitted.predict([[], [["unheard"]], []])[0] == []
    marginals = fitted.predict_marginals(X)
    assert [len(tokens) for tokens in marginals] == [len(labels) for labels in Y]
    assert all(sum(token.values()) == pytest.approx(1.0) for tokens in marginals for token in tokens)
    assert (fitted.log_proba(X, Y) <= 0).all() and fitted.log_proba(X, Y)[3] == 0.0
    assert [len(p) for p in fitted.predict_edge_marginals(X)] == [2, 1, 4, 0, 0]
    assert len(cross_val_score(clone(model), X[:3] * 3, Y[:3] * 3, cv=3)) == 3
    numbers = clone(model).fit(X, [[len(label) + ord(label) for label in labels] for labels in Y])
    assert isinstance(numbers.predict(X)[0][0], int)
    with pytest.raises(ValueError, match="sequence 0"):
        fitted.log_proba(X, [["D", "N", "Z"], *Y[1:]])


def test_memm_reads_like_a_crf():
    model = MEMM(c2=0.1).fit(X, Y)
    assert model.transition_features_[("D", "N")] > 0
    assert model.state_features_[("runs", "V")] > 0
    assert len(model.weights_to_frame()) == np.count_nonzero(model.weights_)
    assert (
        list(model.history_["iteration"]) == list(range(1, model.n_iter_ + 1))
        and model.status_ == "converged"
    )
    assert len(MEMM(c1=2.0, c2=0.0).fit(X, Y).attributes_) < len(model.attributes_)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: HMM(smoothing=-1).fit(X, Y), "smoothing: expected"),
        (lambda: HMM(smoothing="a").fit(X, Y), "smoothing: expected"),
        (lambda: HMM().fit([[{"a": -1.0}]], [["A"]]), "sequence 0, token 0: expected attribute values >= 0"),
        (lambda: MEMM(c2=-1).fit(X, Y), "c2"),
        (lambda: MEMM(c1=-1).fit(X, Y), "c1"),
        (lambda: MEMM(num_memories=0).fit(X, Y), "num_memories: expected an integer >= 1, got 0"),
        (lambda: MEMM(max_iterations=-1).fit(X, Y), "max_iterations: expected an integer >= 0, got -1"),
        (lambda: MEMM(constraints={"start": {"V"}}).fit(X, Y), "sequence 0, token 0: 'D' may not start"),
        (lambda: MEMM().fit([], []), "at least one token|nothing to learn"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("loss", ["exp", "pointwise-log"])
def test_a_memm_has_the_log_loss_alone(loss):
    """Another one would be that of the chain."""
    corpus = random_corpus(0)
    features = observed(corpus, 3, 7, 2)
    objective = LocalObjective(corpus, features)
    for make in (objective.with_loss, lambda loss: LocalObjective(corpus, features, loss=loss)):
        with pytest.raises(ValueError, match="loss: expected 'log', which LocalObjective has alone"):
            make(loss)


def test_a_form_that_the_objective_does_not_have_is_refused():
    corpus = make_corpus([0, 2], [0, 1, 2], [0, 1], labels=[0, 1])
    with pytest.raises(ValueError, match="^form: expected one of 'auto', 'batched', got 'sparse'"):
        LocalObjective(corpus, observed(corpus, 2, 2, all_transitions=True), form="sparse")
