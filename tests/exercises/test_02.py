"""The stated outcomes of the exercises of chapter 02, in plain NumPy beside enumeration."""

from itertools import product

import numpy as np
import pytest

from crfbook import CRF, brute, load_dataset
from crfbook.chain import inference
from crfbook.data.constraints import constraints_from


def messages(psi_node, psi_edge):
    """Scaled alpha, beta (T, L) and scale (T,): beta has those scales that alpha lacks."""
    alpha, scale, beta = psi_node.copy(), np.empty(len(psi_node)), np.ones_like(psi_node)
    for t in range(len(alpha)):
        if t:
            alpha[t] *= alpha[t - 1] @ psi_edge
        scale[t] = alpha[t].sum()
        alpha[t] /= scale[t]
    for t in range(len(alpha) - 1, 0, -1):
        beta[t - 1] = psi_edge @ (psi_node[t] * beta[t]) / scale[t]
    return alpha, beta, scale


def marginals(log_node, log_edge):
    """log Z, p_node (T, L), p_edge (T - 1, L, L)."""
    psi_node, psi_edge = np.exp(log_node), np.exp(log_edge)
    alpha, beta, scale = messages(psi_node, psi_edge)
    after = psi_node * beta / scale[:, None]
    p_edge = alpha[:-1, :, None] * psi_edge * after[1:, None]
    return np.log(scale).sum(), alpha * beta, p_edge


def viterbi(log_node, log_edge):
    delta, back = log_node[0], []
    for row in log_node[1:]:
        candidates = delta[:, None] + log_edge
        back.append(candidates.argmax(0))
        delta = row + candidates.max(0)
    path = [int(delta.argmax())]
    for before in reversed(back):
        path.insert(0, int(before[path[0]]))
    return path


@pytest.fixture
def tables():
    rng = np.random.default_rng(0)
    return rng.normal(0, 1.5, (5, 4)), rng.normal(0, 1.5, (4, 4))


def test_1_zero_scores_count_the_labellings():
    log_z, p_node, p_edge = marginals(np.zeros((5, 3)), np.zeros((3, 3)))
    assert log_z == pytest.approx(5 * np.log(3))
    np.testing.assert_allclose(p_node, 1 / 3)
    np.testing.assert_allclose(p_edge, 1 / 9)


def test_2_a_shift_of_one_word_changes_log_z_alone(tables):
    log_node, log_edge = tables
    shifted = log_node.copy()
    shifted[2] += 5
    before, after = marginals(*tables), marginals(shifted, log_edge)
    assert after[0] - before[0] == pytest.approx(5)
    for a, b in zip(before[1:], after[1:], strict=True):
        np.testing.assert_allclose(a, b)
    assert viterbi(*tables) == viterbi(shifted, log_edge)


def test_3_alpha_alone_may_prefer_the_wrong_label():
    log_node, log_edge = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 3.0]]), np.array([[2.0, 0.0], [0.0, 2.0]])
    alpha = messages(np.exp(log_node), np.exp(log_edge))[0]
    assert alpha[0].argmax() == 0 and marginals(log_node, log_edge)[1][0].argmax() == 1


def test_4_samples_backwards_have_the_marginals(tables):
    log_node, log_edge = tables
    rng, psi_edge = np.random.default_rng(1), np.exp(log_edge)
    alpha = messages(np.exp(log_node), psi_edge)[0]
    y = np.empty((10_000, 5), int)
    y[:, -1] = rng.choice(4, size=len(y), p=alpha[-1])
    for t in range(4, 0, -1):
        p = alpha[t - 1] * psi_edge.T[y[:, t]]
        bounds = np.cumsum(p / p.sum(1, keepdims=True), axis=1)
        y[:, t - 1] = (rng.random((len(y), 1)) > bounds[:, :-1]).sum(1)
    often = np.array([np.bincount(y[:, t], minlength=4) for t in range(5)]) / len(y)
    assert np.abs(often - marginals(*tables)[1]).max() < 0.02


def test_5_the_ten_best(tables):
    log_node, log_edge = tables
    kept = [[score] for score in log_node[0]]  # of each label the best scores that end there
    for row in log_node[1:]:
        kept = [
            sorted((s + log_edge[yp, y] + row[y] for yp in range(4) for s in kept[yp]), reverse=True)[:10]
            for y in range(4)
        ]
    every = [
        sum(log_node[t, k] for t, k in enumerate(y)) + sum(log_edge[p] for p in zip(y, y[1:], strict=False))
        for y in product(range(4), repeat=5)
    ]
    np.testing.assert_allclose(sorted(sum(kept, []), reverse=True)[:10], sorted(every, reverse=True)[:10])


def test_6_posterior_decoding_within_the_rules():
    data = load_dataset("conll2000", verbose=False)
    model = CRF(template="chunking", c2=1.0, max_iterations=60).fit(data.train[:300])
    corpus = model.encoder_.transform(data.test[:200])
    bio = constraints_from("BIO", model.classes_)
    arguments = corpus, model.features_, model.weights_, bio
    p = inference.node_marginals(*arguments)
    edge = np.where(bio.allowed, 0.0, -np.inf)

    def first(rows):
        return np.where(bio.start, rows, -np.inf)

    lawful = []
    for rows in np.split(p, corpus.seq_ptr[1:-1]):
        rows = rows.copy()
        rows[0] = first(rows[0])
        lawful += viterbi(rows, edge)
    token = np.arange(corpus.n_tokens)
    expected = [p[token, path].mean() for path in (inference.decode(*arguments), lawful, p.argmax(1))]
    assert expected == sorted(expected)
    inside = np.setdiff1d(token, corpus.seq_ptr)
    lawful = np.array(lawful)
    assert (
        bio.allowed[lawful[inside - 1], lawful[inside]].all() and bio.start[lawful[corpus.seq_ptr[:-1]]].all()
    )


def test_7_covariances_are_the_slopes_of_the_marginals(tables):
    log_node, log_edge = tables
    _, p, pairs = marginals(*tables)
    ahead = np.eye(4)  # p(y_u = b | y_1 = a) for u = 1, 2, ...
    for u in range(1, 5):
        covariance = p[1][:, None] * (ahead - p[u])
        slope = np.empty((4, 4))
        for a in range(4):
            up, down = log_node.copy(), log_node.copy()
            up[1, a] += 1e-5
            down[1, a] -= 1e-5
            slope[a] = (marginals(up, log_edge)[1][u] - marginals(down, log_edge)[1][u]) / 2e-5
        np.testing.assert_allclose(covariance, slope, atol=1e-8)
        if u < 4:
            ahead = ahead @ (pairs[u] / p[u][:, None])


def test_8_checkpoints_save_memory_and_no_digit():
    rng = np.random.default_rng(2)
    T, L, step = 2500, 8, 50
    psi_node, psi_edge = np.exp(rng.normal(size=(T, L))), np.exp(rng.normal(size=(L, L)))
    work = {"rows": 0, "steps": 0}

    def forward(row, block):
        rows = []
        for psi in block:
            row = psi * (row @ psi_edge) if row is not None else psi
            row = row / row.sum()
            rows.append(row)
        work["steps"] += len(block)
        return rows

    kept, row = [], None
    for start in range(0, T, step):
        kept.append(row)  # the row before the block, and nothing else of it
        row = forward(row, psi_node[start : start + step])[-1]
    beta, expected = np.ones(L), []
    for start in reversed(range(0, T, step)):
        rows = forward(kept[start // step], psi_node[start : start + step])
        work["rows"] = max(work["rows"], len(kept) + len(rows) + 1)  # and the one row of beta
        for t in reversed(range(start, min(start + step, T))):
            p = rows[t - start] * beta
            expected.append(p / p.sum())
            beta = psi_edge @ (psi_node[t] * beta)
            beta /= beta.sum()
            work["steps"] += 1
    alpha, whole_beta, _ = messages(psi_node, psi_edge)
    np.testing.assert_allclose(expected[::-1], alpha * whole_beta, atol=1e-12)
    assert 2 * T / work["rows"] == pytest.approx(np.sqrt(T), rel=0.02) and work["steps"] == 1.5 * 2 * T


def test_where_nothing_is_allowed_there_is_no_distribution():
    """Z = 0 (section 3.4): log Z is -inf; the package says which sequence it is."""
    nothing = np.full((1, 2, 2), -np.inf)
    assert brute.log_z(np.zeros((2, 2)), nothing, np.zeros(2, int)) == -np.inf
    only = np.array([[False, True], [False, False]])
    model = CRF(constraints=only).fit([[["a"], ["b"]]], [["P", "Q"]])
    for ask in (model.predict, model.predict_marginals, lambda X: list(model.predict_edge_marginals(X))):
        with pytest.raises(
            ValueError, match=r"^sequence 1: .*the constraints forbid every path, so that Z = 0"
        ):
            ask([[["a"], ["b"]], [["a"], ["b"], ["a"]]])
