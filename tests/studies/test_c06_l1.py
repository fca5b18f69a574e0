"""The path of L1: each model is near its optimum, and is tested against the best L2."""

import numpy as np

from crfbook.chain.objective import Objective
from crfbook.evaluation import paired_test
from crfbook.learners.quasi_newton.lbfgs import minimize
from studies import c06_l1 as study
from studies import read_record, run, work


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
