"""Small texts for the tests of training on shards, and comparisons of what comes of them."""

from functools import cache

import numpy as np
from scipy import sparse

from crfbook import CRF
from crfbook.data.columns import TokenColumns
from crfbook.distributed import fit, write_shards

TEMPLATE = "U0:%x[0,0]\nU1:%x[-1,0]/%x[0,1]\nB\nB1:%x[0,1]\n"
NAMES = "word", "pos", "y"


@cache
def sentences(n=60, seed=0):
    """Lists of (word, pos, label in BIO); a few labels break BIO."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        words, before, sentence = rng.integers(0, 25, rng.integers(1, 8)).tolist(), "O", []
        for w in words:
            y = "B-x" if w % 3 == 0 else "I-x" if w % 3 == 1 and before != "O" else "O"
            y = "I-x" if rng.random() < 0.02 else y
            sentence.append((f"w{w}", f"t{w % 4}", y))
            before = y
        found.append(sentence)
    return found


def columns(rows):
    return TokenColumns.from_sentences(rows, NAMES, "y")


def dicts(rows):
    X = [[{"w": w, p: 0.5, "n": float(len(w))} for w, p, _ in s] for s in rows]
    return X, labels(rows)


def names(rows):
    return [[[w, p] for w, p, _ in s] for s in rows], labels(rows)


def matrices(rows):
    X = [np.array([[float(len(w)), p == "t1", p == "t3", 0] for w, p, _ in s]) for s in rows]
    return [sparse.csr_matrix(x) for x in X], labels(rows)


def labels(rows):
    return [[y for _, _, y in s] for s in rows]


def write_columns(path, rows, end="\n"):
    """A file of columns."""
    text = end.join(end.join(" ".join(cells) for cells in s) + end for s in rows)
    path.write_bytes(text.encode())
    return path


def some_shards(folder, **options):
    """`Shards` of three texts, cut into about ten shards; options : of CRF, and shard_tokens."""
    rows, shard_tokens = sentences(), options.pop("shard_tokens", 30)
    texts = [names(rows[:25]), names(rows[25:26]), names(rows[26:])]
    return write_shards(texts, folder, CRF(**options), shard_tokens=shard_tokens)


def trained(shards, client=None, *, rules, **options):
    """A CRF with the parameters `rules`, trained on shards."""
    return fit(CRF(**rules), shards, client, **options)


def assert_same_bits(a, b):
    """Two models, bit for bit: weights, objective, iterations."""
    assert a.weights_.tobytes() == b.weights_.tobytes()
    assert (a.objective_, a.n_iter_, a.status_) == (b.objective_, b.n_iter_, b.status_)
    assert_same_history(a, b)


def assert_same_history(a, b):
    """All columns but the clock."""
    one, two = (model.history_.drop(columns="seconds") for model in (a, b))
    np.testing.assert_array_equal(one.to_numpy(), two.to_numpy())
