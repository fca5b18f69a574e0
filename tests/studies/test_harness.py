"""Timings are fair, rows are judged, records say what they come from; the command. Nothing asserts speed."""

import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import studies
from crfbook import load_dataset
from crfbook.chain.sparse import choice
from crfbook.learners.online import online
from studies import __main__ as command
from studies import c03, c14_wild, harness, records, work
from studies.harness import Clocked, Row, race
from studies.records import fill, read_record, write_record
from tools import paper

RESULTS = Path(__file__).parents[2] / "notebooks" / "results"


# ---- timing ----


def test_candidates_run_in_turn_after_a_warm_up():
    calls = []
    took = race({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=3)
    assert calls == list("ab" * 4)
    assert [len(took[name].wall) for name in "ab"] == [3, 3]


def test_a_candidate_may_bring_its_own_clock():
    seconds = iter([(9.0, 9.0), (1.0, 2.0), (3.0, 4.0), (5.0, 60.0)])
    took = race({"tool": lambda: Clocked(*next(seconds))}, repeats=3)["tool"]
    alone = race({"tool": lambda: Clocked(7.0)}, repeats=1)["tool"]  # one clock for both
    pair = race({"call": lambda: ([1, 2], [3, 4])}, repeats=1)["call"]  # not a clock
    assert 0 <= pair.median_wall < 1 and (alone.cpu, alone.wall) == ([7.0], [7.0])
    assert took.cpu == [1.0, 3.0, 5.0] and took.median_cpu == 3.0 and took.median_wall == 4.0
    assert took.warm_up >= 0


def test_sleeping_costs_wall_time_and_no_cpu():
    took = race({"sleep": lambda: time.sleep(0.2)}, repeats=3)["sleep"]
    assert took.median_wall >= 0.2 > took.median_cpu


def test_no_repeats_is_refused():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        race({}, repeats=0)


def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_time_spent_looking_at_a_learner_does_not_count():
    def learner(first, *, callback, n):
        for i in range(n):
            busy(0.01)
            if callback(f"step {i}", [first]):
                return i
        return n

    def look(step, w, seconds):
        busy(1.0)
        return step == "step 2" and seconds < 1.0

    run = harness.follow(learner, 5, n=9, look=look)
    assert run.result == 2 and [tick.step for tick in run.ticks] == ["step 0", "step 1", "step 2"]
    assert 0.03 <= run.ticks[2].cpu <= run.seconds < 1.0 and run.ticks[0].cpu < run.ticks[1].cpu
    assert run.ticks[2].wall >= 0.03


def test_a_learner_is_looked_at_where_it_is_asked_for():
    look, rows = harness.at((2, 5), lambda step, w, seconds: (step.iteration, w, seconds))
    for n in range(1, 5):
        assert not look(SimpleNamespace(iteration=n), "w", 0.5 * n)
    assert rows == [(2, "w", 1.0)]


def test_processes_are_raced_by_their_own_clocks(monkeypatch):
    spent = iter(range(1, 7))
    monkeypatch.setattr(
        harness, "in_own_process", lambda run, side: {"cpu": next(spent), "wall": 9.0, "of": side}
    )
    took, done = harness.race_processes(len, {"a": ["first"], "b": ["second"]}, 2)
    assert took["a"].cpu == [3, 5] and took["b"].cpu == [4, 6] and took["b"].wall == [9.0, 9.0]
    assert [run["of"] for run in done["b"]] == ["second"] * 3  # the warm-up, too


def test_fits():
    x = np.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(harness.affine_fit(x, 3 + 2 * x), (3, 2, 1), rtol=1e-12)
    assert harness.affine_fit(x, [1.0, 9.0, 2.0])[2] < 0.5
    np.testing.assert_allclose(harness.steady([1.0, 4.0, 3.0], [1.0, 2.0, 1.0]), [1.0, 2.0, 3.0])
    assert harness.break_even([10, 1000], np.array([0.1, 10.0])) == pytest.approx(100)
    assert harness.break_even([10, 1000], np.array([0.1, 0.5])) == np.inf


def test_memory_of_the_process():
    """Both counters tell megabytes of this process."""
    assert 10 < harness.peak_mb() < 100_000
    assert harness.own_peak_mb() == 0 or 10 < harness.own_peak_mb() < 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0
    found, added = harness.with_memory(np.ones, 10_000_000)  # 80 MB
    assert len(found) == 10_000_000 and (added == 0 or 70 < added < 1000)


def test_a_process_that_fails_says_why():
    with pytest.raises(RuntimeError, match="nobody: the process failed: .*KeyError"):
        harness.in_own_process(c03.one_side, "nobody")


def test_a_process_says_what_it_found_and_which_twins_it_loaded(on_twins, monkeypatch):
    monkeypatch.setattr(work, "TWINS", set())
    monkeypatch.setattr(harness, "TWINS", work.TWINS)
    X, *_, about = harness.in_own_process(c14_wild.dicts, "atis")
    assert "bias" in X[0][0] and about.startswith("builtin") and work.TWINS == {"atis"}


def test_the_peer_s_process_loads_no_compiled_code():
    """Its peak of memory is what ours is compared with."""
    code = "import sys, studies.c03; print([m for m in ('numba', 'scipy') if m in sys.modules])"
    here = {"cwd": RESULTS.parent, "capture_output": True, "text": True, "check": True}
    done = subprocess.run([sys.executable, "-c", code], **here)
    assert done.stdout.strip() == "[]"


# ---- rows and the command ----


@pytest.mark.parametrize("ours, verdict", [(0.3, "aim met"), (0.45, "met"), (0.6, "MISSED")])
def test_a_row_judges_its_ratio(ours, verdict):
    row = Row("work", ours, 1.0, "s", 0.5, 0.35)
    assert row.verdict == verdict and verdict in harness.report([row])


def test_the_csv_names_the_versions_and_can_be_read(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "rows.csv"
    records.write_report(path, [Row("work", 1.0, 4.0, "s", 0.5)], seconds=2.0)
    assert f"# numpy: {np.__version__}" in path.read_text(encoding="utf-8")
    table = pandas.read_csv(path, comment="#")
    assert table.ratio.tolist() == [0.25] and table.verdict.tolist() == ["met"]


def test_the_command_lists_and_refuses(capsys):
    assert command.main([]) == 0
    listed = capsys.readouterr().out
    chapters = "02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17".split()
    assert re.findall(r"^chapter (\d\d)$", listed, re.M) == chapters
    assert set(re.findall(r"^  ([\w-]+) ", listed, re.M)) == set(studies.studies())
    with pytest.raises(SystemExit):
        command.main(["no-such-work"])
    assert "expected names among" in capsys.readouterr().err


def test_without_the_reference_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as stopped:
        command.main(["tagging"])
    assert stopped.value.code == 2 and "pip install python-crfsuite" in capsys.readouterr().err


@pytest.fixture
def toys(monkeypatch):
    """Two studies: rows, of which the second may fail, and a table of two records."""
    known = dict(studies.studies())
    monkeypatch.setattr(harness, "STUDIES", known)
    monkeypatch.setattr(studies, "STUDIES", known)

    @harness.study("00_rows.csv", frozen=("lbfgs",))
    def toy_rows(repeats=1, fails=False):
        """Rows."""
        yield Row("first", 1.0, 2.0, "s", 0.6)
        if fails:
            raise KeyboardInterrupt
        yield Row("second", float(repeats), 2.0, "s", 0.6)

    @harness.study("00_{}.csv", "01_{}.csv", of=("a", "b"))
    def toy_table(word, n=1):
        """Tables."""
        rows = yield f"00_{word}.csv", [({"n": n}, lambda: {"x": 7})]
        yield f"01_{word}.csv", [({}, lambda: [{"seen": rows[0]["x"], "i": i} for i in range(2)])]

    return known


def test_the_command_writes_rows_and_says_what_was_missed(toys, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: True)
    path = tmp_path / "rows.csv"
    assert command.main(["toy-rows", "--csv", str(path)]) == 0
    about, rows = read_record(path)
    assert [row["verdict"] for row in rows] == ["met", "met"]
    assert about["frozen lbfgs"] == records.frozen_results()["lbfgs"]
    assert command.main(["toy-rows", "--repeats", "3", "--csv", str(path)]) == 1
    assert [row["verdict"] for row in read_record(path)[1]] == ["met", "MISSED"]
    out = capsys.readouterr()
    assert "... toy-rows" in out.err and "date: " in out.out and f"written to {path}" in out.out


def test_on_twins_no_target_is_judged(toys, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: True)
    monkeypatch.setattr(command, "TWINS", {"atis"})
    path = tmp_path / "rows.csv"
    assert command.main(["toy-rows", "--repeats", "3", "--csv", str(path)]) == 0
    assert [row["verdict"] for row in read_record(path)[1]] == ["", ""]
    out = capsys.readouterr().out
    assert "targets are not judged: built-in twins stand in for atis" in out and "MISSED" not in out


@pytest.mark.parametrize("source", ["builtin", "real"])
def test_records_of_twins_leave_the_committed_ones_alone(source, toys, monkeypatch, tmp_path, capsys):
    committed, aside = tmp_path / "results", tmp_path / "build" / "results"
    monkeypatch.setattr(records, "RESULTS", committed)
    monkeypatch.setattr(records, "OF_TWINS", aside)
    twin = load_dataset("atis", source="builtin", verbose=False)
    twin = replace(twin, source=source)
    monkeypatch.setattr(records, "data_hashes", lambda dataset: {})

    def run():
        yield "00_a.csv", [({}, lambda: {"x": 7})], [twin]
        yield "01_a.csv", [({}, lambda: {"x": 8})]  # of no corpus

    monkeypatch.setitem(toys, "toy-table-a", toys["toy-table-a"]._replace(run=run))
    first, second = studies.run("toy-table-a", folder=committed)
    assert first == (committed if source == "real" else aside) / "00_a.csv" and second.parent == committed
    assert (str(aside) in capsys.readouterr().out) == (source == "builtin")
    assert studies.run("toy-table-a", folder=tmp_path)[0].parent == tmp_path


def test_what_is_measured_is_kept(toys, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "find_spec", lambda name: True)
    rows = toys["toy-rows"]
    monkeypatch.setitem(toys, "toy-rows", rows._replace(run=lambda: rows.run(fails=True)))
    with pytest.raises(KeyboardInterrupt):
        command.main(["toy-rows", "--csv", str(tmp_path / "rows.csv")])
    assert [row["work"] for row in read_record(tmp_path / "rows.csv")[1]] == ["first"]


def test_the_command_makes_the_records_of_a_table(toys, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: None)  # a table needs no reference
    assert command.main(["toy-table-b", "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("written to") == 2
    assert [row["seen"] for row in read_record(tmp_path / "01_b.csv")[1]] == ["7", "7"]
    assert toys["toy-table-a"].files == ("00_a.csv", "01_a.csv") and not toys["toy-table-a"].timed
    paths = studies.run("toy-table-a", folder=tmp_path, n=5)
    assert [path.name for path in paths] == ["00_a.csv", "01_a.csv"]
    assert read_record(paths[0])[1] == [{"n": "5", "x": "7"}]


def test_studies_time_kernels_however_small_their_data(toys, monkeypatch, tmp_path):
    seen, rows, table = [], toys["toy-rows"], toys["toy-table-a"]
    corpus = SimpleNamespace(n_tokens=1, n_classes=1, longest=1, attr_idx=[])
    features = SimpleNamespace(n_attrs=1, n_labels=2)

    def look(run):
        seen.append(choice.is_tiny(corpus, features))
        return run()

    monkeypatch.setitem(toys, "toy-rows", rows._replace(run=lambda: look(rows.run)))
    monkeypatch.setitem(toys, "toy-table-a", table._replace(run=lambda: look(table.run)))
    list(studies.measure("toy-rows"))
    studies.run("toy-table-a", folder=tmp_path)
    assert seen == [False, False] and choice.is_tiny(corpus, features)


def test_a_name_of_the_other_kind_is_refused(toys, tmp_path):
    with pytest.raises(ValueError, match="tables: expected names among .*; got toy-rows"):
        studies.run("toy-rows", folder=tmp_path)
    with pytest.raises(ValueError, match="timings: expected names among .*; got toy-table-a"):
        next(studies.measure("toy-table-a"))
    assert [row.ours for row in studies.measure("toy-rows", repeats=2)] == [1.0, 2.0]


def test_all_means_the_timings(toys, monkeypatch, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: True)
    ran = []
    monkeypatch.setattr(command, "measure", lambda name, **options: ran.append(name) or [])
    assert command.main(["all"]) == 0
    assert ran == [name for name, one in toys.items() if one.timed]


# a study may be older than its chapter: then it has no record yet
CHAPTERS = {path.name[:2] for path in RESULTS.parent.glob("[0-9]*.ipynb")}


def test_every_record_has_a_study_or_a_cell_that_writes_it():
    written = {name for one in studies.studies().values() for name in one.files}
    cells = "".join(path.read_text() for path in RESULTS.parent.glob("*.ipynb"))
    for path in RESULTS.glob("*.csv"):
        assert path.name in written or f'\\"results\\") / \\"{path.name}\\"' in cells, path.name
    parts = "path", "selection", "sbcd", "best"  # of text that nobody may pass on
    unmade = {f"09_{part}_conll2003.csv" for part in parts}
    unmade |= {"14_wild_fewnerd.csv"}  # hours of CRFsuite's
    asked = {name for name in written - unmade if name[:2] in CHAPTERS}
    assert asked <= {path.name for path in RESULTS.glob("*.csv")}


def test_make_paper_runs_every_table_and_sees_which_record_is_old(tmp_path):
    tables = [one for one in studies.studies().values() if one.files and not one.timed]
    for one in (one for one in tables if one.chapter in CHAPTERS):
        (chapter,) = RESULTS.parent.glob(f"{one.chapter}_*.ipynb")
        assert f'\\"{one.name}\\"' in chapter.read_text(), one.name
    names = {"04_pos.csv": 50, "04_variance_pos.csv": 200, "04_ner.csv": 200, "04_peer_ner.csv": 99}
    names |= {"04_noise.csv": 200, "04_methods.csv": 200}
    for name, when in names.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (when, when))
    missing = paper.left_out("04", 100, tmp_path)
    assert sorted(missing) == ["04_peer_ner.csv", "04_pos.csv", "04_variance_ner.csv"]
    assert not [
        name for name in paper.left_out("09", 100, RESULTS) if "conll2003" in name
    ]  # nor is text asked for that nobody may pass on


# ---- records ----


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


def test_a_record_is_replaced_as_a_whole(tmp_path):
    """A write that is interrupted leaves the old record as it was, and no half of a new one."""

    class Interrupting:
        def __str__(self):
            raise KeyboardInterrupt

    path = write_record(tmp_path / "x.csv", [{"a": 1}], seconds=0)
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write_record(path, [{"a": 2}, {"a": Interrupting()}], seconds=0)
    assert path.read_bytes() == before


def test_a_cut_record_goes_on_and_a_finished_one_begins_anew(tmp_path):
    path, calls = tmp_path / "04_x.csv", []

    def job(name, fails=False):
        def make():
            calls.append(name)
            if fails:
                raise KeyboardInterrupt
            return {"score": len(calls)}

        return {"name": name, "n": 3}, make

    with pytest.raises(KeyboardInterrupt):
        fill(path, [job("a"), job("b", fails=True), job("c")])
    assert not path.exists() and [row["name"] for row in read_record(tmp_path / "04_x.part.csv")[1]] == ["a"]
    assert fill(path, [job("a"), job("b"), job("c")]) == path
    assert calls == ["a", "b", "b", "c"]
    about, rows = read_record(path)
    found = [(row["name"], row["n"], row["score"]) for row in rows]
    assert found == [("a", "3", "1"), ("b", "3", "3"), ("c", "3", "4")]
    assert float(about["seconds"]) >= 0 and [p.name for p in tmp_path.glob("04*")] == ["04_x.csv"]
    fill(path, [job("a")])
    assert calls[-1] == "a" and len(read_record(path)[1]) == 1


def test_keys_are_all_combinations_and_floats_have_five_digits():
    assert records.cells(a="xy", b=(1, 2)) == [dict(zip("ab", pair, strict=True)) for pair in
                                               (("x", 1), ("x", 2), ("y", 1), ("y", 2))]  # fmt: skip
    for made in ({"n": 7, "x": 2 / 3}, [{"n": 7, "x": 2 / 3}]):
        ((key, make),) = records.each(records.rounded(lambda n, made=made: made), [{"n": 7}])
        assert key == {"n": 7} and make() == [{"n": 7, "x": "0.66667"}]


def test_records_are_found_from_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert len(records.recorded("07_simulation")) == 8


def test_a_record_names_all_commits_that_made_it(monkeypatch, tmp_path):
    path, commits = tmp_path / "04_x.csv", iter(["first", "first", "second", "third"])
    monkeypatch.setattr(records, "commit", lambda: next(commits))

    def fails():
        raise KeyboardInterrupt

    good = [({"name": name}, lambda: {"score": 1}) for name in "abcd"]
    for jobs in ([*good[:2], ({"name": "c"}, fails)], [*good[:3], ({"name": "d"}, fails)]):
        with pytest.raises(KeyboardInterrupt):
            fill(path, jobs)
    assert read_record(fill(path, good))[0]["commit"] == "first, second, third"


def test_a_record_is_refused_where_the_package_is_not_committed(toys, monkeypatch, tmp_path):
    monkeypatch.setattr(records, "commit", lambda: "0123456789ab+")
    monkeypatch.setattr(studies, "require_clean", records.require_clean)
    with pytest.raises(RuntimeError, match="commit them first, or write elsewhere with dirty=True"):
        studies.run("toy-table-a", folder=tmp_path)
    assert not list(tmp_path.iterdir())
    assert len(studies.run("toy-table-a", folder=tmp_path, dirty=True)) == 2
    monkeypatch.setattr(records, "commit", lambda: "0123456789ab")
    assert len(studies.run("toy-table-a", folder=tmp_path)) == 2


def test_a_record_stands_while_the_frozen_results_of_its_code_hold(monkeypatch, tmp_path, capsys):
    case = next(iter(records.frozen_results()))
    path = write_record(tmp_path / "a.csv", [{"x": 1}], seconds=60, frozen=(case,))
    assert records.changed_since(read_record(path)[0]) == []
    assert records.recorded("a", tmp_path)["x"].tolist() == ["1"]
    assert "changed" not in capsys.readouterr().out
    other = {**records.frozen_results(), case: "another hash"}
    monkeypatch.setattr(records, "frozen_results", lambda: other)
    assert records.changed_since(read_record(path)[0]) == [case]
    records.recorded("a", tmp_path)
    assert f"results have changed since: {case}" in capsys.readouterr().out


def test_targets_that_the_processor_decides_have_no_verdict(tmp_path, capsys):
    rows = [Row(work, 1.0, 2.0, "s", 0.9, 0.7) for work in ("ours / theirs", records.PROCESSOR_DECIDES[0])]
    path = records.write_report(tmp_path / "a.csv", rows, seconds=60)
    table = records.recorded("a", tmp_path).set_index("work")[["ratio", "required", "aim", "verdict"]]
    assert table.to_numpy().tolist() == [["0.5000", "0.9", "0.7", "aim met"], ["0.5000", "", "", ""]]
    assert read_record(path)[0]["processor"] in capsys.readouterr().out


def test_a_record_of_an_unknown_frozen_case_is_refused(tmp_path):
    with pytest.raises(KeyError, match="no such case"):
        write_record(tmp_path / "a.csv", [{"x": 1}], seconds=1, frozen=("no such case",))


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_stored_records_name_a_commit_and_stand(path):
    about, rows = read_record(path)
    assert rows and re.fullmatch(r"[0-9a-f]{12}(, [0-9a-f]{12})*", about["commit"])
    assert records.changed_since(about) == []


UNNAMED = {  # records that name no frozen result, and why
    "10_growth 10_peers 11_kbest 11_peers 11_training 12_growth": "seconds alone, which no result decides",
    "10_built 13_built 14_neural": "beside programs that the reader builds",
    "10_errors 13_skip": "no row was computed again since records name frozen results",
    "03_benchmarks 05_benchmarks 05_fast_benchmarks 06_benchmarks 08_sbcd_targets": "not timed again since "
    "timings name them",
    "15_driver 15_growth": "memory, and counts of features, which no result decides",
    "15_passing 15_step 15_writing": "seconds and bytes alone",
    "10_targets 11_targets 12_targets 13_targets 15_targets 14_wild_atis 14_wild_esp 14_wild_ewt 14_wild_ned "
    "14_wild_wnut17": "ratios of seconds alone",
}


def test_records_name_the_frozen_results_that_they_rest_on():
    known, silent = records.frozen_results(), set()
    for one in studies.studies().values():
        assert set(one.frozen) <= set(known), one.name
        for name in one.files:
            path = RESULTS / name
            if path.exists() and not any(key.startswith(records.FROZEN) for key in read_record(path)[0]):
                silent.add(path.stem)
    assert silent == set(" ".join(UNNAMED).split())


def test_a_chapter_shows_a_kernel_without_its_docstring_and_a_sister_whole():
    kernel, sister = studies.source(online.perceptron_epoch), studies.source(online.perceptron_epoch_plain)
    assert kernel.startswith("@kernel\ndef perceptron_epoch(") and '"""' not in kernel
    assert kernel.endswith("count[0] += 1")
    assert sister.startswith("def perceptron_epoch_plain(") and "count : 1 at the start." in sister
