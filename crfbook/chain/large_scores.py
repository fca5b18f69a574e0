"""Sequences whose scores are so large that forms of inference would lose the digits of probabilities.

All forms hand them to `LogChain`, which says how far rounding may have moved its probabilities: by at most
MOST_OFF, or they are refused in one sentence.
"""

import numpy as np

from crfbook.chain.log_chain import LARGE, MOST_OFF, LogChain
from crfbook.chain.numpy_form import edge_scores
from crfbook.chain.ready import ready_model, stretch_scores, stretches
from crfbook.data.corpus import ragged_index, take_sequences


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
