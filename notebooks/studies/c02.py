"""Chapter 02: how far forward-backward is from what exp, matrix products and memory of the machine allow."""

import numpy as np

from .c03 import _cached_products
from .harness import race, study
from .records import cells, each, rounded

LABELS = 9, 22, 60, 319
CELLS = 3e8  # tokens times pairs of labels of a corpus, which has from 4,000 to 60,000 tokens
PASSES = 12  # over a row: scores, exp (2), forward (2), backward (4), the product of both (2), gradient
BLOCK = 1 << 16  # doubles of a row block of the products alone, which stays in the cache


def random_evaluation(labels, seed=0):
    """(tokens, f()): value and gradient, batched; sentences of 20 tokens, one attribute a token."""
    from crfbook import make_corpus
    from crfbook.chain.objective import Objective
    from crfbook.data.features import observed

    rng = np.random.default_rng(seed)
    n = 20 * int(np.clip(CELLS / labels**2, 4_000, 60_000) / 20)
    attributes, gold = rng.integers(0, 50, n), rng.integers(0, labels, n)
    corpus = make_corpus(np.arange(0, n + 1, 20), np.arange(n + 1), attributes, labels=gold)
    features = observed(corpus, labels, 50, 1)
    objective, w = Objective(corpus, features, form="batched"), rng.normal(0.0, 0.3, features.n_features)
    return n, lambda: objective(w)


def exps(n_tokens, labels):
    """f(): as many exponentials as n_tokens rows have, 4,096 at a time, which stay in the cache."""
    from crfbook.chain.vector_math import exp_inplace

    given, block = np.random.default_rng(0).normal(size=4096), np.empty(4096)

    def run():
        for _ in range(0, n_tokens * labels, 4096):
            block[:] = given
            exp_inplace(block)

    return run


def copies(n_tokens, labels):
    """f(): as many bytes as n_tokens rows take, read and written by copies of arrays of a batch's size."""
    from crfbook.chain.packing import batch_rows

    rows = min(n_tokens, batch_rows(1, labels))
    source, target = np.ones((rows, labels)), np.zeros((rows, labels))

    def run():
        for _ in range(0, n_tokens * PASSES // 2, rows):
            np.copyto(target, source)

    return run


def limits_of(labels, repeats=5):
    """CPU nanoseconds a token of forward-backward, and of its exps, products and bytes at their best.

    A processor moves bytes while it computes: the limit is the larger time of both.
    """
    n, evaluation = random_evaluation(labels)
    block = BLOCK // labels
    runs = {"measured": evaluation, "exp": exps(n, labels), "memory": copies(n, labels)}
    runs["products"] = _cached_products(n, labels, block)
    took = {name: min(one.cpu) for name, one in race(runs, repeats).items()}
    took["products"] *= n / (-(-n // block) * block)  # of whole blocks
    ns = {name: 1e9 * seconds / n for name, seconds in took.items()}
    limit = max(ns["exp"] + ns["products"], ns["memory"])
    counts = {"exps": labels, "multiply-adds": 3 * labels**2, "bytes": 8 * PASSES * labels}
    return {"tokens": n, **counts, **ns, "limit": limit, "times the limit": ns["measured"] / limit}


@study("02_limits.csv", frozen=("objective, batched",))
def limits(n_repeats=5, labels=LABELS):
    """Forward-backward of 9 to 319 labels beside what exp, products and memory allow, in one run."""
    yield "02_limits.csv", each(rounded(limits_of), cells(labels=labels), repeats=n_repeats)
