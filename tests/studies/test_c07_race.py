"""The race: every arm minimises the same objective, and a row says what its weights are worth."""

import pytest

from studies import c07_race as race
from studies import read_record, run

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
