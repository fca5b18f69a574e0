"""Chapter 06: what sparsity saves in training, beside Figure 5: trained models in place of random supports.

Sokolovska, Lavergne, Cappe and Yvon (2010) say of their Table 2 that a sweep of coordinate descent costs less
where fewer weights are active, since the recursions do. Here a sweep, and an evaluation of objective and
gradient as a batch method needs it, are timed at models of NetTalk's letters down a path of c1, in parts.
"""

from collections import Counter
from functools import partial

import numpy as np

from crfbook.chain.objective import Objective
from crfbook.learners.coordinate.arrays import scatter
from crfbook.learners.coordinate.descent import prepare

from .c06 import FORMS, ChainForms
from .c08 import set_up, walk
from .harness import race, study, timed
from .work import LETTERS_C2, dataset

PATH = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.0)  # of c1
SWEEPS = 4  # at each
PARTS = {"extend": "sweep, recursion", "gradient": "sweep, gradient"}


def sweep_parts(setup, c1, model, repeats):
    """{column: CPU seconds} of a sweep at a model: in all, in the recursions, in the derivatives."""
    learner = prepare(setup.corpus, w0=model, c1=c1, tol=0.0, **setup.options)
    learner.begin()
    sweeper, spent = learner.sweeper, Counter()
    sweeper.compiled, visit = False, sweeper._by_parts  # a visit in parts: these can be timed
    type(visit).n_by_parts = 0  # however many of them this process has made before
    for method, name in PARTS.items():
        setattr(visit, method, partial(_clocked, spent, name, getattr(visit, method)))
    sweeper.sweep()
    spent.clear()
    for _ in range(repeats):
        spent["sweep"] += timed(sweeper.sweep)[1]
    return {name: spent[name] / repeats for name in ("sweep", *PARTS.values())}


def _clocked(spent, name, run, *arguments):
    found, seconds = timed(run, *arguments)
    spent[name] += seconds
    return found


def training_row(setup, c1, model, repeats):
    """The row of a trained model: CPU seconds of a sweep, of evaluations, of the recursions alone."""
    chains, w = ChainForms(setup.corpus, *model), scatter(model, setup.everything)
    runs = {f"recursion, {form}": partial(chains.run, form) for form in FORMS[:3]}
    for form in ("batched", "sparse"):
        fun = Objective(setup.corpus, setup.everything, c2=LETTERS_C2, form=form)
        runs[f"evaluation, {form}"] = partial(fun, w)
    took = {name: timing.median_cpu for name, timing in race(runs, repeats).items()}
    took = sweep_parts(setup, c1, model, repeats) | took
    n_mu, n = (int(np.count_nonzero(part)) for part in (model.w[: model.features.n_node], model.w))
    sizes = {"c1": f"{c1:g}", "mu": n_mu, "lambda": n - n_mu}
    return sizes | {name: f"{seconds:.4f}" for name, seconds in took.items()}


def training_rows(repeats, n_words):
    setup = set_up("letter_tests", n_words)
    models = walk(setup, PATH, SWEEPS, lambda *_: None)[1]
    return [training_row(setup, c1, model, repeats) for c1, model in models.items()]


@study("06_training_speed.csv", frozen=("sbcd", "path, sbcd", "objective, batched", "objective, sparse"))
def training_speed(n_repeats=3, n_words=None):
    """A sweep and a gradient of trained models, few to all weights active, in parts; some minutes."""
    jobs = [({"data": "NetTalk"}, partial(training_rows, n_repeats, n_words))]
    yield "06_training_speed.csv", jobs, [dataset("nettalk")]
