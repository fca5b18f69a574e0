"""A contest runs taggers in processes of their own, stops, tests, records them; a program is a tagger."""

import math
import random
import sys

import pytest

from crfbook import CRF
from studies import contest
from studies.contest import Command, Texts, compete
from studies.records import read_record

pytestmark = pytest.mark.usefixtures("on_twins")
WORDS = {"Ada": "B-PER", "Bo": "B-PER", "met": "O", "saw": "O", "the": "O", "dog": "O"}


def made(n, seed):
    """(X, y): sentences of words that have one label each."""
    rng = random.Random(seed)
    rows = [rng.choices(list(WORDS), k=5) for _ in range(n)]
    return [[{"w": w} for w in row] for row in rows], [[WORDS[w] for w in row] for row in rows]


@pytest.fixture(scope="module")
def corpus():
    return {"made": (*made(40, 0), *made(30, 1))}


class Constant:
    """Says one label, in a process that knows this class although no module has it."""

    def fit(self, X, y, label="O"):
        self.label = label
        return self

    def predict(self, X):
        return [[self.label] * len(x) for x in X]


class Endless(Constant):
    def fit(self, X, y):
        while len(X) > contest.WARM:
            pass
        return super().fit(X, y)


class Saving(Constant):
    """Ends well when it is told to, as a CRF does."""

    def fit(self, X, y):
        try:
            while len(X) > contest.WARM:
                pass
        except KeyboardInterrupt:
            pass
        return super().fit(X, y)


class Deaf(Constant):
    def fit(self, X, y):
        while len(X) > contest.WARM:
            try:
                Endless().fit(X, y)
            except KeyboardInterrupt:
                pass
        return super().fit(X, y)


class Broken(Constant):
    def fit(self, X, y):
        raise ValueError("no such label")


class Seeded(Constant):
    def __init__(self, seed):
        self.seed = seed

    def fit(self, X, y):
        return super().fit(X, y, "B-PER" if self.seed else "O")


@pytest.fixture(scope="module")
def found(corpus):
    return compete({"O": Constant(), "CRF": CRF(c2=0.1), "seeded": Seeded}, corpus, processes=2)


def test_candidates_run_in_turn_and_are_tested_against_the_first(found):
    order = [(row["seed"], row["tagger"]) for row in found.rows]
    assert order == [(seed, name) for seed in (0, 1) for name in ("O", "CRF", "seeded")]
    assert [row["score"] for row in found.rows][:2] == [0.0, 100.0]
    assert {row["status"] for row in found.rows} == {"ended"}
    tests = found.tests()
    assert list(tests.index) == [("made", "CRF"), ("made", "seeded")]
    assert tests["points"].iloc[0] == 100.0 and tests["p"].iloc[0] < 0.01
    assert (tests["p, Holm"] >= tests["p"]).all() and tests["p, Holm"].iloc[0] == 2 * tests["p"].iloc[0]


def test_what_a_grader_asks(found):
    assert found.beats("CRF", "O") and found.beats("CRF", "seeded")
    assert not found.beats("O", "CRF") and not found.beats("O", "O") and not found.beats("CRF", "O", 1e-6)


def test_the_table_has_medians_and_the_run_of_the_middle_is_tested(corpus):
    found = compete({"O": Constant(), "seeded": Seeded}, corpus, processes=3)  # seeds 1 and 2 say B-PER
    table = found.table().loc["made"]
    scores = sorted(row["score"] for row in found.rows if row["tagger"] == "seeded")
    assert table.loc["seeded", "score"] == scores[1] > 0.0 == scores[0]
    assert set(found.labels["made", "seeded"][0]) == {"B-PER"}
    assert (table["least CPU s"] <= table["CPU s"]).all() and (table["CPU s"] <= table["most CPU s"]).all()


def test_the_record_and_the_figure(found, tmp_path):
    about, rows = read_record(found.record(tmp_path / "contest.csv"))
    assert {"commit", "processor", "numpy"} <= set(about)
    assert [row["tagger"] for row in rows] == ["O", "CRF", "seeded"] * 2 and rows[1]["score"] == "100.0"
    (panel,) = found.figure().axes
    assert [line.get_label() for line in panel.lines] == ["O", "CRF", "seeded"]
    assert panel.get_ylabel() == "f1 (%)"


def test_who_does_not_end_is_stopped_and_says_so(corpus, monkeypatch):
    monkeypatch.setattr(contest, "WARM", 5)
    taggers = {"endless": Endless(), "saving": Saving(), "broken": Broken(), "O": Constant()}
    found = compete(taggers, corpus, seconds=1, processes=1)
    status = {row["tagger"]: row["status"] for row in found.rows}
    assert status == {
        "endless": "not ended in 1 CPU s", "saving": "stopped by the budget",
        "broken": "failed: ValueError: no such label", "O": "ended",
    }  # fmt: skip
    assert set(found.labels) == {("made", "saving"), ("made", "O")}
    assert list(found.table().index.get_level_values("tagger")) == list(taggers)
    assert found.tests("broken").empty and not found.beats("O", "endless")


def test_who_heeds_no_signal_is_killed(corpus, monkeypatch):
    monkeypatch.setattr(contest, "WARM", 5)
    monkeypatch.setattr(contest, "GRACE", 0)
    (row,) = compete({"deaf": Deaf()}, corpus, seconds=1, processes=1).rows
    assert row["status"] == "killed: it did not heed its limit" and math.isnan(row["CPU s"])


TRAIN = """
import json, sys
rows = [line.rstrip("\\n").split("\\t") for line in open(sys.argv[1]) if line.strip()]
json.dump(dict(rows), open(sys.argv[2], "w"))
"""
TAG = """
import json, sys
model = json.load(open(sys.argv[2]))
for line in open(sys.argv[1]):
    print(line.rstrip("\\n"), model[line.split("\\t")[0]]) if line.strip() else print()
"""


def test_a_program_is_a_tagger(corpus, tmp_path):
    for name, text in (("train", TRAIN), ("tag", TAG)):
        (tmp_path / f"{name}.py").write_text(text)
    lines = (f"'{sys.executable}' '{tmp_path}/{name}.py' {{data}} {{model}}" for name in ("train", "tag"))
    program = Command(*lines)
    assert compete({"program": program}, corpus, processes=1).rows[0]["score"] == 100.0
    with pytest.raises(RuntimeError, match="false: 1"):
        Command("false", "false").fit(*made(2, 0))


def test_corpora_by_name(monkeypatch):
    of = contest.texts("atis")
    assert "bias" in of.X[0][0] and len(of.X_test) == len(of.y_test) and of.metric == "f1"
    assert Texts(of.X, [["NOUN"]], [], []).metric == "accuracy" and of.data[0].name == "atis"
