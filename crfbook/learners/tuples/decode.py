"""What a chain with label tuples says about a corpus: its best labels."""

import numpy as np

from crfbook.chain.inference import node_scores
from crfbook.chain.objective import check_paths, check_weights
from crfbook.chain.potentials import padded, table_edges
from crfbook.data.constraints import check_label_set
from crfbook.learners.tuples.automaton import Automaton
from crfbook.learners.tuples.viterbi import tuple_viterbi_many


def decode_tuples(corpus, features, w, tuples, nu):
    """The most probable labels, int32 (N,), under first-order weights w (F,) and weights nu (G,) of `Tuples`:
    Viterbi.

    There are no hard constraints here. Raises ValueError for a corpus with label sets, weights that are not
    finite or of another length, tuples that do not fit, and a sequence whose scores exceed float64.
    """
    check_label_set(corpus, None)
    w, nu = check_weights(w, features.n_features), check_weights(nu, len(tuples.attr))
    edges = table_edges(features, w, corpus.class_ptr, corpus.class_attr)
    automaton = Automaton(tuples, features.n_labels, corpus.class_ptr, corpus.class_attr)
    log_node = np.full((corpus.n_tokens, padded(features.n_labels)), -np.inf)
    log_node[:, : features.n_labels] = node_scores(corpus, features, w)
    path, score = np.empty(corpus.n_tokens, np.int32), np.empty(corpus.n_sequences)
    tables = edges.log_edge, corpus.edge_class, automaton.arcs, automaton.scores(edges, nu).log_factor
    tuple_viterbi_many(log_node, *tables, corpus.seq_ptr, path, score)
    check_paths(score, np.arange(len(score)))
    return path
