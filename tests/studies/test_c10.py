"""Tables of chapter 10 on a few sentences of the built-in twins, and the chains simulated for them."""

import numpy as np
import pytest

from crfbook.chain.sparse.choice import never_tiny
from studies import c10, c10_large, c11, read_record, run

pytestmark = pytest.mark.usefixtures("on_twins")


def test_simulated_chains_have_few_successors():
    for n_labels in (120, 279):
        chain = c10.simulated_chain(n_labels)
        after = (chain.transition > 0).sum(axis=1)
        assert after.min() == 2 and after.max() == 5 and abs(after.mean() - 3.5) < 0.3
        np.testing.assert_allclose(chain.transition.sum(axis=1), 1.0)


def test_rows_of_both_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(c10, "MOST", 20)
    paths = run("active-sets", folder=tmp_path, names=("conll2000", "conll2003"), n_train=60, n_repeats=1)
    corpora, rows = (read_record(path)[1] for path in paths)
    assert [row["corpus"] for row in corpora] == ["conll2000"]  # a twin stands in for nothing there
    by_method = {row["method"]: row for row in rows}
    sparse, other = by_method["Sparse"], by_method["Method 2"]
    assert sparse["star"] == "" and other["tokens that differ"] == "0"
    assert int(by_method["Method 3"]["weights"]) + 17 >= int(by_method["Method 4"]["weights"])
    assert int(by_method["Dense"]["weights"]) > int(sparse["weights"]) > int(by_method["Method 3"]["weights"])
    assert float(by_method["Dense"]["log-likelihood"]) > float(sparse["log-likelihood"])


@never_tiny()
def test_an_arm_says_how_far_it_is_from_its_minimum():
    setup = c10.encoded("conll2000", 40)
    arm = c10.exact_arm(setup)
    assert arm.found.status == "converged"
    assert arm.found.history[-1].violation <= c10.TOL * arm.found.objective
    assert arm.found.n_iter <= c10.MOST and arm.log_likelihood < 0.0


@never_tiny()
def test_starts_and_rules_share_a_budget(tmp_path, monkeypatch):
    monkeypatch.setattr(c10, "MOST", 15)
    (path,) = run("active-starts", folder=tmp_path, names=("conll2000",), n_train=40, max_iterations=40)
    rows = read_record(path)[1]
    assert len(rows) == 10 and all(int(row["iterations"]) <= 40 for row in rows)
    zero, pseudo = ([row for row in rows if row["start"] == start] for start in ("zero", "pseudo-likelihood"))
    assert all(float(row["of it, start"]) == 0.0 for row in zero)
    assert all(0.0 < float(row["of it, start"]) < float(row["CPU s"]) for row in pseudo)
    least = min(float(row["objective"]) for row in rows if row["method"] == "exact")
    assert all(float(row["objective"]) >= 0.99 * least for row in rows)
    n_labels = {row["labels kept"] for row in rows if row["method"] == "exact"}
    assert len(n_labels) == 1 and all(float(row["labels kept"]) <= float(min(n_labels)) for row in rows)
    eps = {row["rule"]: float(row["eps"]) for row in rows if row["rule"]}
    assert eps["share"] < eps["mass"]  # one label is a larger share than the mass of all that are dropped


def test_a_mass_that_keeps_as_many_labels():
    setup = c10.encoded("conll2000", 40)
    features = setup.features
    w = np.random.default_rng(0).normal(size=features.n_features)
    kept = []
    for rule, eps in (("share", c10.EPS), ("mass", c10.mass_of(setup.corpus, features, w))):
        objective = c10.active.ActiveObjective(setup.corpus, features, eps=eps, rule=rule)
        objective(w)
        kept.append(objective.n_kept)
    assert 1.0 < kept[0] < features.n_labels and abs(kept[1] - kept[0]) < 0.2


@pytest.mark.parametrize("how", ["SGD, active", "SGD-L1, active", "OWL-QN, active"])
def test_a_fit_says_what_it_found(monkeypatch, how):
    setup = c10.encoded("conll2000", 40)
    small = c11.Tagger(setup.features, setup.corpus, setup.held, None)
    monkeypatch.setattr(c10_large, "tagger", lambda *name: small)
    row = c10_large.fit_alone("joint", how)
    assert row["weights"] == small.features.n_features and 0 < row["not 0"] <= row["weights"]
    assert (row["not 0"] < row["weights"]) == (row["c1"] > 0)
    assert row["objective"] < setup.corpus.n_tokens * np.log(small.features.n_labels)
    assert np.isnan(row["times its certificate"]) == how.startswith("SGD")
    assert 0 < row["accuracy"] <= 100 and row["iterations"] > 0
