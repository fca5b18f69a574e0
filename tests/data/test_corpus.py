"""Corpora and feature sets against plain Python loops."""

import numpy as np
import pytest
from helpers.memory import peak_bytes
from hypothesis import given
from hypothesis import strategies as st

from crfbook.data import corpus as corpus_module
from crfbook.data import features as fs
from crfbook.data.corpus import (
    blocks,
    counted,
    gathered,
    make_corpus,
    offsets,
    owners,
    pointers_of_kept,
    positions,
    ragged_index,
    slice_sequences,
    stretches,
    take_sequences,
    without_zeros,
)


def random_corpus(rng, n_sequences=7, n_labels=3, n_attrs=11, n_edge_attrs=3, unit=False):
    """Ragged corpus with empty sequences, tokens without attributes, unknown labels and edge classes."""
    seq_ptr = np.concatenate([[0], np.cumsum(rng.integers(0, 6, n_sequences))])
    n = seq_ptr[-1]
    attr_ptr = np.concatenate([[0], np.cumsum(rng.integers(0, 5, n))])
    sets = [np.array([0]), np.array([0, 2]), np.array([0, 1, 2])]
    return make_corpus(
        seq_ptr,
        attr_ptr,
        rng.integers(0, n_attrs, attr_ptr[-1]),
        attr_val=None if unit else rng.normal(size=attr_ptr[-1]),
        edge_class=rng.integers(0, 3, n),
        class_ptr=np.concatenate([[0], np.cumsum([len(s) for s in sets])]),
        class_attr=np.concatenate(sets),
        labels=rng.integers(-1, n_labels, n),
        seq_weight=None if unit else rng.uniform(0, 2, n_sequences),
    )


def counts_by_loops(corpus):
    """{("node", a, y): count} and {("edge", b, yp, y): count}, the definition."""
    counts = {}
    for i in range(corpus.n_sequences):
        weight = corpus.seq_weight[i] if len(corpus.seq_weight) else 1.0
        for t in range(corpus.seq_ptr[i], corpus.seq_ptr[i + 1]):
            y = corpus.labels[t]
            for j in range(corpus.attr_ptr[t], corpus.attr_ptr[t + 1]):
                value = corpus.attr_val[j] if len(corpus.attr_val) else 1.0
                if y >= 0:
                    key = ("node", int(corpus.attr_idx[j]), int(y))
                    counts[key] = counts.get(key, 0.0) + weight * value
            if t > corpus.seq_ptr[i] and y >= 0 and corpus.labels[t - 1] >= 0:
                k = corpus.edge_class[t]
                for b in corpus.class_attr[corpus.class_ptr[k] : corpus.class_ptr[k + 1]]:
                    key = ("edge", int(b), int(corpus.labels[t - 1]), int(y))
                    counts[key] = counts.get(key, 0.0) + weight
    return counts


def names(features):
    node = [
        ("node", a, int(y))
        for a in range(features.n_attrs)
        for y in features.node_label[features.node_ptr[a] : features.node_ptr[a + 1]]
    ]
    edge = [
        ("edge", b, int(features.edge_prev[k]), int(features.edge_next[k]))
        for b in range(features.n_edge_attrs)
        for k in range(features.edge_ptr[b], features.edge_ptr[b + 1])
    ]
    return node + edge


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_observed_features_and_their_counts(seed, unit):
    corpus = random_corpus(np.random.default_rng(seed), unit=unit)
    features = fs.observed(corpus, 3, 11, 3)
    counts = counts_by_loops(corpus)
    assert sorted(names(features)) == sorted(counts)
    assert features.n_features == features.n_node + features.n_edge == len(counts)
    found = dict(zip(names(features), fs.empirical_counts(corpus, features), strict=True))
    assert found == pytest.approx(counts)


def test_all_states_and_transitions_make_the_full_table():
    corpus = random_corpus(np.random.default_rng(0))
    full = fs.observed(corpus, 3, 11, 3, all_states=True, all_transitions=True)
    assert full.n_node == 33 and full.n_edge == 27
    assert len(set(names(full))) == 60
    some = fs.observed(corpus, 3, 11, 3)
    at = {name: k for k, name in enumerate(names(full))}
    place = [at[name] for name in names(some)]
    np.testing.assert_allclose(fs.empirical_counts(corpus, full)[place], fs.empirical_counts(corpus, some))


def test_log_edge_and_edge_gradient_are_transposed():
    rng = np.random.default_rng(1)
    corpus = random_corpus(rng)
    features = fs.observed(corpus, 3, 11, 3)
    w, count = rng.normal(size=features.n_features), rng.normal(size=(3, 3, 3))
    table = fs.log_edge(features, w, corpus.class_ptr, corpus.class_attr)
    grad = np.zeros(features.n_features)
    fs.edge_gradient(features, count, corpus.class_ptr, corpus.class_attr, grad)
    assert not grad[: features.n_node].any()
    np.testing.assert_allclose((table * count).sum(), w @ grad)


def test_log_edge_is_previous_then_next():
    corpus = make_corpus([0, 2], [0, 0, 0], [], labels=[0, 1])
    features = fs.observed(corpus, 2, 0)
    table = fs.log_edge(features, np.array([5.0]), corpus.class_ptr, corpus.class_attr)
    assert table.tolist() == [[[0.0, 5.0], [0.0, 0.0]]]


def test_select_keeps_what_is_asked():
    rng = np.random.default_rng(2)
    features = fs.observed(random_corpus(rng), 3, 11, 3)
    keep = rng.random(features.n_features) < 0.5
    assert names(fs.select(features, keep)) == [n for n, k in zip(names(features), keep, strict=True) if k]


def test_slices_share_and_takes_copy():
    corpus = random_corpus(np.random.default_rng(3))
    part = slice_sequences(corpus, 2, 5)
    assert np.shares_memory(part.attr_idx, corpus.attr_idx) and part.n_sequences == 3
    taken = take_sequences(corpus, [2, 3, 4])
    for name, a, b in zip(corpus._fields, part, taken, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)
    twice = take_sequences(corpus, [4, 2, 2])
    first = slice_sequences(corpus, 2, 3)
    np.testing.assert_array_equal(twice.labels[-first.n_tokens :] if first.n_tokens else [], first.labels)
    assert twice.n_tokens == sum(np.diff(corpus.seq_ptr)[[4, 2, 2]])


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(seq_ptr=[0, 2, 1, 3]), "seq_ptr"),
        (dict(seq_ptr=[0, 2]), "rise from 0 to 3"),
        (dict(attr_idx=[0, -1, 2]), "negative"),
        (dict(attr_idx=[0.5, 1, 2]), "expected integers"),
        (dict(labels=[0, 1]), "one entry a token"),
        (dict(labels=[0, 1, -2]), "-1 for unknown"),
        (dict(attr_val=[1, np.nan, 1]), "got nan at position 1"),
        (dict(edge_class=[0, 0, 1]), "classes 0..0"),
        (dict(seq_weight=[1.0, -1.0]), "got -1.0 at position 1"),
        (dict(class_ptr=[0, 1]), "both or neither"),
    ],
)
def test_arrays_that_do_not_fit_are_named(change, message):
    arrays = dict(seq_ptr=[0, 2, 3], attr_ptr=[0, 1, 2, 3], attr_idx=[0, 1, 2]) | change
    with pytest.raises((ValueError, TypeError), match=message):
        make_corpus(**arrays)


def test_sizes_come_from_the_caller_not_from_the_data():
    corpus = random_corpus(np.random.default_rng(4))
    assert fs.observed(corpus, 30, 110, 3).node_ptr.shape == (111,)
    with pytest.raises(ValueError, match="attribute ids: expected 0..4"):
        fs.observed(corpus, 3, 5, 3)


@pytest.mark.parametrize("unit", [True, False])
def test_members_are_what_loops_find(unit):
    corpus = random_corpus(np.random.default_rng(1), n_sequences=12, unit=unit)
    spans = list(zip(corpus.seq_ptr[:-1].tolist(), corpus.seq_ptr[1:].tolist(), strict=True))
    assert any(a == b for a, b in spans), "one sequence is empty"
    weights = [1.0 if unit else corpus.seq_weight[i] for i in range(len(spans))]
    tokens = [(i, t) for i, (a, b) in enumerate(spans) for t in range(b - a)]
    wanted = {
        "lengths": [b - a for a, b in spans],
        "longest": max(b - a for a, b in spans),
        "filled": [i for i, (a, b) in enumerate(spans) if a < b],
        "first": [a for a, b in spans if a < b],
        "last": [b - 1 for a, b in spans if a < b],
        "inner": [at for at, (_, t) in enumerate(tokens) if t],
        "sequence": [i for i, _ in tokens],
        "position": [t for _, t in tokens],
        "weights": weights,
        "token_weights": [weights[i] for i, _ in tokens],
        "values": [1.0] * len(corpus.attr_idx) if unit else corpus.attr_val.tolist(),
        "attr_token": [t for t, n in enumerate(np.diff(corpus.attr_ptr).tolist()) for _ in range(n)],
    }
    for name, values in wanted.items():
        np.testing.assert_array_equal(getattr(corpus, name), values, err_msg=name)
    weightless = corpus._replace(seq_weight=np.arange(len(spans)) % 2.0)
    assert weightless.visited.tolist() == [i for i in wanted["filled"] if i % 2]
    assert [corpus.place(at) for at in range(len(tokens))] == [f"sequence {i}, token {t}" for i, t in tokens]
    assert make_corpus([0], [0], []).longest == 0 and len(make_corpus([0, 0], [0], []).inner) == 0


def test_rows_of_ragged_arrays():
    ptr, index = np.array([0, 2, 2, 5]), np.array([2, 0, 1, 2])
    place, new_ptr = ragged_index(ptr, index)
    assert place.tolist() == [2, 3, 4, 0, 1, 2, 3, 4] and new_ptr.tolist() == [0, 3, 5, 5, 8]
    assert owners(ptr).tolist() == [0, 0, 2, 2, 2] and positions(ptr).tolist() == [0, 1, 0, 1, 2]
    assert offsets([]).tolist() == [0] and offsets([True, False, True]).tolist() == [0, 1, 1, 2]
    assert stretches(np.array([7, 1]), np.array([2, 3])).tolist() == [7, 8, 1, 2, 3]


def test_a_feature_set_is_its_keys():
    corpus = random_corpus(np.random.default_rng(5))
    for options in ({}, {"all_states": True}, {"all_transitions": True}):
        features = fs.observed(corpus, 3, 11, 3, **options)
        again = fs.from_keys(*features[:3], features.node_keys, features.edge_keys)
        for name, a, b in zip(features._fields, features, again, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
            assert np.asarray(a).dtype == np.asarray(b).dtype
        keys = [("node", k // 3, k % 3) for k in features.node_keys.tolist()]
        keys += [("edge", k // 9, k // 3 % 3, k % 3) for k in features.edge_keys.tolist()]
        assert keys == names(features)
    place, hit = fs.find(np.array([2, 5, 9]), np.array([9, -1, 3, 2, 10]))
    assert hit.tolist() == [True, False, False, True, False] and place[hit].tolist() == [2, 0]
    assert not fs.find(np.zeros(0, np.int64), np.array([-1, 0]))[1].any()


def test_without_zeros_keeps_the_rest():
    ptr, idx = [0, 2, 2, 5, 6], [0, 1, 2, 0, 3, 1]
    mixed = make_corpus([0, 4], ptr, idx, attr_val=[0.0, 1.0, -0.0, 2.5, 0.0, 1.0], labels=[0, 1, 0, 1])
    kept = without_zeros(mixed)
    assert kept.attr_ptr.tolist() == [0, 1, 1, 2, 3] and kept.attr_idx.tolist() == [1, 0, 1]
    assert kept.attr_val.tolist() == [1.0, 2.5, 1.0] and kept.attr_idx.dtype == np.int32
    ones = without_zeros(make_corpus([0, 4], ptr, idx, attr_val=[0.0, 1, 0, 0, 0, 1]))
    assert len(ones.attr_val) == 0 and ones.attr_idx.tolist() == [1, 1]
    assert ones.attr_ptr.tolist() == [0, 1, 1, 1, 2]
    for untouched in (make_corpus([0, 4], ptr, idx), make_corpus([0, 4], ptr, idx, attr_val=np.full(6, 2.0))):
        assert without_zeros(untouched) is untouched


@given(st.lists(st.lists(st.booleans(), max_size=3), max_size=12), st.integers(1, 5))
def test_pointers_of_kept_count_what_is_left(rows, size):
    ptr, keep = offsets([len(row) for row in rows]), np.array([k for row in rows for k in row], bool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_module, "blocks", lambda n, _: blocks(n, size))
        assert pointers_of_kept(ptr, keep).tolist() == offsets([sum(row) for row in rows]).tolist()


def test_long_indices_are_not_widened_at_once():
    """NumPy makes int64 of an int32 index: 8 bytes an item, here 8 MB."""
    index, table = np.arange(1_000_000, dtype=np.int32) % 7, np.arange(7, dtype=np.int32)[::-1].copy()
    (counts, out), peak = peak_bytes(lambda: (counted(index, 7), gathered(table, index.copy(), index)))
    assert out is index and out[:7].tolist() == [6, 5, 4, 3, 2, 1, 0] and counts.sum() == len(index)
    assert peak < 6e6
