"""The study of chapter 17 on the built-in twins: what its rows say is so."""

from dataclasses import replace

import pytest

from studies import c17, read_record, run, work

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("on_twins")]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    def some(task):
        data = work.load_dataset(work.TASKS[task].dataset, work.TASKS[task].task)
        return replace(data, **{name: part.head(120) for name, part in data.splits.items()})

    monkeypatch.setattr(c17, "dataset", some)
    c17.fitted.cache_clear()
    yield
    c17.fitted.cache_clear()


def test_its_records(tmp_path):
    paths = run("how-sure", folder=tmp_path, corpora=("chunking", "ner"), c2=(0.01,))
    calibration, decoding, abstaining = (read_record(path)[1] for path in paths)
    by = {(row["corpus"], row["temperature"], row["of"]): row for row in calibration}
    assert len(by) == 8 and all(row["low"] <= row["high"] for row in calibration)
    for corpus in ("chunking", "ner"):
        before, after = (by[corpus, t, "tokens"] for t in ("1", "fitted"))
        assert before["value of T"] == "1" != after["value of T"] and before["right"] == after["right"]
    for row in decoding:
        assert (
            abs(float(row["ratio of expectations"]) - float(row["E F1"])) < 5 * float(row["its error"]) + 1.0
        )
    for viterbi, _, expected in zip(decoding[::3], decoding[1::3], decoding[2::3], strict=True):
        assert viterbi["p F1"] == "1" and float(expected["ratio of expectations"]) >= float(
            viterbi["ratio of expectations"]
        )
    assert {row["F1 at 0.0"] for row in abstaining if row["corpus"] == "ner"} == {abstaining[-1]["F1 at 0.0"]}
    longest = next(row for row in abstaining if row["by"] == "length")
    assert float(longest["tokens at 0.5"]) > 50.0


def test_spans_are_written_as_labels():
    labels = c17.written([("X", 1, 3, 0.5), ("Y", 3, 4, 0.4)], 5 * ["O"])
    assert labels == ["O", "B-X", "I-X", "B-Y", "O"]
    assert c17.spans_of([labels]) == {(0, "X", 1, 3), (0, "Y", 3, 4)}


def test_the_temperature_is_fitted_on_neither_training_nor_test():
    model, test, _ = c17.fitted("chunking", 0.01, "1")
    assert model._n_seen == 108 and test.columns == c17.dataset("chunking").test.columns
    assert 0 < len(c17.known(model, test)) <= len(test)
