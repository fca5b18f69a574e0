"""The timing harness itself, and a small run of each task (no wall-clock assertions)."""

import time

import numpy as np
import pytest

from crfbook import benchmarking
from crfbook.benchmarking import __main__ as command
from crfbook.benchmarking import records


def test_candidates_run_in_turn_after_a_warm_up():
    calls = []
    took = benchmarking.race({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=3)
    assert calls == list("ab" * 4)
    assert [len(took[name].wall) for name in "ab"] == [3, 3]


def test_a_candidate_may_bring_its_own_clock():
    seconds = iter([(9.0, 9.0), (1.0, 2.0), (3.0, 4.0), (5.0, 60.0)])
    took = benchmarking.race({"tool": lambda: benchmarking.Clocked(*next(seconds))}, repeats=3)["tool"]
    pair = benchmarking.race({"call": lambda: ([1, 2], [3, 4])}, repeats=1)["call"]  # not a clock
    assert 0 <= pair.median_wall < 1
    assert took.cpu == [1.0, 3.0, 5.0] and took.median_cpu == 3.0 and took.median_wall == 4.0
    assert took.warm_up >= 0


def test_sleeping_costs_wall_time_and_no_cpu():
    took = benchmarking.race({"sleep": lambda: time.sleep(0.02)}, repeats=3)["sleep"]
    assert took.median_wall >= 0.02 > took.median_cpu


def test_no_repeats_is_refused():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        benchmarking.race({}, repeats=0)


@pytest.mark.parametrize("ours, verdict", [(0.3, "aim met"), (0.45, "met"), (0.6, "MISSED")])
def test_a_row_judges_its_ratio(ours, verdict):
    row = benchmarking.Row("work", ours, 1.0, "s", 0.5, 0.35)
    assert row.verdict == verdict and verdict in benchmarking.report([row])


def test_the_csv_names_the_versions_and_can_be_read(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "rows.csv"
    records.write_report(path, [benchmarking.Row("work", 1.0, 4.0, "s", 0.5)], seconds=2.0)
    assert f"# numpy: {np.__version__}" in path.read_text(encoding="utf-8")
    table = pandas.read_csv(path, comment="#")
    assert table.ratio.tolist() == [0.25] and table.verdict.tolist() == ["met"]


def test_the_command_lists_and_refuses(capsys):
    assert command.main([]) == 0
    assert "gradient-atis" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["no-such-work"])
    assert "expected names among" in capsys.readouterr().err


def test_every_joint_label_is_among_the_chosen_sentences():
    from crfbook.benchmarking import work

    columns = work.load_dataset("conll2000", source="builtin").train
    few = work._joint(columns, 60)
    assert set(few.labels) == set(work._joint(columns, None).labels) and len(few) >= 60
    assert list(few.columns) == ["word"]


def test_attribute_strings_are_the_templates_attributes():
    """Same features for both sides: equal strings exactly where the encoder's attributes are equal."""
    from crfbook.benchmarking import crfsuite, work

    columns = work.load_dataset("conll2000", source="builtin").train.head(40)
    for template in ("chunking", "words"):
        task = work.encode("test", template, columns)
        rows = [row for rows in work.attribute_strings(columns, template) for row in rows]
        names = crfsuite.attribute_names(task)
        assert len(set(names.values())) == task.features.n_attrs
        for t, row in enumerate(rows):
            ids = task.corpus.attr_idx[task.corpus.attr_ptr[t] : task.corpus.attr_ptr[t + 1]]
            assert sorted(names[a] for a in ids.tolist()) == sorted(row)


def test_without_the_reference_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as stopped:
        command.main(["tagging"])
    assert stopped.value.code == 2 and "pip install python-crfsuite" in capsys.readouterr().err
