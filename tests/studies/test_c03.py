"""The table of chapter 03: our optimum and the peer's, one objective, one set of labels."""

import pytest

from studies import read_record, run

pytestmark = pytest.mark.usefixtures("on_twins")


def test_both_tools_have_one_objective_and_nearly_one_optimum(tmp_path):
    pytest.importorskip("pycrfsuite")
    rows = read_record(*run("whole-corpus", folder=tmp_path, n_sentences=60, dirty=True))[1]
    assert [row["tool"] for row in rows] == ["crfbook", "python-crfsuite"] * 2
    assert [row["stop"] for row in rows] == ["its own"] * 2 + ["50"] * 2
    for row in rows:
        assert float(row["our objective there"]) == pytest.approx(float(row["objective"]), rel=1e-5)
    ours, theirs = (float(row["objective"]) for row in rows[:2])
    assert ours <= theirs + 1e-4 and theirs == pytest.approx(ours, rel=1e-3)
    assert float(rows[0]["gap at most"]) < 1e-6 and int(rows[2]["iterations"]) <= 50
