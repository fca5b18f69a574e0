"""Sparse forward-backward, Viterbi and objective against enumeration and against the dense forms;
products counted.
"""

import warnings
from functools import partial
from threading import Thread
from unittest import mock

import numpy as np
import pytest
from helpers.corpora import brute_value, chains_of, random_corpus, random_model
from helpers.memory import peak_bytes
from helpers.problems import constraints_for

from crfbook import brute
from crfbook.chain import inference
from crfbook.chain.objective import Objective
from crfbook.chain.packing import padded_bounds
from crfbook.chain.sparse import choice as cost_model
from crfbook.chain.sparse import forward_backward as kernels
from crfbook.chain.sparse.choice import FITTED, FormChooser, Sizes, choose_form, decoding_form, terms
from crfbook.chain.sparse.form import SparseBatch
from crfbook.chain.sparse.potentials import sparse_edges, sparsify
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus, slice_sequences
from crfbook.data.features import log_edge, observed, select

pytestmark = pytest.mark.usefixtures("kernels_only")
CLOSE = {"rtol": 1e-9, "atol": 1e-10}
KINDS = ("plain", "no base", "constrained", "weighted", "wide", "extreme")


def case(kind, seed, lengths=(3, 0, 1, 4, 2, 5), n_labels=3, n_classes=4):
    """(corpus, features, w, constraints): several edge attributes a token,
    about half of the edge weights 0.
    """
    rng = np.random.default_rng(seed)
    corpus = random_corpus(
        rng,
        lengths,
        n_labels,
        7,
        n_classes,
        valued=seed % 2 == 1,
        weighted=kind in ("weighted", "wide", "extreme"),
    )
    features, w = random_model(rng, corpus, n_labels, 7, all_transitions=seed % 3 > 0)
    edge = w[features.n_node :]
    edge[rng.random(len(edge)) < rng.random()] = 0.0
    edge *= {"wide": 40.0, "extreme": 1000.0}.get(kind, 1.0)
    if kind == "no base":
        edge[: features.edge_ptr[1]] = 0.0
    return corpus, features, w, constraints_for(corpus, n_labels) if kind == "constrained" else None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_value_is_that_of_enumeration_and_gradient_that_of_tables(kind, seed):
    corpus, features, w, constraints = case(kind, seed)
    sparse = Objective(corpus, features, c2=0.3, constraints=constraints, form="sparse")
    value, grad = sparse(w)
    np.testing.assert_allclose(value, brute_value(corpus, features, w, 0.3, constraints), **CLOSE)
    _, wanted = Objective(corpus, features, c2=0.3, constraints=constraints, form="batched")(w)
    np.testing.assert_allclose(grad, wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_marginals_are_those_of_enumeration(kind, seed):
    corpus, features, w, constraints = case(kind, seed)
    found = inference.node_marginals(corpus, features, w, constraints, form="sparse")
    log_z = inference.log_partition(corpus, features, w, constraints, form="sparse")
    for i, chain in enumerate(chains_of(corpus, features, w, constraints)):
        tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
        if len(chain[0]):
            np.testing.assert_allclose(found[tokens], brute.node_marginals(*chain), **CLOSE)
            np.testing.assert_allclose(log_z[i], brute.log_z(*chain), **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_the_best_path_is_that_of_the_dense_form(kind, seed):
    corpus, features, w, constraints = case(kind, seed, lengths=(3, 0, 1, 4, 2, 30), n_labels=5)
    dense, sparse = (
        inference.decode(corpus, features, w, constraints, form=form) for form in ("dense", "sparse")
    )
    np.testing.assert_array_equal(sparse, dense)


def test_products_are_counted_and_are_exactly_the_stored_pairs():
    """One product, forward and backward, for each pair that a token's class stores,
    and none for the others.
    """
    corpus, features, w, _ = case("no base", 1, lengths=(9, 4, 1, 0, 7), n_labels=9)
    edge = w[features.n_node :]
    edge[np.random.default_rng(0).random(len(edge)) < 0.9] = 0.0
    table = log_edge(features, w, corpus.class_ptr, corpus.class_attr)
    inner = np.setdiff1d(np.arange(corpus.n_tokens), corpus.seq_ptr)
    wanted = sum(np.count_nonzero(table[k]) for k in corpus.edge_class[inner])
    objective = Objective(corpus, features, form="sparse")
    assert objective.n_products == (0, 0)
    objective(w)
    assert objective.n_products == (wanted, wanted) and 0 < wanted < 0.25 * 81 * len(inner)


class Counted(float):
    """A number that counts the products it enters."""

    n = 0

    def __mul__(self, other):
        Counted.n += 1
        return float(self) * float(other)

    __rmul__ = __mul__


@pytest.mark.parametrize("kernel", ["push_entries", "pull_entries"])
def test_the_count_is_that_of_the_multiplications_that_are_made(kernel):
    """The kernel itself, run as Python on gains that count: rows in fours and the rest."""
    run = getattr(kernels, kernel)
    run = getattr(run, "py_func", run)
    rng, gain = np.random.default_rng(0), np.empty(5, object)
    gain[:] = [Counted(g) for g in rng.normal(size=5)]
    prev, after = np.array([0, 0, 1, 3, 3], np.uint32), np.array([1, 3, 2, 0, 1], np.uint32)
    source, out = rng.random((14, 4)), np.zeros((14, 4))
    rows = np.arange(7, 14)
    Counted.n = 0
    run(source, rows, 7, 0, 5, prev, after, gain, False, np.ones((14, 4)), out)
    assert Counted.n == 5 * 7
    table = np.zeros((4, 4))
    table[prev, after] = gain.astype(float)
    found, wanted = (
        (out[7:], 1.0 + source[:7] @ table)
        if kernel == "push_entries"
        else (out[:7], 1.0 + source[7:] @ table.T)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("way", ["push", "pull"])
@pytest.mark.parametrize("based", [False, True], ids=["no base", "base"])
@pytest.mark.parametrize("size", [1.0, 1e-150, 1e150])
def test_four_rows_at_a_time_are_the_same_as_row_by_row(way, based, size):
    """Each number of rows, one entry, many or none, labels with no entry, and a part of the entries."""
    rng, shift, width = np.random.default_rng(7), 9, 8
    fast = getattr(kernels, f"{way}_entries")
    for n_rows in range(10):
        for n_entries in (0, 1, 5, 40, 64):
            code = np.sort(rng.choice(64, n_entries, replace=False))
            prev, after = (code // width).astype(np.uint32), (code % width).astype(np.uint32)
            gain = rng.normal(size=n_entries) * size
            gain[rng.random(n_entries) < 0.1] *= 1e-300
            source, part = (
                rng.random((18, width)) * 10.0 ** rng.integers(-150, 1, (18, 1)),
                rng.random((18, width)),
            )
            rows = np.sort(rng.choice(np.arange(9, 18), n_rows, replace=False)).astype(np.int64)
            chosen, out = slice(n_entries // 3, n_entries), np.full((2, 18, width), 7.0)
            entries = chosen.start, chosen.stop, prev, after, gain
            fast(source, rows, shift, *entries, based, part, out[0])
            into = rows if way == "push" else rows - shift
            out[1][into] = part[into] if based else part[into][:, :1]
            ends = (rows - shift, prev[chosen]), (rows, after[chosen])
            (row, label), target = ends if way == "push" else ends[::-1]
            kernels.times_entries(source, row, label, gain[chosen], *target, out[1])
            np.testing.assert_allclose(out[0], out[1], rtol=1e-12, atol=1e-12 * size * 1e-16)
            assert np.all(np.delete(out[1], into, axis=0) == 7.0)
            table = np.zeros((width, width))
            table[prev[chosen], after[chosen]] = gain[chosen]
            begin = part[into] if based else part[into][:, :1] + np.zeros(width)
            change = source[rows - shift] @ table if way == "push" else source[rows] @ table.T
            np.testing.assert_allclose(out[1][into], begin + change, rtol=1e-12, atol=1e-14 * max(1.0, size))


@pytest.mark.parametrize("based", [False, True], ids=["no base", "base"])
@pytest.mark.parametrize("size", [-40.0, 40.0, -1e3, 1e3])
def test_weights_that_cancel(size, based):
    """A column and a row of pairs at -40, in lists: 1 + sum alpha (exp(w) - 1) has no digit left."""
    rng = np.random.default_rng(3)
    corpus = random_corpus(rng, (4, 3, 4, 4), 8, 7, 3)
    features, w = random_model(rng, corpus, 8, 7, all_transitions=True)
    attr = np.repeat(np.arange(3), np.diff(features.edge_ptr))
    heavy = (attr == 1) & (features.edge_next == 2) | (attr == 2) & (features.edge_prev == 3)
    w[features.n_node :] = np.where(heavy, size, np.where(attr == 0, based * w[features.n_node :], 0.0))
    edges = sparse_edges(features, w, corpus.class_ptr, corpus.class_attr)
    assert (
        np.all(edges.table_of == -1)
        and np.diff(edges.entry_ptr).tolist() == [0, 8, 15]
        and (edges.base.size > 0) == based
    )
    value, grad = Objective(corpus, features, form="sparse")(w)
    np.testing.assert_allclose(value, brute_value(corpus, features, w), rtol=1e-12)
    np.testing.assert_allclose(grad, Objective(corpus, features, form="batched")(w)[1], rtol=1e-9, atol=1e-12)
    p_node = inference.node_marginals(corpus, features, w, form="sparse")
    for i, chain in enumerate(chains_of(corpus, features, w)):
        wanted = brute.node_marginals(*chain)
        some = wanted > 1e-250
        np.testing.assert_allclose(
            p_node[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]][some], wanted[some], rtol=1e-9
        )


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_lists_and_tables_hold_the_same_potentials(share):
    corpus, features, w, constraints = case("constrained", 2)
    bounds = padded_bounds(constraints, features.n_labels)
    edges = sparse_edges(features, w, corpus.class_ptr, corpus.class_attr, bounds, table_share=share)
    scores = log_edge(features, w, corpus.class_ptr, corpus.class_attr)
    scores[:, ~constraints.allowed] = -np.inf
    for k, table in enumerate(scores):
        found = edges.table[edges.table_of[k]].copy() if edges.table_of[k] >= 0 else edges.base.copy()
        entries = slice(edges.entry_ptr[k], edges.entry_ptr[k + 1])
        found[edges.prev[entries], edges.next_label[entries]] = edges.psi[entries]
        np.testing.assert_allclose(found[:3, :3] * np.exp(edges.base_max), np.exp(table), rtol=1e-13)


def test_threads_leave_the_bits():
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, rng.integers(0, 30, 200), 6, 50, 5)
    features, w = random_model(rng, corpus, 6, 50)
    one, two = (Objective(corpus, features, n_threads=n, form="sparse")(w) for n in (1, 2))
    assert one[0] == two[0]
    np.testing.assert_array_equal(one[1], two[1])
    np.testing.assert_allclose(
        one[1], Objective(corpus, features, form="batched")(w)[1], rtol=1e-8, atol=1e-9
    )


def test_curvature_is_that_of_tables():
    corpus, features, w, _ = case("weighted", 4)
    sparse, dense = (
        Objective(corpus, features, c2=0.3, form=form).curvature(w) for form in ("sparse", "batched")
    )
    np.testing.assert_allclose(sparse, dense, rtol=1e-8)


@pytest.mark.parametrize("form", ["sparse", "batched", "numpy"])
def test_work_arrays_that_ctrl_c_has_lost_are_found_again(form):
    """Where it comes between taking them and what puts them back,
    a later evaluation would wait for them for ever.
    """
    corpus, features, w, _ = case("weighted", 4)
    objective = Objective(corpus, features, form=form)
    value, _ = objective(w)
    objective._made[form][1].get()
    again = []
    late = Thread(target=lambda: again.append(objective(w)[0]), daemon=True)
    late.start()
    late.join(20.0)
    assert again == [value]


def test_objectives_that_share_arrays_have_work_of_their_own():
    corpus, features, w, _ = case("plain", 1)
    one = Objective(corpus, features, form="sparse")
    log, pointwise = one.with_loss("log"), one.with_loss("pointwise-log")
    wanted = pointwise(w), one(w)
    for objective, (value, grad) in zip((pointwise, log), wanted, strict=True):
        found, found_grad = objective(w)
        assert found == value
        np.testing.assert_array_equal(found_grad, grad)
    np.testing.assert_array_equal(log.curvature(w), one.curvature(w))


def test_curvature_where_squares_of_potentials_are_wide():
    """75 to 150 nats in a class: its sequences are computed in scaled form, and so are the squares."""
    corpus, features, w, _ = case("plain", 0, n_classes=2)
    base = w[features.n_node : features.n_node + features.edge_ptr[1]]
    base[0] = -100.0
    sparse, dense = (Objective(corpus, features, form=form).curvature(w) for form in ("sparse", "batched"))
    assert (dense[features.n_node :] > 1e-3).any()
    np.testing.assert_allclose(sparse, dense, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("form", ["sparse", "batched", "numpy"])
def test_a_mass_that_nearly_vanishes_comes_back(form):
    """Nobody changes label; the second one loses 800 nats in eight tokens and gains 850 in the next:
    an underflow would never return.
    """
    corpus = make_corpus([0, 17, 19], np.arange(20), [*[0] * 8, 1, *[2] * 8, 3, 3], labels=[1] * 19)
    features = observed(corpus, 2, 4, all_states=True, all_transitions=True)
    w = np.zeros(features.n_features)
    w[1:8:2] = -100.0, 50.0, 100.0, 0.5
    same = Constraints(np.eye(2, dtype=bool), np.ones(2, bool), np.ones(2, bool))
    log_z = inference.log_partition(corpus, features, w, same, form=form)
    np.testing.assert_allclose(log_z, np.logaddexp(0.0, [50.0, 1.0]), rtol=1e-12)
    p_node = inference.node_marginals(corpus, features, w, same, form=form)
    np.testing.assert_allclose(p_node[:, 1], np.repeat(1 / (1 + np.exp([-50.0, -1.0])), [17, 2]), rtol=1e-12)


@pytest.mark.parametrize("form", ["sparse", "batched", "numpy"])
def test_a_certain_pair_has_no_curvature(form):
    """Of one label p is 1 exactly: 1 - p = 0, not the whole count."""
    corpus = random_corpus(np.random.default_rng(2), (4, 3, 5), 1, 7, 2, weighted=True)
    features, w = random_model(np.random.default_rng(3), corpus, 1, 7)
    assert features.n_edge > 0
    np.testing.assert_allclose(
        Objective(corpus, features, c2=0.1, form=form).curvature(w), 0.2, rtol=0, atol=1e-13
    )


def test_one_class_and_a_long_sequence():
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, (3000, 2), 4, 7, 1)
    features, w = random_model(rng, corpus, 4, 7)
    sparse, dense = (Objective(corpus, features, form=form)(w) for form in ("sparse", "batched"))
    np.testing.assert_allclose(sparse[0], dense[0], rtol=1e-12)
    np.testing.assert_allclose(sparse[1], dense[1], rtol=1e-8, atol=1e-8)


def test_a_sparsified_model_scores_as_before():
    corpus, features, w, _ = case("plain", 2)
    w[::3] = 0.0
    small, kept = sparsify(features, w)
    assert len(kept) == np.count_nonzero(w) == small.n_features
    np.testing.assert_allclose(
        inference.log_partition(corpus, small, kept), inference.log_partition(corpus, features, w), **CLOSE
    )
    _, large = sparsify(features, w, threshold=1.0)
    np.testing.assert_array_equal(large, w[np.abs(w) > 1.0])
    with pytest.raises(ValueError, match="threshold: expected a finite number >= 0, got -1"):
        sparsify(features, w, -1)
    with pytest.raises(ValueError, match="weights: expected shape"):
        sparsify(features, w[1:])


def test_an_estimator_is_sparsified_and_told_its_form():
    from crfbook import CRF

    rng = np.random.default_rng(0)
    X = [[[f"w{i}" for i in rng.integers(0, 9, 3)] for _ in range(rng.integers(1, 6))] for _ in range(20)]
    Y = [[f"y{i}" for i in rng.integers(0, 3, len(x))] for x in X]
    model = CRF(algorithm="owlqn", c1=0.5, c2=0.0).fit(X, Y)
    before, n_active = model.predict_marginals_array(X), int(np.count_nonzero(model.weights_))
    assert n_active < len(model.weights_)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.sparsify() is model and len(model.weights_) == n_active
    for form in ("batched", "sparse", "auto"):
        for a, b in zip(model.predict_marginals_array(X, form=form), before, strict=True):
            np.testing.assert_allclose(a, b, **CLOSE)
    with pytest.warns(UserWarning, match=rf"sparsify\(1e\+09\) leaves none of {n_active} weights"):
        model.sparsify(1e9)
    assert model.predict(X, form="sparse") == model.predict(X, form="dense") == model.predict(X)
    with pytest.raises(ValueError, match="form: expected one of 'auto', 'dense', .*, got 'fast'"):
        model.predict(X, form="fast")


def test_a_model_without_a_crf_s_weights_is_not_sparsified():
    """HMM and MEMM fill tables: a weight of 0 there costs what any other does,
    and there is nothing to go on training with.
    """
    from crfbook import HMM, MEMM

    assert not hasattr(HMM(), "sparsify") and not hasattr(MEMM(), "sparsify")


def test_an_unknown_form_is_one_sentence():
    corpus, features, *_ = case("plain", 0)
    known = "'auto', 'batched', 'sparse', 'default', 'numpy'"
    with pytest.raises(ValueError, match=f"form: expected one of {known}, got 'quick'"):
        Objective(corpus, features, form="quick")


def test_large_tables_are_never_made_unless_asked_for():
    """20,000 classes of 60 labels: 10 GB of tables. Left to itself the objective has none,
    nor has decoding.
    """
    rng = np.random.default_rng(0)
    n, n_labels = 20_000, 60
    attr = np.stack([np.zeros(n, int), np.arange(1, n + 1)], axis=1).ravel()
    corpus = make_corpus(
        np.arange(0, n + 1, 5),
        np.arange(n + 1),
        rng.integers(0, 5, n),
        labels=rng.integers(0, n_labels, n),
        edge_class=np.arange(n),
        class_ptr=2 * np.arange(n + 1),
        class_attr=attr,
    )
    features, w = random_model(rng, corpus, n_labels, 5)
    objective = Objective(corpus, features)
    value, _ = objective(w)
    assert list(objective._made) == ["sparse"]
    assert decoding_form("auto", corpus, features, w) == "sparse"
    few = slice_sequences(corpus, 0, 3)
    path = inference.decode(few, features, w)
    score = inference.sequence_scores(few._replace(labels=path), features, w)
    assert np.all(score >= inference.sequence_scores(few, features, w))
    np.testing.assert_allclose(-inference.log_proba(corpus, features, w).sum(), value, rtol=1e-10)


def test_a_bound_on_tables_outweighs_their_speed(monkeypatch):
    """A model so small that tables are the faster by far, and no room for them."""
    corpus, features, w, _ = case("plain", 0)

    def forms():
        return FormChooser(features, corpus, "auto").choose(w), decoding_form("auto", corpus, features, w)

    assert forms() == ("batched", "dense")
    monkeypatch.setattr(cost_model, "TABLE_BYTES", 100)
    training, decoding = forms()
    assert training == "sparse" and decoding in ("sparse", "default")


def test_registers_are_those_of_the_processor(monkeypatch):
    for found, doubles in (({"avx512f": True}, 8), ({"avx512f": False, "avx2": True}, 4), ({}, 4)):
        monkeypatch.setattr(cost_model, "get_host_cpu_features", lambda found=found: found)
        assert cost_model.register_doubles() == doubles
    monkeypatch.setattr(cost_model, "get_host_cpu_features", mock.Mock(side_effect=RuntimeError))
    assert cost_model.register_doubles() == 4
    assert [list(counts) for counts in FITTED["8 doubles"].values()] == [
        list(counts) for counts in FITTED["4 doubles"].values()
    ]


def test_the_reason_for_a_form(monkeypatch):
    corpus, features, w, _ = case("plain", 0)
    chooser = FormChooser(features, corpus, "auto")
    assert chooser.reason(w).startswith("form 'batched' while no weight is zero (")
    assert FormChooser(features, corpus, "sparse").reason(w) == "form 'sparse', as asked"
    monkeypatch.setattr(cost_model, "TINY_SECONDS", np.inf)
    assert FormChooser(features, corpus, "auto").reason(w) == "form 'numpy', for tiny data"


@pytest.mark.parametrize("kind", FITTED)
def test_the_faster_form_is_the_one_with_fewer_seconds(kind, monkeypatch):
    monkeypatch.setattr(cost_model, "SECONDS", FITTED[kind])
    sizes = Sizes(*[0.0] * len(Sizes._fields))._replace(
        tokens=1e5, labels=56.0, classes=26.0, groups=1e4, visits=800.0
    )
    thin = sizes._replace(products=2e6, listed=2e6, entries=500.0, list_entries=500.0, pairs=2e6)
    thick = sizes._replace(products=6e7, listed=6e7, entries=1.5e4, list_entries=1.5e4, pairs=6e7)
    assert choose_form(thin) == "sparse" and choose_form(thick) == "batched"
    for form, counts in FITTED[kind].items():
        assert np.isfinite(terms(form, sizes)).all() and min(counts.values()) >= 0, form
    place = list(FITTED[kind]["batched"]).index("tokens * square")
    assert terms("batched", sizes)[place] == 1e5 * 56.0 * 56.0


def test_the_log_form_has_one_table_at_a_time():
    """300 tokens of 300 classes, 60 labels, too far apart for scaled vectors: tables of all take 9 MB."""
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, (300,), 60, 7, 300)
    features, w = random_model(rng, corpus, 60, 7)
    w[features.n_node :] *= 1000.0
    edges = sparse_edges(features, w, corpus.class_ptr, corpus.class_attr)
    log_node = np.full((300, len(edges.bounds.middle)), -np.inf)
    log_node[:, :60] = inference.node_scores(corpus, features, w)
    chain = edges, log_node, corpus.edge_class
    run = partial(SparseBatch.log_sums, *chain, 1.0, SparseBatch.no_sums(edges))
    run()  # compiles
    (log_z, p_node), peak = peak_bytes(run)
    assert peak < 2e6
    np.testing.assert_allclose(p_node.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(
        log_z, inference.log_partition(corpus, features, w, form="batched")[0], rtol=1e-12
    )


@pytest.mark.parametrize("seed", range(4))
def test_classes_without_the_constant_attribute_are_refused_and_never_chosen(seed, monkeypatch):
    """The sparse form adds the weights of edge attribute 0 to every class."""
    rng, L = np.random.default_rng(seed), 4
    corpus = make_corpus(
        [0, 5, 9], np.arange(10), rng.integers(0, 3, 9), labels=rng.integers(0, L, 9),
        edge_class=rng.integers(0, 3, 9), class_ptr=[0, 1, 3, 4], class_attr=[0, 0, 1, 1],
    )  # fmt: skip
    features = observed(corpus, L, 3, 2, all_states=True, all_transitions=True)
    w = rng.normal(scale=3.0, size=features.n_features)
    monkeypatch.setattr(cost_model, "is_tiny", lambda *_: False)
    monkeypatch.setattr(cost_model, "SMALL", 0.0)
    monkeypatch.setattr(cost_model, "seconds", lambda form, sizes: 0.0 if "sparse" in form else 1.0)
    np.testing.assert_array_equal(
        inference.decode(corpus, features, w), inference.decode(corpus, features, w, form="dense")
    )
    for found in (
        inference.node_marginals(corpus, features, w),
        inference.node_marginals(corpus, features, w, form="numpy"),
    ):
        np.testing.assert_allclose(
            found, inference.node_marginals(corpus, features, w, form="batched"), atol=1e-10
        )
    for ask in (inference.decode, inference.node_marginals):
        with pytest.raises(ValueError, match="1 of 3 classes without it"):
            ask(corpus, features, w, form="sparse")
    with pytest.raises(ValueError, match="1 of 3 classes without it"):
        Objective(corpus, features, form="sparse")(w)
    keep = np.arange(len(w)) < features.n_node
    keep[features.n_node + int(features.edge_ptr[1]) :] = True
    kept, w = select(features, keep), w[keep]
    labels = [inference.decode(corpus, kept, w, form=form) for form in ("sparse", "dense")]
    np.testing.assert_array_equal(*labels)
