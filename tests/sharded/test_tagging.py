"""Files tagged here and by workers: what `predict` says, in pieces, complete or not at all."""

import errno
import hashlib
import os

import numpy as np
import pytest
from helpers.memory import peak_bytes
from helpers.sharded import NAMES, TEMPLATE, columns, names, sentences, write_columns

import crfbook.distributed.tagging as tagging
from crfbook import CRF
from crfbook.data.columns import TokenColumns
from crfbook.data.readers import read_conll
from crfbook.distributed import Tagged, predict_files, write_shards

TEXT = NAMES[:2]


@pytest.fixture(scope="module")
def crf():
    return CRF("perceptron", template=TEMPLATE, max_iterations=2).fit(columns(sentences()))


@pytest.fixture
def files(tmp_path):
    """Two files of columns without labels, and an empty one."""
    rows = [[(word, pos) for word, pos, _ in s] for s in sentences(seed=5)]
    empty = tmp_path / "c.txt"
    empty.write_bytes(b"\n\n")
    return [write_columns(tmp_path / "a.txt", rows[:40]), write_columns(tmp_path / "b.txt", rows[40:]), empty]


def expected(crf, path, names=TEXT):
    text = read_conll(path, names)
    return crf.predict(text.select(TEXT))


def found(path, names=(*TEXT, "label")):
    return read_conll(path, names, "label").labels_by_sequence()


def test_a_model_is_read_once_and_never_taken_for_another(crf, files, monkeypatch, tmp_path):
    other, read = CRF(template=TEMPLATE, max_iterations=1).fit(columns(sentences(seed=9))), []
    load = CRF.load
    monkeypatch.setattr(tagging, "_MODELS", {})
    monkeypatch.setattr(tagging.CRF, "load", lambda *args, **kwargs: read.append(1) or load(*args, **kwargs))
    assert expected(crf, files[0]) != expected(other, files[0])
    for i, model in enumerate((crf, crf, other, crf)):
        (row,) = predict_files(model, files[:1], tmp_path / str(i))
        assert found(row.path) == expected(model, files[0])
    assert len(read) == 3


@pytest.mark.parametrize("piece_tokens", [1, 7, 10_000])
def test_files_of_columns(crf, files, piece_tokens, tmp_path):
    out = tmp_path / "out"
    rows = predict_files(crf, files, out, piece_tokens=piece_tokens)
    for row, path in zip(rows, files, strict=True):
        text = read_conll(path, TEXT)
        assert row == Tagged(str(out / path.name), len(text), text.n_tokens)
        assert found(row.path) == expected(crf, path)
        assert read_conll(row.path, (*TEXT, None)) == text
        assert b"\n\n\n" not in (out / path.name).read_bytes()
    assert sorted(path.name for path in out.iterdir()) == ["a.txt", "b.txt", "c.txt"]


def test_columns_that_are_there_already(crf, tmp_path):
    path = write_columns(tmp_path / "a.txt", sentences(seed=5))
    (row,) = predict_files(crf, [path], tmp_path / "out", columns=(*TEXT, "label"))
    assert found(row.path) == expected(crf, path, (*TEXT, None))
    (row,) = predict_files(crf, [path], tmp_path / "more", columns=NAMES)
    assert found(row.path, (*TEXT, "y", "label")) == found(tmp_path / "out" / "a.txt")
    assert read_conll(row.path, (*TEXT, "y", None)) == read_conll(path, NAMES)
    (row,) = predict_files(crf, [path], tmp_path / "less", columns=(*TEXT, None), label="pos")
    assert read_conll(row.path, ("word", "pos"), "pos").labels_by_sequence() == found(
        tmp_path / "out" / "a.txt"
    )


def test_parquet(crf, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    rows = [*sentences(seed=5)[:30], [], *sentences(seed=5)[30:]] * 20  # more than one batch
    cells = {name: [[cells[j] for cells in s] for s in rows] for j, name in enumerate(NAMES)}
    cells["id"] = list(range(len(rows)))
    parquet.write_table(pyarrow.table(cells), tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table(cells).slice(0, 0), tmp_path / "b.parquet")
    wanted = crf.predict(columns(rows))
    for label in ("label", "y", "pos"):
        one, two = predict_files(
            crf, [tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / label, label=label
        )
        table = parquet.read_table(one.path)
        assert table[label].to_pylist() == wanted and table["id"].to_pylist() == cells["id"]
        assert table.column_names[-1] == label and len(set(table.column_names)) == len(table.column_names)
        assert (one.n_sequences, one.n_tokens) == (len(rows), sum(map(len, rows)))
        assert two[1:] == (0, 0) and parquet.read_table(two.path).column_names == table.column_names


def test_bad_parquet_is_told_where(crf, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    path = tmp_path / "a.parquet"
    for cells, message in (
        ({"word": [["a"], ["b"]], "pos": [["c"], None]}, r"row 1, column 'pos': expected a list, got None$"),
        ({"word": [["a"], ["b"]], "pos": [["c"], ["d", "e"]]}, r"row 1, column 'pos': expected 1 values, as"),
        ({"word": ["a"], "pos": [["c"]]}, "row 0, column 'word': expected a list, got 'a'$"),
        ({"word": [["a"]]}, "expected the columns 'word', 'pos', got 'word'$"),
    ):
        parquet.write_table(pyarrow.table(cells), path)
        with pytest.raises(ValueError, match=rf"^\S*a\.parquet[:,] {message}"):
            predict_files(crf, [path], tmp_path / "out")
    path.write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"^\S*a\.parquet: "):
        predict_files(crf, [path], tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_bad_columns_are_told_where(crf, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a b\n\nc\n")
    with pytest.raises(
        ValueError, match=r"^\S*a\.txt, line 3: expected 2 columns \(word, pos\), found 1: 'c'$"
    ):
        predict_files(crf, [path], tmp_path / "out")
    path.write_text("a b\n")
    with pytest.raises(ValueError, match=r"^\S*a\.txt: expected the columns 'word', 'pos', got 'word', 'x'$"):
        predict_files(crf, [path], tmp_path / "out", columns=("word", "x"))
    with pytest.raises(FileNotFoundError, match="nothing"):
        predict_files(crf, [tmp_path / "nothing"], tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("template, read", [("U:%x[0,0]\n", 1), ("U:%x[0,word]\n", 1), ("U:%x[0,1]\n", 2)])
def test_columns_that_the_template_does_not_read_may_be_missing(template, read, tmp_path):
    crf = CRF("perceptron", template=template, max_iterations=2).fit(columns(sentences()))
    rows = [[token[:2] for token in s] for s in sentences(seed=5)]
    path = write_columns(tmp_path / "a.txt", [[token[:read] for token in s] for s in rows])
    wanted = crf.predict(TokenColumns.from_sentences(rows, TEXT))
    (row,) = predict_files(crf, [path], tmp_path / "out", columns=TEXT[:read])
    assert found(row.path, (*TEXT[:read], "label")) == wanted
    if read == 2:
        with pytest.raises(ValueError, match=r"expected the columns 'word', 'pos', got 'pos'$"):
            predict_files(crf, [path], tmp_path / "less", columns=(None, "pos"))


def test_what_is_there_already(crf, files, tmp_path):
    out = tmp_path / "out"
    first = predict_files(crf, files, out)
    with pytest.raises(
        FileExistsError, match=r"a\.txt exists: existing='skip' keeps it, existing='replace' wri"
    ):
        predict_files(crf, files, out)
    (out / "a.txt").write_text("mine")
    os.unlink(out / "b.txt")
    rows = predict_files(crf, files, out, existing="skip")
    assert rows == [Tagged(first[0].path, -1, -1), first[1], Tagged(first[2].path, -1, -1)]
    assert (out / "a.txt").read_text() == "mine"
    assert predict_files(crf, files, out, existing="replace") == first
    assert found(out / "a.txt") == expected(crf, files[0])


def test_what_cannot_be_done_is_said_at_once(crf, files, tmp_path):
    def tag(*args, **kwargs):
        return predict_files(crf, *args, **kwargs)

    os.makedirs(tmp_path / "d")
    twin = write_columns(tmp_path / "d" / "a.txt", [])
    for attempt, message in (
        (lambda: tag([files[0], files[0]], "o"), r"^files: expected names that differ, got a\.txt 2 times$"),
        (lambda: tag([files[0], twin], "o"), r"^files: expected names that differ, got a\.txt 2 times$"),
        (lambda: tag(files, tmp_path), r"^out: expected another folder than that of the files, \S+a.txt is"),
        (lambda: tag(str(files[0]), "o"), r"^files: expected a list of paths, got one path: "),
        (lambda: tag(files, "o", existing="x"), "^existing: expected one of 'error', 'skip', 'replace'"),
        (lambda: tag(files, "o", piece_tokens=0), "^piece_tokens: expected an integer >= 1, got 0$"),
        (lambda: predict_files(CRF(max_iterations=0).fit(*names(sentences())), files, "o"),
         "^predict_files: expected a CRF with a template, which reads columns, got one without$"),
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=message):
            attempt()
    assert tag([], tmp_path / "none") == []


def test_labels_that_are_no_strings_are_refused(files, tmp_path):
    text = TokenColumns({"word": ["a", "b"], "pos": ["c", "d"]}, [0, 2], [1, 2])
    crf = CRF(template=TEMPLATE, max_iterations=1).fit(text)
    with pytest.raises(
        ValueError, match="^predict_files: expected a CRF whose labels are strings, one is 1$"
    ):
        predict_files(crf, files, tmp_path / "out")


def test_a_full_disk_leaves_no_file(crf, files, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left on device"):
        patch.setattr(tagging, "write_conll", full)
        predict_files(crf, files, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    assert len(predict_files(crf, files, tmp_path / "out", existing="skip")) == 3


def test_memory_is_that_of_a_piece(crf, monkeypatch, tmp_path):
    rows = [[(word, pos) for word, pos, _ in s] for s in sentences(seed=5)] * 10
    path, sizes, real = write_columns(tmp_path / "a.txt", rows), [], CRF.predict
    monkeypatch.setattr(CRF, "predict", lambda self, X: sizes.append(X.n_tokens) or real(self, X))
    predict_files(crf, [path], tmp_path / "out", piece_tokens=100)
    assert max(sizes) < 100 + max(map(len, rows)) and sum(sizes) == sum(map(len, rows))


def test_workers_tag_the_same(crf, files, client, kill, monkeypatch, tmp_path):
    more = [tmp_path / f"{i}.txt" for i in range(8)]
    for path in more:
        write_columns(path, [[(word, pos) for word, pos, _ in s] for s in sentences(seed=6)])
    here = predict_files(crf, [*files, *more], tmp_path / "here")
    with monkeypatch.context() as patch:
        killed = kill.on_the_way(patch, tagging)
        there = predict_files(crf, [*files, *more], tmp_path / "there", client)
        assert killed and not [name for name in os.listdir(tmp_path / "there") if name.endswith(".tmp")]
    for one, two in zip(here, there, strict=True):
        assert one[1:] == two[1:]
        with open(one.path, "rb") as a, open(two.path, "rb") as b:
            assert a.read() == b.read()
    bad = tmp_path / "bad.txt"
    bad.write_text("a\n")
    with pytest.raises(ValueError, match=r"bad\.txt, line 1: expected 2 columns"):
        predict_files(crf, [*more, bad], tmp_path / "bad", client)
    left = [path.name for path in (tmp_path / "bad").iterdir()]
    assert all(name.endswith(".txt") for name in left)
    client.wait_for_workers(2, timeout=60)


def test_what_killed_workers_left_goes(crf, files, tmp_path):
    """Of the files that were tagged, no others."""
    out = tmp_path / "out"
    out.mkdir()
    mine, others = out / "a.txt.0123456789ab.tmp", [out / "a.txt.tmp", out / "z.txt.0123456789ab.tmp"]
    for path in (mine, *others):
        path.write_text("half a file")
    predict_files(crf, files[:1], out)
    assert sorted(os.listdir(out)) == ["a.txt", "a.txt.tmp", "z.txt.0123456789ab.tmp"]
    mine.write_text("half a file")
    predict_files(crf, files[:2], out, existing="skip")  # a.txt is not tagged again
    assert mine.exists() and all(path.exists() for path in others)


def test_rows_of_parquet_are_counted_through_the_file(crf, monkeypatch, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    words, tags = [[f"w{i}"] for i in range(12)], [["t1"]] * 12
    words[9] = ["a", "b"]
    parquet.write_table(pyarrow.table({"word": words, "pos": tags}), tmp_path / "a.parquet")
    monkeypatch.setattr(tagging, "ROWS", 4)
    with pytest.raises(ValueError, match=r"a\.parquet, row 9, column 'pos': expected 2 values"):
        predict_files(crf, [tmp_path / "a.parquet"], tmp_path / "out")


def test_a_task_of_a_call_that_has_ended_writes_nothing(crf, files, tmp_path):
    """A task that was still at work when its call failed must not replace what a later call wrote."""
    model, target = tmp_path / "model.crfbook", tmp_path / "a.txt"
    crf.save(model)
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    job = digest, str(files[0]), str(tmp_path / "out.txt"), TEXT, "label", 100
    tagging.tag_file(str(model), *job)  # the model is known from now on
    os.unlink(model)
    (tmp_path / "out.txt").write_text("of another call")
    with pytest.raises(RuntimeError, match="the call of predict_files that asked for it has ended$"):
        tagging.tag_file(str(model), *job)
    assert (tmp_path / "out.txt").read_text() == "of another call" and not target.with_suffix(".tmp").exists()


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_links_keep_their_names(crf, files, tmp_path):
    (tmp_path / "snap").mkdir()
    (tmp_path / "snap" / "test.txt").symlink_to(files[0])
    (row,) = predict_files(crf, [tmp_path / "snap" / "test.txt"], tmp_path / "out")
    assert os.path.basename(row.path) == "test.txt" and found(row.path) == expected(crf, files[0])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
@pytest.mark.parametrize("name", ["pipe.txt", "pipe.parquet", "folder.txt", "folder.parquet"])
def test_what_is_no_regular_file_is_refused(crf, tmp_path, name):
    """By the sentence of `write_shards`; it is not opened, which would wait for ever."""
    path = tmp_path / name
    path.mkdir() if name.startswith("folder") else os.mkfifo(path)
    told = f"^{path}: expected a file, which can be read twice, got a folder or a pipe$"
    with pytest.raises(ValueError, match=told):
        predict_files(crf, [path], tmp_path / "out")
    with pytest.raises(ValueError, match=told):
        write_shards([path], tmp_path / "s", CRF(template=TEMPLATE), columns=NAMES, label="y")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no devices")
def test_a_device_is_refused(crf, tmp_path):
    with pytest.raises(ValueError, match="^/dev/zero: expected a file, which can be read twice, got a f"):
        predict_files(crf, ["/dev/zero"], tmp_path / "out")


def test_a_line_of_200_megabytes_takes_no_memory(crf, tmp_path):
    path = tmp_path / "a.txt"
    with open(path, "wb") as file:
        file.write(b"a b\n\n")
        file.truncate(200_000_000)  # NUL to the end, which takes no space

    def tag():
        with pytest.raises(ValueError, match=r"a\.txt, line 3: expected a line of at most 1,048,576 bytes"):
            predict_files(crf, [path], tmp_path / "out")

    assert peak_bytes(tag)[1] < 50_000_000
    assert not list((tmp_path / "out").iterdir())


def test_names_that_no_file_has(crf, files, tmp_path):
    for attempt in (
        lambda: predict_files(crf, ["a\0b"], tmp_path),
        lambda: predict_files(crf, files, "a\0b"),
    ):
        with pytest.raises(ValueError, match=r"^path: expected the name of a file, got 'a\\x00b'$"):
            attempt()


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_link_to_a_missing_file_is_there(crf, files, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(FileExistsError, match=r"a\.txt exists: existing='skip' keeps it"):
        predict_files(crf, files[:1], out)
    assert predict_files(crf, files[:1], out, existing="skip")[0].n_tokens == -1
    assert (out / "a.txt").is_symlink() and not (tmp_path / "gone").exists()
    predict_files(crf, files[:1], out, existing="replace")
    assert not (out / "a.txt").is_symlink() and found(out / "a.txt") == expected(crf, files[0])


def test_models_of_killed_calls_go(crf, files, monkeypatch, tmp_path):
    """Not that of a call that is at work in the same folder."""
    pytest.importorskip("fcntl")
    out, seen, real = tmp_path / "out", [], tagging.tag_file
    out.mkdir()
    left = [".model-0123456789ab.crfbook", ".model-0123456789ab.crfbook.0123456789ab.tmp"]
    mine = [".model-x.crfbook", "model-0123456789ab.crfbook"]
    for name in (*left, *mine):
        (out / name).write_text("")

    def tag(model, *job):
        if not seen:
            seen.extend(name for name in os.listdir(out) if name.startswith(".model"))
            predict_files(crf, files[1:2], out)
            assert os.path.exists(model)
        return real(model, *job)

    monkeypatch.setattr(tagging, "tag_file", tag)
    predict_files(crf, files[:1], out)
    assert len(seen) == 2 and not {*left} & {*seen}
    assert sorted(os.listdir(out)) == sorted([*mine, "a.txt", "b.txt"])


def test_damaged_parquet_is_named(crf, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    rows = sentences(seed=5)
    cells = {name: [[cells[j] for cells in s] for s in rows] for j, name in enumerate(NAMES)}
    parquet.write_table(pyarrow.table(cells), tmp_path / "good")
    good, refused = (tmp_path / "good").read_bytes(), 0
    path = tmp_path / "a.parquet"
    for i in range(50):
        rng = np.random.default_rng(i)
        bad = bytearray(good)
        for at in rng.integers(0, len(bad), 20):
            bad[at] = rng.integers(256)
        path.write_bytes(bad)
        for attempt in (
            lambda: predict_files(crf, [path], tmp_path / "out", existing="replace"),
            lambda i=i: write_shards([path], tmp_path / f"s{i}", CRF(template=TEMPLATE), label="y"),
        ):
            try:
                attempt()
            except ValueError as error:
                assert str(path) in str(error) and str(error).isprintable() and len(str(error)) < 700
                refused += 1
    assert refused > 50
    table = pyarrow.table([[["a"]], [["b"]], [["c"]]], ["word", "pos", "word"])
    parquet.write_table(table, path)
    with pytest.raises(ValueError, match=r"a\.parquet: expected columns with different names, got"):
        predict_files(crf, [path], tmp_path / "out", existing="replace")


def test_a_row_of_parquet_has_a_limit(crf, monkeypatch, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    monkeypatch.setattr("crfbook.distributed.reading.MAX_SENTENCE", 5)
    table = {"word": [["a"], ["a"] * 6], "pos": [["a"], ["a"] * 6]}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet, row 1, column 'word': expected at most 5 values"):
        predict_files(crf, [tmp_path / "a.parquet"], tmp_path / "out")
