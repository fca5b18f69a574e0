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
from studies.c06 import (
    FORM_SETS,
    FORMS,
    Case,
    ChainForms,
    case_sizes,
    fit_forms,
    form_row,
    held_out,
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
            form: np.array(SECONDS[form]) * np.random.default_rng(1).uniform(0.5, 2, len(SECONDS[form]))
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
        monkeypatch.setitem(SECONDS, form, tuple(values))
    for row in held_out(cases, cases):
        assert row["cases"] == 60 and float(row["timings disagree"]) == 0
        assert float(row["faster form"]) >= 90 and float(row["time lost"]) < 1
