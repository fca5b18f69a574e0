"""The linear-chain conditional random field as a scikit-learn estimator.

    p(y | x) = exp( sum_t  log_node[t, y_t] + log_edge[class_t, y_{t-1}, y_t] ) / Z(x)

Everything numerical happens further down (optim, kernels); this file turns what users have into a corpus,
trains, and turns label ids back into labels. Source: Lafferty, McCallum, Pereira (2001); Sha, Pereira (2003).
"""

import warnings

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from crfbook.data.constraints import Constraints, constraints_from
from crfbook.data.features import FeatureSet
from crfbook.models.inputs import encoder_from_state, encoder_state, known_corpus, obey, training_corpus
from crfbook.models.persistence import ModelFileError, load_arrays, save_arrays
from crfbook.models.prediction import Predictions
from crfbook.models.settings import check_settings
from crfbook.models.training import dev_accuracy, train
from crfbook.models.weights import WeightNames, carried_over, check_layout, choose_features

FITTED = ("objective_", "status_", "n_iter_", "n_dropped_")     # plain numbers and words that a model file carries


class CRF(Predictions, WeightNames, BaseEstimator):
    """Linear-chain CRF trained by L-BFGS (c1 = 0) or OWL-QN (c1 > 0).

    Minimises, in nats,   sum_i sample_weight_i * -log p(y_i | x_i)  +  c1 * |w|_1  +  c2 * |w|_2^2
    (sums, not averages, and no factor 1/2: CRFsuite's meaning of c1 and c2).

    Parameters
    ----------
    algorithm : {"lbfgs", "owlqn"}, default "lbfgs". Both are one implementation; c1 > 0 makes it OWL-QN.
    min_freq : float, default 0. Weights whose (attribute, label) or (label, label) is seen less often do not exist.
    all_possible_states, all_possible_transitions : bool, default False. Give weights also to what training
        never shows: every attribute with every label, every label after every label.
    c1, c2 : float >= 0, default 0 and 1.
    max_iterations : int or None (no limit).
    num_memories : int, default 6. Curvature pairs kept, two vectors of weights each.
    epsilon, period, delta : CRFsuite's stopping rules. |gradient| <= epsilon * max(1, |w|) (for c2 = 0 the largest entry of
        the gradient), used only if given. The objective fell by less than delta, relative, in the last `period` (default 10)
        iterations: used if delta is given, and with delta = 1e-6 for c2 = 0, where no bound on the distance to the minimum
        is known and the gradient takes long to vanish; status_ is then "small change". delta=0 waits for the gradient.
    max_linesearch : int, default 20. Evaluations tried per iteration.
    verbose : bool. Print a forecast of memory and time before training, then a progress bar.
    template : makes attributes from token columns: the name of a shipped template ("chunking", "words", ...), the path or
        the text of a CRF++/Wapiti pattern file, a Template, or None.
    constraints : "BIO", "IOB1", "BIOES", table or None: see `crfbook.data.constraints.constraints_from`.
        Forbidden transitions have probability 0 in training and are never predicted. A transition that training
        merely never shows is not forbidden: it has weight 0.
    on_violation : {"raise", "drop"}. What to do with training sequences that violate the constraints.
    n_jobs : int or None (1), -1 for all processors. Threads; the weights are bit-identical for any number.
    tol : float, default 1e-6. For c2 > 0, stop when the objective is proved to lie within tol (relative) of its
        minimum; for c2 = 0, when no entry of the (pseudo-)gradient exceeds 1000 * tol, or at a small change (see delta).
    patience : int or None. With X_dev in `fit`: stop after so many iterations without a better token accuracy
        there, and keep the weights of the best iteration.
    warm_start : bool. `fit` starts from the weights of the fit before, matched by name.
    linesearch, calibration_*, pa_type, c, error_sensitive, averaging, variance, gamma, model_filename,
    keep_tempfiles, trainer_cls : accepted so that code for sklearn-crfsuite runs; a warning says that they have no effect.

    Attributes
    ----------
    classes_ : list of the labels as they were given; index = label id in every array.
    weights_ : (F,) float64, laid out by features_ (a FeatureSet); encoder_ holds the alphabets.
    objective_, n_iter_, status_ : last value, iterations and why training ended.
    history_ : DataFrame, one row an iteration: iteration, objective, violation, n_active, seconds (and dev_accuracy).
    n_dropped_ : sequences left out because of on_violation="drop".

    Notes
    -----
    What differs from sklearn-crfsuite: `predict` and `predict_marginals` return lists of lists, whatever the data.
    Labels may be any hashable objects and come back as they were. Training goes on to a certificate (for c2 = 0: or to delta = 1e-6) instead of stopping at
    delta = 1e-5; other trainers than "lbfgs" are refused. There are no model files on disk unless you `save`; X_dev can
    stop the training.
    An empty sequence is predicted as []. ":" and newlines in attributes mean nothing.

    Ctrl-C during `fit` ends training with the last good weights, a usable model and status_ "interrupted".
    Predicting changes nothing in the model, so threads may share it.
    """

    def __init__(self, algorithm="lbfgs", min_freq=0, all_possible_states=False, all_possible_transitions=False,
                 c1=0.0, c2=1.0, max_iterations=None, num_memories=6, epsilon=None, period=None, delta=None,
                 linesearch=None, max_linesearch=None, calibration_eta=None, calibration_rate=None,
                 calibration_samples=None, calibration_candidates=None, calibration_max_trials=None, pa_type=None,
                 c=None, error_sensitive=None, averaging=None, variance=None, gamma=None, verbose=False,
                 model_filename=None, keep_tempfiles=None, trainer_cls=None, *, template=None, constraints=None,
                 on_violation="raise", n_jobs=None, tol=1e-6, patience=None, warm_start=False):
        self.algorithm = algorithm
        self.min_freq = min_freq
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.c1 = c1
        self.c2 = c2
        self.max_iterations = max_iterations
        self.num_memories = num_memories
        self.epsilon = epsilon
        self.period = period
        self.delta = delta
        self.linesearch = linesearch
        self.max_linesearch = max_linesearch
        self.calibration_eta = calibration_eta
        self.calibration_rate = calibration_rate
        self.calibration_samples = calibration_samples
        self.calibration_candidates = calibration_candidates
        self.calibration_max_trials = calibration_max_trials
        self.pa_type = pa_type
        self.c = c
        self.error_sensitive = error_sensitive
        self.averaging = averaging
        self.variance = variance
        self.gamma = gamma
        self.verbose = verbose
        self.model_filename = model_filename
        self.keep_tempfiles = keep_tempfiles
        self.trainer_cls = trainer_cls
        self.template = template
        self.constraints = constraints
        self.on_violation = on_violation
        self.n_jobs = n_jobs
        self.tol = tol
        self.patience = patience
        self.warm_start = warm_start

    def fit(self, X, y=None, sample_weight=None, X_dev=None, y_dev=None, callback=None):
        """Train on labelled sequences.

        Parameters
        ----------
        X : list of sequences, each a list of attribute dicts, of lists of strings, a dense or sparse
            array (T, A); or TokenColumns (with `template`); or a Corpus, whose label ids are the labels.
        y : list of sequences of labels; may be left out when X carries its labels.
        sample_weight : (S,) weights >= 0 of the sequences, default 1.
        X_dev, y_dev : held-out sequences; their token accuracy stands in history_ (see `patience`).
        callback : called with (Step, weights) after each iteration; returning True ends training.

        Returns self. Raises ValueError or TypeError in one sentence that names the sequence, the token
        and what was expected.
        """
        settings = check_settings(self)
        encoder, corpus = training_corpus(X, y, sample_weight, self.template)
        constraints = constraints_from(self.constraints, encoder.labels_)
        corpus, n_dropped = obey(corpus, constraints, encoder.labels_, settings.drop)
        if n_dropped:
            warnings.warn(f"{n_dropped} training sequences violate the constraints and were left out", UserWarning,
                          stacklevel=2)
        features = choose_features(corpus, encoder, settings, constraints)
        w0 = np.zeros(features.n_features)
        if self.warm_start and hasattr(self, "weights_"):
            w0 = carried_over(self, encoder, features)
        dev = self._dev_score(encoder, features, constraints, settings, X_dev, y_dev)
        result, history = train(corpus, features, constraints, settings, w0, dev=dev, callback=callback, verbose=self.verbose)

        self.encoder_, self.features_, self.constraints_ = encoder, features, constraints
        self.weights_, self.objective_, self.status_ = result.w, result.objective, result.status
        self.n_iter_, self.n_dropped_ = result.n_iter, n_dropped
        self._history = history
        return self

    def _dev_score(self, encoder, features, constraints, settings, X_dev, y_dev):
        if X_dev is None:
            if y_dev is not None or settings.patience is not None:
                raise ValueError("fit: expected X_dev with y_dev and with patience, got none")
            return None
        corpus = known_corpus(encoder, X_dev, y_dev, unknown="mark")
        return dev_accuracy(corpus, features, constraints, settings.n_threads)

    @property
    def history_(self):
        """The iterations as a pandas DataFrame (made when asked for: training does not need pandas)."""
        import pandas

        check_is_fitted(self, "weights_")
        return pandas.DataFrame(self._history)

    @property
    def classes_(self):
        """The labels; index = label id in every array."""
        check_is_fitted(self, "weights_")
        return list(self.encoder_.labels_)

    def save(self, path):
        """Write the trained model to one file (see `models.persistence`), atomically and without pickle.

        Raises NotFittedError before `fit`; TypeError for labels other than strings, numbers, booleans and tuples of these.
        """
        check_is_fitted(self, "weights_")
        state, arrays = encoder_state(self.encoder_)
        arrays = {f"encoder.{name}": array for name, array in arrays.items()}
        features = self.features_._asdict()
        arrays.update({f"features.{name}": features.pop(name) for name in FeatureSet._fields[3:]})
        arrays["weights"] = self.weights_
        if self.constraints_ is not None:
            arrays.update({f"constraints.{name}": table for name, table in self.constraints_._asdict().items()})
        arrays.update({f"history.{name}": column for name, column in self._history.items()})
        # template and a table of constraints come back from the encoder and from constraints_
        params = {name: value.item() if isinstance(value, np.generic) else value for name, value in self.get_params().items()}
        params = {name: value for name, value in params.items() if value is None or isinstance(value, (bool, int, float, str))}
        params.pop("template", None)
        fitted = {name: getattr(self, name) for name in FITTED}
        save_arrays(path, "CRF", {"params": params, "features": features, "encoder": state, "fitted": fitted}, arrays)

    @classmethod
    def load(cls, path):
        """A model that `save` wrote; it predicts, explains its weights and can be trained further (warm_start).

        Raises ModelFileError (a ValueError) for a file that is damaged, foreign or of a later schema; nothing in it is executed.
        """
        header, arrays = load_arrays(path, "CRF")
        try:
            return cls._restored(header, arrays)
        except Exception as error:      # an intact file that no `save` wrote
            raise ModelFileError(f"{path}: refused, {error}") from None

    @classmethod
    def _restored(cls, header, arrays):
        part = {"features": {}, "encoder": {}, "constraints": {}, "history": {}}
        for key, array in arrays.items():
            group, _, name = key.partition(".")
            if name:
                part[group][name] = array
        model = cls(**header["params"])
        model.encoder_ = encoder_from_state(header["encoder"], part["encoder"])
        model.features_ = FeatureSet(**header["features"], **part["features"])
        model.constraints_ = Constraints(**part["constraints"]) if part["constraints"] else None
        model.weights_ = arrays["weights"]
        check_layout(model.features_, model.weights_, model.encoder_, model.constraints_)
        if model.constraints is None:
            model.constraints = model.constraints_
        model.template = getattr(model.encoder_, "template", None)
        for name in FITTED:
            setattr(model, name, header["fitted"][name])
        model._history = part["history"]
        return model
