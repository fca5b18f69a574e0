"""What learners remember of each sequence's transitions: numbers for the label pairs that have a weight,
never L x L tables.

The pairs of sequence s stand in one stretch of a flat array, edge class by edge class that it uses, rising.
"""

import numpy as np

from crfbook.chain.token_layout import dense_attributes, row_width, used_classes
from crfbook.data.corpus import offsets


def pairs_of_classes(corpus, features, width):
    """(pair_ptr (K+1,), pair): the label pairs previous * width + next that have a weight, class by class."""
    found = []
    for k in range(corpus.n_classes):
        attrs = corpus.class_attr[corpus.class_ptr[k] : corpus.class_ptr[k + 1]]
        rows = [
            slice(features.edge_ptr[b], features.edge_ptr[b + 1]) for b in attrs if b < features.n_edge_attrs
        ]
        keys = [features.edge_prev[row].astype(np.int64) * width + features.edge_next[row] for row in rows]
        found.append(np.unique(np.concatenate([np.zeros(0, np.int64), *keys])))
    return offsets(list(map(len, found))), np.concatenate([np.zeros(0, np.int64), *found])


def edge_start(corpus, pair_ptr):
    """Where the label pairs of each sequence are remembered:
    (S+1,) running counts over the classes that it uses.
    """
    used_ptr, used = used_classes(corpus)
    return offsets(np.diff(pair_ptr)[used])[used_ptr]


def memory_bytes(corpus, features, *, remembered, vectors, works, per_token):
    """Bytes that a learner will hold which remembers `remembered` numbers for every (token,
    label) and label pair of a sequence.

    vectors : vectors of cells, besides two of weights. works : sets of work arrays. per_token :
        bytes of a token beyond that.
    The layout of the corpus is included (chain/token_layout.py).
    """
    width = row_width(features.n_labels)
    worth, count = dense_attributes(corpus, features)
    n_rows, n_pairs = int(count[worth].sum()), int((count * np.diff(features.node_ptr))[~worth].sum())
    n_dense, entry = int(worth.sum()) * width, 16 if len(corpus.attr_val) else 8
    n_edges = int(edge_start(corpus, pairs_of_classes(corpus, features, width)[0])[-1])
    return int(
        8 * remembered * (corpus.n_tokens * features.n_labels + n_edges)
        + entry * (n_rows + n_pairs)
        + per_token * corpus.n_tokens
        + 8 * (vectors * (features.n_features + n_dense) + 2 * features.n_features)
        + n_dense
        + 8 * works * (5 * corpus.longest * width + 4 * corpus.n_classes * width**2)
    )
