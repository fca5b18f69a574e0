"""The limits of forward-backward are counted and add up."""

import pytest

from studies import c02, read_record, run

pytestmark = pytest.mark.kernels


def test_the_record(monkeypatch, tmp_path):
    monkeypatch.setattr(c02, "CELLS", 1.0)
    (path,) = run("limits", folder=tmp_path, dirty=True, n_repeats=1, labels=(3, 5))
    about, rows = read_record(path)
    assert [row["labels"] for row in rows] == ["3", "5"] and "processor" in about
    for row in rows:
        n = int(row["labels"])
        found = {name: float(value) for name, value in row.items()}
        assert (found["exps"], found["multiply-adds"], found["bytes"]) == (n, 3 * n * n, 96 * n)
        assert found["tokens"] == 4000
        limit = max(found["exp"] + found["products"], found["memory"])
        assert found["limit"] == pytest.approx(limit, rel=1e-3)
        assert found["times the limit"] == pytest.approx(found["measured"] / found["limit"], rel=1e-3)
