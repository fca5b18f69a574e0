"""The parts of a sweep are parts of it; models down the path have ever more weights."""

from crfbook.learners.coordinate.sweeps import VisitByParts
from studies import c06_training as study
from studies import read_record, run


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
