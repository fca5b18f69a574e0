"""Shared rows of lattices: who shares what, by comparing whole prefixes and suffixes;
what is kept equals what is built anew.
"""

import numpy as np
import pytest
from helpers.corpora import brute_value, random_corpus, random_model

from crfbook.data.corpus import make_corpus
from crfbook.data.features import observed
from crfbook.learners.coordinate.arrays import ModelSizes, Sparse, scatter
from crfbook.learners.coordinate.lattice import UNSAFE
from crfbook.learners.coordinate.sweeps import Sweeper
from crfbook.learners.coordinate.token_index import balanced, lattice_rows, node_rows
from crfbook.learners.coordinate.visit import VisitByParts, block_sums_plain

pytestmark = pytest.mark.kernels
KINDS = [{}, {"n_classes": 3}, {"valued": True}, {"weighted": True, "n_classes": 2}]


def words(seed=0, n_words=60, n_symbols=3, n_labels=3, alike=True):
    """Words over few letters, of lengths 0 to 5: many begin and end alike.
    A letter is a node and an edge attribute (or not alike).
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, n_words)
    x = rng.integers(0, n_symbols, lengths.sum())
    classes = [[0, s + 1] for s in range(n_symbols)]
    corpus = make_corpus(
        np.cumsum([0, *lengths]),
        np.arange(len(x) + 1),
        x,
        labels=rng.integers(0, n_labels, len(x)),
        edge_class=x if alike else rng.integers(0, n_symbols, len(x)),
        class_ptr=np.arange(n_symbols + 1) * 2,
        class_attr=np.concatenate(classes),
    )
    return corpus, observed(corpus, n_labels, n_symbols, n_symbols + 1, all_states=True, all_transitions=True)


def run_of(corpus, features, w):
    run = Sweeper(corpus, features, ModelSizes(*features[:3]), None)
    run.set_rule(0.3, 0.05)
    run.load(Sparse(features, w))
    run.renew()
    return run


def everything(run):
    """All alphas, betas and log Z of a run, extended to the ends; one row a token."""
    corpus, lattices = run.corpus, run.arrays.lattices
    length = np.diff(corpus.seq_ptr)
    full = np.flatnonzero(length).astype(np.int32)
    run._by_parts.extend(
        full, np.zeros(len(full), np.int32), (length[full] - 1).astype(np.int32), 0, run.arrays
    )
    safe = lattices.place[UNSAFE, lattices.sequence] == 0
    return (
        lattices.alpha[lattices.alpha_row][safe],
        lattices.beta[lattices.beta_row][safe],
        lattices.psi_node[lattices.node_row],
        lattices.log_z[full],
    )


@pytest.mark.parametrize("kind", [*KINDS, None, "other classes"], ids=str)
def test_rows_are_shared_by_equal_prefixes_and_suffixes_and_by_nothing_else(kind):
    rng = np.random.default_rng(0)
    plain = kind is None or kind == "other classes"
    corpus = (
        words(alike=kind is None)[0]
        if plain
        else random_corpus(rng, lengths=(3, 0, 1, 1, 2, 5, 2, 3, 4, 1), **kind)
    )
    bound_row = rng.integers(0, 2, corpus.n_tokens) if plain else np.zeros(corpus.n_tokens, int)
    values = corpus.attr_val if len(corpus.attr_val) else np.ones(len(corpus.attr_idx))
    item = [slice(*corpus.attr_ptr[t : t + 2]) for t in range(corpus.n_tokens)]
    look = [(corpus.attr_idx[s].tobytes(), values[s].tobytes(), bound_row[t]) for t, s in enumerate(item)]
    row, sample = node_rows(corpus, bound_row)
    (alpha, n_alpha), (beta, n_beta) = lattice_rows(corpus, row)
    into = list(zip(look, corpus.edge_class.tolist(), strict=True)).__getitem__
    same = {name: {} for name in ("node", "alpha", "beta")}
    for first, last in zip(corpus.seq_ptr[:-1], corpus.seq_ptr[1:], strict=True):
        for t in range(first, last):
            assert same["node"].setdefault(look[t], row[t]) == row[t] and look[sample[row[t]]] == look[t]
            prefix = (look[first], *map(into, range(first + 1, t + 1)))
            assert same["alpha"].setdefault(prefix, alpha[t]) == alpha[t]
            assert same["beta"].setdefault(tuple(map(into, range(t + 1, last))), beta[t]) == beta[t]
    assert [len(set(found.values())) for found in same.values()] == list(
        map(len, same.values())
    )  # different ones share nothing
    assert (n_alpha, n_beta) == (len(same["alpha"]), len(same["beta"])) and beta[corpus.seq_ptr[1:] - 1][
        np.diff(corpus.seq_ptr) > 0
    ].max() == 0
    assert not plain or n_alpha < 0.9 * corpus.n_tokens


@pytest.mark.parametrize("few", [-1, 100], ids=["in one kernel", "in parts"])
@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("kind", [None, "other classes", {"n_classes": 4, "valued": True}], ids=str)
def test_what_is_kept_equals_what_is_built_anew(kind, size, few, monkeypatch):
    """Sweeps over the blocks in any order, from weights far away; 1000: sequences become unsafe,
    and safe again, on the way.
    """
    rng = np.random.default_rng(1)
    corpus, features = words(2, alike=kind is None)
    if isinstance(kind, dict):
        corpus = random_corpus(rng, lengths=(3, 1, 1, 1, 2, 5, 2, 3, 4, 1), **kind)
        features = random_model(rng, corpus, all_states=True, all_transitions=True)[0]
    monkeypatch.setattr("crfbook.learners.coordinate.sweeps.FEW_BLOCKS", few)
    monkeypatch.setattr("crfbook.learners.coordinate.sweeps.MOST_BY_PARTS", np.inf)
    run = run_of(corpus, features, rng.normal(size=features.n_features) * size)
    run.compiled = False
    objective, met_unsafe = run.renew(), False
    for _ in range(12):
        met_unsafe |= bool(run.arrays.lattices.place[UNSAFE].any())
        objective += run.sweep(rng.permutation(run.order)[:2].astype(np.int32))
        w = scatter(run.export(), features)
        for kept, fresh in zip(everything(run), everything(run_of(corpus, features, w)), strict=True):
            np.testing.assert_allclose(kept, fresh, rtol=1e-8, atol=1e-290)
        np.testing.assert_allclose(
            objective, brute_value(corpus, features, w, 0.05) + 0.3 * np.abs(w).sum(), rtol=1e-9
        )
    assert met_unsafe or size < 1000.0


def test_parts_and_one_kernel_have_the_same_bits(monkeypatch):
    corpus, features = words(4)
    runs = [
        run_of(corpus, features, np.random.default_rng(5).normal(size=features.n_features)) for _ in range(2)
    ]
    for run, few in zip(runs, (-1, 100), strict=True):
        monkeypatch.setattr("crfbook.learners.coordinate.sweeps.FEW_BLOCKS", few)
        monkeypatch.setattr("crfbook.learners.coordinate.sweeps.MOST_BY_PARTS", np.inf)
        run.compiled, before = False, VisitByParts.n_by_parts
        run.renew()
        for _ in range(4):
            run.sweep()
        assert (VisitByParts.n_by_parts > before) == (few > 0)
    one, other = runs
    assert np.array_equal(one.export().w, other.export().w) and one.products == other.products
    assert np.array_equal(one.arrays.count, other.arrays.count)


def test_common_beginnings_and_ends_save_products():
    """A corpus given twice: sums double, products do not."""
    corpus, features = words(3)
    twice = make_corpus(
        np.concatenate([corpus.seq_ptr, corpus.n_tokens + corpus.seq_ptr[1:]]),
        np.arange(2 * corpus.n_tokens + 1),
        np.tile(corpus.attr_idx, 2),
        labels=np.tile(corpus.labels, 2),
        edge_class=np.tile(corpus.edge_class, 2),
        class_ptr=corpus.class_ptr,
        class_attr=corpus.class_attr,
    )
    w = np.random.default_rng(0).normal(size=features.n_features)
    one, two = run_of(corpus, features, w), run_of(twice, features, w)
    everything(one), everything(two)
    rows = (
        one.arrays.lattices.alpha.shape[0] + one.arrays.lattices.beta.shape[0] - 1
    )  # the first row of beta is constant
    assert one.products == two.products == rows
    np.testing.assert_allclose(two.loss(), 2.0 * one.loss(), rtol=1e-12)


def test_groups_keep_roots_together_and_are_balanced():
    rng = np.random.default_rng(0)
    root, size = rng.integers(0, 30, 1000), rng.integers(1, 9, 1000)
    group = balanced(root, size, 4)
    assert all(len(set(group[root == r].tolist())) == 1 for r in range(30))
    load = np.bincount(group, size)
    assert len(load) == 4 and load.max() < 1.1 * load.mean()


@pytest.mark.parametrize(
    "kind", [{"n_classes": 4}, {"n_classes": 4, "valued": True}, {"weighted": True}], ids=str
)
def test_sums_of_a_block_with_unsafe_sequences(kind):
    """At weights whose scaled vectors cannot be trusted: those of the readable sister, in logarithms."""
    rng, met_unsafe = np.random.default_rng(3), 0
    corpus = random_corpus(rng, lengths=(3, 1, 1, 2, 5, 2, 3, 4, 1), **kind)
    features = random_model(rng, corpus, all_states=True, all_transitions=True)[0]
    L, n_node = features.n_labels, features.n_node
    for seed in range(6):
        w = np.random.default_rng(seed).normal(size=features.n_features) * 1000.0
        mu, nu = w[:n_node].reshape(-1, L), w[n_node:].reshape(-1, L, L)
        run = run_of(corpus, features, w)
        arrays, blocks = run.arrays, run.arrays.blocks
        everything(run)  # all vectors reach the ends
        for g in run.order.tolist():
            a, b = blocks.member[:, g].tolist()
            visits = slice(*blocks.visit_ptr[g : g + 2].tolist())
            met_unsafe += int(arrays.lattices.place[UNSAFE, blocks.visit_seq[visits]].sum())
            run._by_parts.gradient(g, run.rule._replace(repeats=0), arrays)
            node, edge = block_sums_plain(a, b, corpus, mu, nu)
            if a >= 0:  # what stands there of an attribute that there is not is read by nobody
                np.testing.assert_allclose(arrays.sums.node[:2, :L], node[:2], rtol=1e-9, atol=1e-9)
            if b >= 0:
                np.testing.assert_allclose(arrays.sums.edge[:2, :L, :L], edge[:2], rtol=1e-9, atol=1e-9)
    assert met_unsafe > 50
