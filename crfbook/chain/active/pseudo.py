"""The pseudo-likelihood of a corpus: each label given its neighbours' labels, a start for training.

    PL(w) = sum_i weight_i sum_t -log p(y_t | y_(t-1), y_(t+1), x) + c2 |w|^2
    p(y | ...) is proportional to  exp(u[t,y] + [t > 0] lam[y_(t-1),y] + [t < T-1] lam[y,y_(t+1)])

The neighbours are known in training. So a token is a sequence by itself with two more attributes, "after yp"
with the weights lam[yp,.], and "before yn" with the weights lam[.,yn]: `Objective` has all that it takes. A
weight of a pair stands twice in it, and its gradient is the sum of both.

    start = minimize(PseudoLikelihood(corpus, features, c2=c2), np.zeros(F), c2=c2, max_iterations=30).w

Source: Besag (1975); Jeong, Lin and Lee (2009); docs/SPEC.md, D.6.
"""

import numpy as np

from crfbook._checks import number
from crfbook.chain.objective import Objective, check_labels, check_weights, l2_penalty
from crfbook.data.corpus import offsets
from crfbook.data.features import from_keys


class PseudoLikelihood:
    """PL of a corpus; call it with weights w (F,) to get (value, grad (F,)), in nats.

    Parameters
    ----------
    corpus, features, c2, n_threads : as in `Objective`.
    constraints : None; a start needs none.

    Cost: of a token, its node scores, L exponentials, and the stored pairs of a row and a column.
    Raises ValueError for a token without label, for constraints, and for transitions that depend on
    attributes of the tokens.
    """

    def __init__(self, corpus, features, *, c2=0.0, constraints=None, n_threads=1):
        if constraints is not None or len(corpus.label_set):
            raise ValueError("pseudo-likelihood: expected no constraints, as it is a start alone, got some")
        if corpus.n_classes != 1 or features.n_edge_attrs != 1:
            raise ValueError(
                "pseudo-likelihood: expected plain transitions, the same at all tokens, got "
                f"{corpus.n_classes} edge classes and {features.n_edge_attrs} edge attributes"
            )
        check_labels(corpus, features, None)
        self.features, self.c2 = features, number("c2", c2)
        by_next = np.argsort(features.edge_next, kind="stable")
        self._place = np.concatenate(
            [
                np.arange(features.n_node),
                features.n_node + np.arange(features.n_edge),
                features.n_node + by_next,
            ]
        )
        self._alone = Objective(alone(corpus, features), split(features, by_next), n_threads=n_threads)

    def __call__(self, w):
        w = check_weights(w, self.features.n_features)
        value, parts = self._alone(w[self._place])
        grad = np.bincount(self._place, parts, len(w))
        return float(value + l2_penalty(self.c2, w)), grad + 2.0 * self.c2 * w


def alone(corpus, features):
    """The corpus with each token a sequence, and the attributes "after yp", number A + yp, and "before yn",
    number A + L + yn.
    """
    inner, n_tokens = corpus.inner, corpus.n_tokens
    more = np.zeros(n_tokens, np.int64)
    more[inner] += 1
    more[inner - 1] += 1
    after = features.n_attrs + corpus.labels[inner - 1]
    before = features.n_attrs + features.n_labels + corpus.labels[inner]
    token = np.concatenate([inner, inner - 1])
    order = np.argsort(token, kind="stable")  # of tokens without attributes the places are the same
    where = corpus.attr_ptr[1:][token[order]]
    values = np.insert(corpus.attr_val, where, 1.0) if len(corpus.attr_val) else corpus.attr_val
    return corpus._replace(
        seq_ptr=np.arange(n_tokens + 1),
        attr_ptr=corpus.attr_ptr + offsets(more),
        attr_idx=np.insert(corpus.attr_idx, where, np.concatenate([after, before])[order].astype(np.int32)),
        attr_val=values,
        seq_weight=corpus.token_weights if len(corpus.seq_weight) else corpus.seq_weight,
    )


def split(features, by_next):
    """FeatureSet of `alone`: node weights, pairs of labels by the first, and by the second (`by_next`)."""
    n_attrs, n_labels = features.n_attrs, features.n_labels
    after = (n_attrs + features.edge_prev.astype(np.int64)) * n_labels + features.edge_next
    before = (n_attrs + n_labels + features.edge_next.astype(np.int64)) * n_labels + features.edge_prev
    keys = np.concatenate([features.node_keys, after, before[by_next]])
    return from_keys(n_labels, n_attrs + 2 * n_labels, 1, keys, np.zeros(0, np.int64))
