"""Sparse against dense on NetTalk: forward-backward as edge weights are added, L1 training with edge attributes, tagging."""

import time

import numpy as np

from . import Row, race

LETTERS = "*0:%x[0,0]\n"
PSEUDO_3_GRAMS = "".join(f"*{i}:%x[{row},0]\n" for i, row in enumerate((-1, 0, 1)))  # 161 tests: letters and `_B-1`, `_B+1`
N_GRAMS = "*0:%x[0,0]\n*3:%x[-1,0]/%x[0,0]/%x[1,0]\n*5:%x[-2,0]/%x[-1,0]/%x[0,0]/%x[1,0]/%x[2,0]\n"
EDGE_WEIGHTS = (500, 1000, 2000, 3600, 5000, 7000, 10_000, 20_000, 40_000, 67_626)


def nettalk(template, **which):
    """(dataset, encoder, training corpus, features) of letters to phonemes; `which`: arguments of `observed`."""
    from ..data.datasets import load_dataset
    from ..data.encoder import Encoder
    from ..data.features import observed
    from ..data.templates import Template

    data = load_dataset("nettalk", "phonemes", verbose=False)
    encoder = Encoder(template=Template.parse(template))
    corpus = encoder.fit_transform(data.train)
    return data, encoder, corpus, observed(corpus, encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs, **which)


def random_support(features, n_edge, seed=0):
    """(FeatureSet, w): all node weights and n_edge edge weights of the attributes b > 0, random ones of random size."""
    from ..data.features import select

    rng = np.random.default_rng(seed)
    w, first = rng.normal(scale=0.3, size=features.n_features), features.n_node + int(features.edge_ptr[1])
    keep = np.arange(features.n_features) < features.n_node
    keep[first + rng.permutation(features.n_features - first)[:n_edge]] = True
    return select(features, keep), w[keep]


def sparse(repeats=5):
    """Objective and gradient with 500 to 67,626 edge weights in 26 blocks, sparse against batched dense; NetTalk letters, one thread."""
    from ..optim.objective import Objective
    from .tasks import _threads_one

    _, _, corpus, features = nettalk(LETTERS, all_states=True, all_transitions=True)
    rows, times, products = [], [], []
    with _threads_one():
        for n_edge in EDGE_WEIGHTS:
            part, w = random_support(features, n_edge)
            forms = {form: Objective(corpus, part, form=form) for form in ("batched", "sparse")}
            took = race({form: lambda fun=fun, w=w: fun(w) for form, fun in forms.items()}, repeats)
            products.append(int(forms["sparse"].n_products[0]))
            times.append(took["sparse"].median_cpu)
            rows.append(Row(f"{part.n_edge:,} edge weights", times[-1], took["batched"].median_cpu, "CPU s",
                            1 / 3 if n_edge == EDGE_WEIGHTS[0] else None, None, f"{products[-1]:,} products with them, forward"))
    listed = np.array([n > 0 for n in products])
    x, y = np.array(products)[listed], np.array(times)[listed]
    slope, start = np.polyfit(x, y, 1)
    off = np.abs(start + slope * x - y).max() / y.max()
    even = next((row.work for row in rows if row.ratio >= 1), "never")
    rows[-1] = rows[-1]._replace(note=f"seconds = {start:.3g} + {slope:.3g} a product, off by at most {off:.1%}; slower from {even} on; "
                                      "classes with more than a quarter of all pairs are tables")
    return rows


def sparse_owlqn(repeats=1, max_iterations=40):
    """OWL-QN on pseudo 3-grams, c1 = 1, against Wapiti's: seconds an evaluation (its published 3.1) and its objective (42,051)."""
    from ..optim.objective import Objective
    from ..optim.quasi_newton import minimize
    from .tasks import _threads_one

    _, _, corpus, features = nettalk(PSEUDO_3_GRAMS, all_states=True, all_transitions=True)
    with _threads_one():
        objective = Objective(corpus, features)
        objective(np.zeros(features.n_features)), objective.curvature(np.zeros(features.n_features))  # machine code
        start = time.process_time()
        found = minimize(objective, np.zeros(features.n_features), c1=1.0, max_iterations=max_iterations)
        each = (time.process_time() - start) / found.n_evaluations
    what = f"{corpus.n_classes:,} classes, {features.n_features:,} weights, {np.count_nonzero(found.w):,} active after {found.n_iter} iterations"
    return [Row("OWL-QN, pseudo 3-grams: an evaluation", each, 3.1, "CPU s", 1.5 / 3.1, None, what),
            Row("the same: objective", found.objective, 42_051, "nats", 41_900 / 42_051, None, f"{found.n_evaluations} evaluations")]


def sparse_tagging(repeats=5):
    """Words to phonemes with letter, trigram and pentagram attributes and some 100,000 active weights, sparse against dense."""
    from ..models.inference import decode
    from ..models.sparse import sparsify
    from ..optim.objective import Objective
    from ..optim.quasi_newton import minimize
    from .tasks import _threads_one

    data, encoder, corpus, features = nettalk(N_GRAMS)
    labels = {}

    def tag(form):
        words = encoder.transform(data.test, on_unknown_label="mark")
        labels[form] = decode(words, *model, form=form)
        labels["gold"] = words.labels
    with _threads_one():
        found = minimize(Objective(corpus, features), np.zeros(features.n_features), c1=0.1, l1_method="owlqn", max_iterations=25)
        model = sparsify(features, found.w)
        took = race({form: lambda form=form: tag(form) for form in ("dense", "sparse")}, repeats)
    same = np.array_equal(labels["dense"], labels["sparse"])
    error = 100 * np.mean(labels["sparse"] != labels["gold"])
    return [Row("tagging, strings to phonemes", took["sparse"].median_cpu, took["dense"].median_cpu, "CPU s", 0.5, None,
                f"{corpus.n_classes:,} edge classes in training, {len(model[1]):,} active weights, {error:.2f} % errors; "
                f"{'the same labels' if same else 'OTHER LABELS'}")]
