"""What forms cost: random models timed in each form, and fits of chain/sparse/seconds.json."""

import json
from functools import partial
from typing import NamedTuple

import numpy as np

from crfbook import Objective
from crfbook.chain.inference import decode
from crfbook.chain.sparse.choice import DECODING, SECONDS, FormChooser, Sizes, choose_form, terms

from .harness import race
from .work import random_chains, random_tagger

FORM_SETS = {"training": ("batched", "sparse"), "decoding": ("dense decoding", "sparse decoding")}
TRAINING = "batched", "default"  # of taggers, whose pairs are few


class Case(NamedTuple):
    """A random case: its `Sizes` for training and for decoding, and the time of each form."""

    training: Sizes
    decoding: Sizes
    took: dict  # {form: CPU seconds}

    def terms(self, form):
        """Terms of the cost of a form."""
        return terms(form, self.decoding if "decoding" in form else self.training)


def case_sizes(corpus, features, w):
    """`Sizes` for training and for decoding; kernels have them for a tiny case too."""
    training, decoding = (FormChooser(features, corpus, "auto", n, kernels=True) for n in (None, 1))
    return training.sizes(w), decoding.sizes(w)


def runs_of(forms, corpus, features, w):
    """{form: callable}: a value and gradient at w, or, by the form's name, decoding."""
    return {
        form: partial(decode, corpus, features, w, form=form.partition(" ")[0]) if "decoding" in form
        else partial(Objective(corpus, features, form=form), w) for form in forms
    }  # fmt: skip


def time_cases(draw, runs, n_cases, seed, repeats):
    """A list of `Case`s: models (corpus, features, w) of draw(rng), timed in the forms of runs(*model).

    Of each form the least CPU seconds count: what others on the machine add is left out.
    """
    rng, found = np.random.default_rng(seed), []
    for _ in range(n_cases):
        model = draw(rng)
        took = race(runs(*model), repeats)
        found.append(Case(*case_sizes(*model), {form: float(min(one.cpu)) for form, one in took.items()}))
    return found


def time_forms(n_cases, seed, **sizes):
    """`Case`s of `random_chains`, whose arguments are `sizes`."""
    runs = partial(runs_of, sum(FORM_SETS.values(), ()))
    return time_cases(partial(random_chains, **sizes), runs, n_cases, seed, 4)


def time_decoders(n_cases, seed, repeats=3, largest=2500):
    """`Case`s of random taggers, decoded."""
    draw = partial(random_tagger, largest=largest)
    return time_cases(draw, partial(runs_of, DECODING), n_cases, seed, repeats)


def time_training(n_cases, seed, repeats=3, largest=2500):
    """`Case`s of random taggers, a value and gradient; scores are a third of those of decoding."""

    def runs(corpus, features, w):
        return runs_of(TRAINING, corpus, features, 0.3 * w)

    return time_cases(partial(random_tagger, largest=largest), runs, n_cases, seed, repeats)


def fit_default(cases, form=DECODING[2]):
    """Coefficients >= 0 of a form in chain/sparse/seconds.json: least squares of relative errors."""
    from scipy.optimize import nnls

    rows = np.array([case.terms(form) for case in cases])
    scale, took = rows.max(axis=0), np.array([case.took[form] for case in cases])
    return nnls(rows / scale / took[:, None], np.ones(len(took)))[0] / scale


def print_fit(fitted):
    """Print {form: coefficients} as chain/sparse/seconds.json has them, by the names of the counts."""
    named = {
        form: {count: float(f"{value:.3g}") for count, value in zip(SECONDS[form], values, strict=True)}
        for form, values in fitted.items()
    }
    print(json.dumps(named, indent=2))


def fit_forms(cases):
    """{form: coefficients}: what predicts best how the two forms of a case compare.

    Both forms of a case are slowed down alike by whatever else the machine does, so their ratio is what can
    be measured. Minimised is the squared error of its logarithm, cases near the break-even weighing most,
    and, with little weight, that of the times themselves.
    """
    out = {}
    for forms in FORM_SETS.values():
        rows = [np.array([case.terms(form) for case in cases]) for form in forms]
        log_took = np.log([[case.took[form] for form in forms] for case in cases]).T
        out |= dict(zip(forms, _fit_pair(rows, log_took), strict=True))
    return out


def _fit_pair(rows, log_took):
    """Coefficients > 0 of two forms, for rows (cases, terms) and log seconds (cases,) of each."""
    from scipy.optimize import least_squares, nnls  # 15 MB, which would count in studies of memory

    size = [np.where(x.max(axis=0) > 0, x.max(axis=0), 1.0) for x in rows]
    scaled = [x / s for x, s in zip(rows, size, strict=True)]
    start = [nnls(x / np.exp(y)[:, None], np.ones(len(y)))[0] for x, y in zip(scaled, log_took, strict=True)]
    start = np.concatenate([np.log(np.maximum(c, 1e-4 * c.max())) for c in start])
    n, ratio = scaled[0].shape[1], log_took[1] - log_took[0]
    weight = 1.0 / np.sqrt(0.15 + np.abs(ratio))

    def residuals(log_c):
        low, high = (np.log(x @ np.exp(c)) for x, c in zip(scaled, (log_c[:n], log_c[n:]), strict=True))
        times = 0.2 * (low - log_took[0]), 0.2 * (high - log_took[1])
        return np.concatenate([weight * (high - low - ratio), *times, 0.01 * (log_c - start)])

    found = np.exp(least_squares(residuals, start, loss="soft_l1", f_scale=0.3, max_nfev=200).x)
    return found[:n] / size[0], found[n:] / size[1]


def held_out(first, second):
    """Rows for "training" and "decoding": how often the faster form is chosen, how often timings disagree.

    first, second: the same cases, timed twice. Per cent of the cases: the faster form (by the lesser of both
    timings) is chosen; a form within 5 and 10 per cent of it; a form that is the faster in one of the
    timings; the timings disagree which it is. Last the time that is lost against always taking the faster.
    """
    rows = []
    for kind, forms in FORM_SETS.items():
        chosen = np.array([forms.index(choose_form(getattr(case, kind), forms)) for case in first])
        both = np.array([[[one.took[form] for form in forms] for one in some] for some in (first, second)])
        fastest, least = both.argmin(axis=2), both.min(axis=0)
        ratio = least[np.arange(len(first)), chosen] / least.min(axis=1)
        shares = {
            "faster form": ratio <= 1.0, "within 5 %": ratio <= 1.05, "within 10 %": ratio <= 1.1,
            "faster in one timing": (fastest == chosen).any(axis=0),
            "timings disagree": fastest[0] != fastest[1], "time lost": ratio - 1.0,
        }  # fmt: skip
        shares = {name: f"{100 * np.mean(share):.1f}" for name, share in shares.items()}
        rows.append({"forms for": kind, "cases": len(first), **shares})
    return rows
