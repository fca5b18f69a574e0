"""Learners that decode a sequence and correct themselves at once: perceptron, passive-aggressive, AROW.

    best = argmax_y w . S(x, y);   if best != gold:   w += (a step along)  dS = S(x, gold) - S(x, best)

No marginals and no gradient are needed, only Viterbi, and an update touches the weights of the wrong tokens
alone. Names and defaults of the parameters are those of CRFsuite's "ap", "pa" and "arow". Sources: Collins
(2002); Altun, Johnson and Hofmann (2003), Algorithm 1; Crammer et al. (2006); Crammer,
Kulesza and Dredze (2009); Mejer and Crammer (2010).

Common arguments of all three
-----------------------------
corpus, features : S sequences, every token labelled; F weights. Sequences of length 0 or weight 0 are left
    out. `seq_weight` multiplies the step that a sequence causes, and its share of the objective.
w0 : (F,) start, default 0.
shuffle : visit the sequences in the order of `epoch_order(random_state, epoch, n)`; False: as they stand.
epsilon : stop when the mean loss of an epoch (`Step.violation`) is at most this; 0:
    when an epoch saw no wrong token.
constraints : Constraints or None; what they forbid is never decoded.
form : how the best path is found; all forms are exact. "plain": tables of all pairs of labels, nothing is
    left out. "staggered", "staggered-columns": staggered decoding, which looks at rare labels only where they
    may win; one edge class and edge attribute. Its tables, 16 bytes a pair of labels, are kept up to date:
    a step costs a row and a column for each transition that moves. "auto": stored pairs alone where they are
    few of many, otherwise "plain". A tie, as all paths are at w = 0, may be decided otherwise by another
    form: then steps and weights differ, too. `CRF` takes "auto"; with an encoded corpus of its encoder_ any
    form can give its weights_.
max_iterations : epochs in all, those of `state` included. 0: w0 comes back, with its objective.
random_state : int, the seed of all orders.
callback : called with (Step, w) after each epoch, w read-only and what would be returned now; True stops.
state : `OptResult.state` of an earlier call with the same feature set; w0 is not used then. On the same
    corpus training goes on bit for bit; on another one it takes in new sequences (one pass:
    max_iterations = state["epoch"] + 1).

All return an `OptResult` with one `Step` an epoch in its history. `Step.objective` is the sum of the losses,
in nats, that the sequences had when it was their turn (w moves meanwhile), `Step.violation` the mean loss
that `epsilon` is compared with. status: "converged", "max_iterations", "stopped by callback", "interrupted"
(Ctrl-C) or "non-finite weights"; after the last two, w and state are those of the last complete epoch.
ValueError for labels that are unknown or forbidden, weights that are not finite, and parameters out of range.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import number, one_of, shown, whole
from crfbook.chain.objective import check_labels, check_weights
from crfbook.chain.token_layout import (
    cells_of,
    epoch_order,
    lay_out_lists,
    lay_out_online,
    online_work,
    weights_of,
    worth_lists,
)
from crfbook.data.constraints import Limits
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet
from crfbook.decoding.staggered import staggered_tables
from crfbook.learners.online.updates import (
    LOSS,
    N_TOTALS,
    SHARE,
    WRONG_ROOTS,
    WRONG_SEQUENCES,
    WRONG_TOKENS,
    arow_epoch,
    passive_aggressive_epoch,
    perceptron_direction,
    perceptron_epoch,
)
from crfbook.training.interrupts import heard_chunks
from crfbook.training.loop import Callback, Learner, OptResult, State, run

FORMS = "auto", "plain", "staggered", "staggered-columns"


def perceptron(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    average: bool = True,
    batch: bool = False,
    shuffle: bool = True,
    epsilon: float = 0.0,
    constraints: Limits = None,
    form: str = "auto",
    max_iterations: int = 10,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """Structured perceptron. Common arguments: see the module.

    average : return the mean of all weight vectors so far, not the last one (Collins 2002, section 2.5).
    batch : decode everything with fixed weights, then add the mean over the sequences of dS (Altun et al.
        2003, section 5.1). The mean and not the sum, so that a start w0 counts for something; from w0 = 0 the
        length of the step makes no difference, as the best path does not depend on the scale of w.
        `average` is then the mean over epochs.

    Loss of a sequence: max_y score(y) - score(gold), to which its log loss tends when all weights grow.
    `Step.violation` is the mean share of wrong tokens (what CRFsuite's "ap" prints and stops by).
    """
    common = corpus, features, w0, constraints, state, shuffle, epsilon, max_iterations, random_state, form
    learner = _Online(*common, average)

    def one_by_one(order):
        moved = learner.theta, learner.theta_sum, learner.count
        for part in heard_chunks(order):
            perceptron_epoch(part, *moved, learner.layout, learner.work, learner.totals)

    def all_at_once(order):
        direction = learner.direction(order, learner.theta, learner.totals) / max(1, len(order))
        learner.theta += direction
        learner.theta_sum += learner.count * direction
        learner.count += 1

    learner.learn = all_at_once if batch else one_by_one
    learner.losses = lambda total: (total[LOSS], total[SHARE])
    return run(learner, callback)


def passive_aggressive(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    pa_type: int = 1,
    c: float = 1.0,
    error_sensitive: bool = True,
    averaging: bool = True,
    shuffle: bool = True,
    epsilon: float = 0.0,
    constraints: Limits = None,
    form: str = "auto",
    max_iterations: int = 10,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """Passive-aggressive: the smallest step after which gold beats the best path by a margin.
    Common arguments: see the module.

    pa_type : 0, the margin must be met; 1 and 2, slack is allowed and paid for,
        linearly (PA-I) or squared (PA-II).
    c : > 0, aggressiveness: the price of slack. Without meaning for pa_type 0.
    error_sensitive : the margin is the square root of the number of wrong tokens; False: it is 1.
    averaging : return the mean of all weight vectors so far, not the last one.

    Loss of a sequence: max_y score(y) - score(gold) + margin if its best path is wrong, else 0;
    `Step.violation` is its mean.
    """
    one_of("pa_type", pa_type, (0, 1, 2))
    c = number("c", c, above=0.0)
    common = corpus, features, w0, constraints, state, shuffle, epsilon, max_iterations, random_state, form
    learner = _Online(*common, averaging)

    def learn(order):
        rule, moved = (
            (int(pa_type), c, int(error_sensitive)),
            (learner.theta, learner.theta_sum, learner.count),
        )
        for part in heard_chunks(order):
            passive_aggressive_epoch(part, *rule, *moved, learner.layout, learner.work, learner.totals)

    margin = WRONG_ROOTS if error_sensitive else WRONG_SEQUENCES
    learner.learn, learner.losses = learn, lambda total: (total[LOSS] + total[margin],) * 2
    return run(learner, callback)


def arow(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    variance: float = 1.0,
    gamma: float = 1.0,
    shuffle: bool = True,
    epsilon: float = 0.0,
    constraints: Limits = None,
    form: str = "auto",
    max_iterations: int = 10,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """AROW: a weight that has often been updated moves little. Common arguments: see the module.

    variance : > 0, of every weight at the start. `state["variance"]` (F,) are the present ones.
    gamma : > 0; large: small steps, and variances that fall slowly.

    Loss of a sequence: max_y score(y) - score(gold) + wrong tokens; `Step.violation` is its mean.
    """
    variance, gamma = number("variance", variance, above=0.0), number("gamma", gamma, above=0.0)
    common = corpus, features, w0, constraints, state, shuffle, epsilon, max_iterations, random_state, form
    learner = _Online(*common, False, variance)

    def learn(order):
        for part in heard_chunks(order):
            arow_epoch(
                part, gamma, learner.theta, learner.variance, learner.layout, learner.work, learner.totals
            )

    learner.learn, learner.losses = learn, lambda total: (total[LOSS] + total[WRONG_TOKENS],) * 2
    return run(learner, callback)


class _Online(Learner):
    """Weights as cells, and their sum for averaging; order, stopping, resuming.

    learn(order) : an epoch. It moves `theta` (C,) and keeps `theta_sum` (C,), `count` (1,) so that
        theta - theta_sum / count is the mean of all weight vectors so far (updates.py); `variance` (C,) is
        AROW's. It adds to `totals` (5,).
    losses(totals) : (objective, loss to be averaged).
    """

    def __init__(
        self, corpus, features, w0, constraints, state, shuffle, epsilon, max_iterations, random_state,
        form, average, variance=None,
    ):  # fmt: skip
        one_of("form", form, FORMS)
        if form in FORMS[2:] and (corpus.n_classes, features.n_edge_attrs) != (1, 1):
            raise ValueError(
                f"form={form!r}: expected one edge class and one edge attribute, got {corpus.n_classes:,} "
                f"and {features.n_edge_attrs:,}; 'plain' and 'auto' take any number"
            )
        check_labels(corpus, features, constraints)
        n_weights = features.n_features
        if state is None:
            w = check_weights(np.zeros(n_weights) if w0 is None else w0, n_weights)
            state = {"w": w, "w_sum": np.zeros(n_weights), "count": 1, "epoch": 0, "seconds": 0.0}
            if variance is not None:
                state["variance"] = np.full(n_weights, variance)
        for name in ("w", "w_sum", "variance")[: 2 if variance is None else 3]:
            if name not in state or np.shape(state[name]) != (n_weights,):
                raise ValueError(
                    f"state: expected an array {shown(name)} of shape ({n_weights},), got "
                    f"{np.shape(state[name]) if name in state else sorted(state)}"
                )
        self.epsilon, self.max_iterations = (
            number("epsilon", epsilon),
            whole("max_iterations", max_iterations),
        )
        self.shuffle, self.seed, self.average = shuffle, random_state, bool(average)
        lists = staggered = None
        if form == "auto" and worth_lists(corpus, features) or form in FORMS[2:]:
            self.layout, self.cells, lists = lay_out_lists(corpus, features, constraints)
        else:
            self.layout, self.cells = lay_out_online(corpus, features, constraints)
        if form in FORMS[2:]:
            staggered = _staggered(corpus, self.layout.bounds, form == FORMS[3])
        self.theta, self.theta_sum = cells_of(self.cells, state["w"]), cells_of(self.cells, state["w_sum"])
        self.variance = None if variance is None else cells_of(self.cells, state["variance"])
        self.count = np.array([state["count"]], np.int64).reshape(1)
        self.iteration, self.seconds = int(state["epoch"]), float(state["seconds"])
        self.work, self.totals = (
            online_work(self.layout, len(self.theta), lists, staggered),
            np.zeros(N_TOTALS),
        )
        self.sequences = corpus.visited
        self.good = self._snapshot()

    def advance(self):
        order = self.sequences
        if self.shuffle:
            order = order[epoch_order(self.seed, self.iteration, len(order))]
        self.totals[:] = 0.0
        self.learn(order)
        mean = self.theta - self.theta_sum / self.count[0]
        if not np.isfinite([*self.totals, self.theta.sum(), mean.sum()]).all():
            return "non-finite weights"
        self.iteration, self.n_evaluations = self.iteration + 1, self.n_evaluations + 1
        self.good = self._snapshot()
        self.objective, loss = map(float, self.losses(self.totals))
        self.violation = loss / max(1, len(order))
        return None

    def finished(self):
        return "converged" if self.violation <= self.epsilon else None

    def _snapshot(self):
        """Where the last complete epoch ended: arrays of our own, in the order of the features."""
        vectors = {"w": self.theta, "w_sum": self.theta_sum, "variance": self.variance}
        state = {name: weights_of(self.cells, v) for name, v in vectors.items() if v is not None}
        return state | {"count": self.count.copy(), "epoch": np.array(self.iteration)}

    def state(self):
        return self.good | {"seconds": np.array(self.seconds)}

    def weights(self):
        """Averaged or as they are, a new array."""
        w, w_sum, count = self.good["w"], self.good["w_sum"], self.good["count"][0]
        return w - w_sum / count if self.average else w.copy()

    def last_look(self):
        """The objective of the last epoch; before the first, that of the start. At w = 0 every path is a best
        one, the gold one too: nothing is lost, and nobody need decode the corpus to say so.
        """
        if self.n_evaluations or not self.good["w"].any():
            return self.objective if self.n_evaluations else 0.0
        totals = np.zeros(N_TOTALS)
        self.direction(self.sequences, cells_of(self.cells, self.weights()), totals)
        return self.losses(totals)[0]

    def direction(self, order, theta, totals):
        """(C,): weighted sum of S(x, gold) - S(x, best) over the sequences of `order`."""
        direction = np.zeros_like(theta)
        for part in heard_chunks(order):
            perceptron_direction(part, theta, direction, self.layout, self.work, totals)
        return direction


def _staggered(corpus, bounds, by_column):
    """(`StaggeredTables` of weights 0, place of each label in their order), by frequency in the corpus."""
    order = np.argsort(-np.bincount(corpus.labels, minlength=len(bounds.edge)), kind="stable")
    return staggered_tables(bounds.edge[None], order, by_column), np.argsort(order)
