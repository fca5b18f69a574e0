"""One potential for all pairs of labels that are rare in training (Methods 3 and 4), by a node attribute.

A pair (yp, y) that occurs often is active and has a weight lam[yp,y]; every other pair has the weight eta[y],
or one eta for all. With u'[t,y] = u[t,y] + eta[y] where t >= 1, and lam' = lam - eta[y] on active pairs, a
path scores

    sum_t u[t,y_t] + sum_(t>=1) (lam[y_(t-1),y_t] if active else eta[y_t])
        = sum_t u'[t,y_t] + sum_(t>=1) (lam'[y_(t-1),y_t] if active else 0)

So a tied model is one whose pairs without a weight score 0, as everywhere in crfbook, with an attribute
"after another token" that all tokens have but the first of each sequence. Forward-backward, decoders and
marginals need nothing new. Only the penalty differs: it is on lam and eta.

    later, fewer = tied_features(corpus, features)
    objective = TiedObjective(Objective(later, fewer), c2=0.125)
    w = objective.fold(minimize(objective, objective.start(), c2=0.125).w)
    path = decode(after_another(test), fewer, w)

Source: Jeong, Lin and Lee (2009), Methods 3 and 4, eq. (8)-(10); Cohn (2006); docs/SPEC.md, D.3 and D.4.
"""

import numpy as np

from crfbook._checks import number
from crfbook.data.corpus import offsets
from crfbook.data.features import frequency_cutoff, select

LEAST_COUNT = 4  # pairs that occur more often in training are active


def after_another(corpus):
    """The corpus whose tokens, but for the first of each sequence, have one more attribute, of value 1.

    Its id is 0, as it is the most frequent one; the others rise by one.
    """
    inner = corpus.inner
    more = np.zeros(corpus.n_tokens, np.int64)
    more[inner] = 1
    where = corpus.attr_ptr[inner]
    values = np.insert(corpus.attr_val, where, 1.0) if len(corpus.attr_val) else corpus.attr_val
    return corpus._replace(
        attr_ptr=corpus.attr_ptr + offsets(more),
        attr_idx=np.insert(corpus.attr_idx + np.int32(1), where, np.int32(0)),
        attr_val=values,
    )


def tied_features(corpus, features, least_count=LEAST_COUNT):
    """(`after_another` of the corpus, its FeatureSet): pairs of labels that occur at most `least_count` times
    lose their weight; the new attribute has one for each label, and these come first.

    Raises ValueError where transitions depend on attributes of the tokens.
    """
    if corpus.n_classes != 1 or features.n_edge_attrs != 1:
        raise ValueError(
            "tied transitions: expected plain transitions, the same at all tokens, got "
            f"{corpus.n_classes} edge classes and {features.n_edge_attrs} edge attributes"
        )
    keep = frequency_cutoff(corpus, features, number("least_count", least_count, -1.0) + 1)
    keep[: features.n_node] = True
    fewer = select(features, keep)
    labels = np.arange(features.n_labels, dtype=np.int32)
    return after_another(corpus), fewer._replace(
        n_attrs=features.n_attrs + 1,
        node_ptr=np.concatenate([[0], fewer.node_ptr + features.n_labels]),
        node_label=np.concatenate([labels, fewer.node_label]),
    )


class TiedObjective:
    """A penalised loss of the parameters (eta, node weights, lam); call it with them to get (value, grad).

        value(p) = objective(fold(p)) + c2 |p|^2
        d/d eta[y] = (gradient of the new attribute's weight of y) - sum_yp d/d lam[yp,y]

    Parameters
    ----------
    objective : callable w (F,) -> (value, grad), without penalty, with the `features` of `tied_features`:
        an `Objective`, a `PseudoLikelihood`.
    c2 : float >= 0, penalty on all parameters, eta among them.
    per_label : True: eta (L,), by the label that a pair ends in (Method 4); False: eta (1,) (Method 3).

    Raises ValueError for an objective that has a penalty of its own.
    """

    def __init__(self, objective, *, c2=0.0, per_label=False):
        if objective.c2:
            raise ValueError(f"objective: expected c2=0, as the penalty is on eta, got c2={objective.c2}")
        self.objective, self.c2, self.features = objective, number("c2", c2), objective.features
        self.n_eta = self.features.n_labels if per_label else 1

    def start(self):
        """Zeros, for all parameters."""
        return np.zeros(self.n_eta + self.features.n_features - self.features.n_labels)

    def fold(self, parameters):
        """Weights w' (F,) of the features, with which a path scores what it does under the parameters."""
        features = self.features
        eta = np.broadcast_to(parameters[: self.n_eta], (features.n_labels,))
        w = np.concatenate([eta, parameters[self.n_eta :]])
        w[features.n_node :] -= eta[features.edge_next]
        return w

    def __call__(self, parameters):
        """(value, grad), in the order of the parameters."""
        features, n_labels = self.features, self.features.n_labels
        value, grad = self.objective(self.fold(parameters))
        d_eta = grad[:n_labels] - np.bincount(features.edge_next, grad[features.n_node :], n_labels)
        d_eta = d_eta if self.n_eta == n_labels else d_eta.sum(keepdims=True)
        total = np.concatenate([d_eta, grad[n_labels:]]) + 2.0 * self.c2 * parameters
        return float(value + self.c2 * (parameters @ parameters)), total


def printed(features, w):
    """Weights (F,) whose exact Viterbi is eq. (10) as the paper prints it.

        exact:   max( max_(yp active) delta[yp] + lam[yp,y],  max_(yp inactive) delta[yp] )
        printed: max( max_(yp active) delta[yp] + lam[yp,y],  max_(all yp) delta[yp] )

    The second takes an active pair at max(lam, 0): it never scores below the first.
    """
    w = w.copy()
    np.maximum(w[features.n_node :], 0.0, out=w[features.n_node :])
    return w
