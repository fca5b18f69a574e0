"""What training of a dynamic CRF minimises: `DynamicObjective`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import number
from crfbook.chain.objective import Objective, check_weights, l2_penalty
from crfbook.data.corpus import Corpus, take_sequences
from crfbook.data.features import FeatureSet
from crfbook.dynamic.engines import batch_rows, check_engine, linked_tables, make_form
from crfbook.dynamic.junction import LIMIT
from crfbook.dynamic.layout import gold_counts, instances, known_sets
from crfbook.dynamic.loopy import OPTIONS, Options

if TYPE_CHECKING:
    from crfbook.dynamic.layout import Layout


class LatticeObjective(Objective):
    """sum_i weight_i log Z_i - w . counts, over the joint labels that label sets leave."""

    _forms: ClassVar = {"batched": make_form}

    def __init__(self, corpus, features, layout, counts, label_sets, n_threads, limit, engine, options):
        self._counts = counts
        self._options = {
            "layout": layout, "label_sets": label_sets, "limit": limit, "engine": engine, "options": options,
            "links": linked_tables(layout, corpus),
        }  # fmt: skip
        rows = batch_rows(layout, engine)
        super().__init__(corpus, features, n_threads=n_threads, batch_tokens=rows, form="batched")

    def _gold_counts(self, corpus):
        return self._counts

    def _make_bounds(self):
        return None  # a form makes them of each weights

    def work_arrays(self):
        """What elimination writes on its way, of one thread, after a first call."""
        _, spare = self._made["batched"]
        return spare.items[0][0].chains

    @property
    def stats(self):
        """int64 (4,): sequences, those that did not converge, sweeps, messages, in the last evaluation."""
        form, _ = self._made["batched"]
        return form.stats.sum(axis=0)

    def without_labelling(self):
        """Numbers of the sequences all of whose labellings are forbidden. Cost: an evaluation."""
        self._sums(np.zeros(self.features.n_features), "counts")
        return self._packing.sequence[~np.isfinite(self._log_z)]


class DynamicObjective:
    """Penalised negative log-likelihood of labels, and its gradient; call it with weights.

        value(w) = sum_i weight_i (log Z_i - log Z_i(known labels)) + c2 |w|^2        in nats

    log Z(known) is the score of the labels where all are known; where some are not, it sums over them
    (marginal likelihood), and the objective is no longer convex.

    Parameters
    ----------
    corpus : Corpus; its labels and transitions are not looked at. labels int32 (N, m), -1: unknown.
    layout, features : of `lay_out_template` and `dynamic_features`.
    c2, n_threads : as `Objective`.
    engine : a name of `engines.FORMS`, or "exact": elimination where it can. limit : cells of the largest
    clique of a junction tree. options : of `check_options`, for approximations.

    Of an approximation, log Z is Bethe's (mean field: a lower bound), and the gradient is the value's where
    messages have converged: `stats` says how many have not.

    Raises ValueError, naming the sequence, where the constraints leave its labels no probability, and for a
    template that is too wide (its cost, and what else there is).
    """

    def __init__(
        self, corpus: Corpus, labels: ArrayLike, layout: Layout, features: FeatureSet, *, c2: float = 0.0,
        n_threads: int = 1, engine: str = "exact", limit: int = LIMIT,
        options: Options = OPTIONS,
    ) -> None:  # fmt: skip
        self.c2, self.features = number("c2", c2), features
        engine = check_engine(layout, corpus, engine, limit)
        corpus = plain(corpus)
        check_known(layout, corpus, labels)
        partial = np.unique(corpus.sequence[(labels < 0).any(axis=1)])
        whole = np.setdiff1d(np.arange(corpus.n_sequences), partial)
        counts = np.zeros(features.n_features)
        if len(whole):
            tokens = np.isin(corpus.sequence, whole)
            counts = gold_counts(layout, take_sequences(corpus, whole), features, labels[tokens])
        more = n_threads, limit, engine, options
        none = np.zeros((0, layout.n_cells), bool)
        self.free, self.known = LatticeObjective(corpus, features, layout, counts, none, *more), None
        if len(partial):
            tokens = np.isin(corpus.sequence, partial)
            which, sets = known_sets(layout, labels[tokens])
            part = take_sequences(corpus, partial)._replace(label_set=which)
            self.known = LatticeObjective(part, features, layout, np.zeros(len(counts)), sets, *more)
        if self.known is not None and len(bad := self.known.without_labelling()):
            raise ValueError(
                f"sequence {partial[bad.min()]}: the constraints forbid every labelling with its known labels"
            )

    @property
    def stats(self) -> np.ndarray:
        """int64 (4,): sequences, those that did not converge, sweeps and messages of all, in the last
        evaluation of an approximation.
        """
        return self.free.stats + (0 if self.known is None else self.known.stats)

    @property
    def unconverged(self) -> tuple[int, int]:
        """(sequences, how many of them did not converge). Where some labels are unknown, messages are sent
        twice, with labels known and with none: the larger number.
        """
        passes = [part.stats[:2].tolist() for part in (self.free, self.known) if part is not None]
        return passes[0][0], max(failed for _, failed in passes)

    @property
    def is_convex(self) -> bool:
        """Whether all labels are known."""
        return self.known is None

    def __call__(self, w: ArrayLike) -> tuple[float, np.ndarray]:
        """(value, grad (F,)) at the weights w (F,); value in nats, grad a new array."""
        w = check_weights(w, self.features.n_features)
        value, grad = self.free(w)
        if self.known is not None:
            less, slope = self.known(w)
            value, grad = value - less, grad - slope
        return value + l2_penalty(self.c2, w), grad + 2.0 * self.c2 * w


def plain(corpus):
    """The corpus with one class of transitions, and one label: a template has its own."""
    n = corpus.n_tokens
    return corpus._replace(
        edge_class=np.zeros(n, np.int32), class_ptr=np.array([0, 1]), class_attr=np.zeros(1, np.int32),
        labels=np.zeros(n, np.int32), label_set=np.zeros(0, np.int32),
    )  # fmt: skip


def check_known(layout, corpus, labels):
    """ValueError naming the first token whose known labels a rule, or a constraint, forbids."""
    position, length = corpus.position, np.repeat(corpus.lengths, corpus.lengths)
    for limits, ends, where in (
        (layout.start, position == 0, "first"),
        (layout.end, position == length - 1, "last"),
    ):
        for chain, name in enumerate(layout.chains):
            known = np.where(labels[:, chain] < 0, 0, labels[:, chain])
            bad = ends & (labels[:, chain] >= 0) & ~limits[layout.first[chain] + known]
            if bad.any():
                raise ValueError(
                    f"{corpus.place(int(np.argmax(bad)))}: the constraints forbid its label of {name!r} at "
                    f"the {where} token"
                )
    for table in layout.tables:
        if table.allowed is not None:
            tokens, cells = instances(table, corpus, labels)
            bad = tokens[~table.allowed.reshape(-1)[cells]]
            if len(bad):
                raise ValueError(
                    f"{corpus.place(int(bad.min()))}: the constraints forbid its labels of {table.name}"
                )
