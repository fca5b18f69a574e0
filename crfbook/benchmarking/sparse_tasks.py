"""Sparse against dense on NetTalk: forward-backward as edge weights are added,
L1 training with edge attributes, tagging.
"""

import time

import numpy as np

from . import Row, race

LETTERS = "*0:%x[0,0]\n"
PSEUDO_3_GRAMS = "".join(
    f"*{i}:%x[{row},0]\n" for i, row in enumerate((-1, 0, 1))
)  # 161 tests: letters and `_B-1`, `_B+1`
N_GRAMS = "*0:%x[0,0]\n*3:%x[-1,0]/%x[0,0]/%x[1,0]\n*5:%x[-2,0]/%x[-1,0]/%x[0,0]/%x[1,0]/%x[2,0]\n"


def nettalk(template, **which):
    """(dataset, encoder, training corpus, features) of letters to phonemes; `which`:
    arguments of `observed`.
    """
    from ..data.datasets import load_dataset
    from ..data.encoder import Encoder
    from ..data.features import observed
    from ..data.templates import Template

    data = load_dataset("nettalk", "phonemes", verbose=False)
    encoder = Encoder(template=Template.parse(template))
    corpus = encoder.fit_transform(data.train)
    return (
        data,
        encoder,
        corpus,
        observed(corpus, encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs, **which),
    )


def sparse(repeats=5):
    """Forward-backward with 500 to 67,626 edge weights in 26 blocks: sparse against dense,
    batched and one by one; NetTalk letters.
    """
    from .sparse_forms import EDGE_WEIGHTS, FORMS, affine_fit, break_even, form_row, steady
    from .tasks import _threads_one

    _, _, corpus, features = nettalk(LETTERS, all_states=True, all_transitions=True)
    with _threads_one():
        table = [form_row(corpus, features, n_edge, repeats) for n_edge in EDGE_WEIGHTS]
    column = {name: np.array([float(row[name]) for row in table]) for name in table[0] if name != "chosen"}
    n_edge, products, lists = column["edge weights"], column["products"], column[FORMS[3]]
    rows = []
    for dense, what in zip(FORMS[:2], ("one by one", "batched BLAS"), strict=True):
        rows.append(
            Row(
                f"{EDGE_WEIGHTS[0]} edge weights: sparse / dense {what}",
                column["sparse"][0],
                column[dense][0],
                "CPU s",
                1 / 3,
                None,
                "forward-backward and expected counts alone, one thread",
            )
        )
    rows.append(
        Row(
            "products with stored pairs / their number",
            np.maximum(products / column["stored pairs"], column["stored pairs"] / products).max(),
            1.0,
            "times nnz",
            1.0,
            None,
            f"counted at {len(table)} supports",
        )
    )
    constant, slope, fit = affine_fit(products, steady(lists, column[FORMS[0]]))
    short = n_edge <= 10_000
    rows.append(
        Row(
            "time affine in nnz, lists only: 1 - R^2",
            1.0 - fit,
            1.0,
            "share",
            0.05,
            None,
            f"seconds = {constant:.3f} + {1e9 * slope:.2f}e-9 a product, {products[0]:,.0f} to {products[-1]:,.0f} products; up to "
            f"10,000 weights R^2 = {affine_fit(products[short], steady(lists, column[FORMS[0]])[short])[2]:.3f}; rows scaled to equal times of dense one by one",
        )
    )
    for dense in FORMS[:2]:
        even = break_even(n_edge, lists / column[dense])
        rows.append(
            Row(
                f"lists break even with dense {dense}",
                even,
                n_edge[-1],
                "weights",
                None,
                None,
                f"{np.interp(even, n_edge, products) / corpus.n_tokens / features.n_labels**2:.0%} of all pairs of a token",
            )
        )
    for row in table:
        rows.append(
            Row(
                f"{row['edge weights']:,} edge weights: sparse / batched",
                float(row["sparse"]),
                float(row["batched"]),
                "CPU s",
                None,
                None,
                f"one by one {row[FORMS[0]]}, lists only {row[FORMS[3]]}; whole evaluation: sparse {row['evaluation, sparse']}, "
                f"batched {row['evaluation, batched']}, {row['chosen']} chosen",
            )
        )
    return rows


def sparse_choice(repeats=1):
    """How often the cost model chooses the slower form, on 80 random models that it was not fitted to;
    ten minutes.
    """
    from .form_costs import held_out, new_cases

    rows = []
    for row in held_out(new_cases(), new_cases()):
        kind, cases = row.pop("forms for"), row.pop("cases")
        note = ", ".join(f"{name} {value} %" for name, value in row.items())
        rows.append(
            Row(
                f"{kind}: the slower form is chosen",
                (100 - float(row["faster form"])) / 100,
                1.0,
                "share",
                0.05,
                None,
                f"{cases} cases: {note}",
            )
        )
    return rows


def sparse_owlqn(repeats=1, max_iterations=40):
    """Pseudo 3-grams, c1 = 1, OWL-QN and our default (proximal steps) against Wapiti's OWL-QN:
    its published 3.1 s an evaluation, 42,051.
    """
    from ..optim.objective import Objective
    from ..optim.quasi_newton import minimize
    from .tasks import _threads_one

    _, _, corpus, features = nettalk(PSEUDO_3_GRAMS, all_states=True, all_transitions=True)
    zero, rows = np.zeros(features.n_features), []
    with _threads_one():
        objective = Objective(corpus, features)
        objective(zero), objective.curvature(zero)  # machine code
        for method, what in (("owlqn", "OWL-QN"), ("proximal", "proximal quasi-Newton")):
            start = time.process_time()
            found = minimize(objective, zero, c1=1.0, l1_method=method, max_iterations=max_iterations)
            each = (time.process_time() - start) / found.n_evaluations
            sizes = f"{corpus.n_classes:,} classes, {features.n_features:,} weights, {np.count_nonzero(found.w):,} active after {found.n_iter} iterations"
            rows += [
                Row(f"{what}, pseudo 3-grams: an evaluation", each, 3.1, "CPU s", 1.5 / 3.1, None, sizes),
                Row(
                    "the same: objective",
                    found.objective,
                    42_051,
                    "nats",
                    41_900 / 42_051,
                    None,
                    f"{found.objective:,.0f} after {found.n_evaluations} evaluations",
                ),
            ]
    return rows


def sparse_tagging(repeats=5):
    """Words to phonemes with letter, trigram and pentagram attributes and some 100,000 active weights,
    sparse against dense.
    """
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
        found = minimize(
            Objective(corpus, features),
            np.zeros(features.n_features),
            c1=0.1,
            l1_method="owlqn",
            max_iterations=25,
        )
        model = sparsify(features, found.w)
        took = race({form: lambda form=form: tag(form) for form in ("dense", "sparse")}, repeats)
    same = np.array_equal(labels["dense"], labels["sparse"])
    error = 100 * np.mean(labels["sparse"] != labels["gold"])
    return [
        Row(
            "tagging, strings to phonemes",
            took["sparse"].median_cpu,
            took["dense"].median_cpu,
            "CPU s",
            0.5,
            None,
            f"{corpus.n_classes:,} edge classes in training, {len(model[1]):,} active weights, {error:.2f} % errors; "
            f"{'the same labels' if same else 'OTHER LABELS'}",
        )
    ]
