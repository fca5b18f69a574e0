"""One potential for all pairs of labels that are rare in training (Methods 3 and 4), by a node attribute.

A pair (yp, y) that occurs often is active and has a weight lam[yp,y]; every other pair has the weight eta[y],
or one eta for all. With u'[t,y] = u[t,y] + eta[y] where t >= 1, and lam' = lam - eta[y] on active pairs, a
path scores

    sum_t u[t,y_t] + sum_(t>=1) (lam[y_(t-1),y_t] if active else eta[y_t])
        = sum_t u'[t,y_t] + sum_(t>=1) (lam'[y_(t-1),y_t] if active else 0)

So a tied model is one whose pairs without a weight score 0, as everywhere in crfbook. All its tokens but the
first of each sequence have one more attribute, "after another token". Forward-backward, decoders and
marginals need nothing new. Only the penalty differs: it is on lam and eta.

    later, fewer = tied_features(corpus, features)
    objective = TiedObjective(Objective(later, fewer), c2=0.125)
    w = objective.fold(minimize(objective, objective.start(), c2=0.125).w)
    path = decode(after_another(test), fewer, w)

Source: Jeong, Lin and Lee (2009), Methods 3 and 4, eq. (8)-(10); Cohn (2006); docs/SPEC.md, D.3 and D.4.

The pseudo-likelihood of a corpus: each label given its neighbours' labels, a start for training.

    PL(w) = sum_i weight_i sum_t -log p(y_t | y_(t-1), y_(t+1), x) + c2 |w|^2
    p(y | ...) is proportional to  exp(u[t,y] + [t > 0] lam[y_(t-1),y] + [t < T-1] lam[y,y_(t+1)])

The neighbours are known in training. So a token is a sequence by itself with two more attributes, "after yp"
with the weights lam[yp,.], and "before yn" with the weights lam[.,yn], and `Objective` computes it. A weight
of a pair occurs twice in it, and its gradient is the sum of both.

    start = minimize(PseudoLikelihood(corpus, features, c2=c2), np.zeros(F), c2=c2, max_iterations=30).w

Source: Besag (1975); Jeong, Lin and Lee (2009); docs/SPEC.md, D.6.
"""

import numpy as np

from crfbook._checks import number
from crfbook.chain.objective import Objective, check_labels, check_weights, l2_penalty
from crfbook.data.corpus import offsets
from crfbook.data.features import frequency_cutoff, from_keys, select

LEAST_COUNT = 4  # pairs of labels that occur more often in training are active


def with_attributes(corpus, token, attr, first=False):
    """The corpus with more attributes of value 1: attr (n,) at token int (n,), behind those that it has.

    first : True: before them.
    """
    order = np.argsort(token, kind="stable")  # of tokens without attributes the places are the same
    where = corpus.attr_ptr[token[order] + (0 if first else 1)]
    values = np.insert(corpus.attr_val, where, 1.0) if len(corpus.attr_val) else corpus.attr_val
    return corpus._replace(
        attr_ptr=corpus.attr_ptr + offsets(np.bincount(token, minlength=corpus.n_tokens)),
        attr_idx=np.insert(corpus.attr_idx, where, attr[order].astype(np.int32)),
        attr_val=values,
    )


def check_plain(what, corpus, features):
    """ValueError where transitions depend on attributes of the tokens."""
    if corpus.n_classes != 1 or features.n_edge_attrs != 1:
        raise ValueError(
            f"{what}: expected plain transitions, the same at all tokens, got "
            f"{corpus.n_classes} edge classes and {features.n_edge_attrs} edge attributes"
        )


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
        check_plain("pseudo-likelihood", corpus, features)
        check_labels(corpus, features, None)
        self.features, self.c2 = features, number("c2", c2)
        by_next = np.argsort(features.edge_next, kind="stable")
        self._place = np.concatenate([np.arange(features.n_features), features.n_node + by_next])
        self._alone = Objective(alone(corpus, features), split(features, by_next), n_threads=n_threads)

    def __call__(self, w):
        w = check_weights(w, self.features.n_features)
        value, parts = self._alone(w[self._place])
        grad = np.bincount(self._place, parts, len(w))
        return float(value + l2_penalty(self.c2, w)), grad + 2.0 * self.c2 * w


def alone(corpus, features):
    """The corpus with each token a sequence, which has two more attributes.

    "after yp" has the number A + yp, and "before yn" the number A + L + yn.
    """
    inner, labels = corpus.inner, corpus.labels
    after = features.n_attrs + labels[inner - 1]
    before = features.n_attrs + features.n_labels + labels[inner]
    every = with_attributes(corpus, np.concatenate([inner, inner - 1]), np.concatenate([after, before]))
    return every._replace(
        seq_ptr=np.arange(corpus.n_tokens + 1),
        seq_weight=corpus.token_weights if len(corpus.seq_weight) else corpus.seq_weight,
    )


def split(features, by_next):
    """FeatureSet of `alone`: node weights, pairs of labels by the first, and by the second (`by_next`)."""
    n_attrs, n_labels = features.n_attrs, features.n_labels
    after = (n_attrs + features.edge_prev.astype(np.int64)) * n_labels + features.edge_next
    before = (n_attrs + n_labels + features.edge_next.astype(np.int64)) * n_labels + features.edge_prev
    keys = np.concatenate([features.node_keys, after, before[by_next]])
    return from_keys(n_labels, n_attrs + 2 * n_labels, 1, keys, np.zeros(0, np.int64))


def after_another(corpus):
    """The corpus whose tokens, but for the first of each sequence, have one more attribute, of value 1.

    Its id is 0, as it is the most frequent one; the others rise by one.
    """
    later = corpus._replace(attr_idx=corpus.attr_idx + np.int32(1))
    return with_attributes(later, corpus.inner, np.zeros(len(corpus.inner)), first=True)


def tied_features(corpus, features, least_count=LEAST_COUNT):
    """(`after_another` of the corpus, its FeatureSet).

    Pairs of labels that occur at most `least_count` times lose their weight. The new attribute has a weight
    for each label, and these come first.
    Raises ValueError where transitions depend on attributes of the tokens.
    """
    check_plain("tied transitions", corpus, features)
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


def near_default(features, w, eps):
    """Weights (F,) whose exact inference is Method 2 with eps: pairs with |exp(lam) - 1| <= eps score 0.

    Each such pair has a potential from 1 - eps to 1 + eps, a labelling has T - 1 pairs. So log Z of a
    sequence changes by at most -(T - 1) log(1 - eps), where eps < 1. Of models with plain transitions.
    Source: Jeong, Lin and Lee (2009), eq. (5), Method 2.
    """
    eps, w = number("eps", eps), w.copy()
    pairs = w[features.n_node :]
    with np.errstate(over="ignore"):
        pairs[np.abs(np.expm1(pairs)) <= eps] = 0.0
    return w
