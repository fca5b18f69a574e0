"""Expected counts and curvatures of a block of coordinate descent, by enumeration."""

import numpy as np
import pytest
from helpers.corpora import chains_of, random_corpus, random_model
from helpers.problems import dense_weights

from crfbook import brute
from crfbook.data.corpus import make_corpus, take_sequences
from crfbook.learners.coordinate import derivatives
from crfbook.learners.coordinate.arrays import ModelSizes, Sparse
from crfbook.learners.coordinate.lattice import UNSAFE
from crfbook.learners.coordinate.sweeps import Sweeper
from crfbook.learners.coordinate.visit import block_sums_plain, scale_curvatures

pytestmark = pytest.mark.kernels
KINDS = [{}, {"n_classes": 3}, {"valued": True}, {"weighted": True, "n_classes": 2}]


def wanted(corpus, features, w, repeats):
    """(expected, curvature, gold) of all nodes (3, A, L) and edges (3, B, L, L):
    sums over tokens of x p and n x^2 p (1 - p).
    """
    n_labels, n_attrs, n_edge_attrs = features[:3]
    node, edge = np.zeros((3, n_attrs, n_labels)), np.zeros((3, n_edge_attrs, n_labels, n_labels))
    weight = corpus.seq_weight if len(corpus.seq_weight) else np.ones(corpus.n_sequences)
    for i, chain in enumerate(chains_of(corpus, features, w)):
        begin, n = corpus.seq_ptr[i], len(chain[0])
        if n == 0:
            continue
        p_node, p_edge, y = (
            brute.node_marginals(*chain),
            brute.edge_marginals(*chain),
            corpus.labels[begin : begin + n],
        )
        fires, pairs = np.zeros((n, n_attrs)), np.zeros((n, n_edge_attrs), bool)
        for t in range(n):
            item = slice(*corpus.attr_ptr[begin + t : begin + t + 2])
            np.add.at(fires[t], corpus.attr_idx[item], corpus.attr_val[item] if len(corpus.attr_val) else 1.0)
            pairs[t, corpus.class_attr[slice(*corpus.class_ptr[chain[2][t] : chain[2][t] + 2])]] = t > 0
        held = [
            np.array(
                [
                    (corpus.attr_idx[slice(*corpus.attr_ptr[begin + t : begin + t + 2])] == a).any()
                    for t in range(n)
                ]
            )
            for a in range(n_attrs)
        ]
        for t in range(n):
            for a in range(n_attrs):
                x, many = fires[t, a], held[a].sum() if repeats else 1
                node[0, a] += weight[i] * x * p_node[t]
                node[1, a] += weight[i] * many * x * x * (p_node[t] - p_node[t] ** 2)
                node[2, a, y[t]] += weight[i] * x
            for b in np.flatnonzero(pairs[t]):
                many = pairs[:, b].sum() if repeats else 1
                edge[0, b] += weight[i] * p_edge[t]
                edge[1, b] += weight[i] * many * (p_edge[t] - p_edge[t] ** 2)
                edge[2, b, y[t - 1], y[t]] += weight[i]
    return node, edge


def extend_all(run):
    """alpha and beta of all tokens."""
    length = np.diff(run.corpus.seq_ptr)
    full = np.flatnonzero(length).astype(np.int32)
    run._by_parts.extend(
        full, np.zeros(len(full), np.int32), (length[full] - 1).astype(np.int32), 0, run.arrays
    )


@pytest.mark.parametrize("share", [0.0, 2.0], ids=["whole tables", "lists"])
@pytest.mark.parametrize("few", [1, 2, 100], ids=lambda n: f"tables from {n} tokens")
@pytest.mark.parametrize("repeats", [0, 1])
@pytest.mark.parametrize("size", [1.0, 1000.0])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_sums_of_every_block(kind, size, repeats, few, share, monkeypatch):
    rng = np.random.default_rng(5)
    corpus = random_corpus(rng, lengths=(3, 0, 1, 4, 2, 5, 4, 3, 4), **kind)
    features, w = random_model(rng, corpus, all_states=True, all_transitions=True)
    w[features.n_node :] *= rng.random(features.n_edge) < 0.6
    if few != derivatives.FEW_TOKENS:  # compiled in: a global of the kernel
        monkeypatch.setattr(derivatives, "FEW_TOKENS", few)
        sums = getattr(derivatives.block_gradient, "py_func", derivatives.block_gradient)
        monkeypatch.setattr("crfbook.learners.coordinate.visit.block_gradient", sums)
    monkeypatch.setattr("crfbook.learners.coordinate.sweeps.DENSE_SHARE", share)
    run = Sweeper(corpus, features, ModelSizes(*features[:3]), None, joint=False)
    run.set_rule(0.3, 0.05)
    run.load(Sparse(features, w * size))
    run.renew()
    rule, state = run.rule._replace(repeats=repeats), run.arrays
    node, edge = wanted(corpus, features, w * size, repeats)
    extend_all(run)
    assert size == 1.0 or state.lattices.place[UNSAFE].any()
    for g in run.order.tolist():
        a, b = state.blocks.member[:, g]
        run._by_parts.gradient(g, rule, state)
        if a >= 0:
            np.testing.assert_allclose(state.sums.node[:, :3], node[:, a], rtol=1e-9, atol=1e-11)
        if b >= 0:
            np.testing.assert_allclose(state.sums.edge[:, :3, :3], edge[:, b], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("share", [0.0, 2.0], ids=["whole tables", "lists"])
@pytest.mark.parametrize("repeats", [0, 1])
@pytest.mark.parametrize("size", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_matrix_products_give_the_sums_of_the_readable_sister(kind, size, repeats, share, monkeypatch):
    """Enough tokens for several batches of rows; no sequence is unsafe. Scores of thousands of nats: 1e-9."""
    rng = np.random.default_rng(11)
    corpus = random_corpus(rng, lengths=(7, 0, 1, 40, 2, 90, 4), n_labels=5, **kind)
    features, w = random_model(rng, corpus, n_labels=5, all_states=True, all_transitions=True)
    w[features.n_node :] *= rng.random(features.n_edge) < 0.4
    monkeypatch.setattr("crfbook.learners.coordinate.sweeps.DENSE_SHARE", share)
    run = Sweeper(corpus, features, ModelSizes(*features[:3]), None)
    run.set_rule(0.3, 0.05)
    run.load(Sparse(features, w * size))
    run.renew()
    extend_all(run)
    (blocks, lattices, tables), fast = run.arrays[:3], run.arrays.sums
    assert not lattices.place[UNSAFE].any()
    weights = dense_weights(features, w * size)
    single = [take_sequences(corpus, [i]) for i in range(corpus.n_sequences)]
    for g, (a, b) in enumerate(blocks.member.T.tolist()):
        low, high = blocks.occ_ptr[blocks.visit_ptr[g : g + 2]].tolist()
        derivatives.block_gradient(g, low, high, repeats, blocks, lattices, tables, fast, run.arrays.work)
        plain = [np.zeros_like(sums) for sums in fast]
        for i, sequence in enumerate(single):
            visit = np.flatnonzero(blocks.visit_seq[slice(*blocks.visit_ptr[g : g + 2])] == i)
            many = np.diff(blocks.occ_ptr)[blocks.visit_ptr[g] + visit].sum() if repeats else 1
            for out, sums in zip(plain, block_sums_plain(a, b, sequence, *weights), strict=True):
                sums[derivatives.CURVATURE] *= many
                out[(slice(None), *[slice(0, 5)] * (sums.ndim - 1))] += sums
        for mine, wanted_sums, k in zip(fast, plain, (a, b), strict=True):
            if k < 0:
                continue
            largest = np.abs(wanted_sums).max(axis=tuple(range(1, wanted_sums.ndim)), keepdims=True)
            assert (np.abs(mine - wanted_sums) <= 1e-9 * np.maximum(1.0, largest)).all()


@pytest.mark.parametrize(("joint", "gamma"), [(True, 4.0), (False, 2.0)], ids=["joint", "apart"])
def test_the_squares_rule_bounds_the_hessian(joint, gamma):
    """The first label is certain, so that the pair says what the second label says:
    there the bound of a joint block is tight, and 2 fails.
    """
    corpus = make_corpus(
        [0, 2], [0, 1, 2], [0, 1], labels=[0, 0], edge_class=[0, 1], class_ptr=[0, 0, 1], class_attr=[1]
    )
    run = Sweeper(corpus, None, ModelSizes(2, 2, 2), None, joint=joint, edge_attrs=np.array([1]))
    run.set_rule(0.3, 0.05, step="cs")
    run.arrays.weights.mu[0, 0] = 50.0
    run.renew()
    state, cells = run.arrays, np.array([-1, -2, *(yp << 16 | y for yp in range(2) for y in range(2))])
    paths = [(y0, y1) for y0 in range(2) for y1 in range(2)]
    p = np.exp([50.0 * (y0 == 0) - 50.0 for y0, _ in paths])
    fires = np.array([[c in (-1 - y1, y0 << 16 | y1) for c in cells] for y0, y1 in paths], float)
    p /= p.sum()
    hessian = (fires.T * p) @ fires - np.outer(p @ fires, p @ fires)
    seen = set()
    for g in run.order.tolist():
        a, b = state.blocks.member[:, g].tolist()
        if a == 0:
            continue
        seen.add((a, b))
        mine = np.flatnonzero(((cells < 0) & (a >= 0)) | ((cells >= 0) & (b >= 0)))
        run._by_parts.extend(*(np.array([at], np.int32) for at in (0, 0, 1)), 0, state)
        run._by_parts.gradient(g, run.rule, state)
        curve = [
            state.sums.node[1, -1 - c] if c < 0 else state.sums.edge[1, c >> 16, c & 65535]
            for c in cells[mine]
        ]
        state.sums.node[2], state.sums.edge[2] = (
            state.sums.node[0],
            state.sums.edge[0],
        )  # no gradient: no other factor
        move = state.move
        move.n[0], move.cell[: len(mine)], move.number[3, : len(mine)] = len(mine), cells[mine], curve
        scale_curvatures(run.rule, 0.0, state.sums, move)
        found, move.n[0] = move.number[3, : len(mine)], 0
        np.testing.assert_allclose(found, gamma * np.maximum(curve, 1e-12), rtol=1e-12)
        lowest = [
            np.linalg.eigvalsh(np.diag(found * share) - hessian[np.ix_(mine, mine)]).min()
            for share in (1.0, 0.5)
        ]
        assert lowest[0] >= -1e-12 and (lowest[1] < -0.1 or not joint)
    assert seen == ({(1, 1)} if joint else {(1, -1), (-1, 1)})
