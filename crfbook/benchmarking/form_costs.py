"""What the forms of forward-backward and Viterbi cost: measured on random chains, fitted,
and tried on chains held out.

The coefficients in optim/cost_model.py come from here:

    python -m crfbook.benchmarking.form_costs fit        # prints them (some minutes)
    python -m crfbook.benchmarking.form_costs check      # how often they choose the faster form
"""

import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data.corpus import make_corpus
from ..data.features import FeatureSet
from ..optim.cost_model import DECODING_FORMS, FORMS, FormChooser, Sizes, choose_form, terms

CELLS = (
    6_000_000  # tables of all classes are at most this large in a case, so that the batched form has a chance
)
LARGE = {"smallest": 20_000, "largest": 150_000}  # arguments of `random_case`
FORM_SETS = {"training": ("batched", "sparse"), "decoding": ("dense decoding", "sparse decoding")}


def random_case(rng, smallest=2000, largest=40_000):
    """(corpus, features, w): random chains, one edge attribute a class beside plain transitions (in half of
    the cases).

    L 10 to 120, 1 to 2,000 classes, `smallest` to `largest` tokens, 0.5 to 60 per cent of the pairs with a
    weight; in a third of the cases all pairs exist as features, as in L1 training,
    and the others have weight 0.
    """
    n_labels = int(np.exp(rng.uniform(np.log(10), np.log(120))))
    n_classes = int(min(np.exp(rng.uniform(0, np.log(2000))), max(1, CELLS // n_labels**2)))
    n_tokens = int(np.exp(rng.uniform(np.log(smallest), np.log(largest))))
    length = rng.integers(1, 2 * int(rng.integers(4, 25)), n_tokens)
    seq_ptr = np.concatenate([[0], np.cumsum(length)[np.cumsum(length) < n_tokens], [n_tokens]])
    share = 1.0 / np.arange(1, n_classes + 1) ** rng.uniform(0.0, 1.0)
    corpus = make_corpus(
        seq_ptr,
        np.arange(n_tokens + 1),
        np.zeros(n_tokens, int),
        labels=rng.integers(0, n_labels, n_tokens),
        edge_class=rng.choice(n_classes, n_tokens, p=share / share.sum()),
        class_ptr=2 * np.arange(n_classes + 1),
        class_attr=np.stack([np.zeros(n_classes, int), np.arange(1, n_classes + 1)], axis=1).ravel(),
    )
    dense, based, every = (
        np.exp(rng.uniform(np.log(0.005), np.log(0.6))),
        rng.random() < 0.5,
        rng.random() < 1 / 3,
    )
    pairs = [np.arange(n_labels**2 if based else 0)]
    stored = [rng.random(n_labels**2) < dense for _ in range(n_classes)]
    pairs += [np.arange(n_labels**2) if every else np.flatnonzero(active) for active in stored]
    pair = np.concatenate(pairs).astype(np.int32)
    features = FeatureSet(
        n_labels,
        1,
        n_classes + 1,
        np.array([0, n_labels]),
        np.arange(n_labels, dtype=np.int32),
        np.concatenate([[0], np.cumsum([len(p) for p in pairs])]),
        pair // n_labels,
        pair % n_labels,
    )
    w = rng.normal(size=features.n_features)
    if every:
        w[n_labels + len(pairs[0]) :] *= np.concatenate(stored)
    return corpus, features, w


def _least_seconds(runs, repeats=4):
    """Least CPU seconds of each callable of a dict, in turn, after a warm-up each:
    what others on the machine add is left out.
    """
    took = {name: [] for name in runs}
    for i in range(repeats + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if i:
                took[name].append(time.process_time() - start)
    return {name: float(min(samples)) for name, samples in took.items()}


class Case(NamedTuple):
    """A random case: its `Sizes` for training and for decoding, and the time of each form."""

    training: Sizes
    decoding: Sizes
    took: dict  # {form: CPU seconds}


def measure(n_cases, seed, **sizes):
    """A list of `Case`s; `sizes`: arguments of `random_case`."""
    from ..models.inference import decode
    from ..optim.objective import Objective
    from .tasks import _threads_one

    rng, found = np.random.default_rng(seed), []
    with _threads_one():
        for _ in range(n_cases):
            corpus, features, w = random_case(rng, **sizes)
            runs = {form: partial(Objective(corpus, features, form=form), w) for form in FORMS[1:]}
            runs |= {
                f"{form} decoding": partial(decode, corpus, features, w, form=form)
                for form in DECODING_FORMS[1:]
            }
            counts = [FormChooser(features, corpus, "auto", n).sizes(w) for n in (None, 1)]
            found.append(Case(*counts, _least_seconds(runs)))
    return found


def fit(cases):
    """{form: coefficients}: what predicts best how the two forms of a case compare.

    Both forms of a case are slowed down alike by whatever else the machine does, so their ratio is what can
    be measured. Minimised is the squared error of its logarithm, cases near the break-even weighing most,
    and, with little weight, that of the times themselves.
    """
    out = {}
    for kind, forms in FORM_SETS.items():
        rows = [np.array([terms(form, getattr(case, kind)) for case in cases]) for form in forms]
        log_took = np.log([[case.took[form] for form in forms] for case in cases]).T
        out |= dict(zip(forms, _fit_pair(rows, log_took), strict=True))
    return out


def _fit_pair(rows, log_took):
    """Coefficients > 0 of two forms, for rows (cases, terms) and log seconds (cases,) of each."""
    from scipy.optimize import least_squares, nnls

    size = [np.where(x.max(axis=0) > 0, x.max(axis=0), 1.0) for x in rows]
    scaled = [x / s for x, s in zip(rows, size, strict=True)]
    start = [nnls(x / np.exp(y)[:, None], np.ones(len(y)))[0] for x, y in zip(scaled, log_took, strict=True)]
    start = np.concatenate([np.log(np.maximum(c, 1e-4 * c.max())) for c in start])
    n, ratio = scaled[0].shape[1], log_took[1] - log_took[0]
    weight = 1.0 / np.sqrt(0.15 + np.abs(ratio))

    def residuals(log_c):
        low, high = (np.log(x @ np.exp(c)) for x, c in zip(scaled, (log_c[:n], log_c[n:]), strict=True))
        return np.concatenate(
            [
                weight * (high - low - ratio),
                0.2 * (low - log_took[0]),
                0.2 * (high - log_took[1]),
                0.01 * (log_c - start),
            ]
        )

    found = np.exp(least_squares(residuals, start, loss="soft_l1", f_scale=0.3, max_nfev=200).x)
    return found[:n] / size[0], found[n:] / size[1]


def held_out(first, second):
    """Rows for "training" and "decoding": how often the faster form is chosen,
    beside how often two timings disagree which it is.

    first, second: the same cases, timed twice. Per cent of the cases: the faster form (by the lesser of both
    timings) is chosen; a form within 5 and 10 per cent of it; a form that is the faster in one of the
    timings; the timings disagree. Last the time that is lost against always taking the faster form.
    """
    rows = []
    for kind, forms in FORM_SETS.items():
        chosen = np.array([forms.index(choose_form(getattr(case, kind), forms)) for case in first])
        both = np.array(
            [[[case.took[form] for form in forms] for case in cases] for cases in (first, second)]
        )
        fastest, least = both.argmin(axis=2), both.min(axis=0)
        ratio = least[np.arange(len(first)), chosen] / least.min(axis=1)
        shares = {
            "faster form": ratio <= 1.0,
            "within 5 %": ratio <= 1.05,
            "within 10 %": ratio <= 1.1,
            "faster in one timing": (fastest == chosen).any(axis=0),
            "timings disagree": fastest[0] != fastest[1],
            "time lost": ratio - 1.0,
        }
        rows.append(
            {"forms for": kind, "cases": len(first)}
            | {name: f"{100 * np.mean(share):.1f}" for name, share in shares.items()}
        )
    return rows


def new_cases():
    """Cases that the coefficients in optim/cost_model.py were not fitted to, most of them small."""
    return measure(60, seed=2) + measure(20, seed=4, **LARGE)


def fill_form_costs(folder):
    """06_form_costs.csv in `folder`: the choice tried on new cases, timed twice; ten minutes.
    Returns the path.
    """
    from .records import write_record

    start = time.perf_counter()
    rows = held_out(new_cases(), new_cases())
    return write_record(Path(folder) / "06_form_costs.csv", rows, seconds=time.perf_counter() - start)


if __name__ == "__main__":
    if sys.argv[1:] == ["fit"]:
        for key, values in fit(
            measure(160, seed=0) + measure(80, seed=1) + measure(60, seed=3, **LARGE)
        ).items():
            print(f'    "{key}": ({", ".join(f"{v:.3g}" for v in values)}),')
    else:
        for row in held_out(new_cases(), new_cases()):
            print(", ".join(f"{name} {value}" for name, value in row.items()))
