"""What a chain with label tuples says about a corpus: its best labels."""

import numpy as np

from crfbook.kernels.tuple_viterbi import tuple_viterbi_many
from crfbook.models.inference import node_scores
from crfbook.optim.edges import padded, table_edges
from crfbook.optim.objective import check_weights
from crfbook.optim.tuple_automaton import Automaton


def decode_tuples(corpus, features, w, tuples, nu):
    """The most probable labels, int32 (N,), under first-order weights w (F,) and weights nu (G,) of `Tuples`: Viterbi.

    Raises ValueError for weights that are not finite, or of another length.
    """
    w, nu = check_weights(w, features.n_features), check_weights(nu, len(tuples.attr))
    edges = table_edges(features, w, corpus.class_ptr, corpus.class_attr)
    automaton = Automaton(tuples, features.n_labels, corpus.class_ptr, corpus.class_attr)
    log_node = np.full((corpus.n_tokens, padded(features.n_labels)), -np.inf)
    log_node[:, :features.n_labels] = node_scores(corpus, features, w)
    path, score = np.empty(corpus.n_tokens, np.int32), np.empty(corpus.n_sequences)
    tuple_viterbi_many(log_node, edges.log_edge, corpus.edge_class, automaton.arcs, automaton.scores(edges, nu).log_factor, corpus.seq_ptr,
                       path, score)
    return path
