"""What the forms of forward-backward and Viterbi cost: measured on random chains, fitted, and tried on chains held out.

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

CELLS = 6_000_000  # tables of all classes are at most this large in a case, so that the batched form has a chance
FORM_SETS = {"training": ("batched", "sparse"), "decoding": ("dense decoding", "sparse decoding")}


def random_case(rng):
    """(corpus, features, w): random chains, one edge attribute a class beside plain transitions (in half of the cases).

    L 10 to 120, 1 to 2,000 classes, 2,000 to 40,000 tokens, 0.5 to 60 per cent of the pairs with a weight; in a third of the cases
    all pairs exist as features, as in L1 training, and the others have weight 0.
    """
    n_labels = int(np.exp(rng.uniform(np.log(10), np.log(120))))
    n_classes = int(min(np.exp(rng.uniform(0, np.log(2000))), max(1, CELLS // n_labels**2)))
    n_tokens = int(np.exp(rng.uniform(np.log(2000), np.log(40_000))))
    length = rng.integers(1, 2 * int(rng.integers(4, 25)), n_tokens)
    seq_ptr = np.concatenate([[0], np.cumsum(length)[np.cumsum(length) < n_tokens], [n_tokens]])
    share = 1.0 / np.arange(1, n_classes + 1) ** rng.uniform(0.0, 1.0)
    corpus = make_corpus(
        seq_ptr, np.arange(n_tokens + 1), np.zeros(n_tokens, int), labels=rng.integers(0, n_labels, n_tokens),
        edge_class=rng.choice(n_classes, n_tokens, p=share / share.sum()), class_ptr=2 * np.arange(n_classes + 1),
        class_attr=np.stack([np.zeros(n_classes, int), np.arange(1, n_classes + 1)], axis=1).ravel())
    dense, based, every = np.exp(rng.uniform(np.log(0.005), np.log(0.6))), rng.random() < 0.5, rng.random() < 1 / 3
    pairs = [np.arange(n_labels**2 if based else 0)]
    stored = [rng.random(n_labels**2) < dense for _ in range(n_classes)]
    pairs += [np.arange(n_labels**2) if every else np.flatnonzero(active) for active in stored]
    pair = np.concatenate(pairs).astype(np.int32)
    features = FeatureSet(n_labels, 1, n_classes + 1, np.array([0, n_labels]), np.arange(n_labels, dtype=np.int32),
                          np.concatenate([[0], np.cumsum([len(p) for p in pairs])]), pair // n_labels, pair % n_labels)
    w = rng.normal(size=features.n_features)
    if every:
        w[n_labels + len(pairs[0]):] *= np.concatenate(stored)
    return corpus, features, w


def _least_seconds(runs, repeats=5):
    """Two timings of each callable of a dict, {name: (CPU seconds, CPU seconds)}: the least of every other of 2 x `repeats` runs.

    The callables take turns, after a warm-up each; the least leaves out what others on the machine add. That there are two tells
    how far such a timing can be trusted.
    """
    took = {name: [] for name in runs}
    for i in range(2 * repeats + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if i:
                took[name].append(time.process_time() - start)
    return {name: (float(min(samples[::2])), float(min(samples[1::2]))) for name, samples in took.items()}


class Case(NamedTuple):
    """One random case: its `Sizes` for training and for decoding, and two timings of each form."""

    training: Sizes
    decoding: Sizes
    took: dict  # {form: (CPU seconds, CPU seconds)}


def measure(n_cases, seed):
    """A list of `Case`s."""
    from ..models.inference import decode
    from ..optim.objective import Objective
    from .tasks import _threads_one

    rng, found = np.random.default_rng(seed), []
    with _threads_one():
        for _ in range(n_cases):
            corpus, features, w = random_case(rng)
            runs = {form: partial(Objective(corpus, features, form=form), w) for form in FORMS[1:]}
            runs |= {f"{form} decoding": partial(decode, corpus, features, w, form=form) for form in DECODING_FORMS[1:]}
            sizes = [FormChooser(features, corpus, "auto", n).sizes(w) for n in (None, 1)]
            found.append(Case(*sizes, _least_seconds(runs)))
    return found


def fit(cases):
    """{form: coefficients >= 0}, by least squares on relative errors."""
    from scipy.optimize import nnls

    out = {}
    for kind, forms in FORM_SETS.items():
        for form in forms:
            took = np.array([min(case.took[form]) for case in cases])
            rows = np.array([terms(form, getattr(case, kind)) for case in cases]) / took[:, None]
            size = rows.max(axis=0)
            out[form] = nnls(rows / np.where(size > 0, size, 1.0), np.ones(len(cases)))[0] / np.where(size > 0, size, 1.0)
    return out


def held_out(cases):
    """Rows for "training" and "decoding": how often the faster form is chosen, beside how often two timings disagree which it is.

    Shares of the cases in per cent: the faster form chosen; a form within 5 and 10 per cent of it; a form that was the faster in at least
    one of the two timings; the timings disagree; and the time lost against always taking the faster form.
    """
    rows = []
    for kind, forms in FORM_SETS.items():
        chosen = [forms.index(choose_form(getattr(case, kind), forms)) for case in cases]
        both = np.array([[case.took[form] for form in forms] for case in cases])  # (cases, forms, timings)
        fastest, least = both.argmin(axis=1), both.min(axis=2)
        ratio = least[np.arange(len(cases)), chosen] / least.min(axis=1)
        shares = {"faster form": ratio <= 1.0, "within 5 %": ratio <= 1.05, "within 10 %": ratio <= 1.1,
                  "faster in one timing": (fastest == np.array(chosen)[:, None]).any(axis=1),
                  "timings disagree": fastest[:, 0] != fastest[:, 1], "time lost": ratio - 1.0}
        rows.append({"forms for": kind, "cases": len(cases)} | {name: f"{100 * np.mean(share):.1f}" for name, share in shares.items()})
    return rows


def fill_form_costs(folder, n_cases=80):
    """06_form_costs.csv in `folder`: the choice tried on cases that the coefficients were not fitted to. Returns the path."""
    from .records import write_record

    start = time.perf_counter()
    rows = held_out(measure(n_cases, seed=1))
    return write_record(Path(folder) / "06_form_costs.csv", rows, seconds=time.perf_counter() - start)


if __name__ == "__main__":
    if sys.argv[1:] == ["fit"]:
        for key, values in fit(measure(160, seed=0)).items():
            print(f'    "{key}": ({", ".join(f"{v:.3g}" for v in values)}),')
    else:
        for row in held_out(measure(80, seed=1)):
            print(", ".join(f"{name} {value}" for name, value in row.items()))
