"""The linear-chain conditional random field as a scikit-learn estimator.

    p(y | x) = exp( sum_t  log_node[t, y_t] + log_edge[class_t, y_{t-1}, y_t] ) / Z(x)

Everything numerical happens further down (learners, chain); this file turns what users have into a corpus,
trains, and turns label ids back into labels. Source: Lafferty, McCallum, Pereira (2001); Sha, Pereira (2003).
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from crfbook.chain.sparse.potentials import sparsify
from crfbook.data.columns import Data
from crfbook.data.constraints import ConstraintsLike
from crfbook.data.files import target
from crfbook.data.vocabulary import Labels
from crfbook.encoding.tag_dictionary import TagDictionaryLike
from crfbook.encoding.templates import TemplateLike
from crfbook.models.fitting import (
    Calibrated,
    Stream,
    carried_features,
    carried_over,
    dev_accuracy,
    train,
    warn_of_runaway,
)
from crfbook.models.inputs import training_set
from crfbook.models.parameters import Seed, check_settings
from crfbook.models.prediction import OneByOne, Uncertain, WeightNames
from crfbook.models.saving import FromCRFsuite, SavedCRF
from crfbook.training.loop import Callback


class CRF(OneByOne, Uncertain, Calibrated, Stream, WeightNames, SavedCRF, FromCRFsuite):
    """Linear-chain CRF.

    Minimises, in nats,

        sum_i sample_weight_i * loss_i  +  c1 * |w|_1  +  c2 * |w|_2^2,   loss_i = -log p(y_i | x_i)

    (sums, not averages, and no factor 1/2: CRFsuite's meaning of c1 and c2), or corrects mistakes
    (perceptron, pa, arow).

    ============  ==========================================================  =========  ========  ==========
    algorithm     when to use it                                              penalties  losses    epochs [1]
    ============  ==========================================================  =========  ========  ==========
    "lbfgs"       the default: exact to a certificate; c1 > 0: "owlqn"        c1, c2     all four  until tol
    "owlqn"       sparse models, most weights exactly 0 [2]                   c1, c2     all four  until tol
    "sbcd"        very many weights, few active: all of a symbol at once      c1 or c2   log       100
    "cd"          the same, one weight at a time: for up to 2,000 weights     c1 or c2   log       100
    "auto"        as "lbfgs", on large corpora "sdca" first, if it is fast    c1, c2     all four  until tol
    "sdca"        good after a few passes, gap certified; slow for tiny c2    c2 > 0     log       200
    "sag"         the minimum in few passes; remembers marginals              c2         log       200
    "sgd"         large corpora, streams (partial_fit); ends late: see delta  c2         log       1000
    "sgd-l1"      sparse models of large corpora; not quite the minimum       c1 > 0     log       60
    "perceptron"  a first result in seconds, streams; F1 close to "lbfgs"     none       none      10
    "pa"          as "perceptron", with a margin and bounded steps            none       none      10
    "arow"        as "pa", for rare attributes and noisy labels               none       none      10
    "boosting"    very few weights, picked one a round (Altun et al. 2003)    none       exp       10,000
    ============  ==========================================================  =========  ========  ==========

    [1] max_iterations where none is given. Many end sooner: see period and delta, epsilon, tol, patience.
    [2] The minimum of OWL-QN, which proximal steps reach in fewer evaluations:
        `learners.quasi_newton.lbfgs.minimize` has both.

    A parameter that means nothing to the algorithm is named in a warning. One that it cannot honour (c1 > 0
    without an L1 penalty) is refused, with the list of what works. The table `models.parameters.GROUPS` says
    which algorithms read which parameter.

    Parameters
    ----------
    **What is minimised**

    algorithm : str, default "lbfgs". A row of the table. CRFsuite's names work too: "l2sgd", "ap",
        "averaged_perceptron", "passive_aggressive".
    loss : str, default None: the algorithm's first, mostly "log". One of "log", "exp", "pointwise-log" and
        "pointwise-exp": see `chain.losses.form`.
    clamp : number > 0, default None: no limit. Nats, of the exp losses: a sequence (token) with -log p >
        clamp counts linearly, so that wrong labels cannot rule the rest.
    c1 : number >= 0, default 0.0. Nats per unit of |w|. c1 alone makes an elastic net; c2=0 for pure L1.
    c2 : number >= 0, default None: 1, and 0 where an algorithm has no L2 penalty. Nats per unit of w^2.

    **How it is minimised**

    max_iterations : integer >= 0, default None: see the table. Iterations, epochs or rounds (other losses
        than "log": iterations of each stage, see `learners.quasi_newton.loss_path`); 0: the model has its
        alphabets, and w = 0.
    tol : number >= 0, default None: 1e-6, but 1e-4 for "sdca", "sbcd" and "cd". L-BFGS, OWL-QN, auto: for c2
        > 0, stop when the objective is proved to lie within tol (relative) of its minimum; for c2 = 0, when
        no entry of the (pseudo-)gradient exceeds 1000 * tol nats, or at a small change (see delta). The
        others that read it: see there.
    epsilon : number >= 0, default None: not used. CRFsuite's rule: stop at |gradient| <= epsilon * max(1,
        |w|) (for c2 = 0 the largest entry of the gradient); perceptron, pa, arow: at a mean loss of at most
        epsilon in an epoch.
    period : integer >= 1, default None: 10. Iterations that delta looks back.
    delta : number >= 0, default None: 1e-6 for "sgd" and for c2 = 0, else not used. Stop when the objective
        fell by less than delta, relative, in the last `period` iterations; status_ is then "small change".
        For c2 = 0 no bound on the distance to the minimum is known and the gradient takes long to vanish;
        delta=0 waits for the gradient.
    inference : "exact" or "active", default "exact". "active", for hundreds of labels and more: at each token
        only labels with a share of the forward mass of at least eps, and the gold one, bring their
        transitions along (`chain.active.form`). history_ then has the objective of the sets, and error_bound:
        nats that it is off, at most, where sets have just been made, as at the end (not for "sgd" and
        "sgd-l1"). objective_ is exact, and so is prediction.
    eps : number >= 0, default None: 0.001. Of inference="active", below 1.
    patience : integer >= 1, default None: no limit. With X_dev in `fit`: stop after so many iterations
        without a better token accuracy there, and keep the weights of the best iteration.
    num_memories : integer >= 1, default None: 6, with an L1 penalty 10. Curvature pairs that "lbfgs" and
        "owlqn" keep, two vectors of weights each.
    max_linesearch : integer >= 1, default None: 20. Evaluations tried per iteration.
    calibration_eta : number > 0, default None: 0.1, "sgd-l1" 0.8. The rate with which the search for a
        learning rate begins, see `learners.stochastic.gradient_descent.sgd`; "sgd-l1" trains with it.
    calibration_rate : number > 1, default None: 2. Factor between two rates of that search.
    calibration_samples : integer >= 1, default None: 1000. Sequences that the search tries each rate on.
    calibration_candidates : integer >= 1, default None: 10. The search ends after so many rates that helped.
    calibration_max_trials : integer >= 1, default None: 20. Rates that the search tries at most.
    pa_type : 0, 1 or 2, default None: 1. Of "pa": the margin must be met, or slack is paid for, linearly
        (PA-I) or squared (PA-II).
    c : number > 0, default None: 1. Of "pa": aggressiveness, the price of slack.
    error_sensitive : bool, default None: True. Of "pa": the margin grows with the errors.
    averaging : bool, default None: True. Of "perceptron" and "pa"; False keeps the last weights, the plain
        perceptron.
    variance : number > 0, default None: 1. Of "arow": variance of each weight at the beginning.
    gamma : number > 0, default None: 1. Of "arow": a larger one makes smaller steps.

    **Which weights exist**

    template : default None: X has attributes. Makes attributes from token columns: the name of a shipped
        template ("chunking", "words", ...), the path or the text of a CRF++/Wapiti pattern file, or a
        Template.
    min_freq : number >= 0, default 0. Weights whose (attribute, label) or (label, label) is seen less often
        (sum of attribute values) do not exist.
    all_possible_states : bool, default False. Every attribute has a weight with every label, also with those
        that training never shows with it.
    all_possible_transitions : bool, default False. Every label has a weight after every label. With
        all_possible_states, "sbcd", c1 > 0 and min_freq = 0 these weights exist virtually: only active ones
        take memory and stand in features_ and weights_.
    warm_start : bool, default False. `fit` starts from the weights of the fit before, matched by name.

    **Labels and constraints**

    constraints : default None. "BIO", "IOB1", "BIOES", "BILOU", "IO" or a table: see
        `crfbook.data.constraints.constraints_from`. Forbidden transitions have probability 0 in training and
        are never predicted. A transition that training merely never shows is not forbidden: it has weight 0.
    on_violation : "raise" or "drop", default "raise". What to do with training sequences that violate the
        constraints.
    tag_dictionary : default None. A count (5 is usual) or a TagDictionary. Words seen so often in training
        may only have labels seen with them, in training and prediction alike, but for new sequences that this
        leaves without any labelling. Needs a template; words are column 0, or the dictionary's column.

    **Running it**

    random_state : int, default 0. Or a RandomState, or None. Order of the sequences, where one is random.
    n_jobs : int, default None: 1. Threads, -1 for all processors; the weights are bit-identical for any
        number.
    memory_limit : number >= 0, default 2e9. Bytes that "sag", "sdca" and "boosting" may take to remember each
        sequence, and active sets to remember their labels; above it they raise MemoryError, and "auto" takes
        another way.
    verbose : default False. Print a forecast of memory and time before training, then a progress bar.
    model_filename : default None. Or a path: `fit` saves the model there, too (see `save`). A model that was
        not fitted predicts what is there, a file of CRFsuite too.
    linesearch : default None. Accepted so that code for sklearn-crfsuite runs, without effect.
    keep_tempfiles : default None. As linesearch.
    trainer_cls : default None. As linesearch.

    Attributes
    ----------
    classes_ : list of the labels as they were given; index = label id in every array.
    weights_ : (F,) float64, laid out by features_ (a FeatureSet); encoder_ holds the alphabets.
    objective_, n_iter_, status_ : last value of what is minimised, iterations and why training ended.
        perceptron, pa, arow: their losses summed over the last epoch; boosting: log of the exp loss.
    history_ : DataFrame, one row an iteration or epoch (boosting: every 100 rounds): iteration, objective,
        violation, n_active, seconds (and error_bound, dev_accuracy).
    n_dropped_ : sequences left out because of on_violation="drop".

    Notes
    -----
    What differs from sklearn-crfsuite: `predict` and `predict_marginals` return lists of lists, whatever the
    data. Labels may be any hashable objects and come back as they were. Training goes on to a certificate
    (for c2 = 0: or to delta = 1e-6) instead of stopping at delta = 1e-5; perceptron, pa and arow do 10
    epochs, not 100 (their F1 changes little after 10). `fit` writes a file only if `model_filename` is set;
    X_dev can stop the training. An empty sequence is predicted as [].
    ":" and newlines in attributes mean nothing. `from_crfsuite` reads CRFsuite's models.

    Ctrl-C during `fit` ends training with the last good weights, a usable model and status_ "interrupted".
    Predicting changes nothing in the model, so threads may share it.

    Examples
    --------
    Labels that are known in part, in training and in prediction; how sure the model is:

    >>> X = [[["Ada"], ["Lovelace"], ["wrote"]], [["Ada"], ["ran"]]]
    >>> y = [["B-PER", {"I-PER", "O"}, "O"], [None, "O"]]
    >>> model = CRF(c2=0.1, constraints="BIO").fit(X, y)
    >>> model.status_
    'stationary point'
    >>> model.predict(X[:1], given=[[None, "I-PER", None]])
    [['B-PER', 'I-PER', 'O']]
    >>> [(span.type, span.start, span.stop) for span in model.predict_spans(X)[1]]
    [('PER', 0, 1)]
    >>> model.predict(X[1:], "posterior")
    [['B-PER', 'O']]
    >>> len(model.sample(X, 5, random_state=0)[0])
    5
    >>> bool(model.entropy(X)[0] > model.entropy(X)[1])
    True
    >>> X_dev, y_dev = [[["Ada"], ["wrote"]]] * 3, [["B-PER", "O"], ["B-PER", "O"], ["O", "O"]]
    >>> bool(model.calibrate(X_dev, y_dev).temperature_ > 0)
    True
    """

    def __init__(
        self, algorithm: str | None = "lbfgs", min_freq: float = 0,
        all_possible_states: bool = False, all_possible_transitions: bool = False,
        c1: float = 0.0, c2: float | None = None, max_iterations: int | None = None,
        num_memories: int | None = None, epsilon: float | None = None,
        period: int | None = None, delta: float | None = None,
        linesearch: Any = None, max_linesearch: int | None = None,
        calibration_eta: float | None = None, calibration_rate: float | None = None,
        calibration_samples: int | None = None, calibration_candidates: int | None = None,
        calibration_max_trials: int | None = None, pa_type: int | None = None, c: float | None = None,
        error_sensitive: bool | None = None, averaging: bool | None = None,
        variance: float | None = None, gamma: float | None = None, verbose: bool | int = False,
        model_filename: Any = None, keep_tempfiles: Any = None, trainer_cls: Any = None, *,
        template: TemplateLike = None, constraints: ConstraintsLike = None, on_violation: str = "raise",
        tag_dictionary: TagDictionaryLike = None, loss: str | None = None, clamp: float | None = None,
        random_state: Seed = 0, n_jobs: int | None = None, tol: float | None = None,
        patience: int | None = None, warm_start: bool = False, memory_limit: float = 2e9,
        inference: str | None = "exact", eps: float | None = None,
    ) -> None:  # fmt: skip
        self.algorithm, self.loss, self.clamp, self.c1, self.c2 = algorithm, loss, clamp, c1, c2
        self.max_iterations, self.tol, self.epsilon, self.period = max_iterations, tol, epsilon, period
        self.delta, self.patience, self.num_memories = delta, patience, num_memories
        self.linesearch, self.max_linesearch = linesearch, max_linesearch
        self.calibration_eta, self.calibration_rate = calibration_eta, calibration_rate
        self.calibration_samples, self.calibration_candidates = calibration_samples, calibration_candidates
        self.calibration_max_trials = calibration_max_trials
        self.pa_type, self.c, self.error_sensitive, self.averaging = pa_type, c, error_sensitive, averaging
        self.variance, self.gamma, self.template, self.min_freq = variance, gamma, template, min_freq
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.warm_start, self.constraints, self.on_violation = warm_start, constraints, on_violation
        self.tag_dictionary, self.random_state, self.n_jobs = tag_dictionary, random_state, n_jobs
        self.memory_limit, self.verbose, self.inference, self.eps = memory_limit, verbose, inference, eps
        self.model_filename, self.keep_tempfiles = model_filename, keep_tempfiles
        self.trainer_cls = trainer_cls

    def fit(
        self, X: Data, y: Labels | None = None, X_dev: Data | None = None, y_dev: Labels | None = None, *,
        sample_weight: ArrayLike | None = None, callback: Callback = None,
    ) -> Self:  # fmt: skip
        """Train on labelled sequences.

        Parameters
        ----------
        X : list of sequences, each a list of attribute dicts, of lists of strings, a dense or sparse
            array (T, A); or TokenColumns (with `template`); or a Corpus, whose label ids are the labels.
        y : list of sequences of labels; may be left out when X carries its labels. A number <= 0 that is
            alone among strings, and -100 as the only negative one, is refused: is it padding?
            A label may be None (nothing is known) or a set of labels, one of which is right. Then "lbfgs" and
            "owlqn" minimise the marginal loss, log Z less log Z of the labellings that agree with y. It is
            not convex: status_ is "stationary point" where no entry of the (pseudo-)gradient exceeds 1000 *
            tol nats, which may be no minimum of all. Weights exist for known labels and for all labels of
            sets, not for None (see all_possible_states). A label that no token shows is never learned.
        X_dev, y_dev : held-out sequences; their token accuracy stands in history_ (see `patience`).
        sample_weight : (S,) weights >= 0 of the sequences, default 1; by keyword, as what follows.
        callback : called with (Step, weights) after each iteration; returning True ends training.

        Returns self. Raises ValueError or TypeError in one sentence that names the sequence, the token
        and what was expected; MemoryError for an algorithm that would take more than memory_limit.
        """
        settings = check_settings(self)
        if self.model_filename is not None:
            target(self.model_filename)
        ready = training_set(self, settings, X, y, sample_weight)
        warm = self.warm_start and "weights_" in vars(self)  # not what model_filename holds
        if warm and settings.virtual:
            ready = ready._replace(features=carried_features(self, ready.encoder))
        n_features = ready.features.n_features
        w0 = carried_over(self, ready.encoder, ready.features) if warm else np.zeros(n_features)
        dev = dev_accuracy(ready, settings, X_dev, y_dev)
        result, history = train(ready, settings, w0, dev=dev, callback=callback, verbose=self.verbose)
        ready = ready._replace(features=getattr(result, "features", ready.features))
        self._keep(ready, result, history, settings.algorithm, ready.corpus.n_sequences)
        warn_of_runaway(self, settings, ready.corpus, ready.held)
        if self.model_filename is not None:
            self.save(self.model_filename)
        return self

    def _keep(self, ready, result, history, algorithm, n_seen):
        """Become the model that training has found. ready : the `TrainingSet`; n_seen : sequences in all."""
        self.encoder_, self.features_ = ready.encoder, ready.features
        self.constraints_, self.label_sets_ = ready.constraints, ready.label_sets
        self.weights_, self.objective_, self.status_ = result.w, result.objective, result.status
        self.n_iter_, self.n_dropped_ = result.n_iter, ready.n_dropped
        self._history, self._learner, self._n_seen = history, (algorithm, result.state), n_seen
        self.__dict__.pop("temperature_", None)  # of earlier weights

    def sparsify(self, threshold: float = 0.0) -> Self:
        """Keep only the weights with |w| > threshold: a smaller model, the same one if threshold is 0.
        Changes the model; returns self.

        `partial_fit` goes on from the weights that are left, without what its algorithm remembered besides.
        """
        check_is_fitted(self, "weights_")
        before = np.count_nonzero(self.weights_)
        self.features_, self.weights_ = sparsify(self.features_, self.weights_, threshold)
        if before and not len(self.weights_):
            warnings.warn(
                f"sparsify({threshold:g}) leaves none of {before} weights: "
                "every labelling is now as probable as any other",
                UserWarning,
                stacklevel=2,
            )
        self._learner = self._learner[0], None
        return self
