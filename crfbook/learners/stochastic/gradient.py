"""Stochastic gradient descent: `sgd` with an L2 penalty (CRFsuite's "l2sgd"), `sgd_l1` with an L1 penalty.

One update for each sequence, in a new random order every epoch. Neither carries a certificate: they stop when
the objective, as the sequences saw it, has hardly moved for some epochs. Sources: Bottou (2010); Tsuruoka,
Tsujii and Ananiadou (2009).

Common arguments
----------------
corpus, features : S sequences, every token labelled; F weights.
    Sequences of length 0 or weight 0 are left out: n remain.
w0 : (F,) start, default 0.
period, delta : stop ("small change") when the mean objective of `period` epochs lies less than the share
    delta of itself below that of the `period` epochs before. Where steps are long beside the penalty (small
    c2, few sequences) noise can stop it early.
constraints : Constraints or None.
max_iterations : epochs in all, those of `state` included. 0: w0 comes back with its objective.
random_state : int, the seed of all orders.
callback : called with (Step, w) after each epoch, w read-only; True stops.
state : `OptResult.state` of an earlier call with the same feature set; w0 and random_state are not used then.
    On the same corpus training goes on bit for bit.
new_data : the sequences are not those that `state` comes from,
    so that their losses are compared with what they lose at the start.

Both return an `OptResult`. `Step.objective`: losses in nats as the sequences had them when it was their turn
(w moves meanwhile), plus the penalty at the end of the epoch; `Step.violation`: the share by which its mean
fell, NaN during the first 2 `period` epochs. `OptResult.objective` is that of the weights returned, from one
more pass; `n_evaluations` counts passes over the corpus. A step size under which the loss of an epoch is not
finite, or 1.5 times what zero weights have (twice in the first epoch), is halved and the epoch done again,
from zero if the weights were spoilt before it (`divergence` puts it in words). status: "small change",
"max_iterations", "stopped by callback", "interrupted" (Ctrl-C: the last complete epoch comes back),
"diverged" (MAX_HALVINGS halvings did not help). ValueError for labels that are unknown or forbidden, weights
that are not finite, and parameters out of range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crfbook._checks import number, whole
from crfbook.learners.stochastic.gradient_run import Sgd, SgdL1

if TYPE_CHECKING:
    from crfbook._types import ArrayLike, Callback, Corpus, FeatureSet, Limits, OptResult, State

DECAY = 0.85  # of the learning rate of sgd_l1 in an epoch: Wapiti's


def sgd(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    c2: float,
    calibration_eta: float = 0.1,
    calibration_rate: float = 2.0,
    calibration_samples: int = 1000,
    calibration_candidates: int = 10,
    calibration_max_trials: int = 20,
    period: int = 10,
    delta: float = 1e-6,
    average: bool = True,
    constraints: Limits = None,
    max_iterations: int = 1000,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
    new_data: bool = False,
) -> OptResult:
    """Minimise losses + c2 |w|^2 with steps eta_t = 1 / (lambda (t0 + t)), lambda = 2 c2 / n.
    Common arguments: see the module.

    t0 = 1 / (lambda eta0), and eta0 is the best of a series: calibration_eta times powers of
    calibration_rate, upwards and then downwards, each tried for one pass over calibration_samples sequences
    from w0 and judged by their objective afterwards, until calibration_candidates of them made it fall or one
    did worse than the best; calibration_max_trials in all. eta0 lambda <= 1/2. With c2 = 0 the step stays
    eta0: weights of separable data grow without end, slowly.

    average : return the mean of the weights at the ends of epochs, the k-th one with a weight that grows as
        k^3 (Shamir and Zhang 2013, section 4): it costs nothing and lies much nearer to the optimum. False:
        the last weights, as CRFsuite has them.
    """
    calibration = (
        number("calibration_eta", calibration_eta, above=0.0),
        number("calibration_rate", calibration_rate, above=1.0),
        whole("calibration_samples", calibration_samples, 1),
        whole("calibration_candidates", calibration_candidates, 1),
        whole("calibration_max_trials", calibration_max_trials, 1),
    )
    c2 = number("c2", c2)
    common = corpus, features, w0, constraints, state, random_state, period, delta
    run = Sgd(*common, c2, new_data)
    run.average, run.calibration = bool(average), calibration
    return run.result(max_iterations, callback)


def sgd_l1(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    c1: float,
    c2: float = 0.0,
    eta0: float = 0.8,
    decay: float = DECAY,
    period: int = 10,
    delta: float = 1e-6,
    constraints: Limits = None,
    max_iterations: int = 60,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
    new_data: bool = False,
) -> OptResult:
    """Minimise losses + c1 |w|_1 with steps eta0 decay^(k / n) after k updates. Common arguments:
    see the module.

    eta0, decay : defaults of Wapiti. The penalty is cumulative:
        a weight is pulled to zero by all that was due since it was last
    used, and stays there until gradients outweigh that. c2 > 0 is refused:
    a shrink by a factor is not part of that bookkeeping.
    """
    c1, eta0 = number("c1", c1), number("eta0", eta0, above=0.0)
    if c2:
        raise ValueError(
            f"sgd_l1 has no L2 penalty: expected c2=0, got {c2!r}; use OWL-QN for both, or sgd with c1=0"
        )
    decay = number("decay", decay, above=0.0, most=1.0)
    common = corpus, features, w0, constraints, state, random_state, period, delta
    run = SgdL1(*common, c1, new_data, decay=decay)
    run.eta0 = run.eta0 or eta0
    run.saved = run.state()  # what a first epoch that diverges goes back to
    return run.result(max_iterations, callback)


def divergence(result):
    """What to tell a user whose step size was too large: a sentence, or None."""
    n, eta0 = int(result.state.get("n_halvings", 0)), float(result.state.get("eta0", 0.0))
    if not n:
        return None
    end = (
        "and still does, so the last good weights are kept"
        if result.status == "diverged"
        else "and training went on from there"
    )
    return (
        f"the learning rate made the loss grow: it was halved {n} times, to {eta0:.3g}, {end}; "
        "smaller attribute values help"
    )
