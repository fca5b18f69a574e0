"""The three forms of forward-backward that are timed side by side compute the same;
the fits of their times are fits.
"""

import numpy as np
import pytest
from helpers.corpora import random_corpus, random_model

from crfbook.chain import inference
from crfbook.chain.objective import Objective
from crfbook.chain.sparse.choice import SECONDS, terms
from crfbook.chain.sparse.potentials import sparsify
from crfbook.evaluation import paired_test
from crfbook.learners.coordinate.visit import VisitByParts
from crfbook.learners.quasi_newton.lbfgs import minimize
from studies import c06 as study
from studies import read_record, run, work
from studies.c06 import (
    FORM_SETS,
    FORMS,
    Case,
    ChainForms,
    case_sizes,
    fit_forms,
    form_row,
    held_out,
    move_fit,
    time_forms,
)
from studies.work import random_chains

FITTED = [form for forms in FORM_SETS.values() for form in forms]  # together; c11 fits the default form


@pytest.fixture(scope="module")
def chains():
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, rng.integers(0, 9, 300), 5, 7, 6)
    features, w = random_model(rng, corpus, 5, 7, all_transitions=True)
    w[features.n_node :][rng.random(features.n_edge) < 0.7] = 0.0
    features, w = sparsify(features, w)
    return corpus, features, w, ChainForms(corpus, features, w)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_ends_with_the_same_marginals_and_counts(chains, form):
    corpus, features, w, forms = chains
    took = forms.run(form)
    assert took.cpu >= 0 and took.wall > 0
    order = forms.packing.row_token
    wanted = inference.node_marginals(corpus, features, w, form="batched")[order]
    np.testing.assert_allclose(forms.p_node[:, :5], wanted, rtol=1e-9, atol=1e-12)
    log_z = inference.log_partition(corpus, features, w, form="batched")
    np.testing.assert_allclose(forms.log_z, log_z[forms.packing.sequence], rtol=1e-10)
    fun = Objective(corpus, features, form="batched")
    expected = fun(w)[1] + fun._gold
    if form in FORMS[:2]:
        tables = [
            np.einsum(
                "kij,k->ij",
                forms.table_sum,
                [
                    b in corpus.class_attr[slice(*corpus.class_ptr[k : k + 2])]
                    for k in range(corpus.n_classes)
                ],
            )
            for b in range(features.n_edge_attrs)
        ]
        attr = np.repeat(np.arange(features.n_edge_attrs), np.diff(features.edge_ptr))
        found = np.array(tables)[attr, features.edge_prev, features.edge_next]
    else:
        n_base = features.edge_ptr[1]
        found = forms.sums.grad.copy()
        found[:n_base] += forms.sums.base_sum[features.edge_prev[:n_base], features.edge_next[:n_base]]
    np.testing.assert_allclose(found, expected[features.n_node :], rtol=1e-8, atol=1e-10)


def test_a_row_counts_every_stored_pair_once(chains):
    corpus, features, *_ = chains
    first = features.n_node + int(features.edge_ptr[1])
    row = form_row(corpus, features, (features.n_features - first) // 2, repeats=1)
    assert row["products"] == row["stored pairs"] > 0
    assert row["chosen"] in ("batched", "sparse") and all(float(row[form]) >= 0 for form in FORMS)
    assert 0 < float(row["log Z off"]) < 1e-9 and 0 < float(row["marginals off"]) < 1e-9


def test_a_row_says_how_far_lists_are_off(chains, monkeypatch):
    exact, (corpus, features, *_) = ChainForms.run, chains

    def broken(self, form):
        took = exact(self, form)
        if form == FORMS[3]:
            self.p_node[3, 1] += 0.01
            self.log_z[2] -= 0.5
        return took

    monkeypatch.setattr(ChainForms, "run", broken)
    row = form_row(corpus, features, (features.n_edge - int(features.edge_ptr[1])) // 2, repeats=1)
    assert float(row["log Z off"]) == 0.5 and float(row["marginals off"]) == 0.01


def test_cases_of_any_size_time_kernels():
    (case,) = time_forms(1, seed=0, smallest=20, largest=21)
    assert sorted(case.took) == sorted(FITTED)


def test_the_fit_finds_which_form_is_faster(monkeypatch):
    """Times that follow the terms exactly, each case slowed down by its own factor:
    the choice is right nearly always.
    """
    rng, true = (
        np.random.default_rng(0),
        {
            form: np.array(list(SECONDS[form].values()))
            * np.random.default_rng(1).uniform(0.5, 2, len(SECONDS[form]))
            for form in FITTED
        },
    )
    cases = []
    for _ in range(60):
        corpus, features, w = random_chains(rng, smallest=500, largest=4000)
        sizes = case_sizes(corpus, features, w)
        slow = rng.uniform(1, 3)
        kind = {form: sizes["decoding" in form] for form in FITTED}
        cases.append(
            Case(*sizes, {form: slow * true[form] @ np.array(terms(form, kind[form])) for form in FITTED})
        )
    for form, values in fit_forms(cases).items():
        assert (values > 0).all()
        monkeypatch.setitem(SECONDS, form, dict(zip(SECONDS[form], values, strict=True)))
    for row in held_out(cases, cases):
        assert row["cases"] == 60 and float(row["timings disagree"]) == 0
        assert float(row["faster form"]) >= 90 and float(row["time lost"]) < 1


def test_a_fit_moves_by_what_was_timed(monkeypatch):
    """Batched products take half the time that the coefficients say, and some of its terms a tenth."""
    rng, cases, forms = np.random.default_rng(0), [], FORM_SETS["training"]
    for _ in range(30):
        corpus, features, w = random_chains(rng, smallest=500, largest=4000)
        sizes = case_sizes(corpus, features, w)
        said = {form: np.array(terms(form, sizes[0])) * list(SECONDS[form].values()) for form in forms}
        shares = np.where(np.arange(len(said["batched"])) % 3 == 0, 0.1, 0.5)
        took = {"batched": shares @ said["batched"], "sparse": said["sparse"].sum()}
        cases.append(Case(*sizes, took))
    found = move_fit([(forms, cases)], 0.01)
    for form in forms:
        rows = np.array([case.terms(form) for case in cases])
        np.testing.assert_allclose(rows @ found[form], [case.took[form] for case in cases], rtol=0.05)


# ---- the parts of a sweep are parts of it; models down the path have ever more weights ----


def test_the_parts_of_a_sweep(on_twins, monkeypatch):
    monkeypatch.setattr(VisitByParts, "n_by_parts", 10**9)  # as after many other sweeps in this process
    setup = study.set_up("letter_tests", 40)
    models = study.walk(setup, (3.0, 1.0), 2, lambda *_: None)[1]
    parts = study.sweep_parts(setup, 1.0, models[1.0], repeats=1)
    assert set(parts) == {"sweep", "sweep, recursion", "sweep, gradient"}
    assert parts["sweep, recursion"] + parts["sweep, gradient"] <= parts["sweep"] * 1.01 + 1e-4
    monkeypatch.setattr(study, "timed", lambda run, *arguments: (run(*arguments), 1.0))  # calls, not seconds
    calls = study.sweep_parts(setup, 1.0, models[1.0], repeats=1)
    assert calls["sweep"] == 1 and calls["sweep, recursion"] > 1 and calls["sweep, gradient"] > 1


def test_the_record(on_twins, monkeypatch, tmp_path):
    monkeypatch.setattr(study, "PATH", (3.0, 1.0, 0.0))
    (path,) = run("training-speed", folder=tmp_path, n_repeats=1, n_words=40)
    rows = read_record(path)[1]
    active = [int(row["mu"]) + int(row["lambda"]) for row in rows]
    assert [row["c1"] for row in rows] == ["3", "1", "0"] and active == sorted(active)
    assert active[-1] > 10 * active[0] > 0
    assert all(float(value) >= 0 for row in rows for key, value in row.items() if "," in key)


# ---- the path of L1: each model is near its optimum, and is tested against the best L2 ----


def test_the_path_goes_down_to_where_the_best_was_not_the_last():
    assert list(study.STRENGTHS) == sorted(study.STRENGTHS, reverse=True) and study.STRENGTHS[-1] == 0.0075
    assert study.NEAR <= 0.05


def test_the_path_ends_near_the_optimum_of_each_c1(on_twins, monkeypatch, tmp_path):
    """`violation` is that of the weights, at most NEAR of c1, and is not that of one size for all c1;
    gain and p are against the c2 that is best on dev.
    """
    template, train, parts = work.columns_of("chunking")
    few = template, train.head(60), {name: part.head(60) for name, part in parts.items()}
    monkeypatch.setattr(study, "columns_of", lambda task, verbose: few)
    rows = read_record(*run("l1-path", folder=tmp_path, strengths=(2.0, 0.5, 0.02), ridges=(1.0, 0.1)))[1]
    assert [(float(row["c1"]), float(row["c2"])) for row in rows] == [
        *((2.0, 0.0), (0.5, 0.0), (0.02, 0.0), (0.0, 1.0), (0.0, 0.1))
    ]
    whole = work.encode("chunking", *few)
    loss, zero = Objective(whole.corpus, whole.features), np.zeros(whole.features.n_features)
    for row in rows[:3]:
        c1, end = float(row["c1"]), float(row["objective"])
        assert 0 < float(row["violation"]) <= 1.01 * study.NEAR * c1  # two digits
        exact = minimize(loss, zero, c1=c1, tol_gradient=1e-3 * c1).objective
        assert exact - 1e-2 <= end <= 1.001 * exact
    assert float(rows[0]["violation"]) > study.NEAR * 0.02  # a larger c1 may end sooner
    best = max(rows[3:], key=lambda row: float(row["dev F1"]))
    ridge = study.fast_fit(whole.corpus, whole.features, c2=float(best["c2"]), tol=1e-5)
    first = study.train_l1(whole, 2.0, tol_gradient=study.NEAR * 2.0).result
    labels = [whole.guess(found.w, "test") for found in (ridge, first)]
    test = paired_test(whole.parts["test"].gold, *labels)
    assert (rows[0]["gain"], rows[0]["p"]) == (f"{100 * test.difference:+.2f}", f"{test.p_value:.4f}")
    assert (best["gain"], best["p"]) == ("+0.00", "1.0000") and test.p_value < 1
