"""One rule tunes every arm; curves and their summary say what they are; on slices of built-in twins."""

import json

import numpy as np
import pytest

from crfbook.chain.losses import LOSSES
from studies import c14_algorithms, run, work
from studies.c14_algorithms import ARMS, chosen, grid_of, objective_of, problem, summary_rows
from studies.records import read_record

pytestmark = pytest.mark.usefixtures("on_twins")


def test_every_arm_has_one_budget():
    assert {len(arm.grid) for arm in ARMS.values()} == {6}
    assert {problem(name, arm.grid[0])[0] for name, arm in ARMS.items()} == {*LOSSES, None}
    assert problem("SBCD", {"c1": 0.5}) == ("log", 0.5, 0.0) and problem("boosting", {})[0] == "exp"
    assert grid_of("PA")["c = 1, max_iterations = 50"] == {"c": 1.0, "max_iterations": 50}


def test_the_best_on_the_tenth_is_chosen_of_equals_the_first():
    scores = {"c2 = 0.03": "90", "c2 = 0.125": "91.5", "c2 = 0.5": "91.50", "c2 = 2": "9"}
    rows = [{"arm": "auto", "setting": setting, "tenth": score} for setting, score in scores.items()]
    setting, row = chosen(rows)["auto"]
    assert setting == {"c2": 0.125} and row["tenth"] == "91.5"


@pytest.mark.parametrize(
    "arm, setting", [("L-BFGS", {"c2": 0.5}), ("exp loss", {"c2": 0.5}), ("SBCD", {"c1": 0.5})]
)
def test_objectives_and_certificates(arm, setting):
    """At its end an arm is where it says; what is certified is no less than what is left."""
    setup = work.load("chunking", n_sentences=30)
    model = c14_algorithms.ready(setup, arm, setting)
    seconds = []
    spent = c14_algorithms.trained(model, setup, 1e9, lambda step, w, cpu: seconds.append(cpu))
    value = objective_of(setup, arm, setting)
    found = value(model.weights_)
    assert float(found["objective"]) == pytest.approx(model.objective_, rel=1e-6) and spent >= seconds[-1]
    away = value(model.weights_ + 0.01 * np.sin(np.arange(len(model.weights_))))
    left = 1 - float(found["objective"]) / float(away["objective"])
    assert found["certified"] == "" if arm == "SBCD" else float(away["certified"]) >= left > 0
    assert objective_of(setup, "PA", {})(model.weights_) == {"objective": "", "certified": ""}


def test_a_fit_ends_past_its_budget():
    setup = work.load("chunking", n_sentences=30)
    model = c14_algorithms.ready(setup, "SAG", {"c2": 0.03})
    c14_algorithms.trained(model, setup, 0.0)
    assert model.n_iter_ == 1 and model.status_ == "stopped by callback"


def in_this_one(run, *arguments):
    return json.loads(json.dumps(run(*arguments)))


def test_the_three_records(monkeypatch, tmp_path):
    monkeypatch.setattr(c14_algorithms, "in_own_process", in_this_one)
    monkeypatch.setattr(c14_algorithms, "LOOKS", np.array([0.0, 1e9]))
    arms = "L-BFGS", "OWL-QN", "perceptron"
    paths = run("algorithms-chunking", folder=tmp_path, arms=arms, processes=2, n_sentences=40)
    tuning, curves, table = (read_record(path)[1] for path in paths)
    assert [row["arm"] for row in tuning] == [arm for arm in arms for _ in range(6)]
    ends = [(row["process"], row["arm"]) for row in curves if row["status"]]
    assert ends == [(process, arm) for process in "01" for arm in arms]  # in turn
    assert {row["p"] == "" for row in curves if row["arm"] == "L-BFGS" or not row["status"]} == {True}
    assert all(0 < float(row["p"]) <= 1 for row in curves if row["status"] and row["arm"] != "L-BFGS")
    first = [row for row in curves if row["process"] == "0" and row["arm"] == "L-BFGS"]
    assert [row["iteration"] for row in first] == ["1", first[-1]["iteration"]] and len(first) == 2
    by = {row["arm"]: row for row in table}
    assert list(by) == list(arms) and by["perceptron"]["gap"] == by["perceptron"]["objective"] == ""
    assert 0.0 <= float(by["L-BFGS"]["gap"]) < 1e-4 and float(by["OWL-QN"]["gap"]) < 1e-2
    assert int(float(by["OWL-QN"]["not 0"])) < int(float(by["L-BFGS"]["not 0"]))
    assert by["OWL-QN"]["setting"] in grid_of("OWL-QN") and by["L-BFGS"]["p, Holm"] == ""


def test_the_summary_holds_objectives_against_the_lowest(monkeypatch):
    monkeypatch.setattr(c14_algorithms, "lowest", lambda task, n, c1, c2: 99.0)
    same = {"iteration": "3", "certified": "", "not 0": "7", "test": "50", "p": ""}

    def row(arm, process, cpu, objective, status="converged", p=""):
        about = {"process": process, "arm": arm, "setting": "c2 = 0.5", "CPU s": cpu, "objective": objective}
        return {**about, **same, "status": status, "p": p}

    rows = [row("L-BFGS", n, cpu, "100") for n, cpu in enumerate("132")]
    rows += [row("SAG", n, "5", "110", p=p) for n, p in enumerate(("0.01", "0.04", "0.02"))]
    rows += [row("exp loss", n, "5", "50", p="0.5") for n in range(3)] + [row("SAG", 0, "1", "98.01", "")]
    best = {
        arm: ({"c2": 0.5}, {"setting": "c2 = 0.5", "tenth": "1", "MB added": "2"})
        for arm in ("L-BFGS", "SAG", "exp loss")
    }
    rows.append(row("SAG", 0, "9", "1") | {"setting": "c2 = 2"})  # of a tuning before this one
    first, second, third = summary_rows("chunking", rows, best, None)
    assert (first["CPU s"], first["least CPU s"], first["most CPU s"]) == (2.0, 1.0, 3.0)
    assert first["gap"] == f"{100 / 98.01 - 1:.2g}" and second["gap"] == f"{110 / 98.01 - 1:.2g}"
    assert (second["p"], second["p, Holm"], third["gap"], third["p, Holm"]) == (0.04, 0.08, "", 0.5)
