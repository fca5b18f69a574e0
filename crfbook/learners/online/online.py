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

from typing import TYPE_CHECKING

import numpy as np

from crfbook._checks import number, one_of
from crfbook.learners.online.arow_steps import arow_epoch
from crfbook.learners.online.mistakes import LOSS, SHARE, WRONG_ROOTS, WRONG_SEQUENCES, WRONG_TOKENS
from crfbook.learners.online.online_run import OnlineRun
from crfbook.learners.online.passive_aggressive_steps import passive_aggressive_epoch
from crfbook.learners.online.perceptron_steps import perceptron_direction, perceptron_epoch
from crfbook.training.epochs import chunks

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Corpus, FeatureSet, Limits, OptResult, State


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
    run = OnlineRun(corpus, features, w0, constraints, state, average)

    def online(order):
        for part in chunks(order):
            perceptron_epoch(part, run.theta, run.theta_sum, run.count, run.layout, run.work, run.totals)

    def whole(order):
        direction = np.zeros_like(run.theta)
        for part in chunks(order):
            perceptron_direction(part, run.theta, direction, run.layout, run.work, run.totals)
        direction /= max(1, len(order))
        run.theta += direction
        run.theta_sum += run.count * direction
        run.count += 1

    def losses(total):
        return (total[LOSS], total[SHARE])

    return run.train(
        whole if batch else online, losses, shuffle, epsilon, max_iterations, random_state, callback
    )


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
    run = OnlineRun(corpus, features, w0, constraints, state, averaging)

    def learn(order):
        rule, mean = (int(pa_type), c, int(error_sensitive)), (run.theta, run.theta_sum, run.count)
        for part in chunks(order):
            passive_aggressive_epoch(part, *rule, *mean, run.layout, run.work, run.totals)

    margin = WRONG_ROOTS if error_sensitive else WRONG_SEQUENCES

    def losses(total):
        return (total[LOSS] + total[margin],) * 2

    return run.train(learn, losses, shuffle, epsilon, max_iterations, random_state, callback)


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
    run = OnlineRun(corpus, features, w0, constraints, state, False, variance)

    def learn(order):
        for part in chunks(order):
            arow_epoch(part, gamma, run.theta, run.variance, run.layout, run.work, run.totals)

    def losses(total):
        return (total[LOSS] + total[WRONG_TOKENS],) * 2

    return run.train(learn, losses, shuffle, epsilon, max_iterations, random_state, callback)
