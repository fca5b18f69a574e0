"""A feature set with its weights, ready to score the tokens of a corpus, stretch by stretch.

Sequences whose scores are so large that forms of inference would lose the digits of probabilities.

All forms hand them to `LogChain`, which says how far rounding may have moved its probabilities: by at most
MOST_OFF, or they are refused in one sentence.
"""

from typing import NamedTuple

import numpy as np

from crfbook.chain.forms import Edges
from crfbook.chain.log_chain import LARGE, MOST_OFF, LogChain
from crfbook.chain.numpy_form import add_attribute_scores, edge_scores
from crfbook.chain.objective import check_weights
from crfbook.chain.packing import many_weights, n_stretches, padded_bounds
from crfbook.chain.scores import fill_dense, list_scores
from crfbook.chain.sparse.choice import is_tiny
from crfbook.chain.sparse.potentials import SparseEdges, SparseScores
from crfbook.data.constraints import Bounds, bounds_of, check_label_set
from crfbook.data.corpus import ragged_index, take_sequences
from crfbook.data.features import FeatureSet
from crfbook.training.threads import one_blas_thread

DENSE_BYTES = 1 << 21  # dense copies of frequent rows of weights take at most this


class _Model(NamedTuple):
    """A feature set with its weights, ready to score: potentials,
    and dense copies of frequent rows of weights.
    """

    features: FeatureSet
    w: np.ndarray  # (F,)
    bounds: Bounds  # of M labels
    edges: Edges | SparseEdges | SparseScores | np.ndarray | None
    dense: np.ndarray  # (H, M or L); H may be 0
    dense_of: np.ndarray  # int32 (A',): dense row of attribute a < A', or -1
    tiny: bool  # no kernels
    may_overflow: bool  # weights or values so large that sums must be looked at


def ready_model(corpus, features, w, constraints, transitions=None, tiny=None, padding=True):
    """`_Model` for a corpus, its edges made by `transitions`, if they are needed;
    dense copies only if the corpus is large enough to repay them. tiny: no kernels; None: if it is.
    padding: labels are padded to vector registers.
    """
    tiny = is_tiny(corpus, features) if tiny is None else tiny
    w = check_weights(w, features.n_features)
    check_label_set(corpus, constraints)
    make_bounds = padded_bounds if padding else bounds_of
    edges, bounds = None, make_bounds(constraints, features.n_labels)
    if transitions is not None:
        with one_blas_thread():
            edges = transitions(features, w, corpus.class_ptr, corpus.class_attr, bounds)
    n_labels = features.n_labels
    # Ids fall in frequency, so the rows worth copying are among the first ones.
    head = 0 if tiny else min(features.n_attrs, corpus.n_tokens // 4, DENSE_BYTES // (8 * n_labels))
    rows = np.flatnonzero(many_weights(features)[:head])
    dense_of = np.full(head, -1, np.int32)
    dense_of[rows] = np.arange(len(rows))
    dense = np.zeros((len(rows), n_labels))
    if not tiny:
        fill_dense(w, np.arange(len(rows) + 1), rows, features.node_ptr, features.node_label, dense)
    reach = float(np.abs(w).max(initial=0.0)) * max(1.0, float(np.abs(corpus.attr_val).max(initial=0.0)))
    may_overflow = not reach * (len(corpus.attr_idx) + 1.0) < 1e300
    return _Model(features, w, bounds, edges, dense, dense_of, tiny, may_overflow)


def stretches(seq_ptr, n_labels):
    """[(slice of sequences, slice of tokens)]: neighbouring whole sequences, about as many tokens in each as
    `n_stretches` says.
    """
    n = n_stretches(seq_ptr[-1], n_labels)
    cuts = np.searchsorted(seq_ptr, seq_ptr[-1] * np.arange(1, n) / n)
    cuts = np.unique(np.concatenate([[0], cuts, [len(seq_ptr) - 1]]))
    return [
        (slice(int(a), int(b)), slice(int(seq_ptr[a]), int(seq_ptr[b])))
        for a, b in zip(cuts[:-1], cuts[1:], strict=True)
    ]


def add_scores(corpus, model, tokens, log_node):
    """log_node (n, >= L) += scores of the attributes of `tokens` int64 (n,).

    A sum that overflows to +inf, or that is inf - inf, would make a decoder pass over the label in silence.
    """
    features = model.features
    if model.tiny:
        with np.errstate(over="ignore", invalid="ignore"):
            add_attribute_scores(corpus, features, model.w, tokens, log_node)
    else:
        lists = features.node_ptr, features.node_label, model.dense, model.dense_of
        list_scores(model.w, *lists, tokens, corpus.attr_ptr, corpus.attr_idx, corpus.attr_val, log_node)
    if model.may_overflow:
        bad = tokens[~(log_node < np.inf).all(axis=1)]
        if len(bad):
            raise ValueError(
                f"{corpus.place(bad.min())}: expected scores within float64, "
                "got a sum of weights that exceeds it"
            )


def stretch_scores(corpus, model, sequences, tokens):
    """log_node (n, M) of neighbouring sequences with start and end constraints, padding labels at -inf."""
    bounds = model.bounds
    seq_ptr = corpus.seq_ptr[sequences.start : sequences.stop + 1] - tokens.start
    filled = seq_ptr[:-1] < seq_ptr[1:]
    log_node = np.empty((tokens.stop - tokens.start, len(bounds.middle)))
    log_node[:] = bounds.middle
    log_node[seq_ptr[:-1][filled]] = bounds.start
    log_node[seq_ptr[1:][filled] - 1] += bounds.end
    if len(corpus.label_set):
        log_node += bounds.label_sets[corpus.label_set[tokens]]
    add_scores(corpus, model, np.arange(tokens.start, tokens.stop), log_node)
    return log_node


def large_sequences(corpus, features, w, n_parts=1):
    """Numbers of the sequences whose weights add up to more than LARGE: what all forms say of them is what
    `log_chain` says. n_parts : scores of a labelling at a token.
    """
    value, most = (float(np.abs(x).max(initial=1.0)) for x in (corpus.attr_val, w))
    n_edges = int(np.diff(corpus.class_ptr).max(initial=0))
    if most * value * n_parts * (len(corpus.attr_idx) + corpus.n_tokens * n_edges) <= LARGE:
        return []
    node, edge = (float(np.abs(x).max(initial=0.0)) for x in np.split(w, [features.n_node]))
    counts = n_parts * np.diff(corpus.attr_ptr[corpus.seq_ptr])
    with np.errstate(over="ignore"):
        edges = n_parts * corpus.lengths * (edge * n_edges)
        found = np.flatnonzero(counts * min(node * value, 1e308) + edges > LARGE)
    if len(found) and len(corpus.attr_val):  # large values may meet small weights
        part = take_sequences(corpus, found)._replace(label_set=corpus.label_set[:0])
        part = part._replace(attr_val=np.abs(part.attr_val))
        model = ready_model(part, features, np.abs(w), None, padding=False)
        cut = stretches(part.seq_ptr, features.n_labels)
        rows = [stretch_scores(part, model, *place).max(axis=1) for place in cut]
        nodes = n_parts * np.bincount(part.sequence, np.concatenate(rows), minlength=len(found))
        found = found[edges[found] + nodes > LARGE]
    return found.tolist()


@np.errstate(over="ignore", invalid="ignore")
def log_chain(i, corpus, features, w, constraints):
    """`LogChain` of sequence i, with what rounding may have done to its scores."""
    one = take_sequences(corpus, [i])
    classes, edge_class = np.unique(one.edge_class, return_inverse=True)
    items, class_ptr = ragged_index(one.class_ptr, classes)
    one = one._replace(edge_class=edge_class, class_ptr=class_ptr, class_attr=one.class_attr[items])
    sized = one._replace(attr_val=np.abs(one.attr_val), label_set=one.label_set[:0])
    (node, edge), (node_size, edge_size) = (
        (stretch_scores(text, model, slice(0, 1), slice(0, text.n_tokens)), model.edges)
        for text, weights, limits in ((one, w, constraints), (sized, np.abs(w), None))
        for model in [ready_model(text, features, weights, limits, edge_scores, True, padding=False)]
    )
    # of n terms n - 1 additions round, and each product with a value
    n_node, n_edge = np.diff(one.attr_ptr) - (len(one.attr_val) == 0), np.diff(class_ptr) - 1
    off = [np.maximum(n_node, 0)[:, None] * node_size, n_edge[:, None, None] * edge_size]
    return LogChain(node, edge, edge_class, *(np.finfo(float).eps * part for part in off))


def known_well(i, chain):
    """The chain of sequence i; ValueError where its probabilities are lost in the rounding of scores."""
    refuse(i, chain.off, MOST_OFF)
    return chain


def path_log_proba(i, chain, labels, first=0):
    """`LogChain.log_proba`; ValueError where rounding of scores may move it by more than MOST_OFF and by more
    than 1e-6 of it. 0 is sure where no other label is alive.
    """
    found = chain.log_proba(labels, first)
    if found < 0.0 or chain.off:
        refuse(i, chain.path_off(labels, first), max(MOST_OFF, 1e-6 * -found))
    return found


def refuse(i, off, most=MOST_OFF):
    """ValueError for sequence i if its log probabilities may be off by more than `most` nats."""
    if not off <= most:
        raise ValueError(
            f"sequence {i}: expected scores whose differences float64 knows, got some so large that log "
            f"probabilities may be off by {off:.1g} nats: scale values or weights down"
        )
