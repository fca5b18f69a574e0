"""The k best labellings of a chain: enumeration, whole lists, Viterbi, and what a list costs."""

import numpy as np
import pytest
from helpers.chains import Chain, batches, chains, random_chain, returning_mass, run_viterbi_many
from hypothesis import given
from hypothesis import strategies as st

from crfbook import brute
from crfbook.decoding.kbest import dense_search, kbest_by_lists


def run(sequences, k, skip=True):
    """(path (n, k), score (S, k), found (S,), counters) of chains that share log_edge."""
    seq_ptr = np.concatenate([[0], np.cumsum([len(c.log_node) for c in sequences])]).astype(np.int64)
    search = dense_search(sequences[0].log_edge, 10**9 if skip else 0)
    path, score = np.full((seq_ptr[-1], k), -9, np.int32), np.full((len(sequences), k), np.nan)
    found, counters = np.full(len(sequences), -9, np.int64), np.zeros(3, np.int64)
    log_node = np.concatenate([c.log_node for c in sequences])
    edge_class = np.concatenate([c.edge_class for c in sequences])
    search(log_node, edge_class, seq_ptr, path, score, found, counters)
    return path, score, found, counters


def run_by_lists(chain, k):
    n_tokens, n_labels = chain.log_node.shape
    path, score = np.full((n_tokens, k), -9), np.full(k, np.nan)
    ranked = np.full((n_tokens + 1, n_labels, k + 1), np.nan)
    kbest_by_lists(*chain, ranked, np.zeros((n_tokens + 1, n_labels, k, 2), np.int64), path, score)
    return path, score


def score_of(chain, path):
    """The score of a path, added up as Viterbi adds."""
    score = chain.log_node[0, path[0]]
    for t in range(1, len(path)):
        edge = chain.log_edge[chain.edge_class[t], path[t - 1], path[t]]
        score = chain.log_node[t, path[t]] + (score + edge)
    return score


def check(chain, path, score, found):
    """What holds for every answer."""
    k = len(score)
    assert (score[:found] > -np.inf).all() and (score[found:] == -np.inf).all() and not path[:, found:].any()
    assert (np.diff(score[:found]) <= 0).all()
    assert len({tuple(p) for p in path[:, :found].T}) == found <= k
    assert [score_of(chain, p) for p in path[:, :found].T] == score[:found].tolist()


@pytest.mark.parametrize("skip", [False, True])
@given(chain=chains(), k=st.sampled_from([1, 2, 3, 7, 50, 1100]), whole=st.booleans(), tenth=st.booleans())
def test_equals_enumeration(chain, k, skip, whole, tenth):
    """Also beyond the number of labellings, which is 4^5 at most. Bit for bit, and so are ties."""
    if whole:  # integers: many exact ties; times 0.1: ties that rounding makes and breaks
        chain = chain._replace(
            log_node=np.round(chain.log_node) * (0.1 if tenth else 1.0),
            log_edge=np.round(chain.log_edge) * (0.1 if tenth else 1.0),
        )
    paths, rough = brute.all_scores(*chain)
    want = np.sort([score_of(chain, p) for p in paths])[::-1]
    path, score, found, _ = run([chain], k, skip)
    assert found[0] == min(k, np.sum(want > -np.inf))
    np.testing.assert_array_equal(score[0, : found[0]], want[: found[0]])
    check(chain, path, score[0], found[0])
    rough = np.sort(rough)[::-1][: found[0]]
    np.testing.assert_allclose(score[0, : found[0]], rough, rtol=1e-12, atol=1e-12)
    if whole and not tenth:  # exact sums: equal scores stand by their last label, then the one before, ...
        order = sorted((-score_of(chain, p), *p[::-1]) for p in paths.tolist())[: found[0]]
        assert path[::-1, : found[0]].T.tolist() == [list(key[1:]) for key in order]


@pytest.mark.parametrize("skip", [False, True])
@given(
    sequences=batches(max_tokens=9, max_labels=11, forbidden=(0.0, 0.1, 0.6)),
    k=st.sampled_from([1, 3, 40]),
    rounding=st.booleans(),
)
def test_whole_lists_and_viterbi(sequences, k, skip, rounding):
    """The lists of all tokens and labels made whole give the same paths in the same order."""
    if rounding:
        log_edge = np.round(sequences[0].log_edge) * 0.1
        sequences = [Chain(np.round(c.log_node) * 0.1, log_edge, c.edge_class) for c in sequences]
    path, score, found, _ = run(sequences, k, skip)
    best, best_path = run_viterbi_many(sequences)
    np.testing.assert_array_equal(score[:, 0], best)
    np.testing.assert_array_equal(path[:, 0], np.concatenate(best_path))
    start = 0
    for s, chain in enumerate(sequences):
        want, want_score = run_by_lists(chain, k)
        np.testing.assert_array_equal(path[start : start + len(want)], want)
        np.testing.assert_array_equal(score[s], want_score)
        start += len(want)


@pytest.mark.parametrize("n_labels, n_classes", [(1, 1), (2, 3), (22, 2), (33, 1), (70, 3)])
@pytest.mark.parametrize("kind", ["normal", "integers", "uniform", "-1e6", "-inf"])
def test_many_labels(n_labels, n_classes, kind):
    rng = np.random.default_rng(n_labels)
    sequences = [random_chain(rng, n, n_labels, n_classes) for n in (9, 1, 4, 2, 12)]
    log_edge = sequences[0].log_edge
    if kind == "uniform":
        sequences = [c._replace(log_node=np.zeros_like(c.log_node)) for c in sequences]
        log_edge = np.zeros_like(log_edge)
    elif kind == "integers":
        sequences = [c._replace(log_node=np.round(c.log_node)) for c in sequences]
        log_edge = np.round(log_edge)
    elif kind != "normal":
        value = float(kind)
        log_edge[rng.random(log_edge.shape) < 0.3] = value
        for c in sequences:
            c.log_node[rng.random(c.log_node.shape) < 0.3] = value
    sequences = [c._replace(log_edge=log_edge) for c in sequences]
    path, score, found, _ = run(sequences, 12)
    fewer, fewer_score, _, _ = run(sequences, 5)
    np.testing.assert_array_equal(fewer, path[:, :5])  # the first 5 of 12 are the best 5
    np.testing.assert_array_equal(fewer_score, score[:, :5])
    start = 0
    for s, chain in enumerate(sequences):
        want, want_score = run_by_lists(chain, 12)
        np.testing.assert_array_equal(path[start : start + len(want)], want)
        np.testing.assert_array_equal(score[s], want_score)
        check(chain, want, score[s], found[s])
        start += len(want)


def test_uniform_scores_count_all_labellings():
    chain = Chain(np.zeros((5, 3)), np.zeros((1, 3, 3)), np.zeros(5, np.int32))
    path, score, found, _ = run([chain], 300)
    assert found[0] == 3**5
    np.testing.assert_array_equal(path[::-1, : 3**5].T, brute.all_paths(5, 3))


def test_empty_sequences_and_dead_ends():
    chain = random_chain(np.random.default_rng(0), 3, 4)
    empty = chain._replace(log_node=chain.log_node[:0], edge_class=chain.edge_class[:0])
    dead = chain._replace(log_node=np.where(np.arange(3)[:, None] == 1, -np.inf, chain.log_node))
    path, score, found, _ = run([empty, chain, dead, empty], 70)
    assert found.tolist() == [1, 64, 0, 1]
    assert score[0, 0] == score[3, 0] == 0.0
    assert (score[0, 1:] == -np.inf).all() and (score[2] == -np.inf).all()
    assert not path[3:].any()
    np.testing.assert_array_equal(path[:3], run([chain], 70)[0])
    assert run([empty], 3)[2].tolist() == [1]


def test_a_score_below_all_doubles_does_not_count():
    """-1.7e308 - 1.7e308 is -inf: such a labelling is none, and neither is what goes on from it."""
    log_node = np.array([[0.0, -1.7e308], [0.0, -1.7e308], [0.0, -1.0]])
    chain = Chain(log_node, np.zeros((1, 2, 2)), np.zeros(3, np.int32))
    path, score, found, _ = run([chain], 8)
    assert found[0] == 6
    check(chain, path, score[0], 6)


def test_one_way_through():
    """One labelling is allowed, and it lies far behind before the last token forbids the others."""
    path, score, found, _ = run([returning_mass(7.0, 40)._replace(log_edge=one_way())], 5)
    assert found[0] == 1 and (path[:, 0] == 1).all() and score[0, 0] == -7.0 * 40


def one_way():
    log_edge = np.full((1, 3, 3), -np.inf)
    np.fill_diagonal(log_edge[0], 0.0)
    log_edge[0, 2, 2] = -np.inf
    return log_edge


def test_scores_fall_where_rounding_is_coarse():
    """Near 1e16 doubles are 2 apart: sums from the left and from the right differ."""
    rng = np.random.default_rng(3)
    chain = random_chain(rng, 6, 3, 2, 1.0)
    chain = chain._replace(log_node=chain.log_node + rng.choice([-1e16, 1e16], (6, 1)))
    path, score, found, _ = run([chain], 3**6)
    check(chain, path, score[0], found[0])
    assert found[0] == 3**6


@pytest.mark.parametrize("k", [2, 10, 100])
def test_few_labellings_cost_few_columns(k):
    """Beyond Viterbi: less than 2 + k/10 columns of label pairs a token, and 3 entries a list step."""
    chain = random_chain(np.random.default_rng(1), 300, 30)
    _, _, found, (entries, pairs, steps) = run([chain], k)
    assert found[0] == k
    assert pairs <= (2 + k / 10) * 300 * 30
    assert steps <= k * 300 and entries <= 3 * steps + 301


def test_a_million_tokens():
    """The lists share beginnings: k labellings of a long sequence are no k copies of it."""
    chain = random_chain(np.random.default_rng(9), 1_000_000, 3, 2)
    path, score, found, (entries, _, _) = run([chain], 4)
    best, best_path = run_viterbi_many([chain])
    assert found[0] == 4 and score[0, 0] == best[0] and (np.diff(score[0]) <= 0).all()
    np.testing.assert_array_equal(path[:, 0], best_path[0])
    assert len(np.unique(path, axis=1).T) == 4
    assert entries < 5_000_000
