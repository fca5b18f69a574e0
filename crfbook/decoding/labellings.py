"""The k best labellings of a corpus, with their probabilities. Arrays only, no strings."""

from typing import NamedTuple

import numpy as np

from crfbook._checks import whole
from crfbook.chain import inference
from crfbook.chain.forms import table_edges
from crfbook.chain.viterbi import dominance
from crfbook.decoding.kbest import kbest_many
from crfbook.training.threads import run_pieces


class DenseTables(NamedTuple):
    """Transitions as `kbest_many` reads them."""

    log_edge: np.ndarray  # (K, L, L) as [class, previous, next]
    log_edge_t: np.ndarray  # (K, L, L), its transposes, contiguous
    bound: np.ndarray  # (K, L, L) of `dominance`, or (0, 0, 0): no label is left out
    reach: np.ndarray  # (1,), of `dominance`


def dense_tables(log_edge, n_tokens):
    """`DenseTables` of log_edge (K, L, L); labels that cannot win are left out where n_tokens repay it."""
    n_classes, n_labels = log_edge.shape[:2]
    log_edge_t = np.ascontiguousarray(log_edge.transpose(0, 2, 1))
    bound, reach = np.empty((0, 0, 0)), np.zeros(1)
    if n_tokens > 4 * n_classes * n_labels:
        bound = np.empty(log_edge.shape)
        reach[0] = dominance(log_edge, log_edge_t, bound)
    return DenseTables(log_edge, log_edge_t, bound, reach)


class KBest(NamedTuple):
    """The best labellings of N tokens, S sequences: of rank 0 to k-1, or fewer if no sequence has k."""

    path: np.ndarray  # int32 (N, k), 0 where there are fewer
    score: np.ndarray  # (S, k) in nats, falling, -inf where there are fewer
    log_proba: np.ndarray  # (S, k): score - log Z
    found: np.ndarray  # int64 (S,): how many there are, k at most


def kbest(corpus, features, w, constraints=None, k=10, n_threads=1):
    """`KBest`: the k most probable labellings of every sequence that the constraints allow, or all there are.

    Rank 0 is the path of `inference.decode`. k : at least 1. Raises ValueError for another k, and otherwise
    as `inference` does.
    """
    k = min(whole("k", k, 1), features.n_labels ** min(corpus.longest, 63))
    log_z = inference.log_partition(
        corpus, features, w, constraints, n_threads
    )  # or the sequence without path
    path = np.empty((corpus.n_tokens, k), np.int32)
    score, found = np.empty((corpus.n_sequences, k)), np.empty(corpus.n_sequences, np.int64)
    model = inference.ready_model(corpus, features, w, constraints, table_edges, False)
    tables = dense_tables(model.edges.log_edge, corpus.n_tokens)
    pieces = inference.stretches(corpus.seq_ptr)

    def piece(i):
        sequences, tokens = pieces[i]
        log_node = inference.stretch_scores(corpus, model, *pieces[i])
        seq_ptr = corpus.seq_ptr[sequences.start : sequences.stop + 1] - tokens.start
        out = path[tokens], score[sequences], found[sequences], np.zeros(3, np.int64)
        kbest_many(log_node, tables, corpus.edge_class[tokens], seq_ptr, *out)

    run_pieces(piece, len(pieces), n_threads)
    return KBest(path, score, score - log_z[:, None], found)
