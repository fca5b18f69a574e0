"""The k best labellings of a corpus, with their probabilities. Arrays only, no strings."""

from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np

from crfbook._checks import one_of, whole
from crfbook.chain import inference
from crfbook.chain.forms import table_edges
from crfbook.chain.likelihood import spare_or_new
from crfbook.chain.ready import (
    large_sequences,
    log_chain,
    path_log_proba,
    ready_model,
    refuse,
    stretch_scores,
    stretches,
)
from crfbook.chain.sparse.choice import decoding_form
from crfbook.chain.sparse.potentials import default_scores, default_work
from crfbook.chain.viterbi import dominance
from crfbook.data.corpus import offsets, owners
from crfbook.decoding.decoders import check_tables
from crfbook.decoding.kbest import kbest_many, viterbi_scores, viterbi_scores_stored
from crfbook.training.threads import run_pieces

FORMS = ("auto", "dense", "default")


class KBestTables(NamedTuple):
    """Transitions as `kbest_many` reads them: a table, or 0 but for stored pairs.
    The arrays of the other kind are empty, so that both are one type, and are compiled once.
    """

    log_edge_t: np.ndarray  # (K, L, L) as [class, next, previous], or (0, 0, 0): stored pairs
    group: np.ndarray  # int32 (L,), this and the next two as in `DefaultScores`
    member_ptr: np.ndarray
    member: np.ndarray
    column_ptr: np.ndarray  # int64 (K L + 1,): stored pairs by class and next label
    column_prev: np.ndarray  # int32
    column_score: np.ndarray


def dense_search(log_edge, n_tokens):
    """f(log_node, edge_class, seq_ptr, path, score, found, counters): `kbest_many` with a table log_edge (K,
    L, L); labels that cannot win are left out of Viterbi where n_tokens repay it.
    """
    n_classes, n_labels = log_edge.shape[:2]
    log_edge_t = np.ascontiguousarray(log_edge.transpose(0, 2, 1))
    ptr, label = np.zeros(1, np.int64), np.zeros(0, np.int32)
    tables = KBestTables(log_edge_t, label, ptr, label, ptr, label, np.zeros(0))
    bound, reach = np.empty((0, 0, 0)), 0.0
    if n_tokens > 4 * n_classes * n_labels:
        bound = np.empty(log_edge.shape)
        reach = dominance(log_edge, log_edge_t, bound)

    def search(log_node, edge_class, seq_ptr, *out):
        delta = np.empty(log_node.shape)
        viterbi_scores(log_node, log_edge, bound, reach, edge_class, seq_ptr, delta)
        kbest_many(log_node, delta, tables, edge_class, seq_ptr, *out)

    return search


def stored_search(scores, n_classes):
    """`dense_search` with `DefaultScores`."""
    n_labels, idle = len(scores.group), SimpleQueue()
    k, cell = np.divmod(owners(scores.row_ptr), max(1, len(scores.member)))
    column = k * n_labels + scores.next_label
    order = np.argsort(column, kind="stable")
    column_ptr = offsets(np.bincount(column, minlength=n_classes * n_labels))
    columns = column_ptr, scores.member[cell[order]], scores.score[order]
    groups = scores.group, scores.member_ptr, scores.member
    tables = KBestTables(np.zeros((0, 0, 0)), *groups, *columns)

    def search(log_node, edge_class, seq_ptr, *out):
        delta, work = np.empty(log_node.shape), spare_or_new(idle, partial(default_work, scores))
        viterbi_scores_stored(log_node, scores, work, edge_class, seq_ptr, delta)
        idle.put(work)
        kbest_many(log_node, delta, tables, edge_class, seq_ptr, *out)

    return search


class KBest(NamedTuple):
    """The best labellings of N tokens, S sequences: of rank 0 to k-1, or fewer if no sequence has k."""

    path: np.ndarray  # int32 (N, k), 0 where there are fewer
    score: np.ndarray  # (S, k) in nats, falling, -inf where there are fewer
    log_proba: np.ndarray  # (S, k): score - log Z
    found: np.ndarray  # int64 (S,): how many there are, k at most


def kbest(corpus, features, w, constraints=None, k=10, n_threads=1, form="auto"):
    """`KBest`: the k most probable labellings of every sequence that the constraints allow, or all there are.

    Rank 0 is the path of `inference.decode`. k : at least 1. form : "dense", a table of all label pairs;
    "default", those that are stored; or "auto": as `inference.decode` chooses. Both find the same bits, but
    for the rounding of log Z.
    Raises ValueError for another k or form, and otherwise as `inference` does.
    """
    k = rank_limit(k, corpus, features.n_labels)
    check_tables(one_of("form", form, FORMS), corpus.n_classes, features.n_labels)
    name = decoding_form(form, corpus, features, w, constraints)
    stored = name in ("default", "sparse")
    transitions = default_scores if stored else table_edges
    path = np.empty((corpus.n_tokens, k), np.int32)
    score, found = np.empty((corpus.n_sequences, k)), np.empty(corpus.n_sequences, np.int64)
    log_z = inference.log_partition(corpus, features, w, constraints, n_threads)  # names one without path
    model = ready_model(corpus, features, w, constraints, transitions, False, padding=not stored)
    if stored:
        search = stored_search(model.edges, corpus.n_classes)
    else:
        search = dense_search(model.edges.log_edge, corpus.n_tokens)
    pieces = stretches(corpus.seq_ptr, features.n_labels)

    def piece(i):
        sequences, tokens = pieces[i]
        log_node = stretch_scores(corpus, model, *pieces[i])
        seq_ptr = corpus.seq_ptr[sequences.start : sequences.stop + 1] - tokens.start
        out = path[tokens], score[sequences], found[sequences], np.zeros(3, np.int64)
        search(log_node, corpus.edge_class[tokens], seq_ptr, *out)

    run_pieces(piece, len(pieces), n_threads)
    log_proba = score - log_z[:, None]
    for i in large_sequences(corpus, features, w):
        chain, tokens = log_chain(i, corpus, features, w, constraints), slice(*corpus.seq_ptr[i : i + 2])
        if chain.off:  # which of near ones is the better may be lost in their scores
            refuse(i, np.spacing(np.abs(score[i, 0])))
        for rank in range(found[i]):
            log_proba[i, rank] = path_log_proba(i, chain, path[tokens, rank])
    return KBest(path, score, log_proba, found)


def rank_limit(k, corpus, n_labels):
    """k, or how many labellings the longest sequence has, if they are fewer; ValueError for a bad k."""
    return min(whole("k", k, 1), n_labels ** min(corpus.longest, 63))
