"""The simulation of the sparse-CRF paper: replications packed into one problem are as many problems;
errors are exact.
"""

import itertools

import numpy as np
import pytest

from crfbook.chain.objective import Objective
from crfbook.data.features import select
from crfbook.datasets.simulated import SPARSE_HMM, HiddenMarkov, sample
from crfbook.learners.quasi_newton.lbfgs import minimize
from studies import c07 as race
from studies import c07 as sim
from studies import read_record, run


def small_hmm():
    rng = np.random.default_rng(3)
    return HiddenMarkov(rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), 3), rng.dirichlet(np.ones(2), 3))


def test_joint_of_strings_is_the_sum_over_labellings():
    model = small_hmm()
    strings, joint = sim.joint_of_strings(model, 3)
    wanted = np.zeros_like(joint)
    for s, x in enumerate(strings):
        for y in itertools.product(range(3), repeat=3):
            p = model.start[y[0]] * model.emission[y[0], x[0]]
            for t in (1, 2):
                p *= model.transition[y[t - 1], y[t]] * model.emission[y[t], x[t]]
            wanted[s, np.arange(3), y] += p
    np.testing.assert_allclose(joint, wanted, rtol=0, atol=1e-15)


def test_bayes_error_of_the_paper_s_model():
    assert sim.bayes_error(SPARSE_HMM) == pytest.approx(0.1545, abs=1e-4)


def test_packed_replications_are_separate_problems():
    """Each part of the joint solution is the solution of its own replication, and of nothing else."""
    study = sim.Simulation(4, random_state=5)
    features = sim.feature_set(study.corpus, 6, "both")
    exact = {"c1": 0.3, "c2": 0.1, "tol": 1e-12}
    joint = minimize(Objective(study.corpus, features, c2=0.1), np.zeros(features.n_features), **exact).w
    labels, symbols = sample(SPARSE_HMM, np.full(40, 5), 5)
    for r in range(4):
        mine = slice(50 * r, 50 * (r + 1))
        corpus = sim.replicated(symbols[mine], labels[mine], 1, 5)
        alone = sim.feature_set(corpus, 6, "both")
        w = minimize(Objective(corpus, alone, c2=0.1), np.zeros(alone.n_features), **exact).w
        part = np.concatenate([joint[30 * r : 30 * (r + 1)], joint[120 + 180 * r : 120 + 180 * (r + 1)]])
        np.testing.assert_allclose(part, w, rtol=0, atol=1e-5)
        assert 5 < np.count_nonzero(w) < 60


def test_the_error_on_new_text_is_that_of_a_large_sample():
    study = sim.Simulation(1, random_state=2)
    features = sim.feature_set(study.corpus, 6, "both")
    w = minimize(Objective(study.corpus, features, c2=0.01), np.zeros(features.n_features), c2=0.01).w
    labels, symbols = sample(SPARSE_HMM, np.full(20_000, 5), 77)
    wrong = sim.decode(sim.replicated(symbols, labels, 1, 5), features, w) != labels
    assert study.errors(features, w)[1][0] == pytest.approx(wrong.mean(), abs=0.005)


def test_which_weights_a_model_has():
    corpus = sim.Simulation(2, 0).corpus
    sizes = {kind: sim.feature_set(corpus, 6, kind) for kind in ("node", "edge", "both")}
    assert {k: (f.n_node, f.n_edge) for k, f in sizes.items()} == {
        "node": (60, 0),
        "edge": (0, 360),
        "both": (60, 360),
    }
    assert sizes["both"].edge_ptr[1] == 0
    assert select(sizes["both"], np.arange(420) < 60).n_edge == 0


def test_a_small_table_has_the_order_of_the_paper(tmp_path):
    rows = {row["model"]: row for row in sim.table1(10, ("M1", "M3", "M6", "M7", "M8"))}
    error = {name: float(row["test"]) for name, row in rows.items()}
    active = {name: float(row["mu"]) + float(row["lambda"]) for name, row in rows.items()}
    assert error["M7"] < error["M1"] < error["M3"] and 100 * sim.bayes_error(SPARSE_HMM) < error["M7"]
    assert active["M8"] < active["M7"] < active["M6"] < active["M1"] == 210
    assert all(row["status"] == "converged" for row in rows.values())
    assert float(rows["M1"]["train"]) < float(rows["M7"]["train"])


def test_the_record_has_all_models(tmp_path, monkeypatch):
    monkeypatch.setattr(sim, "MODELS", {name: sim.MODELS[name] for name in ("M2", "M7", "M8")})
    (path,) = run("simulation", folder=tmp_path, n_replications=2)
    about, rows = read_record(path)
    assert [row["model"] for row in rows] == ["M2", "M7", "M8"] and path.name == "07_simulation.csv"
    assert rows[1]["paper mu"] == "6.2" and rows[0]["mu"] == "0.0"


# ---- the race: every arm minimises the same objective, and a row says what its weights are worth ----

SMALL = {"n_sentences": 20, "budget": 0.05}


@pytest.mark.parametrize("penalty", race.ARMS)
def test_every_arm_comes_to_one_optimum(penalty):
    """With time enough: a sign or a constant that one arm penalises otherwise would show."""
    problem = race.Problem("NetTalk, letters", penalty, 15)
    best = float(race.optimum("NetTalk, letters", penalty, 15, 1e9)["objective"])
    for name, learner in race.ARMS[penalty].items():
        within = 0.05 if name.startswith("SGD") else 1e-3

        def look(step, w, seconds, within=within):
            return problem.value(w) <= best * (1 + within) or step.iteration >= 2000

        w = problem.fit(learner, look).result.w
        assert -1e-6 <= problem.value(w) / best - 1 <= within, name
        assert problem.value(w) - problem.certified(w) <= best * (1 + 1e-6), name
    assert float(race.optimum("NetTalk, letters", penalty, 15, 1e9)["certified"]) < 1e-3 * best


def test_the_record_has_every_arm(monkeypatch, tmp_path):
    optimum = race.optimum
    monkeypatch.setattr(race, "optimum", lambda budget, **cell: optimum(**cell, budget=1e9))
    pytest.importorskip("pycrfsuite")
    pieces = ["NetTalk, letters", "CoNLL-2000 chunks"]
    optima, path = run("race-of-all", folder=tmp_path, dirty=True, pieces=pieces, **SMALL)
    assert len(read_record(optima)[1]) == 4
    _, rows = read_record(path)
    arms = {(row["corpus"], row["penalty"], row["arm"]) for row in rows}
    assert len(arms) == 9 + 5 + 8 + 5 + 3
    assert ("CoNLL-2000 chunks", "c2", "CRFsuite, SGD") in arms
    for row in rows:
        assert float(row["gap"]) > -1e-4 and float(row["seconds"]) >= 0 and int(row["active"]) >= 0
