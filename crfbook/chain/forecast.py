"""What training will take, in bytes and seconds: estimates from counts alone, before anything is built."""

from typing import NamedTuple

import numpy as np

from crfbook.chain.packing import worth_a_row
from crfbook.chain.potentials import padded

MAX_SHARDS = 4
BATCH_ROWS = 4096  # time steps wide enough for BLAS, few passes over the weights; more only costs memory
# with more of them, batches are MANY_ROWS long: the rows of a step that share a class are computed together
FEW_CLASSES = 32
MANY_ROWS = 32768
STRETCH_ROWS = 8192  # tokens decoded at a time: their rows stay in the processor's cache
GRADIENT_BYTES = 1 << 29  # partial gradients, one per shard, take at most this


def batch_rows(n_classes):
    """Rows of a batch for a corpus with that many edge classes."""
    return BATCH_ROWS if n_classes <= FEW_CLASSES else MANY_ROWS


class Forecast(NamedTuple):
    """What training will take: an estimate made before anything is allocated."""

    bytes: int  # arrays of the objective, without the corpus and the optimiser's memory
    seconds: float  # one value and gradient, one thread


def n_shards(n_tokens, n_node):
    """Shards of a corpus: up to MAX_SHARDS, fewer if it is small or if their gradients would not fit."""
    by_memory = GRADIENT_BYTES // max(1, 8 * n_node)
    return int(max(1, min(MAX_SHARDS, by_memory, n_tokens // 500)))


def forecast(corpus, features):
    """`Forecast` of memory and time of one evaluation on one thread, from counts alone,
    before anything is built.

    Seconds were fitted on one machine (a 2.5 GHz server core); expect a factor of two on others. Shared rows
    of weights (bundles.py) are not known yet: on template corpora the truth lies up to 40 per cent lower.
    """
    count = np.bincount(corpus.attr_idx, minlength=features.n_attrs)[: features.n_attrs]
    dense, pairs = worth_a_row(features, count), count * np.diff(features.node_ptr)
    n_dense, n_rows, n_pairs = int(dense.sum()), int(count[dense].sum()), int(pairs[~dense].sum())
    width, n_tokens = padded(features.n_labels), corpus.n_tokens
    valued = 8 if len(corpus.attr_val) else 0
    shards = n_shards(n_tokens, features.n_node)
    size = (
        (8 + valued) * n_rows
        + (8 + valued) * n_pairs
        + 24 * n_tokens
        + 8 * features.n_features * (shards + 1)
        + 16 * n_dense * width
        + 32 * width * max(batch_rows(corpus.n_classes), corpus.longest)
        + 8 * width**2 * corpus.n_classes * (shards + 3)
    )
    seconds = (
        n_rows * (10e-9 + width * 1.2e-9)
        + n_pairs * 15e-9
        + n_tokens * width * 6e-9
        + 6.0 * n_tokens * width**2 / 4e10
        + features.n_features * (shards + 4) * 1e-9
    )
    return Forecast(size, seconds)
