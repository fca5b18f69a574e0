"""Simulated sequences without any text: hidden Markov models with known parameters.

`SPARSE_HMM` is the model of the simulation in the sparse-CRF paper (Sokolovska, Lavergne, Cappe and Yvon
2010, section 6.1) as far as its text can be restored: six labels, five symbols, two label pairs that stick
out of uniform transitions, and two labels (4 and 5) that share their symbol,
so that only their neighbours tell them apart.
"""

from typing import NamedTuple

import numpy as np

from crfbook.data.columns import TokenColumns

SUCCESSORS = 8  # labels that mostly follow one label of the model with many


class HiddenMarkov(NamedTuple):
    """L labels, V symbols; all rows sum to one."""

    start: np.ndarray  # float64 (L,)
    transition: np.ndarray  # float64 (L, L), [previous, next]
    emission: np.ndarray  # float64 (L, V)


def _sparse_hmm():
    transition = np.full((6, 6), 1 / 6)
    transition[4], transition[5] = 1 / 15, 1 / 15
    transition[4, 0], transition[5, 1] = 2 / 3, 2 / 3
    emission = np.full((6, 5), 0.02)
    emission[[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 4]] = 0.92
    return HiddenMarkov(np.full(6, 1 / 6), transition, emission)


SPARSE_HMM = _sparse_hmm()


def sample(model, lengths, random_state=0):
    """Draw sequences of these lengths: (labels, symbols), both int64 (sum of lengths,),
    sequences one after another.
    """
    rng = np.random.default_rng(random_state)
    lengths = np.asarray(lengths, dtype=np.int64)
    begin = np.cumsum(lengths) - lengths
    labels = np.zeros(int(lengths.sum()), dtype=np.int64)
    alive = np.flatnonzero(lengths > 0)
    if len(alive):
        labels[begin[alive]] = _draw(np.broadcast_to(model.start, (len(alive), len(model.start))), rng)
    for t in range(1, int(lengths.max(initial=0))):
        alive = alive[lengths[alive] > t]
        labels[begin[alive] + t] = _draw(model.transition[labels[begin[alive] + t - 1]], rng)
    cumulative = np.cumsum(model.emission, axis=1)
    symbols = np.empty_like(labels)
    for y in range(len(cumulative)):
        here = np.flatnonzero(labels == y)
        u = rng.random(len(here)) * cumulative[y, -1]
        symbols[here] = np.searchsorted(cumulative[y], u, side="right")
    return labels, symbols


def _draw(rows, rng):
    """One index per row of probabilities."""
    cumulative = np.cumsum(rows, axis=1)
    u = rng.random(len(rows)) * cumulative[:, -1]
    return (cumulative <= u[:, None]).sum(axis=1)


def sparse_hmm_sequences(n=10, length=5, random_state=0):
    """n sequences of SPARSE_HMM as TokenColumns: column "symbol" ("0" to "4"), labels "0" to "5".

    The paper trains on few: 10 sequences of 5 tokens fit its counts.
    """
    labels, symbols = sample(SPARSE_HMM, np.full(n, length), random_state)
    names = "012345"
    columns = {"symbol": [names[x] for x in symbols]}
    return TokenColumns(columns, np.arange(n + 1) * length, [names[y] for y in labels], "label")


def large_label_hmm(n_labels=300, n_words=4000):
    """A model with many labels: each is followed nearly always by one of SUCCESSORS, and words are Zipfian.

    A label's words overlap with its neighbours' (label numbers apart by 1 to 3), so that a third of the
    tokens are ambiguous and transitions decide. Frequencies of labels are uneven, as those of supertags are.
    """
    rng = np.random.default_rng(0)
    popularity = 1 / (np.arange(n_labels) + 5.0)
    popularity /= popularity.sum()
    transition = np.tile(0.05 * popularity, (n_labels, 1))
    for y in range(n_labels):
        after = rng.choice(n_labels, size=min(SUCCESSORS, n_labels), replace=False, p=popularity)
        transition[y, after] += 0.95 * rng.dirichlet(np.ones(len(after)))
    emission = np.zeros((n_labels, n_words))
    for y in range(n_labels):
        own = (y * n_words // n_labels + np.arange(4 * n_words // n_labels)) % n_words
        weight = 1 / (np.arange(len(own)) + 1.0)
        emission[y, own] = weight / weight.sum()
    return HiddenMarkov(popularity, transition / transition.sum(axis=1, keepdims=True), emission)


def large_label_sequences(n=1000, n_labels=300, n_words=4000, random_state=0):
    """n sequences of 5 to 30 tokens as TokenColumns: column "word" ("w17"), labels "L000" and on."""
    model = large_label_hmm(n_labels, n_words)
    rng = np.random.default_rng([random_state, 7])
    lengths = rng.integers(5, 31, size=n)
    labels, words = sample(model, lengths, [random_state, 8])
    word_names = [f"w{i}" for i in range(n_words)]
    label_names = [f"L{i:03d}" for i in range(n_labels)]
    columns = {"word": [word_names[x] for x in words]}
    return TokenColumns(columns, np.cumsum([0, *lengths]), [label_names[y] for y in labels], "label")


def _simulated(task, sizes, seed):
    sizes = {"train": 10, "test": sizes["train"]}  # the paper trains on 10 sequences
    return {s: sparse_hmm_sequences(n, random_state=[seed, k]) for k, (s, n) in enumerate(sizes.items())}, {}


def _large(task, sizes, seed):
    sizes = {s: sizes[s] // 2 for s in ("train", "test")}
    return {
        s: large_label_sequences(n, random_state=2 * seed + k) for k, (s, n) in enumerate(sizes.items())
    }, {}


TWINS = {"simulated-hmm": (_simulated, None), "large-labels": (_large, None)}  # the writers make all splits
