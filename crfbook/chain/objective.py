"""What training minimises: the penalised negative log-likelihood of a corpus, or another loss (losses.py).

    value(w) = sum_i weight_i (log Z_i - score_i(y_i)) + c2 |w|^2        in nats
    grad(w)  = expected counts - gold counts + 2 c2 w

Sequences are packed into batches, and batches into shards (packing.py), once, at construction. Every
evaluation runs a form (forms.py) on each shard. Penalties are sums, as in CRFsuite.
Source: Sokolovska et al. (2010), eq. (4), (5), (11).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import number, one_of, shown
from crfbook.chain.forms import Problem, Tables
from crfbook.chain.likelihood import Counts, WorkPool, add_tree, make_work
from crfbook.chain.losses import LossTables, make_loss
from crfbook.chain.numpy_form import StepTables, list_all
from crfbook.chain.packing import batch_rows, lay_out, n_shards, pack, padded, padded_bounds
from crfbook.chain.scores import collect_dense, fill_dense
from crfbook.chain.sparse.choice import FormChooser
from crfbook.chain.sparse.form import DefaultPairs, SparsePairs
from crfbook.data.constraints import Limits, check_constraints, describe_violations, violations
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet, empirical_counts
from crfbook.training.threads import one_blas_thread, resolve_threads, run_tasks

LOG_LOSS_FORMS = {"batched": Tables, "sparse": SparsePairs, "default": DefaultPairs, "numpy": StepTables}


def check_weights(w, n_features):
    """`w` as a contiguous float64 vector; ValueError if its shape is wrong or a weight is not finite."""
    w = np.ascontiguousarray(w, dtype=np.float64)
    if w.shape != (n_features,):
        raise ValueError(f"weights: expected shape ({n_features},), got {w.shape}")
    finite = np.isfinite(w)
    if not finite.all():
        k = int(np.argmin(finite))
        raise ValueError(f"weights: expected finite numbers, got {w[k]} at position {k}")
    return w if w.flags.writeable else w.copy()  # a read-only array would compile every kernel again


def check_state(state, name, n):
    """ValueError unless the array `name` of a state, {name: array}, has n numbers."""
    if np.shape(state.get(name)) != (n,):
        got = np.shape(state[name]) if name in state else sorted(state)
        raise ValueError(f"state: expected an array {shown(name)} of shape ({n},), got {got}")


def l2_penalty(c2, w):
    """c2 |w|^2; 0 for c2 = 0, also where |w|^2 exceeds float64."""
    return c2 * float(w @ w) if c2 else 0.0


def check_paths(log_z, sequence, constraints=None):
    """ValueError naming the first sequence whose log Z is not finite (`sequence`: numbers in the corpus)."""
    bad = sequence[~np.isfinite(log_z)]
    if len(bad):
        why = (
            "its scores exceed float64"
            if constraints is None
            else "the constraints forbid every path, so that Z = 0 (or its scores exceed float64)"
        )
        raise ValueError(f"sequence {bad.min()}: expected a path of finite score, but {why}")


class Objective:
    """Penalised negative log-likelihood of a corpus; call it with weights to get (value, gradient).

    Parameters
    ----------
    corpus : Corpus (S sequences, N tokens), every token labelled. Sequences of length 0 contribute nothing.
    features : FeatureSet with F weights.
    c2 : float >= 0, penalty c2 |w|^2 (no half, a sum over the corpus and no average).
    constraints : Constraints or None; forbidden transitions score -inf in Z.
    n_threads : int; the result has the same bits for any value.
    batch_tokens : int or None, rows of a batch; None is what `batch_rows` says.
    loss : "log", "exp", "pointwise-log" or "pointwise-exp", see losses.py; the exp losses are pure
        numbers, not nats.
    clamp : None, or M > 0: phi(u) = e^u - 1 goes on as a straight line where u > M nats.
    log_scale : value and gradient, penalty included, are multiplied by exp(-log_scale). Where 1/p exceeds
        float64 (1/p is L^T at w = 0), `log_value` of the start is a good one.
        A loss beyond exp(500) times the scale has the value inf.

    form : "batched"; "sparse", "default" (plain transitions), "numpy": log loss only; or "auto": "numpy" if
        the problem is tiny, else at each evaluation the one that is faster there, see chain/sparse/choice.py.

    Raises
    ------
    ValueError : a token without label; a labelling that the constraints forbid; c2 < 0; a loss that is
        unknown, or does not go with the clamp or log_scale; when called, weights that are not finite or of
        another length, and a sequence that has no path of finite score.
    """

    _forms: ClassVar = LOG_LOSS_FORMS  # another model, another form
    _options: ClassVar = {}  # what they need beside the problem

    def __init__(
        self,
        corpus: Corpus,
        features: FeatureSet,
        *,
        c2: float = 0.0,
        constraints: Limits = None,
        n_threads: int | None = 1,
        batch_tokens: int | None = None,
        loss: str = "log",
        clamp: float | None = None,
        log_scale: float = 0.0,
        form: str = "auto",
    ) -> None:
        settings = make_loss(loss, clamp, log_scale)
        self.features, self.c2, self.constraints = features, number("c2", c2), constraints
        self._gold = self._gold_counts(corpus)
        self.n_threads = resolve_threads(n_threads)
        self.n_evaluations = 0
        if form not in ("auto", *self._forms) and type(self)._forms is not LOG_LOSS_FORMS:
            one_of("form", form, ("auto", *self._forms))  # otherwise `FormChooser` raises it
        kernels = settings.is_other or type(self)._forms is not LOG_LOSS_FORMS
        self._chooser = FormChooser(features, corpus, form, kernels=kernels, constraints=constraints)
        if self._chooser.tiny:
            self._corpus = corpus  # for `with_loss`
            self._packing = pack(corpus, max(1, corpus.n_tokens), n_shards=1, grouped=False)
            layout = list_all(corpus, features, self._packing)
        else:
            self._packing = pack(
                corpus,
                batch_tokens or batch_rows(corpus.n_classes, features.n_labels),
                n_shards(corpus.n_tokens, features.n_node),
            )
            layout = lay_out(corpus, features, self._packing, padded(features.n_labels))
        classes, bounds = (corpus.class_ptr, corpus.class_attr), self._make_bounds()
        self._problem = Problem(features, classes, bounds, self._packing, layout)
        self._allocate()
        self._choose(settings)

    def _gold_counts(self, corpus):
        """Counts (F,) of the gold labels, which are checked."""
        check_labels(corpus, self.features, self.constraints)
        return empirical_counts(corpus, self.features)

    def _make_bounds(self):
        return padded_bounds(self.constraints, self.features.n_labels)

    def _allocate(self):
        features, packing = self.features, self._packing
        width, n_dense = padded(features.n_labels), self._problem.layout.n_dense
        self._whole = n_dense == features.n_attrs and features.n_node == features.n_attrs * features.n_labels
        self._made = {}  # name: (form, work arrays of its threads), from its first use
        self._log_z = np.zeros(len(packing.sequence))
        self._dense = np.zeros((0 if self._whole else n_dense, width))
        self._buffers = [
            (make_work(packing, width), np.empty_like(self._dense))
            for _ in range(min(self.n_threads, max(1, packing.n_shards)))
        ]

    def _choose(self, settings):
        """Set the loss (a `Loss`). The log loss needs nothing more: its gold labels are constants,
        see `_gold`.
        """
        self._scale, self._terms = np.exp(-settings.log_scale), None
        if settings.is_other:
            if type(self)._forms is not LOG_LOSS_FORMS:
                raise ValueError(f"loss: expected 'log', which {type(self).__name__} has alone")
            self._forms, self._options, self._made = {"batched": LossTables}, {"loss": settings}, {}
            self._terms = self._make("batched")

    def with_loss(self, loss: str, clamp: float | None = None, log_scale: float = 0.0) -> Objective:
        """An `Objective` of the same corpus and penalty under another loss. They share arrays:
        never call both at once.
        """
        settings = make_loss(loss, clamp, log_scale)
        if settings.is_other and self._chooser.tiny:  # another form, another layout
            problem = {"c2": self.c2, "constraints": self.constraints, "n_threads": self.n_threads}
            given = {"loss": loss, "clamp": clamp, "log_scale": log_scale}
            return type(self)(self._corpus, self.features, **problem, **given)
        other = copy.copy(self)
        other.n_evaluations = 0
        if self._terms:
            other._forms, other._options, other._made = type(self)._forms, {}, {}
        other._choose(settings)
        return other

    def __call__(self, w: ArrayLike) -> tuple[float, np.ndarray]:
        """(value, grad (F,)) at the weights w (F,); value in nats, grad a new array."""
        w = check_weights(w, self.features.n_features)
        self.n_evaluations += 1
        grad, bad = self._sums(w, "counts")
        if max(bad, default=-1) >= 0:
            check_paths(self._log_z, self._packing.sequence, self.constraints)
        c2 = self.c2 * self._scale
        with one_blas_thread():
            weight, log_z = self._packing.weight, self._log_z
            value = self._terms.value.sum() if self._terms else weight @ log_z - w @ self._gold
            value += l2_penalty(c2, w)
        if self._terms is None:
            grad -= self._gold
        if c2:
            grad += 2.0 * c2 * w
        return float(value), grad

    @property
    def curvature(self) -> Callable[[ArrayLike], np.ndarray] | None:
        """Callable w (F,) -> roughly the second derivatives (F,), see `spread_rows`;
        None where they are not known.
        """

        def curvature(w):
            variances = self._sums(check_weights(w, self.features.n_features), "variances")[0]
            return np.maximum(variances, 0.0) + 2.0 * self.c2  # p (1 - p) is -1e-16 where p is rounded up

        return curvature if all("variances" in form.offers for form in self._forms.values()) else None

    def _sums(self, w, what):
        """(`what` summed over all tokens of each feature (F,), what the form returned for each shard)."""
        features, layout, n_node = self.features, self._problem.layout, self.features.n_node
        if self._whole:
            dense = w[:n_node].reshape(features.n_attrs, features.n_labels)
        else:
            dense, lists = self._dense, (features.node_ptr, features.node_label)
            if len(dense):
                fill_dense(w, layout.member_ptr, layout.member, *lists, dense)
        form, pool = self._form(w)
        form.prepare(w, what)
        # new each time: many objectives (the shards of a cluster) would otherwise keep one each
        parts = np.empty((self._packing.n_shards, n_node))
        bad = run_tasks(
            lambda i: self._run_shard(form, pool, what, i, w, dense, parts[i]), len(parts), self.n_threads
        )
        total = np.zeros(features.n_features)
        if len(bad):
            total[:n_node] = add_tree(parts)
            form.collect(total)
        return total, bad

    def _form(self, w):
        """The form that is the faster at w, and the work arrays of its threads."""
        name = self._chooser.choose(w) if len(self._forms) > 1 else "batched"
        if name not in self._made:
            self._make(name)
        form, pool = self._made[name]
        pool.fill()
        return form, pool

    def _make(self, name):
        form = self._forms[name](self._problem, **self._options)
        pool = WorkPool((form.work(work), dense_grad) for work, dense_grad in self._buffers)
        self._made[name] = form, pool
        return form

    @property
    def n_products(self) -> tuple[int, ...]:
        """(forward, backward): products with stored pairs in the last evaluation in the sparse form, or
        (0, 0).
        """
        if "sparse" not in self._made:
            return 0, 0
        return tuple(self._made["sparse"][0].parts.n_products.sum(axis=0).tolist())

    @property
    def log_z(self) -> np.ndarray:
        """(S',): log Z of the sequences that are not empty, in packed order, at the last evaluation."""
        return self._log_z.copy()

    def log_value(self, w: ArrayLike) -> float:
        """log of the value at w (F,), log_scale left out;
        a number also where the value itself would exceed float64.
        """
        value, _ = self(w)
        if self._terms is None:
            return float(np.log(value))
        with np.errstate(divide="ignore"):
            penalty = np.log(l2_penalty(self.c2, w))
            return float(np.logaddexp(self._terms.log_total(self._packing.weight), penalty))

    @property
    def largest_u(self) -> float:
        """The largest -log p of the last evaluation, in nats: of a gold path, or of a gold label if
        pointwise.
        """
        if self._terms is None:
            raise AttributeError("largest_u: the log loss alone does not keep it")
        return float(self._terms.u.max(initial=0.0))

    def _run_shard(self, form, pool, what, shard, w, dense, grad):
        """Sums of one shard into grad (n_node,), with work arrays that are free."""
        features, layout = self.features, self._problem.layout
        work, dense_grad = buffers = pool.get()
        if self._whole:  # the gradient itself is the table of dense rows, and there are no pairs
            dense_grad, grad = grad.reshape(dense.shape), grad[:0]
        try:
            bad = form.run(what, shard, w, dense, work, Counts(self._log_z, grad, dense_grad))
            if len(dense_grad) and not self._whole:
                lists = features.node_ptr, features.node_label
                collect_dense(dense_grad, layout.member_ptr, layout.member, *lists, grad)
        finally:
            pool.put(buffers)
        return bad


def check_labels(corpus, features, constraints):
    """ValueError for a token without label, and for a labelling that the constraints forbid."""
    if corpus.labels.size and corpus.labels.max() >= features.n_labels:
        raise ValueError(f"label ids: expected 0..{features.n_labels - 1}, got {corpus.labels.max()}")
    unknown = np.flatnonzero(corpus.labels < 0)
    if len(unknown):
        raise ValueError(
            f"{corpus.place(unknown[0])}: expected a label for every token of training data, got -1 (unknown)"
        )
    if constraints is not None or len(corpus.label_set):
        check_constraints(constraints, features.n_labels)
        found = violations(corpus, constraints, list(range(features.n_labels)))
        if found:
            raise ValueError(f"labels that the constraints forbid: {describe_violations(found)}")
