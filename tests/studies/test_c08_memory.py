"""Longer memory: rows say what they claim."""

from crfbook.studies import c08_memory as study
from crfbook.studies import read_record, run


def test_the_study_of_longer_memory(tmp_path, on_twins, monkeypatch):
    monkeypatch.setattr(study, "STRENGTHS", (0.3, 0.1))
    monkeypatch.setattr(study, "ITERATIONS", 5)
    choice, table = run("longer-memory", folder=tmp_path, n_words=60)
    assert [row["c1"] for row in read_record(choice)[1]] == ["0.3", "0.1"]
    rows = {row["model"]: row for row in read_record(table)[1]}
    assert list(rows) == [memory.name for memory in study.MODELS]
    assert rows["pairs"]["tuples"] == rows["pairs"]["pairs as states"] == "0"
    assert int(rows["triples"]["tuples"]) > 0 and rows["triples"]["triples as states"] == "0"
    assert int(rows["triples and quadruples"]["triples as states"]) > 0
    for row in rows.values():
        assert int(row["products"]) < int(row["dense products"]) or row["model"] == "pairs"
        assert float(row["objective"]) <= float(rows["pairs"]["objective"])
