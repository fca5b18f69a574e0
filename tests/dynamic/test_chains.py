"""Kernels of chains: products with maxima, the chain of pairs of labels, operation counts, more labels than
can be enumerated.
"""

import numpy as np
import pytest
from helpers.corpora import random_corpus

from crfbook.chain.likelihood import Batch, make_work
from crfbook.chain.packing import pack
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus
from crfbook.dynamic.elimination import chain_potentials, chain_work, chains_forward, elimination_rows
from crfbook.dynamic.inference import DynamicModel, decode, kbest, marginals
from crfbook.dynamic.layout import dynamic_features, lay_out_template, log_tables
from crfbook.dynamic.objective import DynamicObjective
from crfbook.dynamic.templates import Clique, factorial, linear
from crfbook.dynamic.viterbi import chains_viterbi, max_chains, max_plus

pytestmark = pytest.mark.kernels
LENGTHS = (4, 1, 7, 0, 7, 2, 12)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("m", [1, 5, 6, 7, 11, 12, 19])
def test_products_with_maxima(n, m):
    """Two rows and six terms at a time, and what remains of both; -inf forbids."""
    rng = np.random.default_rng(n * m)
    for width in (1, 3):
        a, b, out = rng.normal(size=(n, m)), rng.normal(size=(m, width)), np.full((n, width), np.nan)
        for y in range(m):  # each term is the largest once
            largest = a.copy()
            largest[:, y] += 100.0
            max_plus(largest, b, out)
            np.testing.assert_array_equal(out, (largest[:, :, None] + b).max(axis=1))
        a[rng.random(a.shape) < 0.5] = -np.inf
        a[0] = -np.inf
        max_plus(a, b, out)
        np.testing.assert_array_equal(out, (a[:, :, None] + b).max(axis=1))


def chain_problem(cliques, sizes, seed=0, n_attrs=5):
    rng = np.random.default_rng(seed)
    chains = "abc"[: len(sizes)]
    names = {chain: list(range(n)) for chain, n in zip(chains, sizes, strict=True)}
    layout = lay_out_template(cliques, tuple(chains), names)
    corpus = random_corpus(rng, LENGTHS, 2, n_attrs, weighted=True)
    labels = np.stack([rng.integers(0, n, corpus.n_tokens) for n in sizes], axis=1).astype(np.int32)
    features = dynamic_features(layout, corpus, labels, n_attrs)
    return corpus, labels, layout, features, rng.normal(size=features.n_features)


@pytest.mark.parametrize("sizes", [(7, 13), (13, 7), (6, 6), (1, 12), (2, 3)])
def test_the_chain_of_pairs_of_labels_finds_the_same_path(sizes):
    corpus, _, layout, features, w = chain_problem(factorial("a", "b"), sizes)
    tables = log_tables(layout, features, w)
    chains, axes = max_chains(layout, tables)
    rng = np.random.default_rng(1)
    pairs = {table.at: scores for table, scores in zip(layout.tables, tables, strict=True)}
    beside, steps = pairs[(0, axes[0]), (0, axes[1])], [pairs[(0, c), (1, c)] for c in axes]
    n = beside.size
    joint = (steps[0][:, None, :, None] + steps[1][None, :, None, :]).reshape(n, n)
    for T in (1, 2, 9):
        rows = rng.normal(size=(T, layout.n_cells))
        u, v = (rows[:, layout.first[c] : layout.first[c + 1]] for c in axes)
        nodes = (u[:, :, None] + v[:, None, :] + beside).reshape(T, n)
        best, before = nodes[0], np.zeros((T, n), int)
        for t in range(1, T):
            reached = best[:, None] + joint
            best, before[t] = reached.max(axis=0) + nodes[t], reached.argmax(axis=0)
        path = [int(np.argmax(best))]
        for t in range(T - 1, 0, -1):
            path.insert(0, before[t, path[0]])
        found, score = np.full((T, 2), -1, np.int32), np.zeros(1)
        work = np.full((T, n), np.nan), np.full((2, n), np.nan)
        chains_viterbi(rows, chains, np.array([0, T]), found, score, *work)
        np.testing.assert_array_equal(found[:, 0] * beside.shape[1] + found[:, 1], path)
        assert score[0] == pytest.approx(best.max(), rel=1e-13)


@pytest.mark.parametrize("sizes", [(5, 3), (2, 3, 4), (6,)])
def test_products_of_a_step(sizes):
    """L_1 L_2^2 + L_1^2 L_2 a token that has one before it; K (L_1 + .. + L_m) for m chains."""
    corpus, _, layout, features, w = chain_problem(factorial(*"abc"[: len(sizes)], skew=True), sizes)
    chains = chain_potentials(layout, log_tables(layout, features, w))
    packing = pack(corpus, elimination_rows(layout), n_shards=1)
    work = make_work(packing, layout.n_cells)
    wide = max(int(packing.steps(b)[1]) for b in range(packing.n_batches))
    own, n_steps = chain_work(sizes, len(work.gain), wide), 0
    for b in range(packing.n_batches):
        batch = Batch(b, packing, work)
        batch.log_node[:] = 0.0
        chains_forward(batch.step_ptr, chains, batch.log_node, np.zeros(len(batch.weight)), batch.flags, own)
        n_steps += batch.step_ptr[-1] - batch.step_ptr[1]
    assert n_steps == sum(max(0, n - 1) for n in LENGTHS)
    assert own.n_products[0] == n_steps * int(np.prod(sizes)) * sum(sizes)


MORE = {
    "two chains": (factorial("a", "b"), (8, 7)),
    "skew": (factorial("a", "b", skew=True), (7, 8)),
    "skew back": ([*factorial("a", "b"), Clique(((1, "a"), (0, "b")))], (7, 8)),
    "three chains": (factorial("a", "b", "c", skew=True), (7, 3, 6)),
    "pairs of the text": (factorial("a", "b", features="supported"), (7, 6)),
    "pairs of the text, skew": (
        [
            *linear("a", "b", features="bias"),
            Clique(((0, "a"), (0, "b")), "all"),
            Clique(((0, "a"), (1, "b"))),
        ],
        (7, 6),
    ),
    "a triple of the text": (
        [*linear("a", "b", "c"), Clique(((0, "c"), (0, "a"), (0, "b")), "supported")], (4, 2, 7),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_elimination_is_the_junction_tree(name):
    corpus, labels, layout, features, w = chain_problem(*MORE[name])
    assert layout.axes
    models = [DynamicModel(layout, features, w, engine) for engine in ("elimination", "junction")]
    (p, log_z), (q, wanted) = (marginals(corpus, model) for model in models)
    np.testing.assert_allclose(log_z, wanted, rtol=1e-12)
    np.testing.assert_allclose(p, q, atol=1e-12)
    (path, score), (other, best) = (decode(corpus, model) for model in models)
    np.testing.assert_array_equal(path, other)
    np.testing.assert_allclose(score, best, rtol=1e-12)
    known = np.where(np.random.default_rng(0).random(labels.shape) < 0.3, np.int32(-1), labels)
    for held in (labels, known):
        (a, slope), (b, other) = (
            DynamicObjective(corpus, held, layout, features, c2=0.1, engine=model.engine)(w)
            for model in models
        )
        assert a == pytest.approx(b, rel=1e-12)
        np.testing.assert_allclose(slope, other, atol=1e-10)
    for one, two in zip(*(kbest(corpus, model, 4) for model in models), strict=True):
        assert [score for _, score in one] == pytest.approx([score for _, score in two], rel=1e-12)
        assert [x.tolist() for x, _ in one] == [x.tolist() for x, _ in two]


def on_the_edge(scores, allowed, start, change):
    """Two chains; the label 1 of "a" scores scores[t], the other one 0; `change`: of a transition to it."""
    n = len(scores)
    corpus = make_corpus([0, n], np.arange(n + 1), np.zeros(n, int), labels=None, attr_val=scores)
    limits = {"a": Constraints(np.array(allowed, bool), np.array(start, bool), np.ones(2, bool))}
    labels = {"a": [0, 1], "b": [0, 1, 2]}
    layout = lay_out_template(factorial("a", "b", node_features="all"), ("a", "b"), labels, limits)
    features = dynamic_features(layout, corpus, np.zeros((n, 2), np.int32), 1)
    w = np.zeros(features.n_features)
    w[1] = 1.0  # attribute 0 and label 1 of "a"
    change_at = next(table for table in layout.tables if table.at == ((0, 0), (1, 0))).start
    w[features.n_node + change_at + 1] = change
    models = [DynamicModel(layout, features, w, engine) for engine in ("elimination", "junction")]
    return corpus, layout, models


@pytest.mark.parametrize(
    ("scores", "allowed", "start", "change"),
    [
        ([0.0, *[250.0] * 5], [[1, 1], [0, 1]], [1, 0], -800.0),
        ([*[-250.0] * 4, *[250.0] * 6], [[1, 0], [0, 1]], [1, 1], 0.0),
        ([250.0] * 6, [[1, 0], [0, 1]], [1, 0], 0.0),
    ],
    ids=["a potential that vanishes", "a label that fades and wins", "a label out of reach"],
)
def test_digits_lost_unseen(scores, allowed, start, change):
    """No number overflows, and what is 0 in scaled tables decides, or must not."""
    corpus, layout, models = on_the_edge(scores, allowed, start, change)
    (p, log_z), (q, want) = (marginals(corpus, model) for model in models)
    np.testing.assert_allclose(log_z, want, rtol=1e-12)
    np.testing.assert_allclose(p, q, atol=1e-12)
    values = [
        DynamicObjective(corpus, np.zeros((len(scores), 2), np.int32), layout, m.features, engine=m.engine)(
            m.w
        )
        for m in models
    ]
    assert values[0][0] == pytest.approx(values[1][0], rel=1e-12, abs=1e-9)
    np.testing.assert_allclose(values[0][1], values[1][1], atol=1e-8)


@pytest.mark.parametrize("chains", [("c", "b", "a"), ("a", "b", "c")])
def test_rules_and_limits_stand_in_the_order_of_a_table(chains):
    """However a clique lists its labels: the label of c is that of b before it, unless a is true."""
    at = ((0, "b"), (0, "a"), (1, "c"))
    labels = {"c": [0, 7], "b": [0, 5, 7], "a": [True, False]}
    cliques = [*linear("c", "b", "a"), Clique(at, "none", "copy unless")]
    limits = np.array([[True, False, True], [False, True, True]])
    layout = lay_out_template(cliques, chains, labels, {("a", "b"): limits})
    rule, pair = layout.tables[-2:]
    for table in (rule, pair):
        for cell in np.ndindex(table.shape):
            own = {(dt, layout.chains[c]): i for (dt, c), i in zip(table.at, cell, strict=True)}
            if table is rule:
                b, a, c = (labels[name][own[dt, name]] for dt, name in at)
                assert table.allowed[cell] == (a or b == c)
            else:
                assert table.allowed[cell] == limits[own[0, "a"], own[0, "b"]]
