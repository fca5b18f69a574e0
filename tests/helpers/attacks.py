"""Seeded attacks: inputs that no honest program writes, as many as are asked for, the same ones each time.

    for rng in attacks("shards"):          # a numpy Generator a try
        ...                                # make one input, use it, say `rng.number` where it fails

A normal run tries 500 in all, shared out by `SHARES`; CRFBOOK_ATTACKS=10000 tries that many, and those of a
normal run are among them. CRFBOOK_ATTACK_SEED=7 makes others. At least half of all tries change one
field of a valid file and compute its hashes anew (`changed`): what a checksum finds is no attack.
"""

import os
import zlib

import numpy as np

# tries of each kind among 500; a test of the contract counts FORGED
SHARES = {
    # files, one field changed, hashes recomputed; "tables": Parquet, and parts of an unfinished write_shards
    "models": 90, "shards": 90, "manifests": 50, "tables": 30,
    "texts": 40, "inputs": 60, "patterns": 30, "schemes": 50, "scores": 60,
}  # fmt: skip
FORGED = "models", "shards", "manifests", "tables"


class Try(np.random.Generator):
    """A generator of random numbers that knows which try it belongs to."""

    def __init__(self, kind, number, seed):
        super().__init__(np.random.PCG64([zlib.crc32(kind.encode()), number, seed]))
        self.number = number

    def one_of(self, options):
        """One of the options, whatever objects they are."""
        options = list(options)
        return options[self.integers(len(options))]


def attacks(kind):
    """The tries of a kind, one `Try` each."""
    total, seed = (int(os.environ.get(f"CRFBOOK_ATTACK{name}", n)) for name, n in (("S", 500), ("_SEED", 0)))
    for number in range(-(-SHARES[kind] * total // sum(SHARES.values()))):
        yield Try(kind, number, seed)


ODD_NUMBERS = 0, -1, 1, 3, 2**31 - 1, -(2**31), 2**53, 2**62, float("nan"), float("inf"), -0.5, 1e300
ODD_TEXTS = "", "\0", "..", "../x", "/dev/zero", "\ud800", "x" * 5000, "BIO", "0", "\x1b[2J", "U:%x[0,0]"


def changed(value, rng):
    """A field of a file, changed: an array in one entry, its order, its length or its dtype; a number, text,
    list or dict into a neighbour or into something else.
    """
    return changed_array(value, rng) if isinstance(value, np.ndarray) else changed_json(value, rng)


def changed_array(array, rng):
    """An array that differs from `array` as a rule: see `changed`."""
    how = rng.one_of(["entry"] * 5 + ["shift", "reverse", "shorter", "longer", "dtype", "fill", "shape"])
    new = array.copy()
    with np.errstate(all="ignore"):
        if how == "dtype":
            return new.astype(rng.one_of([np.float32, np.float64, np.int32, np.int64, np.uint8, bool, ">i4"]))
        if how == "shape":
            return new[None] if rng.random() < 0.5 else new.reshape(-1)[:0]
        if not array.size:
            return np.concatenate([new.reshape(-1), np.zeros(1, array.dtype)])
        if how in ("shorter", "longer", "reverse"):
            row = np.atleast_1d(new)
            more = {"shorter": row[:-1], "longer": np.concatenate([row, row[-1:]]), "reverse": row[::-1]}
            return np.ascontiguousarray(more[how])
        if how == "shift":
            return (new + np.int64(rng.one_of([1, -1, 2**20]))).astype(array.dtype)
        odd = rng.one_of([*ODD_NUMBERS, int(rng.integers(-3, 9)), int(rng.integers(0, 2**31))])
        value = np.asarray(odd, np.float64).astype(array.dtype)
        if how == "fill":
            new[...] = value
        else:
            new.reshape(-1)[rng.integers(array.size)] = value
    return new


def changed_json(value, rng):
    """What JSON can carry, with one leaf (or one entry of a list or dict) changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.one_of(value)
        if rng.random() < 0.15:
            return {key: item for key, item in value.items() if key != name}
        return value | {name: changed_json(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        i = int(rng.integers(len(value)))
        if (how := rng.random()) < 0.2:
            return value[:i] + value[i + 1 :] if how < 0.1 else value[: i + 1] + value[i:]
        return value[:i] + [changed_json(value[i], rng)] + value[i + 1 :]
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.5:
        return value + rng.one_of([1, -1, 0.5, 10**9])
    deep = []
    for _ in range(600):
        deep = [deep]
    return rng.one_of([None, True, {}, [], [[]], {"x": 1}, deep, *ODD_NUMBERS, *ODD_TEXTS])


def one_sentence(error):
    """Whether an error says what users are promised: one line, not long, nothing that a terminal obeys."""
    text = str(error)
    return bool(text) and text.isprintable() and len(text) < 1000
