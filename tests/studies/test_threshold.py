"""Threshold rows: the scores and paths of Viterbi bit for bit, and how few label pairs they take."""

import numpy as np
import pytest
from helpers.chains import Chain, batches, chains, random_chain, run_viterbi_many
from hypothesis import given
from hypothesis import strategies as st

from crfbook import brute
from studies.threshold import threshold_many, threshold_tables


def run(sequences):
    """(scores (S,), paths, counters) of chains that share log_edge."""
    seq_ptr = np.concatenate([[0], np.cumsum([len(c.log_node) for c in sequences])]).astype(np.int64)
    path, score = np.full(seq_ptr[-1], -9, np.int32), np.full(len(sequences), np.nan)
    counters = np.zeros(3, np.int64)
    log_node = np.concatenate([c.log_node for c in sequences])
    edge_class = np.concatenate([c.edge_class for c in sequences])
    tables = threshold_tables(sequences[0].log_edge)
    threshold_many(log_node, tables, edge_class, seq_ptr, path, score, counters)
    return score, np.split(path, seq_ptr[1:-1]), counters


def check(sequences):
    """Bit for bit what Viterbi finds; returns label pairs a token."""
    score, paths, counters = run(sequences)
    want, want_paths = run_viterbi_many(sequences)
    np.testing.assert_array_equal(score, want)
    for path, wanted in zip(paths, want_paths, strict=True):
        np.testing.assert_array_equal(path, wanted)
    n_tokens = sum(len(c.log_node) for c in sequences)
    assert counters[0] == n_tokens * sequences[0].log_node.shape[1] and counters[2] == 0
    return counters[1] / max(1, n_tokens)


def thinned(rng, log_edge, share, forbidden=0.0):
    """log_edge with 0 for all but a share of the pairs, and -inf for a fraction of the columns' cells."""
    log_edge = np.where(rng.random(log_edge.shape) < share, log_edge, 0.0)
    log_edge[rng.random(log_edge.shape) < forbidden * rng.random(log_edge.shape[2])] = -np.inf
    return log_edge


@given(chain=chains(), share=st.sampled_from([0.0, 0.3, 1.0]), seed=st.integers(0, 10**6))
def test_equals_enumeration(chain, share, seed):
    chain = chain._replace(log_edge=thinned(np.random.default_rng(seed), chain.log_edge, share))
    (score,), (path,), _ = run([chain])
    best, paths = brute.best_paths(*chain)
    np.testing.assert_allclose(score, best, rtol=1e-12, atol=1e-12)
    assert (not path.any()) if best == -np.inf else any((path == p).all() for p in paths)


@given(
    sequences=batches(max_tokens=12, max_labels=11, forbidden=(0.0, 0.1, 0.6)),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    forbidden=st.sampled_from([0.0, 1.0]),
    scale=st.sampled_from([None, 1.0, 0.1]),
)
def test_is_viterbi_bit_for_bit(sequences, share, forbidden, scale):
    log_edge = thinned(np.random.default_rng(len(sequences)), sequences[0].log_edge, share, forbidden)
    if scale:  # many exact ties, and with 0.1 sums that round
        log_edge = np.round(log_edge) * scale
        sequences = [c._replace(log_node=np.round(c.log_node) * scale) for c in sequences]
    check([c._replace(log_edge=log_edge) for c in sequences])


@pytest.mark.parametrize("n_labels, n_classes", [(1, 1), (2, 3), (22, 2), (33, 1), (70, 3)])
@pytest.mark.parametrize("kind", ["normal", "integers", "uniform", "-1e6", "-inf", "all -inf", "large"])
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_many_labels(n_labels, n_classes, kind, share):
    rng = np.random.default_rng(n_labels)
    sequences = [random_chain(rng, n, n_labels, n_classes) for n in (9, 1, 40, 2, 12)]
    log_edge = thinned(rng, sequences[0].log_edge, share)
    nodes = [c.log_node for c in sequences]
    if kind == "uniform":
        nodes = [np.zeros_like(node) for node in nodes]
        log_edge[:] = 0.0
    elif kind == "integers":
        nodes, log_edge = [np.round(node) for node in nodes], np.round(log_edge)
    elif kind == "large":
        nodes, log_edge = [1e8 * node + 100.0 for node in nodes], 1e8 * log_edge
    elif kind == "all -inf":
        log_edge[:] = -np.inf
    elif kind != "normal":
        for scores in (log_edge, *nodes):
            scores[rng.random(scores.shape) < 0.3] = float(kind)
    check([Chain(node, log_edge, c.edge_class) for node, c in zip(nodes, sequences, strict=True)])


def test_empty_sequences_and_dead_ends():
    chain = random_chain(np.random.default_rng(0), 3, 4)
    empty = chain._replace(log_node=chain.log_node[:0], edge_class=chain.edge_class[:0])
    dead = chain._replace(log_node=np.where(np.arange(3)[:, None] == 1, -np.inf, chain.log_node))
    scores, paths, _ = run([empty, chain, dead, empty])
    assert scores[0] == scores[3] == 0.0 and scores[2] == -np.inf and not paths[2].any()
    check([empty, chain, dead, empty])
    assert run([empty])[0].tolist() == [0.0]


def bio(rng, n_types):
    """Labels O, B-0, I-0, B-1, I-1, ..: I-x stands behind B-x and I-x only; a tenth of pairs is stored."""
    n_labels = 2 * n_types + 1
    log_edge = thinned(rng, rng.normal(0.0, 2.0, (1, n_labels, n_labels)), 0.1)
    for i in range(2, n_labels, 2):
        keep = log_edge[0, i - 1 : i + 1, i].copy()
        log_edge[0, :, i] = -np.inf
        log_edge[0, i - 1 : i + 1, i] = keep
    return log_edge


def test_forbidden_transitions_of_bio_cost_a_few_pairs_each():
    """319 labels, of 101,761 pairs half forbidden: their columns list the two labels that are allowed."""
    rng = np.random.default_rng(5)
    log_edge = bio(rng, 159)
    tables = threshold_tables(log_edge)
    assert tables.complete[2::2].all() and not tables.complete[1::2].any()
    chain = Chain(rng.normal(0.0, 3.0, (200, 319)), log_edge, np.zeros(200, np.int32))
    assert check([chain]) < 319**2 / 50


def test_stored_pairs_decide_the_cost():
    rng = np.random.default_rng(6)
    log_node = rng.normal(0.0, 3.0, (200, 300))
    full = rng.normal(0.0, 2.0, (1, 300, 300))
    pairs = [
        check([Chain(log_node, thinned(np.random.default_rng(7), full, share), np.zeros(200, np.int32))])
        for share in (0.0, 0.03, 0.3)
    ]
    assert pairs[0] == 0 and pairs[1] < 300 and pairs[1] < pairs[2] < 300**2 / 2


def test_tables_hold_every_pair():
    """Columns, and rows with the places of what is below 0, put together again: the transitions."""
    rng = np.random.default_rng(8)
    log_edge = thinned(rng, rng.normal(size=(2, 5, 5)), 0.5, 0.5)
    tables = threshold_tables(log_edge)
    below = np.minimum(log_edge, 0.0).reshape(10, 5)
    rows, columns = np.zeros((10, 5)), np.where(tables.complete[:, None], -np.inf, np.zeros((10, 5)))
    for r in range(10):
        high, low = (slice(ptr[r], ptr[r + 1]) for ptr in (tables.row_ptr, tables.low_ptr))
        rows[r, tables.row_next[high]] = tables.row_score[high]
        rows[r, tables.low_next[low]] = below[r, tables.low_next[low]]
        assert low.stop - low.start == (below[r] < 0).sum()
        assert (np.diff(tables.row_score[high]) <= 0).all()
        assert tables.row_max[r] == max(0.0, *rows[r])
        listed = slice(tables.column_ptr[r], tables.column_ptr[r + 1])
        columns[r, tables.column_prev[listed]] = tables.column_score[listed]
        assert (np.diff(tables.column_prev[listed]) > 0).all()
        walked = ~tables.complete[r // 5 * 5 : r // 5 * 5 + 5]
        assert tables.low_min[r] == min(0.0, *rows[r, walked])
    np.testing.assert_array_equal(rows.reshape(2, 5, 5), log_edge)
    np.testing.assert_array_equal(columns.reshape(2, 5, 5).transpose(0, 2, 1), log_edge)


def test_a_row_is_left_at_the_first_pair_that_cannot_win():
    """Label 1 is 45 behind: of its pairs with scores 49, 48, .. four are ahead, and the fifth is the last."""
    log_edge, log_node = np.zeros((1, 50, 50)), np.full((2, 50), -100.0)
    log_edge[0, 1], log_node[0, :2] = np.arange(50.0), (10.0, -35.0)
    chain = Chain(log_node, log_edge, np.zeros(2, np.int32))
    scores, paths, counters = run([chain])
    assert scores.tolist() == [-86.0] and paths[0].tolist() == [1, 49] and counters[1] == 5
