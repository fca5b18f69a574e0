"""Chapter 12: what its exercises say that one should find, found without the chapter's code."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from crfbook import CRF, load_dataset
from crfbook.dynamic import templates


def paths_of(T, *sizes):
    """All labellings: (n, T, number of chains)."""
    tokens = list(product(*(range(size) for size in sizes)))
    return np.array(list(product(tokens, repeat=T)))


def listed(paths, node, edges, skews=()):
    """Their scores. node (T, L1, ..., Lm); edges: [previous, next] of each chain; skews: (from, to, scores)
    of a label and the next label of another chain.
    """
    score = node[(np.arange(len(node)), *np.moveaxis(paths, 2, 0))].sum(1)
    for j, edge in enumerate(edges):
        score += edge[paths[:, :-1, j], paths[:, 1:, j]].sum(1)
    for i, j, table in skews:
        score += table[paths[:, :-1, i], paths[:, 1:, j]].sum(1)
    return score


def random_model(rng, T, *sizes, whole=False):
    def draw(*shape):
        return rng.integers(-2, 3, shape).astype(float) if whole else rng.normal(size=shape)

    return draw(T, *sizes), [draw(size, size) for size in sizes]


def test_1_instances_of_the_factorial_template():
    for T in (1, 2, 7):
        found = Counter()
        for clique in templates.factorial("tag", "phrase"):
            last = max(step for step, _ in clique.at)
            chains = {chain for _, chain in clique.at}
            kind = "single" if len(clique.at) == 1 else "token" if len(chains) == 2 else "pair"
            found[kind, *sorted(chains)] += sum(t + last < T for t in range(T))
        wanted = {("single", "tag"): T, ("single", "phrase"): T, ("token", "phrase", "tag"): T}
        assert found == Counter(wanted | {("pair", "tag"): T - 1, ("pair", "phrase"): T - 1})


def test_2_without_scores_between_the_chains_they_are_two():
    rng = np.random.default_rng(2)
    for T in (1, 2, 4):
        (first, (P,)), (second, (Q,)) = random_model(rng, T, 2), random_model(rng, T, 3)
        both = listed(paths_of(T, 2, 3), first[:, :, None] + second[:, None, :], [P, Q])
        alone = listed(paths_of(T, 2), first, [P]), listed(paths_of(T, 3), second, [Q])
        assert np.logaddexp.reduce(both) == pytest.approx(sum(np.logaddexp.reduce(one) for one in alone))


def test_3_the_second_crf_of_a_cascade_is_too_trustful():
    """Its own probability of the labels that it gives, less the share of them that is right."""
    data = load_dataset("conll2000", source="builtin", verbose=False)

    def words(columns):
        return [[{f"word={w}": 1.0} for w, *_ in line] for line in columns]

    def tagged(tags):
        """Each with its tag and the tag before."""
        pairs = [zip(["", *line[:-1]], line, strict=True) for line in tags]
        return [[{f"tag={tag}": 1.0, f"after={before}": 1.0} for before, tag in line] for line in pairs]

    train, test = data.train[:150], data.test[:200]
    gold = [[[tag for _, tag, _ in line] for line in some] for some in (train, test)]
    label = [[[y for *_, y in line] for line in some] for some in (train, test)]
    first = CRF(c2=0.1, max_iterations=40).fit(words(train), gold[0])
    second = CRF(c2=0.1, max_iterations=40).fit(tagged(gold[0]), label[0])
    guessed = first.predict(words(test))
    assert guessed != gold[1]
    trust = []
    for tags in (gold[1], guessed):
        p, said = second.predict_marginals(tagged(tags)), second.predict(tagged(tags))
        given, wanted, p = sum(said, []), sum(label[1], []), sum(p, [])
        right = np.array(given) == np.array(wanted)
        trust.append(np.mean([one[y] for one, y in zip(p, given, strict=True)]) - right.mean())
    assert trust[1] > trust[0] + 0.02


def test_4_three_chains():
    rng, sizes = np.random.default_rng(4), (2, 3, 4)
    for T in (1, 2, 3):
        node, edges = random_model(rng, T, *sizes)
        paths, counted = paths_of(T, *sizes), 0
        score = listed(paths, node, edges)
        alpha, beta = [np.exp(node[0])], [np.ones(sizes)]
        for t in range(1, T):
            a = alpha[-1]
            for j, edge in enumerate(edges):  # one index after the other: the label before becomes this one
                a = np.moveaxis(np.tensordot(a, np.exp(edge), (j, 0)), -1, j)
                counted += a.size * len(edge)
            alpha.append(a * np.exp(node[t]))
            b = beta[0] * np.exp(node[T - t])
            for j, edge in enumerate(edges):
                b = np.moveaxis(np.tensordot(b, np.exp(edge), (j, 1)), -1, j)
            beta.insert(0, b)
        z = alpha[-1].sum()
        assert np.log(z) == pytest.approx(np.logaddexp.reduce(score))
        assert counted == (T - 1) * np.prod(sizes) * sum(sizes)
        p = np.exp(score) / z
        for t in range(T):
            wanted = np.zeros(sizes)
            np.add.at(wanted, tuple(paths[:, t].T), p)
            np.testing.assert_allclose(alpha[t] * beta[t] / z, wanted, rtol=1e-10)


def test_5_the_other_skew_edge_by_the_other_order():
    rng = np.random.default_rng(5)
    for T in (1, 2, 4):
        node, (edge1, edge2) = random_model(rng, T, 2, 3)
        skew, paths = rng.normal(size=(3, 2)), paths_of(T, 2, 3)  # [b', a]
        score = listed(paths, node, [edge1, edge2], [(1, 0, skew)])
        N, P1, P2, S = np.exp(node), np.exp(edge1), np.exp(edge2), np.exp(skew).T  # S [a, b']
        alpha, K = [N[0]], [None]
        for t in range(1, T):
            K.append((P1.T @ alpha[-1]) * S)  # a' is gone; [a, b']
            alpha.append(N[t] * (K[t] @ P2))  # b' is gone
        z, beta = alpha[-1].sum(), np.ones((2, 3))
        assert np.log(z) == pytest.approx(np.logaddexp.reduce(score))
        for t in range(T - 1, 0, -1):
            G = N[t] * beta
            H = G @ P2.T  # [a, b']
            found = {
                (0, 0): P1 * (alpha[t - 1] @ (H * S).T),
                (1, 1): P2 * (K[t].T @ G),
                (1, 0): (K[t] * H).T,
            }
            for (i, j), pairs in found.items():
                wanted = np.zeros(pairs.shape)
                np.add.at(wanted, (paths[:, t - 1, i], paths[:, t, j]), np.exp(score))
                np.testing.assert_allclose(pairs, wanted, rtol=1e-10)
            beta = P1 @ (H * S)


def two_largest(table, axis):
    return -np.sort(-table, axis=axis).take(range(min(2, table.shape[axis])), axis=axis)


def test_6_the_two_best_labellings():
    """The last index is the rank: two scores in each cell of R and delta."""
    rng = np.random.default_rng(6)
    for T in (1, 2, 4) * 5:
        node, (edge1, edge2) = random_model(rng, T, 2, 3, whole=T > 2)
        skew, paths = rng.integers(-1, 2, (2, 3)).astype(float), paths_of(T, 2, 3)  # [a', b]
        score = listed(paths, node, [edge1, edge2], [(0, 1, skew)])
        delta, Rs = [np.stack([node[0], np.full((2, 3), -np.inf)], -1)], [None]
        for u in node[1:]:
            table = delta[-1][:, :, None, :] + edge2[None, :, :, None]  # [a', b', b, rank]
            R = two_largest(np.moveaxis(table, 1, 2).reshape(2, 3, -1), 2) + skew[..., None]
            table = R[:, None, :, :] + edge1[:, :, None, None]  # [a', a, b, rank]
            delta.append(two_largest(np.moveaxis(table, 0, 2).reshape(2, 3, -1), 2) + u[..., None])
            Rs.append(R)
        best = np.argsort(-delta[-1].ravel(), kind="stable")[:2]
        assert delta[-1].ravel()[best].tolist() == pytest.approx(np.sort(score)[::-1][:2].tolist())
        found = []
        for place in best:  # back, without pointers: which a' and rank, then which b' and rank
            a, b, rank = np.unravel_index(place, delta[-1].shape)
            path = [(a, b)]
            for t in range(T - 1, 0, -1):
                order = np.argsort(-(Rs[t][:, b] + edge1[:, [a]]).ravel(), kind="stable")
                before, rank = np.unravel_index(order[rank], (2, Rs[t].shape[-1]))
                order = np.argsort(-(delta[t - 1][before] + edge2[:, [b]]).ravel(), kind="stable")
                b, rank = np.unravel_index(order[rank], (3, 2))
                a = before
                path.insert(0, (a, b))
            found.append(path)
        assert found[0] != found[1]
        scores = listed(np.array(found), node, [edge1, edge2], [(0, 1, skew)])
        np.testing.assert_allclose(scores, delta[-1].ravel()[best])
