"""Chapter 09: error against number of features, for the ways to select them: Figure 6.

The figure is that of Sokolovska, Lavergne, Cappe and Yvon (2010). L1 selects while it trains, by OWL-QN or by
blockwise coordinate descent (SBCD); the frequency cut-off and mutual information before, then an L2 penalty
trains what is left; a-posteriori thresholding takes the largest weights of the whole L2 model and trains no
more. The L2 penalty is the one that does best, with all features, on the last tenth of the training data, and
is the same in all rows that have one; the held-out parts choose nothing.
"""

from functools import cache, partial

import numpy as np

from crfbook.data.features import CUTOFFS, frequency_cutoff, heaviest, most_informative, select
from crfbook.datasets import load_dataset
from crfbook.learners.coordinate.descent import coordinate_descent

from .c04 import fit_loss
from .harness import study, timed
from .work import TASKS, dataset, descend, set_up

# at 300 iterations the whole Spanish model is 11 % above where it settles, and a point of F1 below
STOP = {"tol": 1e-4, "relative_change": (10, 1e-4), "max_iterations": 1000}
VARIANCES = (0.1, 1.0, 10.0, 100.0)  # of the Gaussian prior: c2 = 1 / (2 variance)
ROUGH = {"tol": 1e-3, "relative_change": (10, 1e-3), "max_iterations": 100}  # to choose one
SIZES = (200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)  # kept by information and by threshold
STRENGTHS = (64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 0.5, 0.25)  # c1
BLOCKWISE = STRENGTHS[
    :-2
]  # where sweeps over blocks, most of which never hold a weight, take minutes at most
FEWER = {"ner": {"SBCD": STRENGTHS[:5]}}  # 3 to 8 CPU minutes a row to c1 = 8, longer below
NAMED = ("ner", "wnut17", "conll2003")


def variance_row(task, template):
    """Scores on a tenth of the training data for each of `VARIANCES`, and the best (the first of equals).

    Each run starts at the solution before.
    """
    setup = set_up(task, template, held_out=True)
    tried, w = {}, None
    for variance in VARIANCES:
        w = fit_loss(setup, "log", variance, w, ROUGH)[0].w
        tried[variance] = setup.scores(w)["tenth"]
    best = max(tried, key=tried.get)
    return {**{f"{variance:g}": f"{score:.2f}" for variance, score in tried.items()}, "chosen": f"{best:g}"}


def train_kept(setup, keep, c2, start):
    """L2 training of the features where `keep` (F,), from their part of `start` (F,).

    Returns (w (F,), 0 elsewhere; OptResult; CPU seconds).
    """

    def fit():
        return descend(setup.corpus, select(setup.features, keep), start[keep], c2=c2, **STOP)

    result, seconds = timed(fit)
    w = np.zeros(setup.features.n_features)
    w[keep] = result.w
    return w, result, seconds


def measured(setup, w):
    """{"<part> F1", "<part> error"}: phrases, and tokens with a wrong label, per cent, on held-out parts."""
    found = {}
    for name, report in setup.reports(w).items():
        found[f"{name} F1"] = f"{100 * report.f1:.2f}"
        found[f"{name} error"] = f"{100 * (1 - report.accuracy):.3f}"
    return found


class Selections:
    """The selections on one task; `n_sentences` of its training data (None: all), c2 of the L2 penalty."""

    def __init__(self, task, c2, n_sentences=None):
        self.setup, self.c2 = set_up(task, TASKS[task].template, n_sentences), c2
        self.lasso = {}  # learner -> its last solution of an L1 penalty

    @cache  # noqa: B019 - one object a run
    def whole(self):
        """What `train_kept` finds with all features."""
        everything = np.ones(self.setup.features.n_features, bool)
        return train_kept(self.setup, everything, self.c2, np.zeros(len(everything)))

    def cutoff(self, min_count):
        """A row: features seen at least `min_count` times."""
        return self._trained(frequency_cutoff(self.setup.corpus, self.setup.features, min_count))

    def information(self, n_features):
        """A row: the features that say most of their label."""
        return self._trained(most_informative(self.setup.corpus, self.setup.features, n_features))

    def threshold(self, n_features):
        """A row: the largest weights of the whole model; its seconds are those of the whole model."""
        w, result, seconds = self.whole()
        keep = heaviest(w, n_features)
        return self._row(keep, np.where(keep, w, 0.0), result, seconds)

    def owlqn(self, c1):
        """A row: what an L1 penalty leaves, no L2 penalty beside it; from the solution of the c1 before."""
        limits = {"l1_method": "owlqn", "relative_change": (10, 1e-5), "max_iterations": 500}
        return self._sparse(descend, c1, **limits)

    def sbcd(self, c1):
        """A row: the same by coordinate descent, its slow tail taken by OWL-QN on the active weights."""
        return self._sparse(coordinate_descent, c1, accelerate=True, max_iterations=30)

    def _sparse(self, learner, c1, **options):
        start = self.lasso.get(learner, np.zeros(self.setup.features.n_features))
        fit = partial(learner, self.setup.corpus, self.setup.features, start, c1=c1, tol_gradient=0.01 * c1)
        result, seconds = timed(fit, **options)
        self.lasso[learner] = result.w
        return self._row(result.w != 0, result.w, result, seconds)

    def _trained(self, keep):
        return self._row(keep, *train_kept(self.setup, keep, self.c2, self.whole()[0]))

    def _row(self, keep, w, result, seconds):
        active = w != 0
        return {
            "features": int(keep.sum()),
            "active": int(active.sum()),
            "edges": int(active[self.setup.features.n_node :].sum()),
            **measured(self.setup, w),
            "objective": f"{result.objective:.2f}",
            "iterations": result.n_iter,
            "status": result.status,
            "seconds": f"{seconds:.1f}",
        }


def selection_jobs(task, c2, n_sentences=None):
    """Jobs for `fill`: each selection at each size below the number of features, L1 at each strength."""
    at = Selections(task, c2, n_sentences)
    sizes = [n for n in SIZES if n < at.setup.features.n_features]
    settings = {
        "cut-off": (at.cutoff, CUTOFFS),
        "mutual information": (at.information, sizes),
        "threshold": (at.threshold, sizes),
        "OWL-QN": (at.owlqn, STRENGTHS),
        "SBCD": (at.sbcd, BLOCKWISE),
    }
    fewer = FEWER.get(task, {})
    return [
        ({"selection": name, "setting": f"{value:g}"}, partial(make, value))
        for name, (make, values) in settings.items()
        for value in fewer.get(name, values)
    ]


@study("09_variance_{}.csv", "09_selection_{}.csv", of=NAMED)
def selection(task, n_sentences=None):
    """Figure 6 on names, the L2 penalty chosen before; an hour.

    n_sentences: only so many of the training data. Raises FileNotFoundError for "conll2003", which nobody may
    pass on, where the reader's own files are not in the folder conll2003 of CRFBOOK_DATA.
    """
    if task not in NAMED:
        raise ValueError(f"there is no selection task {task!r}; there are {', '.join(NAMED)}")
    if task == "conll2003":
        load_dataset(task, source="real", verbose=False)
    data, template = [dataset(task)], TASKS[task].template
    choice = [({"template": template}, partial(variance_row, task, template))]
    rows = yield f"09_variance_{task}.csv", choice, data
    c2 = 0.5 / float(rows[0]["chosen"])
    yield f"09_selection_{task}.csv", selection_jobs(task, c2, n_sentences), data
