"""Choosing features before or after training, the rivals of an L1 penalty: counts, mutual information,
size of the weight.

    keep = frequency_cutoff(corpus, features, 5)       # seen at least five times
    keep = most_informative(corpus, features, 10_000)  # of the largest mutual information with their label
    keep = heaviest(w, 10_000)                         # of the largest weights of a trained model
    smaller, w = select(features, keep), w[keep]

Each returns a boolean vector keep (F,), aligned with the weights, for `features.select`. The first two say
what is worth training, the third cuts a trained model, which is used as it is. Source: Sokolovska, Lavergne,
Cappe and Yvon (2010), section 6.3 and Figure 6; Yang and Pedersen (1997) for the mutual information.
"""

import numpy as np

from crfbook._checks import number, whole
from crfbook.data.features import distinct_keys, empirical_counts, row_offsets

CUTOFFS = (1, 2, 3, 5, 10, 20, 50, 100)


def frequency_cutoff(corpus, features, min_count):
    """keep (F,): features that occur at least `min_count` times in the labelled tokens of the corpus.

    Counts are those of (attribute, label) and (edge attribute, label, label), values of attributes summed,
    every sequence counted once whatever its weight. The same as CRFsuite's `feature.minfreq`.
    """
    min_count = number("min_count", min_count, finite=False)
    return empirical_counts(corpus._replace(seq_weight=np.zeros(0)), features) >= min_count


def mutual_information(corpus, features):
    """I(U; V) in nats of each feature (F,), between two things that hold at a token or not:

        I = sum over u, v in {0, 1} of  n_uv / n  log( n n_uv / (n_u n_v) )

    U: the token has the attribute, V: it has the label; for transitions, counted over tokens that have a
    predecessor, V: this token and the one before have the pair of labels. Values of attributes other than 0
    count as presence, and tokens without label not at all. An attribute that every token has, plain
    transitions among them, tells nothing of its label: I = 0.
    """
    corpus = _presence(corpus)
    labelled = corpus.labels >= 0
    both = empirical_counts(corpus, features)
    n_attr = np.bincount(corpus.attr_idx[labelled[corpus.attr_token]], minlength=features.n_attrs)
    n_label = np.bincount(corpus.labels[labelled], minlength=features.n_labels)
    n_u, n_v = n_attr[features.node_attr], n_label[features.node_label]
    node = _information(both[: features.n_node], n_u, n_v, np.count_nonzero(labelled))
    inner = corpus.inner
    inner = inner[labelled[inner] & labelled[inner - 1]]
    pair = corpus.labels[inner - 1].astype(np.int64) * features.n_labels + corpus.labels[inner]
    n_pair = np.bincount(pair, minlength=features.n_labels**2)
    n_class = np.bincount(corpus.edge_class[inner], minlength=corpus.n_classes)
    tokens = np.repeat(n_class, np.diff(corpus.class_ptr))
    n_edge_attr = np.bincount(corpus.class_attr, tokens, minlength=features.n_edge_attrs)
    n_u, n_v = n_edge_attr[features.edge_attr], n_pair[features.edge_pair]
    return np.concatenate([node, _information(both[features.n_node :], n_u, n_v, len(inner))])


def most_informative(corpus, features, n_features):
    """keep (F,): the `n_features` features of largest `mutual_information`, the first of equals;
    plain transitions first of all.

    Plain transitions depend on no attribute: their information is 0 by definition, not because they were of
    no use. Without them, what is compared would no longer be a chain.
    """
    score = mutual_information(corpus, features)
    score[~without_plain_transitions(features)] = np.inf
    return _largest(score, n_features)


def heaviest(w, n_features):
    """keep (F,): the `n_features` weights of largest magnitude, the first of equals;
    weights that are 0 never.
    """
    return _largest(np.abs(w), n_features) & (np.asarray(w) != 0)


def above_threshold(w, threshold):
    """keep (F,): weights |w| >= threshold > 0: selection a posteriori, no retraining."""
    return np.abs(w) >= number("threshold", threshold, above=0.0, finite=False)


def without_plain_transitions(features):
    """keep (F,): all but the weights of edge attribute 0,
    for models whose transitions all depend on an attribute.
    """
    keep = np.ones(features.n_features, bool)
    keep[features.n_node : features.n_node + features.edge_ptr[1]] = False
    return keep


def _information(n11, n_u, n_v, n):
    """I (F,) from n11 = #(U and V), n_u = #U, n_v = #V among n tokens; 0 log 0 = 0."""
    total = np.zeros(len(n11))
    for n_uv, a, b in (
        (n11, n_u, n_v),
        (n_u - n11, n_u, n - n_v),
        (n_v - n11, n - n_u, n_v),
        (n - n_u - n_v + n11, n - n_u, n - n_v),
    ):
        some = n_uv > 0
        total[some] += n_uv[some] / n * np.log(n_uv[some] * n / (a[some] * b[some]))
    return np.maximum(total, 0.0)  # sums of rounding errors may lie below


def _largest(score, n):
    """Boolean (F,): where the n largest scores are; among equals, those that come first."""
    keep = np.zeros(len(score), bool)
    keep[np.argsort(-score, kind="stable")[: whole("n_features", n)]] = True
    return keep


def _presence(corpus):
    """The corpus with each attribute at most once at a token and no values: those that were 0 are left out;
    sequences unweighted.
    """
    token, attr = corpus.attr_token, corpus.attr_idx.astype(np.int64)
    if len(corpus.attr_val):
        token, attr = token[corpus.attr_val != 0], attr[corpus.attr_val != 0]
    width = int(attr.max(initial=0)) + 1
    key = distinct_keys(token * width + attr)
    ptr, idx, ones = row_offsets(key, corpus.n_tokens, width), (key % width).astype(np.int32), np.zeros(0)
    return corpus._replace(attr_ptr=ptr, attr_idx=idx, attr_val=ones, seq_weight=ones)
