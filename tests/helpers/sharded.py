"""Small texts for the tests of training on shards, forged files, and comparisons of what comes of them."""

import contextlib
import json
import os
from functools import cache

import numpy as np
from scipy import sparse

from crfbook import CRF
from crfbook.data.columns import TokenColumns
from crfbook.data.files import load_arrays, save_arrays
from crfbook.distributed import fit, write_shards
from crfbook.distributed.objective import CACHE
from crfbook.distributed.shards import (
    ALPHABET,
    MANIFEST,
    _hash_of,
    content_digest,
    read_alphabet,
    read_features,
)

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


def forget():
    """Drop what this process keeps of shards: the same names now hold other files."""
    CACHE.clear(), read_alphabet.cache_clear(), read_features.cache_clear()


def rewritten(folder, change):
    """Change the manifest of a folder; its hash is made anew."""
    path = os.path.join(folder, MANIFEST)
    with open(path, encoding="utf-8") as file:
        about = json.load(file)
    del about["digest"]
    about = change(about)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(about | {"digest": _hash_of(about)} if isinstance(about, dict) else about, file)


def read_file(folder, name):
    """(header, arrays) of a shard or of the alphabet."""
    return load_arrays(os.path.join(folder, name), "alphabet" if name == ALPHABET else "shard")


def replaced(folder, name, header, arrays, sizes=True):
    """Write a shard or the alphabet of a folder, and make all hashes anew, those of shards and of the
    manifest too; sizes : and the numbers in the manifest.
    """
    kind, digests = ("alphabet", "encoder") if name == ALPHABET else ("shard", "alphabet"), {}

    def write(name, kind, beside, header, arrays):
        with contextlib.suppress(KeyError, TypeError):
            digests[name] = header["digest"] = content_digest(arrays, header[beside])
        save_arrays(os.path.join(folder, name), kind, header, arrays)

    write(name, *kind, header, arrays)
    if name == ALPHABET and name in digests:
        for shard in (entry for entry in os.listdir(folder) if entry.startswith("shard-")):
            of_shard, content = read_file(folder, shard)
            write(shard, "shard", "alphabet", of_shard | {"alphabet": digests[name]}, content)
    of_sizes = [("corpus.seq_ptr", 1), ("corpus.attr_ptr", 1), ("place", 0)]

    def change(about):
        about["alphabet"] = digests.get(ALPHABET, about["alphabet"])
        for row in about["shards"]:
            row[1] = digests.get(row[0], row[1])
            if sizes and row[0] == name:
                row[2:] = [arrays[of].size - less for of, less in of_sizes if of in arrays]
        return about

    rewritten(folder, change)
    forget()


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
