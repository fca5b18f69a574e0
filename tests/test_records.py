"""Recorded tables say which code, data and versions they come from, and read back as they were written."""

import pytest

from crfbook import load_dataset
from crfbook.benchmarking.records import read_record, write_record


def test_a_record_names_code_data_and_versions(tmp_path):
    rows = [{"tool": "ours", "f1": 0.5}, {"tool": "# theirs, no comment", "f1": 0.25}]
    twin = load_dataset("conll2000", source="builtin", verbose=False)
    path = write_record(tmp_path / "results" / "03_table.csv", rows, seconds=12.4, datasets=[twin])
    about, back = read_record(path)
    assert back == [{"tool": row["tool"], "f1": str(row["f1"])} for row in rows]
    assert {"commit", "date", "numpy", "numba", "python"} <= set(about)
    assert about["seconds"] == "12" and about["data conll2000 built-in twin"] == "conll2000"


@pytest.mark.real_data("conll2000")
def test_real_data_are_named_by_their_hash(tmp_path):
    from data_fetch import REGISTRY

    real = load_dataset("conll2000", source="real", verbose=False)
    about, _ = read_record(write_record(tmp_path / "x.csv", [{"a": 1}], seconds=0, datasets=[real]))
    assert about["data conll2000 conll2000.zip"] == REGISTRY["conll2000"]["files"]["conll2000.zip"]["sha256"]


@pytest.mark.parametrize("rows", [[], [{"a": 1}, {"b": 1}]])
def test_ragged_records_are_refused(tmp_path, rows):
    with pytest.raises(ValueError, match="same columns"):
        write_record(tmp_path / "x.csv", rows, seconds=0)
