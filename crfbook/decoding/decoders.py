"""The table of decoders, and one way to run any form of decoding on a corpus. Arrays only, no strings."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from crfbook._checks import one_of, whole
from crfbook.chain import inference
from crfbook.chain.numpy_form import edge_scores
from crfbook.chain.objective import check_paths, check_weights
from crfbook.chain.sparse.choice import DECODING_FORMS, TABLE_BYTES
from crfbook.chain.viterbi import decode_sequences, viterbi_many
from crfbook.decoding.beam import beam_many, beam_tables
from crfbook.decoding.carpediem import carpediem_many, carpediem_tables
from crfbook.decoding.staggered import staggered_lists, staggered_many, staggered_tables


class Decoder(NamedTuple):
    """A decoder on given scores. All decoders respect constraints (-inf) and several edge classes."""

    tables: Callable  # (log_edge (K, L, L), order of the labels (L,), beam width) -> what `many` reads
    many: Callable  # (log_node, tables, edge_class, seq_ptr, path, score, counters)
    exact: bool = True


def plain_many(log_node, tables, edge_class, seq_ptr, path, score, counters):
    """Best path and score of every sequence; the recursion of ``viterbi``, four rows of pairs at a time.

    delta[t,y] = log_node[t,y] + max_yp(delta[t-1,yp] + log_edge[yp,y])

    Arguments:
        log_node : (n, L)
        tables : log_edge (K, L, L) as [class, previous, next], and its transposes (K, L, L)
        edge_class : int32 (n,)
        seq_ptr : int64 (S+1,)
    Out:
        path : int32 (n,)
        score : (S,), 0 for an empty sequence, -inf (and a path of zeros) if all is forbidden
        counters : int64 (3,), added to: nodes, label pairs, sequences
    Cost: n L^2 additions and maxima.
    Source: Viterbi (1967).
    """
    nothing_is_left_out = np.empty((0, 0, 0))
    decode_sequences(log_node, *tables, nothing_is_left_out, 0.0, edge_class, seq_ptr, path, score)
    lengths, n_labels = np.diff(seq_ptr), log_node.shape[1]
    n_filled = np.count_nonzero(lengths)
    counters += [n_labels * lengths.sum(), n_labels**2 * (lengths.sum() - n_filled), n_filled]


def _plain_tables(log_edge, order, width):
    log_edge = np.ascontiguousarray(log_edge, float)
    return log_edge, np.ascontiguousarray(log_edge.transpose(0, 2, 1))


DECODERS = {
    "plain": Decoder(_plain_tables, plain_many),
    "carpediem": Decoder(lambda log_edge, order, width: carpediem_tables(log_edge, False), carpediem_many),
    "carpediem-tight": Decoder(lambda log_edge, order, width: carpediem_tables(log_edge), carpediem_many),
    "staggered": Decoder(lambda log_edge, order, width: staggered_tables(log_edge, order), staggered_many),
    "staggered-columns": Decoder(
        lambda log_edge, order, width: staggered_tables(log_edge, order, by_column=True), staggered_many
    ),
    "beam": Decoder(lambda log_edge, order, width: beam_tables(log_edge, width), beam_many, exact=False),
}
FORMS = (*DECODING_FORMS, *DECODERS)
BEAM_WIDTH = 10
STAGGERED = {"staggered": False, "staggered-columns": True}  # by column?
WHOLE_BYTES = 1 << 24  # of tables for these forms, one for each edge class; beyond it pairs are listed
MOST_BYTES = 8 * TABLE_BYTES  # of tables for a form that a caller names, "dense" or "sparse"


def decode(
    corpus, features, w, constraints=None, n_threads=1, form="auto", *, beam_width=BEAM_WIDTH, counters=None
):
    """The most probable labels, int32 (N,); for "beam" good ones.

    form : one of FORMS, or "posterior" (`inference.decode_posterior`), which maximises something else.
        `inference.decode` runs its own forms; the others are DECODERS.
    beam_width : labels of a token that "beam" keeps, at least 1.
    counters : int64 (3,), added to by DECODERS alone: nodes and label pairs looked at, sweeps.
    Raises ValueError for another form or width, for tables beyond memory, for a beam without path, and
    otherwise as `inference` does.
    """
    one_of("form", form, (*FORMS, "posterior"))
    if form == "posterior":
        return inference.decode_posterior(corpus, features, w, constraints, n_threads)
    beam_width, transitions = whole("beam_width", beam_width, 1), edge_scores
    K, L = corpus.n_classes, features.n_labels
    listed = form in STAGGERED and K > 1 and 24 * K * L**2 > WHOLE_BYTES
    check_tables(form, 1 if listed else K, L)
    if form not in DECODERS:
        return inference.decode(corpus, features, w, constraints, n_threads, form)
    order = label_order(features, check_weights(w, features.n_features))
    if listed:
        transitions = partial(staggered_lists, order=order, by_column=STAGGERED[form])
    model = inference.ready_model(corpus, features, w, constraints, transitions, False, padding=False)
    scores, edges = partial(inference.stretch_scores, corpus, model), model.edges
    if listed:
        form, edges = Decoder(lambda *_: model.edges, staggered_many), edges.log_edge[0]
    path, score, seen = decode_given(corpus, edges, scores, form, order, beam_width, n_threads)
    if counters is not None:
        counters += sum(seen)
    check_paths(score, np.arange(len(score)), constraints)
    return path


def decode_given(corpus, log_edge, scores, form, order, beam_width=BEAM_WIDTH, n_threads=1):
    """(path int32 (N,), score (S,), [counters (3,) of each stretch]): `search_by` on scores that are given.

    log_edge (K, L, L); scores : see `inference.in_stretches`. Raises ValueError for a beam without path.
    """
    search = search_by(form, log_edge, order, beam_width)
    found = inference.best_paths(corpus, log_edge.shape[1], scores, search, n_threads)
    check_beam(form, beam_width, found[1])
    return found


def check_tables(form, n_classes, n_labels):
    """ValueError for a form whose tables would be too large. "auto" takes none so large, "default" none."""
    table_bytes = (20 if form == "sparse" else 24 * n_classes) * n_labels**2
    most = TABLE_BYTES if form in DECODERS else MOST_BYTES
    if table_bytes > most and form not in ("auto", "default"):
        others = "'default' keeps" if form == "sparse" else "'default' and 'sparse' keep"
        raise ValueError(
            f"form={form!r}: expected tables of at most {most / 2**30:g} GiB, got "
            f"{table_bytes / 2**30:.1f} GiB for {n_classes:,} edge classes and {n_labels:,} labels; "
            f"{others} stored pairs alone"
        )


def search_by(form, log_edge, order, beam_width=BEAM_WIDTH):
    """f(log_node (n, L), edge_class, seq_ptr, path, score) -> counters (3,): a `Decoder`, or one of DECODERS,
    on transitions log_edge (K, L, L), or "dense", whose counters stay 0. order : see `label_order`.
    """
    decoder = DECODERS.get(form, form)
    tables = None if form == "dense" else decoder.tables(log_edge, order, beam_width)

    def search(log_node, *arguments):
        counters = np.zeros(3, np.int64)
        if tables is None:
            viterbi_many(log_node, log_edge, *arguments)
        else:
            decoder.many(log_node, tables, *arguments, counters)
        return counters

    return search


def label_order(features, w):
    """int64 (L,): labels by falling estimated frequency, for staggered decoding.

    A model does not keep frequencies. The estimate sums, over attributes, what each predicts alone: a
    distribution in proportion to exp(weight) over the labels that it has weights for. Decoding is exact in
    any order. An order near that of frequencies takes few sweeps. Cost: the node weights.
    """
    ptr, weights = features.node_ptr, w[: features.n_node]
    rows = np.flatnonzero(np.diff(ptr))
    size = np.diff(ptr)[rows]
    with np.errstate(invalid="ignore", over="ignore"):  # all weights of an attribute of an HMM may be -inf
        share = np.exp(weights - np.repeat(np.maximum.reduceat(weights, ptr[rows]), size))
    share[np.isnan(share)] = 1.0
    share /= np.repeat(np.add.reduceat(share, ptr[rows]), size)
    return np.argsort(-np.bincount(features.node_label, share, features.n_labels), kind="stable")


def check_beam(form, beam_width, score, first=0):
    """ValueError naming the first sequence (`first` is the number of the one of score[0]) where beam search
    found no path.
    """
    lost = np.flatnonzero(score == -np.inf)
    if form in DECODERS and not DECODERS[form].exact and len(lost):
        raise ValueError(
            f"sequence {first + lost[0]}: expected a path among the beam_width={beam_width} labels that "
            f"form={form!r} keeps of each token, got none; if there is any, a larger beam_width or an exact "
            "form, such as 'dense', finds one"
        )
