"""The templates of chapter 12 beside the factorial one: levels of chunks, and rows of the record."""

import pytest

from studies import c12_shapes as study
from studies import read_record, run

SENTENCES = [
    ["B-NP", "I-NP", "B-NP", "O", "O", "B-NP"],
    ["O"],
    ["B-NP", "I-NP", "I-NP"],
    ["B-NP", "B-NP", "B-VP", "I-VP", "B-NP"],
]


@pytest.mark.parametrize("chunks", SENTENCES)
def test_levels_are_the_chunks(chunks):
    types, ends = study.levels(chunks)
    assert study.chunks_of(types, ends) == chunks
    for t, (kind, end) in enumerate(zip(types[:-1], ends, strict=False)):
        assert end or types[t + 1] == kind and chunks[t + 1][0] == "I"  # as the rule of the template wants
    assert ends[-1] is True


def test_rows_of_shapes(tmp_path):
    rows = read_record(*run("dcrf-shapes", folder=tmp_path, sizes=(20,), seeds=(1,)))[1]
    assert [row["arm"] for row in rows] == list(study.SHAPES)
    assert {row["status"] for row in rows} == {"converged"}
    by_arm = {row["arm"]: row for row in rows}
    for arm, (base, columns, _) in study.SHAPES.items():
        row = by_arm[arm]
        assert (row["POS"] == "") == ("pos" not in columns)
        assert (row["p F1"] == "") == (arm == base)
    assert float(by_arm["first order"]["objective"]) > float(by_arm["second order"]["objective"])
