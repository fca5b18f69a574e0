"""Scores from attribute lists, and the two layouts training uses, against plain loops."""

import numpy as np
import pytest
from helpers.corpora import brute_node_scores, random_corpus, random_model

from crfbook.chain import packing as packing_module
from crfbook.chain.likelihood import add_tree, batch_gradient, batch_scores, open_rows
from crfbook.chain.objective import Objective
from crfbook.chain.packing import dense_rows, find_bundles, lay_out, pack, padded, padded_bounds
from crfbook.chain.scores import collect_dense, fill_dense, list_scores, path_scores
from crfbook.data.constraints import Constraints, bounds_of
from crfbook.data.corpus import make_corpus

pytestmark = pytest.mark.kernels
NO_DENSE = np.zeros((0, 3)), np.zeros(0, np.int32)


@pytest.mark.parametrize("valued", [False, True])
def test_list_scores_agree_with_loops(valued):
    rng = np.random.default_rng(1)
    corpus = random_corpus(rng, valued=valued)
    features, w = random_model(rng, corpus)
    want = brute_node_scores(corpus, features, w)
    tokens = np.array([4, 0, 9, 4])
    rows = np.array([1, 4])  # attributes 1 and 4 read from dense copies
    dense = np.zeros((2, 3))
    fill_dense(w, np.arange(3), rows, features.node_ptr, features.node_label, dense)
    for copies in (NO_DENSE, (dense, np.array([-1, 0, -1, -1, 1], np.int32))):
        got = np.ones((4, 8))
        list_scores(
            w,
            features.node_ptr,
            features.node_label,
            *copies,
            tokens,
            corpus.attr_ptr,
            corpus.attr_idx,
            corpus.attr_val,
            got,
        )
        np.testing.assert_allclose(got[:, :3], 1.0 + want[tokens], rtol=1e-13)
        assert np.all(got[:, 3:] == 1.0)


def test_attributes_unknown_to_the_features_score_nothing():
    corpus = random_corpus(np.random.default_rng(1), n_attrs=7)
    known = corpus._replace(attr_idx=corpus.attr_idx % 4)
    features, w = random_model(np.random.default_rng(2), known, n_attrs=4)
    got, want = np.zeros((corpus.n_tokens, 3)), np.zeros((corpus.n_tokens, 3))
    for attr_idx, out in ((corpus.attr_idx, got), (np.where(corpus.attr_idx < 4, corpus.attr_idx, 99), want)):
        list_scores(
            w,
            features.node_ptr,
            features.node_label,
            *NO_DENSE,
            np.arange(corpus.n_tokens),
            corpus.attr_ptr,
            attr_idx.astype(np.int32),
            corpus.attr_val,
            out,
        )
    np.testing.assert_array_equal(got, want)


def test_path_scores_take_transitions_inside_sequences_only():
    rng = np.random.default_rng(3)
    log_node, log_edge = rng.normal(size=(5, 3)), rng.normal(size=(2, 3, 3))
    edge_class, labels = np.array([1, 0, 1, 1, 0], np.int32), np.array([2, 0, 1, 1, 2], np.int32)
    score = np.full(3, np.nan)
    path_scores(log_node, log_edge, edge_class, labels, np.array([0, 3, 3, 5]), score)
    first = log_node[0, 2] + log_node[1, 0] + log_node[2, 1] + log_edge[0, 2, 0] + log_edge[1, 0, 1]
    np.testing.assert_allclose(score, [first, 0.0, log_node[3, 1] + log_node[4, 2] + log_edge[0, 1, 2]])


@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("dense", ["none", "some", "all"])
def test_training_layout_scores_and_transposes(monkeypatch, valued, dense):
    """Scores of packed rows equal the lists', and (gradient way back) is the transpose: <X w, p> = <w,
    X' p>.
    """
    rng = np.random.default_rng(4)
    corpus = random_corpus(rng, lengths=(3, 0, 1, 4, 2, 6), valued=valued)
    features, w = random_model(rng, corpus)
    chosen = {"none": np.zeros(0, np.int64), "some": np.array([1, 5]), "all": np.arange(7)}[dense]
    dense_of, every = np.full(7, -1, np.int32), np.arange(len(chosen) + 1)
    dense_of[chosen] = every[:-1]
    monkeypatch.setattr(packing_module, "dense_rows", lambda corpus, features: (dense_of, every, chosen))
    packing, width = pack(corpus, batch_rows=7, n_shards=2), padded(3)
    layout = lay_out(corpus, features, packing, width)
    table = np.zeros((len(chosen), width))
    fill_dense(w, every, chosen, features.node_ptr, features.node_label, table)
    want = brute_node_scores(corpus, features, w)
    grad, dense_grad, inner = np.zeros(features.n_node), np.zeros(table.shape), 0.0
    for b in range(len(packing.slot_ptr) - 1):
        rows = slice(packing.row_ptr[b], packing.row_ptr[b + 1])
        log_node = np.full((rows.stop - rows.start, width), np.nan)
        batch_scores(b, w, table, padded_bounds(None, 3), packing, layout, log_node)
        np.testing.assert_allclose(log_node[:, :3], want[packing.row_token[rows]], rtol=1e-12, atol=1e-13)
        assert np.all(log_node[:, 3:] == -np.inf)
        p = rng.random(log_node.shape)
        p[:, 3:] = 0.0
        inner += np.sum(p[:, :3] * log_node[:, :3])
        batch_gradient(b, p, packing, layout, dense_grad, grad)
    collect_dense(dense_grad, every, chosen, features.node_ptr, features.node_label, grad)
    assert inner == pytest.approx(w[: features.n_node] @ grad, rel=1e-12)


def test_open_rows_knows_first_and_last_tokens():
    step_ptr = np.array([0, 3, 5, 6])  # lengths 3, 2, 1
    start, end, sets = np.array([True, False]), np.array([False, True]), np.ones((1, 2), bool)
    bounds = bounds_of(Constraints(np.ones((2, 2), bool), start, end, sets), 2)
    out = np.full((6, 2), np.nan)
    open_rows(step_ptr, np.zeros(0, np.int32), bounds, out)
    opens = out[:, 1] == -np.inf
    closes = out[:, 0] == -np.inf
    assert opens.tolist() == [True, True, True, False, False, False]
    assert closes.tolist() == [False, False, True, False, True, True]
    bounds.label_sets[0, 1] = -np.inf
    open_rows(step_ptr, np.zeros(6, np.int32), bounds, out)
    assert (out[:, 1] == -np.inf).all() and closes.tolist() == (out[:, 0] == -np.inf).tolist()


def test_bounds_are_zero_where_a_label_may_stand():
    allowed, start = np.array([[True, False], [True, True]]), np.array([True, False])
    constraints = Constraints(allowed, start, ~start, np.array([[True, True], [False, True]]))
    bounds = bounds_of(constraints, 2, 4)
    for got, wanted in zip(
        bounds, (start, [True, True], ~start, allowed, constraints.label_sets), strict=True
    ):
        inner = got[..., :2] if got.ndim < 2 or len(got) < 4 else got[:2, :2]
        assert ((inner == 0.0) == wanted).all() and got.shape[-1] == 4
        assert np.isin(got, [0.0, -np.inf]).all() and np.count_nonzero(got == 0.0) == np.count_nonzero(wanted)
    free = bounds_of(None, 3)
    assert not any(array.any() for array in free) and [len(array) for array in free] == [3, 3, 3, 3, 0]


@pytest.mark.parametrize("n_parts", [1, 2, 3, 4, 7])
def test_add_tree_adds_in_its_own_order(n_parts):
    parts = np.random.default_rng(5).normal(size=(n_parts, 1300))

    def tree(first, count):
        if count == 1:
            return parts[first]
        half = 1 << (count - 1).bit_length() - 1
        return tree(first, half) + tree(first + half, count - half)

    np.testing.assert_array_equal(add_tree(parts.copy()), tree(0, n_parts))


def test_packing_keeps_predecessors_and_covers_every_token():
    rng = np.random.default_rng(6)
    corpus = random_corpus(rng, lengths=tuple(rng.integers(0, 9, 40)), n_classes=3)
    packing = pack(corpus, batch_rows=20, n_shards=3)
    assert sorted(packing.row_token) == list(range(corpus.n_tokens))
    assert packing.n_shards == 3 and packing.shard_ptr[-1] == len(packing.slot_ptr) - 1
    for b in range(len(packing.slot_ptr) - 1):
        token = packing.row_token[packing.row_ptr[b] : packing.row_ptr[b + 1]]
        step = packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
        sequence = packing.sequence[packing.slot_ptr[b] : packing.slot_ptr[b + 1]]
        assert len(token) <= 20 and step[-1] == len(token)
        np.testing.assert_array_equal(token[: step[1]], corpus.seq_ptr[sequence])
        for t in range(1, len(step) - 1):
            alive = step[t + 1] - step[t]
            np.testing.assert_array_equal(
                token[step[t] : step[t + 1]], token[step[t - 1] : step[t - 1] + alive] + 1
            )


def template_corpus(rng, lengths, n_symbols=3, gaps=0.0):
    """Symbol windows as attributes, unigrams before bigrams before trigrams;
    a share `gaps` of the attributes is missing.
    """
    names, lists, seq_ptr = {}, [], np.cumsum([0, *lengths])
    for length in lengths:
        x = ["_", "_", *rng.integers(0, n_symbols, length).astype(str), "_", "_"]
        for t in range(2, length + 2):
            tests = [f"u{d}{x[t + d]}" for d in range(-1, 2)]
            tests += [f"b{d}{x[t + d]}{x[t + d + 1]}" for d in range(-1, 1)] + [
                f"t{x[t - 1]}{x[t]}{x[t + 1]}"
            ]
            lists.append([names.setdefault(a, len(names)) for a in tests if rng.random() >= gaps])
    sizes = [len(attributes) for attributes in lists]
    idx = np.array([a for attributes in lists for a in attributes])
    return make_corpus(seq_ptr, np.cumsum([0, *sizes]), idx, labels=rng.integers(0, 4, len(lists))), len(
        names
    )


@pytest.mark.parametrize("gaps", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("repeat", [False, True])
def test_bundles_carry_every_occurrence_at_most_once(gaps, repeat):
    corpus, n_attrs = template_corpus(np.random.default_rng(8), (40, 0, 200, 300, 1), gaps=gaps)
    if repeat:  # some token lists an attribute twice: a row that carries it would count it once
        corpus.attr_idx[1] = corpus.attr_idx[0]
    carrier, ptr, member = find_bundles(corpus, n_attrs)
    assert len(carrier) > 0 or gaps == 0.3, "nothing is carried: the test tests nothing"
    carries = {int(a): set(member[ptr[c] : ptr[c + 1]].tolist()) for c, a in enumerate(carrier)}
    for t in range(corpus.n_tokens):
        here = corpus.attr_idx[corpus.attr_ptr[t] : corpus.attr_ptr[t + 1]].tolist()
        carried = [b for a in here for b in carries.get(a, ())]
        assert len(carried) == len(set(carried)), "carried twice"
        assert not set(carried) & set(carries), "a carrier is carried"
        assert all(here.count(b) == 1 for b in carried)
    if (
        gaps == 0.0 and not repeat
    ):  # each token is one trigram, boundary cells included, as far as they are frequent
        n_carried = sum(np.sum(corpus.attr_idx == a) * len(b) for a, b in carries.items())
        assert n_carried > 0.6 * len(corpus.attr_idx)  # 5 of 6 at most


@pytest.mark.parametrize(
    ("lists", "want"),
    [
        ([[0, 1, 2]] * 20 + [[0, 2]] * 20, {2: {0}}),  # 1 always comes with 2, but 2 carries 0 already
        (
            [[0, 1]] * 20 + [[0, 0, 1]],
            {},
        ),  # one token lists 0 twice: a row that carried it would count it once
        ([[0, 1]] * 15, {}),  # too rare to be worth a row
        (
            [[0, 1], [2, 1]] * 20,
            {0: {1}, 2: {1}},
        ),  # an attribute may be carried by different ones in different tokens
    ],
)
def test_bundles_by_hand(lists, want):
    sizes = [len(attributes) for attributes in lists]
    corpus = make_corpus([0, len(lists)], np.cumsum([0, *sizes]), np.concatenate(lists))
    carrier, ptr, member = find_bundles(corpus, 3)
    assert {int(a): set(member[ptr[c] : ptr[c + 1]].tolist()) for c, a in enumerate(carrier)} == want


@pytest.mark.parametrize("gaps", [0.0, 0.02])
def test_bundles_change_neither_value_nor_gradient(monkeypatch, gaps):
    rng = np.random.default_rng(9)
    corpus, n_attrs = template_corpus(rng, tuple(rng.integers(0, 30, 40)), gaps=gaps)
    features, w = random_model(rng, corpus, 4, n_attrs)
    value, grad = Objective(corpus, features)(w)
    nothing = np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64)
    monkeypatch.setattr(packing_module, "find_bundles", lambda corpus, n_attrs: nothing)
    plain = Objective(corpus, features)
    want_value, want_grad = plain(w)
    assert value == pytest.approx(want_value, rel=1e-12)
    np.testing.assert_allclose(grad, want_grad, rtol=1e-9, atol=1e-10)


def test_dense_rows_follow_counts():
    corpus = random_corpus(np.random.default_rng(7), lengths=(30, 30))
    features, _ = random_model(np.random.default_rng(7), corpus, all_states=True)
    dense_of, member_ptr, member = dense_rows(corpus, features)
    assert dense_of.tolist() == member.tolist() == list(range(7)) and member_ptr.tolist() == list(range(8))
    sparse, _ = random_model(np.random.default_rng(7), corpus)
    dense_of, member_ptr, member = dense_rows(corpus, sparse)
    assert dense_of.max() == len(member_ptr) - 2
    assert all(dense_of[member[member_ptr[h]]] == h for h in range(len(member_ptr) - 1))
