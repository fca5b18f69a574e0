"""Chapter 04, exercises: what they say comes out does."""

from itertools import product

import numpy as np
from scipy.optimize import minimize as descent
from scipy.special import logsumexp

from crfbook import Objective, make_corpus, minimize
from crfbook.chain.inference import node_marginals
from crfbook.data.features import observed

WORDS = "the old man the boat".split()
GOLD = np.array([0, 1, 2, 0, 1])
LOG_NODE = np.array([[2, 0, 0], [0.5, 1, 0], [0, 1.5, -0.5], [2, 0, 0], [0, 1.5, 0]])
LOG_EDGE = np.array([[-1, 1.5, 0], [0, 0.5, 1], [1, 0.5, -1]])
PATHS = np.array(list(product(range(3), repeat=len(WORDS))))


def listed(log_node=LOG_NODE, log_edge=LOG_EDGE):
    """Probabilities of all labellings."""
    score = log_node[np.arange(len(WORDS)), PATHS].sum(1) + log_edge[PATHS[:, :-1], PATHS[:, 1:]].sum(1)
    return np.exp(score - logsumexp(score))


def counts():
    """(243, 15 + 9): how often a labelling uses each score."""
    Y = np.eye(3)[PATHS]
    node, edge = Y.reshape(len(PATHS), -1), np.einsum("nti,ntj->nij", Y[:, :-1], Y[:, 1:])
    return np.concatenate([node, edge.reshape(len(PATHS), -1)], axis=1)


def chain(log_node, log_edge):
    """alpha, beta, and the step matrices into each word: scaled, as in the chapter."""
    psi_node, psi_edge = np.exp(log_node - log_node.max(1, keepdims=True)), np.exp(log_edge)
    alpha, beta, step = psi_node.copy(), np.ones_like(psi_node), psi_edge * psi_node[:, None]
    for t in range(len(alpha)):
        alpha[t] = alpha[t - 1] @ step[t] if t else alpha[t]
        scale = alpha[t].sum()
        alpha[t], step[t] = alpha[t] / scale, step[t] / scale
    for t in range(len(alpha) - 1, 0, -1):
        beta[t - 1] = step[t] @ beta[t]
    return alpha, beta, step


def test_1_ten_words_of_probability_nine_tenths():
    p, T = 0.9, 10
    four = -T * np.log(p), p**-T - 1, -T * np.log(p), T * (1 / p - 1)
    np.testing.assert_allclose(four, (1.054, 1.868, 1.054, 1.111), atol=5e-4)


def test_2_the_whole_is_not_more_probable_than_a_word():
    p = listed()
    u_it = [-np.log(p[PATHS[:, t] == GOLD[t]].sum()) for t in range(len(WORDS))]
    u_i = -np.log(p[(PATHS == GOLD).all(1)].sum())
    assert max(u_it) <= u_i < sum(u_it)


def test_3_the_exponential_loss_clamped_at_0_is_the_log_loss():
    u = np.linspace(0, 30, 7)
    low = np.minimum(u, 0.0)
    np.testing.assert_array_equal(np.expm1(low) + np.exp(low) * (u - low), u)
    assert np.all(np.exp(low) == 1.0)


def test_4_a_reward_on_steps_gives_the_gradient_of_pairs():
    p, Phi = listed(), counts()
    pairs = [(PATHS[:, t - 1 : t + 1] == GOLD[t - 1 : t + 1]).all(1) for t in range(1, len(WORDS))]
    grad = sum(p @ Phi - p[event] @ Phi[event] / p[event].sum() for event in pairs)

    alpha, beta, step = chain(LOG_NODE, LOG_EDGE)
    T = len(WORDS)
    p_edge = alpha[:-1, :, None] * step[1:] * beta[1:, None]
    d = np.zeros((T, 3, 3))  # of the step into t
    for t in range(1, T):
        d[t, GOLD[t - 1], GOLD[t]] = 1 / p_edge[t - 1, GOLD[t - 1], GOLD[t]]
    Ah, Bh = np.zeros_like(alpha), np.zeros_like(beta)
    for t in range(1, T):
        Ah[t] = Ah[t - 1] @ step[t] + alpha[t - 1] @ (d[t] * step[t])
    for t in range(T - 1, 0, -1):
        Bh[t - 1] = step[t] @ Bh[t] + (d[t] * step[t]) @ beta[t]
    node = (T - 1) * alpha * beta - (Ah * beta + alpha * Bh)
    told = Ah[:-1, :, None] * step[1:] * beta[1:, None] + alpha[:-1, :, None] * step[1:] * Bh[1:, None]
    edge = ((T - 1) * p_edge - told - d[1:] * p_edge).sum(0)
    np.testing.assert_allclose(np.concatenate([node.ravel(), edge.ravel()]), grad, atol=1e-10)


def test_5_adjoints_of_the_recursion_are_the_reward_messages():
    """sum_t -log(alpha_t beta_t at gold), as a function of the node factors, with Z = 1 held by the scale."""
    alpha, beta, step = chain(LOG_NODE, LOG_EDGE)
    T, Y = len(WORDS), np.eye(3)[GOLD]
    d = Y / (alpha * beta * Y).sum(1, keepdims=True)
    Ah, Bh = d * alpha, d * beta
    for t in range(1, T):
        Ah[t] += Ah[t - 1] @ step[t]
    for t in range(T - 1, 0, -1):
        Bh[t - 1] += step[t] @ Bh[t]
    bar_alpha, bar_beta, bar_step = -d * beta, -d * alpha, np.zeros_like(step)  # of the last line, reversed
    for t in range(1, T):  # beta ran from T - 1 down: its adjoints run up
        bar_step[t] += np.outer(bar_beta[t - 1], beta[t])
        bar_beta[t] += bar_beta[t - 1] @ step[t]
    for t in range(T - 1, 0, -1):
        bar_step[t] += np.outer(alpha[t - 1], bar_alpha[t])
        bar_alpha[t - 1] += step[t] @ bar_alpha[t]
    np.testing.assert_allclose(bar_alpha, -Bh, rtol=1e-12)
    np.testing.assert_allclose(bar_beta, -Ah, rtol=1e-12)
    p, Phi = listed(), counts()
    grad = T * (p @ Phi) - sum(p[e] @ Phi[e] / p[e].sum() for e in (PATHS == GOLD).T)
    edge = (T * alpha[:-1, :, None] * beta[1:, None] + bar_step[1:]) * step[1:]  # log Z has T times its own
    np.testing.assert_allclose(edge.sum(0).ravel(), grad[15:], atol=1e-10)


def test_6_rewards_in_logarithms_give_the_kernels_gradient():
    T, L = LOG_NODE.shape
    log_node = np.where((np.arange(T) == 2)[:, None] & (np.arange(L) == 2), -460.0, LOG_NODE)
    A, B = log_node.copy(), np.zeros((T, L))
    for t in range(1, T):
        A[t] += logsumexp(A[t - 1][:, None] + LOG_EDGE, axis=0)
    for t in range(T - 1, 0, -1):
        B[t - 1] = logsumexp(LOG_EDGE + log_node[t] + B[t], axis=1)
    log_z = logsumexp(A[-1])
    log_p = A + B - log_z
    u = -log_p[np.arange(T), GOLD]
    log_d = np.where(np.eye(L)[GOLD] > 0, 2 * u[:, None], -np.inf)  # a / p = e^{2u}
    Ah, Bh = log_d + A, log_d + B
    for t in range(1, T):
        Ah[t] = np.logaddexp(Ah[t], log_node[t] + logsumexp(Ah[t - 1][:, None] + LOG_EDGE, axis=0))
    for t in range(T - 1, 0, -1):
        Bh[t - 1] = np.logaddexp(Bh[t - 1], logsumexp(LOG_EDGE + log_node[t] + Bh[t], axis=1))
    log_both = log_d + A + B
    terms = [Ah + B - log_z, A + Bh - log_z, log_both - log_z]
    node = np.exp(logsumexp(u) + log_p) - np.exp(terms[0]) - np.exp(terms[1]) + np.exp(terms[2])

    corpus = make_corpus([0, T], np.arange(T + 1), np.arange(T), labels=GOLD)
    features = observed(corpus, L, T, all_states=True, all_transitions=True)
    w = np.concatenate([log_node.ravel(), LOG_EDGE.ravel()])
    grad = Objective(corpus, features, loss="pointwise-exp")(w)[1]
    assert np.exp(-u).min() < 1e-195
    np.testing.assert_allclose(node.ravel(), grad[: T * L], atol=1e-8 * abs(grad).max())


def robust(u):
    return -np.expm1(-u), np.exp(-u)


def robust_objective(w, sentences, A, L, c2=0.1):
    """The chapter's `objective`, pointwise, with phi = 1 - p."""
    W, log_edge = w[: A * L].reshape(A, L), w[A * L :].reshape(L, L)
    value, grad_W, grad_edge = c2 * (w @ w), 2 * c2 * W, 2 * c2 * log_edge
    for X, gold in sentences:
        alpha, beta, step = chain(X @ W, log_edge)
        Y, p_node = np.eye(L)[gold], alpha * beta
        p = (Y * p_node).sum(1)
        phi, a = robust(-np.log(p))
        d = Y * (a / p)[:, None]
        Ah, Bh = d * alpha, d * beta
        for t in range(1, len(gold)):
            Ah[t] += Ah[t - 1] @ step[t]
        for t in range(len(gold) - 1, 0, -1):
            Bh[t - 1] += step[t] @ Bh[t]
        value += phi.sum()
        grad_W = grad_W + X.T @ (a.sum() * p_node - (Ah * beta + alpha * Bh - d * p_node))
        for before, at in ((a.sum() * alpha - Ah, beta), (-alpha, Bh)):
            grad_edge = grad_edge + np.einsum("ti,tij,tj->ij", before[:-1], step[1:], at[1:])
    return value, np.concatenate([grad_W.ravel(), grad_edge.ravel()])


def test_7_a_robust_loss_takes_weight_from_wrong_labels():
    rng, A, L, n, T = np.random.default_rng(0), 6, 3, 40, 6
    labels = rng.integers(L, size=(n, T))
    words = np.where(rng.random((n, T)) < 0.85, labels, rng.integers(L, A, size=(n, T)))
    wrong = rng.random((n, T)) < 0.2
    noisy = np.where(wrong, (labels + rng.integers(1, L, size=(n, T))) % L, labels)
    sentences = [(np.eye(A)[x], y) for x, y in zip(words, noisy, strict=True)]

    corpus = make_corpus(T * np.arange(n + 1), np.arange(n * T + 1), words.ravel(), labels=noisy.ravel())
    features = observed(corpus, L, A, all_states=True, all_transitions=True)
    w = minimize(Objective(corpus, features, c2=0.1), np.zeros(A * L + L * L), c2=0.1).w
    value, grad = robust_objective(w, sentences, A, L)
    slope = [
        (robust_objective(w + e, sentences, A, L)[0] - robust_objective(w - e, sentences, A, L)[0]) / 2e-5
        for e in 1e-5 * np.eye(len(w))
    ]
    np.testing.assert_allclose(grad, slope, atol=1e-6)
    found = descent(robust_objective, w, (sentences, A, L), jac=True)
    assert found.fun < value

    def measured(w):
        """(share of all a that wrong labels have, accuracy against the right labels)."""
        p_node = node_marginals(corpus, features, w)
        a = p_node[np.arange(n * T), noisy.ravel()]
        return a[wrong.ravel()].sum() / a.sum(), np.mean(p_node.argmax(1) == labels.ravel())

    (before, accuracy), (share, after) = measured(w), measured(found.x)
    assert share < before < wrong.mean() and share < 0.5 * wrong.mean() and wrong.mean() > 0.15
    assert after >= accuracy
