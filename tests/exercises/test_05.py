"""Chapter 05: what its exercises say comes out."""

from itertools import product

import numpy as np
import pytest

from crfbook import make_corpus
from crfbook.data.corpus import take_sequences
from crfbook.data.features import observed
from crfbook.learners.boosting.learner import boost, lay_out_boosting
from crfbook.learners.online.online import passive_aggressive, perceptron


def counts(X, y, L):
    """S(x, y) as in section 2."""
    Y = np.eye(L)[list(y)]
    return np.concatenate([(X.T @ Y).ravel(), (Y[:-1].T @ Y[1:]).ravel()])


def best_of(w, X, L, extra=0.0):
    """(best labelling by listing, all of them, their scores); extra: added to the scores, one per path."""
    paths = list(product(range(L), repeat=len(X)))
    scores = np.array([w @ counts(X, path, L) for path in paths]) + extra
    return list(paths[int(scores.round(9).argmax())]), paths, scores


def viterbi(log_node, log_edge):
    delta, back = log_node[0], []
    for u in log_node[1:]:
        score = delta[:, None] + log_edge
        back.append(score.argmax(axis=0))
        delta = u + score.max(axis=0)
    path = [int(delta.argmax())]
    for row in reversed(back):
        path.append(int(row[path[-1]]))
    return path[::-1]


def random_problem(rng, n=5, real=True, lengths=range(1, 5)):
    A, L = int(rng.integers(2, 5)), int(rng.integers(2, 4))
    X = [(rng.random((T, A)) < 0.6) * (rng.normal(size=(T, A)) if real else 1.0)
         for T in rng.choice(list(lengths), n)]  # fmt: skip
    return [(x, rng.integers(L, size=len(x)).tolist()) for x in X], A, L


def as_corpus(sentences, A, L):
    X, y = (np.concatenate(part) for part in zip(*sentences, strict=True))
    token, attr = np.nonzero(X)
    ends = np.cumsum([0, *(len(y) for _, y in sentences)])
    ptr = np.searchsorted(token, np.arange(len(X) + 1))
    corpus = make_corpus(ends, ptr, attr, attr_val=X[token, attr], labels=y)
    return corpus, observed(corpus, L, A, all_states=True, all_transitions=True)


def trained(sentences, w, L, step, rounds=8):
    """(labellings said, scores of the best, scores of the right one, w) of the perceptron of section 2."""
    said, best_scores, right_scores = [], [], []
    for r in range(rounds):
        X, y = sentences[r % len(sentences)]
        best, _, scores = best_of(w, X, L)
        said.append(best)
        best_scores.append(scores.max())
        right_scores.append(w @ counts(X, y, L))
        w = w + step * (counts(X, y, L) - counts(X, best, L))
    return said, np.array(best_scores), np.array(right_scores), w


def test_01_the_length_of_the_step_scales_scores_from_zero_and_changes_labels_from_elsewhere():
    rng, differ = np.random.default_rng(0), 0
    for _ in range(10):
        sentences, A, L = random_problem(rng)
        zero, start = np.zeros(A * L + L * L), rng.normal(size=A * L + L * L)
        one, other = trained(sentences, zero, L, 1.0), trained(sentences, zero, L, 0.01)
        assert one[0] == other[0]
        np.testing.assert_allclose(other[1:3], 0.01 * np.array(one[1:3]), atol=1e-9)
        differ += trained(sentences, start, L, 1.0)[0] != trained(sentences, start, L, 0.01)[0]
    assert differ


def test_02_the_counter_equals_the_naive_mean():
    rng = np.random.default_rng(1)
    d = {2: rng.normal(size=3), 5: rng.normal(size=3)}
    vectors = [sum((d[j] for j in d if j <= i), np.zeros(3)) for i in range(7)]
    w, w_sum, c = np.zeros(3), np.zeros(3), 1
    for j in range(1, 7):
        change = d.get(j, np.zeros(3))
        w, w_sum, c = w + change, w_sum + c * change, c + 1
    assert c == 7
    np.testing.assert_allclose(w - w_sum / c, np.mean(vectors, axis=0), atol=1e-12)


@pytest.mark.parametrize(("length", "wanted"), [(3, (-1, 0)), (8, (-1, 3))])
def test_03_extremes_of_a_pair(length, wanted):
    y = [2, 0, 1, *[2] * (length - 3)]  # (O, B-PER) = (0, 1), once
    phi = [counts(np.zeros((length, 1)), p, 3)[3 + 1] - 1 for p in product(range(3), repeat=length)]
    assert (min(phi), max(phi)) == wanted
    corpus, features = as_corpus([(np.ones((length, 1)), y)], 1, 3)
    _, index = lay_out_boosting(corpus, features, False)
    k = features.n_node + list(zip(features.edge_prev, features.edge_next, strict=True)).index((0, 1))
    assert (index.low[k], index.high[k]) == wanted


def test_04_pa_1_in_numpy_is_the_learner():
    rng = np.random.default_rng(2)
    for _ in range(10):
        sentences, A, L = random_problem(rng)
        w, vectors = np.zeros(A * L + L * L), []
        for X, y in sentences * 2:
            best = best_of(w, X, L)[0]
            dS, wrong = (
                counts(X, y, L) - counts(X, best, L),
                sum(a != b for a, b in zip(y, best, strict=True)),
            )
            if wrong and dS @ dS > 0:
                w = w + min(0.1, (np.sqrt(wrong) - w @ dS) / (dS @ dS)) * dS
            vectors.append(w)
        options = {"c": 0.1, "shuffle": False, "max_iterations": 2, "averaging": False, "pa_type": 1}
        found = passive_aggressive(*as_corpus(sentences, A, L), **options)
        np.testing.assert_allclose(found.w, w, rtol=0, atol=1e-9)


def test_05_cost_augmented_decoding_is_viterbi_on_other_scores_and_a_subgradient():
    rng = np.random.default_rng(3)
    for _ in range(10):
        (sentence,), A, L = random_problem(rng, n=1)
        X, y = sentence
        w = rng.normal(size=A * L + L * L)
        cost = [sum(a != b for a, b in zip(p, y, strict=True)) for p in product(range(L), repeat=len(X))]
        listed, _, scores = best_of(w, X, L, extra=np.array(cost, float))
        node, edge = X @ w[: A * L].reshape(A, L) + 1 - np.eye(L)[y], w[A * L :].reshape(L, L)
        assert viterbi(node, edge) == listed

        def hinge(v, X=X, y=y, cost=cost, L=L):
            return best_of(v, X, L, extra=np.array(cost, float))[2].max() - v @ counts(X, y, L)

        gradient = counts(X, listed, L) - counts(X, y, L)  # the update with its sign reversed
        assert np.isclose(hinge(w), scores.max() - w @ counts(X, y, L))
        for _ in range(5):
            other = rng.normal(size=len(w))
            assert hinge(other) >= hinge(w) + gradient @ (other - w) - 1e-9


def test_07_the_state_goes_on_with_the_next_sentences():
    rng = np.random.default_rng(5)
    sentences, A, L = random_problem(rng, n=40)
    corpus, features = as_corpus(sentences, A, L)
    parts = take_sequences(corpus, range(20)), take_sequences(corpus, range(20, 40))
    whole = perceptron(corpus, features, shuffle=False, max_iterations=1)
    first = perceptron(parts[0], features, shuffle=False, max_iterations=1)
    second = perceptron(parts[1], features, shuffle=False, max_iterations=2, state=first.state)
    np.testing.assert_allclose(second.w, whole.w, atol=1e-12)


def test_06_the_own_chord_never_promises_less_at_the_same_weights():
    rng, more = np.random.default_rng(6), 0
    for _ in range(10):
        corpus, features = as_corpus(*random_problem(rng, n=12, real=False))
        w = np.zeros(features.n_features)
        for _ in range(6):
            options = {"max_iterations": 1, "cap": np.inf, "tol": 0.0}
            own, whole = (boost(corpus, features, w, bound=b, **options) for b in ("instance", "global"))
            if not (own.n_iter and whole.n_iter):
                break
            assert own.state["feature"][0] == whole.state["feature"][0]
            assert own.state["gain"][0] >= whole.state["gain"][0] - 1e-9
            more += own.objective < whole.objective - 1e-9
            w = whole.w
    assert more
