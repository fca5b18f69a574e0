"""From texts to shards: the same encoder and weights as `CRF.fit`, whatever is stopped on the way."""

import copy
import errno
import os
import shutil
import time

import numpy as np
import pytest
from helpers.sharded import (
    NAMES,
    TEMPLATE,
    columns,
    dicts,
    labels,
    matrices,
    names,
    sentences,
    write_columns,
)
from scipy import sparse

import crfbook.distributed.writing as writing
from crfbook import CRF
from crfbook.data.columns import TokenColumns
from crfbook.data.files import load_arrays, save_arrays
from crfbook.distributed import ShardError, Shards, fit, write_shards
from crfbook.distributed.reading import digest_of, same_file
from crfbook.encoding.encoder import Encoder

ROWS = sentences()


def whole(form, weights=None):
    X, y = (columns(ROWS), None) if form is columns else form(ROWS)
    return (X, y, weights)


def parts(form, weights=None):
    """The same as three texts."""
    found = []
    for a, b in ((0, 20), (20, 21), (21, 60)):
        X, y = (columns(ROWS[a:b]), None) if form is columns else form(ROWS[a:b])
        found.append((X, y, None if weights is None else weights[a:b]))
    return found


def assert_as_fit(shards, crf, X, y, weights=None):
    """Encoder, features, constraints are those of `CRF.fit`; so are the weights of a few steps."""
    crf.fit(X, y, sample_weight=weights)
    mine, theirs = shards.encoder.get_state(), crf.encoder_.get_state()
    assert mine["header"] == theirs["header"]
    for name, array in theirs["arrays"].items():
        np.testing.assert_array_equal(mine["arrays"][name], array, err_msg=name)
    assert shards.features.sizes == crf.features_.sizes
    for name in ("node_keys", "edge_keys"):
        np.testing.assert_array_equal(getattr(shards.features, name), getattr(crf.features_, name))
    assert (shards.constraints is None) == (crf.constraints_ is None)
    again = fit(CRF(**crf.get_params()), shards)
    np.testing.assert_allclose(again.weights_, crf.weights_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(again.objective_, crf.objective_, rtol=1e-12)
    assert again.n_dropped_ == crf.n_dropped_
    assert again.predict(X) == crf.predict(X)


WEIGHTS = np.random.default_rng(3).random(60)


@pytest.mark.parametrize(
    ("form", "weights", "options"),
    [
        (columns, None, {"template": TEMPLATE}),
        (columns, WEIGHTS, {"template": TEMPLATE, "min_freq": 2}),
        (columns, None, {"template": TEMPLATE, "all_possible_transitions": True, "c1": 0.3}),
        (dicts, None, {"min_freq": 1.5}),
        (dicts, WEIGHTS, {"all_possible_states": True}),
        (names, None, {"constraints": "BIO", "on_violation": "drop", "min_freq": 2}),
        (names, np.where(np.arange(60) < 25, 0.0, 1.0), {}),
        (matrices, None, {"all_possible_states": True, "all_possible_transitions": True}),
        (matrices, WEIGHTS, {"c1": 0.3, "constraints": "BIO", "on_violation": "drop"}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)[:40]),
)
@pytest.mark.filterwarnings("ignore:.* training sequences violate the constraints:UserWarning")
@pytest.mark.parametrize("least", [1, writing.LEAST])
def test_as_one_process_would(form, weights, options, least, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "LEAST", least)  # a part is a shard, or a text
    crf = CRF(max_iterations=6, **options)
    shards = write_shards(parts(form, weights), tmp_path, crf, shard_tokens=40)
    assert len(shards) > 5 and shards.n_sequences + shards.n_dropped == 60
    assert_as_fit(shards, crf, *whole(form, weights))


def test_shards_of_a_text_share_its_alphabet_and_are_those_of_many_parts(tmp_path, monkeypatch):
    merged, merge = [], Encoder.merged
    monkeypatch.setattr(Encoder, "merged", lambda *both: merged.append(both) or merge(*both))
    found = write_shards([columns(ROWS)], tmp_path / "one", CRF(template=TEMPLATE), shard_tokens=9)
    assert len(found) == 20 and not merged
    monkeypatch.setattr(writing, "LEAST", 1)
    other = write_shards([columns(ROWS)], tmp_path / "many", CRF(template=TEMPLATE), shard_tokens=9)
    assert other.digest == found.digest and len(merged) == len(other) - 1


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            ([[("ap", "x"), ("bq", "y")], [("cp", "x")]], [["A", "B"], ["A"]]),
            {"template": "U0:%x[0,0]\nB1:%x[0,1]\n"},
        ),
        (([[{"a": 2.0}], [{"a": 1.0}]], [["x"], ["y"]]), {}),
        (([[{"a": 2.0}], [{"a": 1.0}]], [["x"], ["y"]], [1.0, 3.0]), {}),
    ],
    ids=["a word without a class", "values of one", "weights of one"],
)
def test_a_shard_stores_what_its_own_text_would(text, options, tmp_path, monkeypatch):
    crf, found = CRF(**options), []
    for least in (writing.LEAST, 1):
        monkeypatch.setattr(writing, "LEAST", least)
        found.append(write_shards([text], tmp_path / str(least), crf, shard_tokens=1))
    assert found[0].digest == found[1].digest and len(found[0]) == 2


def test_other_shards_of_the_same_text_are_not_taken_for_these(tmp_path):
    write_shards([columns(ROWS)], tmp_path, CRF(template=TEMPLATE), shard_tokens=9)
    with pytest.raises(ShardError, match="the shards there are of others"):
        write_shards([columns(ROWS)], tmp_path, CRF(template=TEMPLATE), shard_tokens=12)


def test_what_is_left_out_is_said(tmp_path):
    crf = CRF(constraints="BIO", on_violation="drop")
    with pytest.warns(UserWarning, match=r"^\d+ training sequences violate the constraints and were left"):
        assert write_shards([names(ROWS)], tmp_path, crf).n_dropped > 0


def test_empty_texts_one_sentence_a_shard_and_labels_that_one_shard_never_saw(tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    texts = [empty, *[columns([row]) for row in ROWS], TokenColumns({"word": [], "pos": []}, [0, 0, 0], [])]
    crf = CRF(max_iterations=5, template=TEMPLATE)
    shards = write_shards(texts, tmp_path / "s", crf, columns=NAMES, label="y")
    assert [shard.n_tokens for shard in shards.shards][:2] == [0, len(ROWS[0])] and len(shards) == 62
    seen = [set(y) for y in labels(ROWS)]
    assert min(map(len, seen)) < 3 == len(shards.encoder.labels_)
    assert_as_fit(shards, crf, columns(ROWS), None)
    for algorithm in ("auto", "perceptron"):
        assert fit(CRF(algorithm, max_iterations=3, template=TEMPLATE), shards).score(columns(ROWS)) > 0.5


def test_texts_of_all_kinds_are_the_same_text(tmp_path):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    cells = {name: [[row[j] for row in s] for s in ROWS] for j, name in enumerate(NAMES)}
    frame = pandas.DataFrame(cells)
    parquet.write_table(pyarrow.table(cells), tmp_path / "a.parquet")
    bare = TokenColumns(columns(ROWS).columns, columns(ROWS).seq_ptr)
    pairs = [([(w, p) for w, p, _ in s], y) for s, y in zip(ROWS, labels(ROWS), strict=True)]
    texts = {
        "columns": [columns(ROWS)],
        "flat labels": [(bare, columns(ROWS).labels)],
        "frame": [frame],
        "frame of arrays": [frame.map(np.array)],
        "file": [write_columns(tmp_path / "a.txt", ROWS)],
        "windows": [str(write_columns(tmp_path / "b.txt", ROWS, "\r\n"))],
        "parquet": [tmp_path / "a.parquet"],
        "generator": (columns(ROWS[i : i + 20]) for i in range(0, 60, 20)),
    }
    wanted = None
    for name, text in texts.items():
        crf = CRF(template=TEMPLATE)
        found = write_shards(text, tmp_path / name, crf, columns=NAMES, label="y")
        state = found.encoder.get_state()["arrays"] | {"k": found.features.node_keys}
        state = {key: array.tobytes() for key, array in state.items()}
        wanted = wanted or state
        assert state == wanted, name
    crf = CRF(template=TEMPLATE)
    found = write_shards([pairs], tmp_path / "pairs", crf, label="y")
    assert found.encoder.columns_ == ["0", "1"] and found.features.n_features == len(
        CRF(template=TEMPLATE, max_iterations=0).fit(columns(ROWS)).weights_
    )


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([([[["a"]], [["b"]]], [["x"]])], "^text 0: X has 2 sequences but y has 1$"),
        ([([[["a"]]], [["x", "y"]])], "^text 0: sequence 0: 1 tokens but 2 labels$"),
        ([names(ROWS), ([[["a"]]], [[None]])], "^text 1: sequence 0, token 0: expected a label, got none$"),
        ([([[{"a": float("nan")}]], [["x"]])], "^text 0: sequence 0, token 0: attribute 'a': expected a fin"),
        ([([[["a"]]], [["x"]], [float("nan")])], "^text 0: sample_weight: expected finite numbers >= 0"),
        ([([[["a"]]], [["x"]], [1.0, 2.0])], "^text 0: X has 1 sequences but sample_weight has 2$"),
        ([([[["a"]]], [["x"]], [0.0])], "^sample_weight: expected a weight above 0, got only zeros$"),
        ([([5], [["x"]])], "^text 0: sequence 0: expected a list of tokens, got 5$"),
        ([([[["a"]]], [[frozenset("a")]])], "^text 0: sequence 0, token 0: expected one label, got .*a set"),
        ([names(ROWS), matrices(ROWS)], "^text 1: form of X: expected the same in all parts"),
        ([matrices(ROWS), ([np.ones((1, 3))], [["x"]])], "^text 1: columns of numbers: expected the same"),
        ([names(ROWS)[0]], "^text 0: texts: expected paths, TokenColumns, tuples"),
        ([], "^texts: expected at least one, got none$"),
        ([([], []), ([[]], [[]])], "^nothing to learn from: 2 texts hold no token$"),
        ("file.txt", "^texts: expected a list of texts, got 'file.txt'$"),
        (5, "^texts: expected a list of texts, got 5$"),
        (columns(ROWS), "^texts: expected a list of texts, got TokenColumns"),
    ],
)
def test_bad_texts_are_told_where(texts, message, tmp_path):
    with pytest.raises((ValueError, TypeError), match=message):
        write_shards(texts, tmp_path, CRF())


def test_a_ready_corpus_has_no_alphabet_to_merge(tmp_path):
    corpus = CRF(max_iterations=0).fit(*names(ROWS)).encoder_.transform(*names(ROWS))
    for text in (corpus, (corpus, None)):
        with pytest.raises(TypeError, match="^text 0: texts: expected paths"):
            write_shards([text], tmp_path, CRF())


def test_bad_files_are_named(tmp_path):
    crf = CRF(template=TEMPLATE)
    good, bad = write_columns(tmp_path / "good.txt", ROWS), tmp_path / "bad.txt"
    bad.write_text("a b c\n\nd e\n")
    with pytest.raises(
        ValueError, match=r"^\S*bad\.txt, line 3: expected 3 columns .*, found 2: 'd e'; unlabelled=True"
    ):
        write_shards([good, bad], tmp_path / "s", crf, columns=NAMES, label="y")
    with pytest.raises(ValueError, match=r"^\S*good\.txt: expected columns=, the names of the columns"):
        write_shards([good], tmp_path / "s", crf)
    with pytest.raises(ValueError, match=r"^\S*good\.txt: label 'label' is not among the columns"):
        write_shards([good], tmp_path / "s", crf, columns=NAMES)
    with pytest.raises(FileNotFoundError, match="nothing.txt"):
        write_shards([tmp_path / "nothing.txt"], tmp_path / "s", crf, columns=NAMES, label="y")
    other = TokenColumns({"word": ["a"], "tag": ["b"]}, [0, 1], ["O"])
    with pytest.raises(ValueError, match="^text 1: columns: expected the same in all parts of a text, got"):
        write_shards([columns(ROWS), other], tmp_path / "s", crf)
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(b"PAR1")
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match=r"^\S*torn\.parquet: "):
        write_shards([torn], tmp_path / "s", crf)


@pytest.mark.parametrize("again", ["{0}", "{0}/../a.txt", "link"])
def test_a_file_comes_once(again, tmp_path):
    path = write_columns(tmp_path / "a.txt", ROWS)
    os.symlink(path, tmp_path / "link")
    twice = [path, str(tmp_path / "link") if again == "link" else again.format(path)]
    twice[1] = twice[1].replace("a.txt/../", "")
    with pytest.raises(ValueError, match=r"^texts: expected each file once, got \S+ as number 0 and 1$"):
        write_shards(twice, tmp_path / "s", CRF(template=TEMPLATE), columns=NAMES, label="y")


def test_violations_name_the_text(tmp_path):
    with pytest.raises(ValueError, match="^text 1: 1 of 1 training sequences violate the constraints"):
        write_shards([([[["a"]]], [["O"]]), ([[["a"]]], [["I-x"]])], tmp_path, CRF(constraints="BIO"))
    drop = CRF(constraints="BIO", on_violation="drop")
    with pytest.raises(ValueError, match="^all 1 training sequences with tokens violate the constraints$"):
        write_shards([([[["a"]]], [["I-x"]])], tmp_path / "d", drop)


def test_odd_names_and_labels_come_back(tmp_path):
    X = [[["a\nb", ""], ["\u4e2d"]], [["\ud800"]], [["a"]]]
    y = [[1, ("x", 2)], ["new\nline"], [""]]
    shards = write_shards([(X[:1], y[:1]), (X[1:], y[1:])], tmp_path, CRF())
    assert (
        shards.encoder.labels_ == CRF(max_iterations=0).fit(X, y).classes_ == [1, "", "new\nline", ("x", 2)]
    )


def test_tag_dictionaries_are_for_one_process(tmp_path):
    with pytest.raises(ValueError, match="^write_shards: expected tag_dictionary=None, got 2$"):
        write_shards([columns(ROWS)], tmp_path, CRF(template=TEMPLATE, tag_dictionary=2))


# ---- stopped and gone on with


class Stopped(Exception):
    pass


@pytest.mark.parametrize(
    "step", ["encode", "renumber", "cut", "_merged", "_choose", "write_manifest", "unlink"]
)
def test_gone_on_with_after_an_exception_in_any_step(step, monkeypatch, tmp_path):
    def write(folder):
        return write_shards(parts(columns), folder, CRF(template=TEMPLATE, min_freq=2), shard_tokens=40)

    wanted, calls = write(tmp_path / "wanted"), []
    owner, name = (os, "unlink") if step == "unlink" else (writing, step)
    real = getattr(owner, name)

    def third_time_fails(*args):
        calls.append(args)
        if len(calls) == (3 if step in ("encode", "renumber", "cut", "unlink") else 1):
            raise Stopped
        return real(*args)

    monkeypatch.setattr(owner, name, third_time_fails)
    with pytest.raises(Stopped):
        write(tmp_path / "s")
    pieces = []
    piece = writing._encode_piece
    monkeypatch.setattr(writing, "_encode_piece", lambda *args: pieces.append(args) or piece(*args))
    found = write(tmp_path / "s")
    assert found.digest == wanted.digest and found.shards[3][1:] == wanted.shards[3][1:]
    assert len(pieces) < len(found) if step == "encode" else pieces == []  # nothing is read again
    left = [path.name for path in (tmp_path / "s" / writing.PARTS).iterdir()]
    assert all(name.endswith((".done", "lock")) for name in left)


def test_settings_may_change_before_the_end(monkeypatch, tmp_path):
    def stop(*_):
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(writing, "cut", stop)
        write_shards([names(ROWS)], tmp_path / "s", CRF())
    found = write_shards([names(ROWS)], tmp_path / "s", CRF(min_freq=3))
    wanted = write_shards([names(ROWS)], tmp_path / "t", CRF(min_freq=3))
    assert found.digest == wanted.digest and 0 < found.features.n_features


def test_weights_may_change_before_the_end(monkeypatch, tmp_path):
    """The alphabet is the same; no shard of the call before is taken for one of this."""

    def stop(*_):
        raise Stopped

    X, y = names(ROWS)
    weights = np.linspace(1.0, 2.0, len(X))
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(writing, "write_manifest", stop)
        write_shards([(X, y)], tmp_path / "s", CRF(), shard_tokens=40)
    found = write_shards([(X, y, weights)], tmp_path / "s", CRF(), shard_tokens=40)
    wanted = write_shards([(X, y, weights)], tmp_path / "t", CRF(), shard_tokens=40)
    assert found.digest == wanted.digest
    other = write_shards([(X, y, 2 * weights)], tmp_path / "u", CRF(), shard_tokens=40)
    assert other.alphabet == wanted.alphabet and other.shards[0].digest != wanted.shards[0].digest


def test_what_is_in_a_finished_folder(tmp_path):
    """Of four sentences of five tokens, two fill a shard of ten."""
    X = [[[f"w{i}"] for i in range(5)]] * 4
    found = write_shards([(X, [list("xyxyx")] * 4)], tmp_path, CRF(), shard_tokens=10)
    assert [shard.n_tokens for shard in found.shards] == [10, 10]
    held = {"alphabet.crfbook", "manifest.json", writing.PARTS, "shard-00000.crfbook", "shard-00001.crfbook"}
    assert {path.name for path in tmp_path.iterdir()} == held


def test_finished_shards_stay_unless_they_are_of_others(tmp_path):
    crf, form = CRF(min_freq=np.int64(2)), parts(matrices)
    first = write_shards(form, tmp_path / "s", crf, shard_tokens=40)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").glob("shard-*")}
    form[0][0][0].has_sorted_indices  # noqa: B018  a sparse matrix remembers that it was asked
    again = write_shards(copy.deepcopy(form), tmp_path / "s", crf, shard_tokens=40)
    assert again.digest == first.digest
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "s").glob("shard-*")}
    for other in (form[1:], form[::-1]):
        with pytest.raises(ShardError, match="expected a new folder, or shards of the same texts and settin"):
            write_shards(other, tmp_path / "s", crf, shard_tokens=40)
    with pytest.raises(ShardError, match="the shards there are of others"):
        write_shards(form, tmp_path / "s", CRF(min_freq=3), shard_tokens=40)
    shutil.move(tmp_path / "s", tmp_path / "t")
    assert write_shards(form, tmp_path / "t", crf, shard_tokens=40).digest == first.digest
    fit(CRF(min_freq=2, max_iterations=1), tmp_path / "t")
    with pytest.raises(ShardError, match=r"^alphabet alphabet\.crfbook: expected a file, there is none at "):
        fit(CRF(min_freq=2, max_iterations=1), first)


def test_equal_texts_are_the_same_whatever_they_share(tmp_path):
    shared = "word"
    apart = ["".join(("wo", "rd")) for _ in range(3)]
    write_shards([([[[shared], [shared], [shared]]], [["x", "x", "x"]])], tmp_path, CRF())
    write_shards([([[[word] for word in apart]], [list("xxx")])], tmp_path, CRF())


def test_a_sparse_matrix_is_the_same_in_any_order():
    """Entries may come in any order, and in parts."""
    one = sparse.csr_matrix(([3.0, 1.0], [0, 2], [0, 2]), shape=(1, 4))
    two = sparse.csr_matrix(([1.0, 2.0, 1.0], [2, 0, 0], [0, 3]), shape=(1, 4))
    other = sparse.csr_matrix(([1.0, 2.0, 2.0], [2, 0, 0], [0, 3]), shape=(1, 4))
    first, second, third = (digest_of(([x], [["y"]])) for x in (one, two, other))
    assert first == second != third and two.nnz == 3  # the caller's is left as it was


def test_two_at_once(monkeypatch, tmp_path):
    pytest.importorskip("fcntl")
    real = writing.cut

    def cut(*args):
        with pytest.raises(ShardError, match=r"s: another write_shards is at work in this folder$"):
            write_shards([names(ROWS)], tmp_path / "s", CRF())
        return real(*args)

    monkeypatch.setattr(writing, "cut", cut)
    assert len(write_shards([names(ROWS)], tmp_path / "s", CRF())) == 1


def test_a_full_disk_leaves_nothing_half_written(monkeypatch, tmp_path):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left on device"):
        patch.setattr(os, "fsync", full)
        write_shards([names(ROWS)], tmp_path, CRF())
    assert [path.name for path in (tmp_path / writing.PARTS).iterdir()] == ["lock"]
    assert len(write_shards([names(ROWS)], tmp_path, CRF())) == 1


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "s").write_text("")
    with pytest.raises(OSError, match="s"):
        write_shards([names(ROWS)], tmp_path / "s", CRF())


# ---- on a cluster


def test_workers_write_the_same_shards(client, tmp_path):
    path = write_columns(tmp_path / "a.txt", ROWS[21:])
    texts = [columns(ROWS[:20]), columns(ROWS[20:21]), path]
    options = {"columns": NAMES, "label": "y", "shard_tokens": 40}
    here = write_shards(texts, tmp_path / "here", CRF(template=TEMPLATE), **options)
    there = write_shards(texts, tmp_path / "there", CRF(template=TEMPLATE), client=client, **options)
    assert here.digest == there.digest and here.settings == there.settings
    again = write_shards(texts, tmp_path / "here", CRF(template=TEMPLATE), client=client, **options)
    assert again.digest == here.digest


def test_bags_and_frames_of_dask(client, tmp_path):
    dask, pandas = pytest.importorskip("dask"), pytest.importorskip("pandas")
    bag, frames = pytest.importorskip("dask.bag"), pytest.importorskip("dask.dataframe")
    pairs = list(zip(*names(ROWS), strict=True))
    found = write_shards(bag.from_sequence(pairs, npartitions=3), tmp_path / "bag", CRF(), client=client)
    assert len(found) == 3
    assert_as_fit(found, CRF(max_iterations=4), *names(ROWS))
    here = write_shards(bag.from_sequence(pairs, npartitions=3), tmp_path / "here", CRF())
    assert here.digest == found.digest
    crf = CRF(template=TEMPLATE, max_iterations=4)
    cells = {name: [[row[j] for row in s] for s in ROWS] for j, name in enumerate(NAMES)}
    with dask.config.set({"dataframe.convert-string": False}):
        frame = frames.from_pandas(pandas.DataFrame(cells), npartitions=2)
    found = write_shards(frame, tmp_path / "frame", crf, client=client, label="y")
    assert_as_fit(found, crf, columns(ROWS), None)


def test_a_full_disk_on_a_worker(client, tmp_path):
    def full(yes):
        import errno
        import os

        def fsync(_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        os.real = getattr(os, "real", os.fsync)
        os.fsync = fsync if yes else os.real

    texts = parts(names)
    client.run(full, True)
    try:
        with pytest.raises(OSError, match="No space left on device") as caught:
            write_shards(texts, tmp_path, CRF(), client=client)
        assert caught.value.errno == errno.ENOSPC
    finally:
        client.run(full, False)
    until = time.monotonic() + 30  # the other worker may be at work still
    while (left := list(tmp_path.glob(f"{writing.PARTS}/*.tmp"))) and time.monotonic() < until:
        time.sleep(0.05)
    assert not left
    assert len(write_shards(texts, tmp_path, CRF(), client=client)) == 3


def test_errors_of_workers_name_the_text(client, tmp_path):
    with pytest.raises(ValueError, match="^text 1: sequence 0, token 0: expected a label, got none$"):
        write_shards([names(ROWS), ([[["a"]]], [[None]])], tmp_path, CRF(), client=client)
    assert isinstance(write_shards([names(ROWS)], tmp_path, CRF(), client=client), Shards)


def test_parts_that_are_gone_are_encoded_again(tmp_path):
    """Their list is still there, as after a call that was complete and has lost its manifest."""
    shards = write_shards(parts(names), tmp_path, CRF())
    assert any((tmp_path / writing.PARTS).iterdir())
    os.unlink(tmp_path / writing.MANIFEST)
    assert write_shards(parts(names), tmp_path, CRF()).digest == shards.digest


def test_rows_of_parquet_are_counted_through_the_file(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    words, ys = [["a"]] * 2060, [["O"]] * 2060  # more than two batches
    words = [*words[:2050], ["a", "b"], *words[2051:]]
    parquet.write_table(pyarrow.table({"word": words, "y": ys}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet, row 2050, column 'y': expected 2 values"):
        write_shards([tmp_path / "a.parquet"], tmp_path / "s", CRF(template="U:%x[0,word]\n"), label="y")


def test_files_of_others_stay(tmp_path):
    """A folder "parts" is not ours, and of the folder of shards we remove only what we have made."""
    rows = ROWS[:20]
    (tmp_path / "parts").mkdir()
    path = write_columns(tmp_path / "parts" / "text.txt", rows)
    (tmp_path / "notes.md").write_text("mine")
    (tmp_path / "shard-00007.crfbook").write_text("of a call that was stopped")
    write_shards([path], tmp_path, CRF(template=TEMPLATE), columns=NAMES, label="y")
    assert path.exists() and (tmp_path / "notes.md").exists()
    assert not (tmp_path / "shard-00007.crfbook").exists()


def test_a_task_of_a_call_that_failed_changes_nothing(tmp_path):
    """Its parts have other names, as they are of another text."""
    read = {"columns": None, "label": "label", "n_tokens": 100, "template": None, "least": 100}
    place = str(tmp_path / writing.PARTS / "text-00000")
    wanted = write_shards([names(ROWS[:30])], tmp_path / "here", CRF())
    os.makedirs(tmp_path / writing.PARTS)
    rename = writing.renumber

    def late(*job):
        writing.encode(names(ROWS[30:]), place, read, "text 0", False)  # what the call before had begun
        return rename(*job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "renumber", late)
        found = write_shards([names(ROWS[:30])], tmp_path, CRF())
    assert found.digest == wanted.digest


def test_a_shard_that_is_gone_is_told_with_the_way_out(tmp_path):
    shards = write_shards(parts(names), tmp_path, CRF())
    os.unlink(shards.files[1][0])
    with pytest.raises(
        ShardError, match=r"shard-00001\.crfbook is missing: remove manifest\.json there, and "
    ):
        write_shards(parts(names), tmp_path, CRF())
    os.unlink(tmp_path / writing.MANIFEST)
    assert write_shards(parts(names), tmp_path, CRF()).digest == shards.digest


def test_iterators_and_numbers_of_numpy(tmp_path):
    X, y = names(ROWS)
    wanted = write_shards([(X, y)], tmp_path / "a", CRF(), shard_tokens=100)
    found = write_shards([(iter(X), iter(y))], tmp_path / "b", CRF(), shard_tokens=np.int64(100))
    assert found.digest == wanted.digest


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_what_cannot_be_read_twice_is_refused(tmp_path):
    for text in (tmp_path, tmp_path / "pipe"):
        if not text.exists():
            os.mkfifo(text)
        with pytest.raises(
            ValueError, match="expected a file, which can be read twice, got a folder or a pipe$"
        ):
            write_shards([text], tmp_path / "s", CRF(template=TEMPLATE), columns=NAMES, label="y")


@pytest.mark.parametrize("form", ["columns", "parquet"])
@pytest.mark.parametrize("size", [100, 1 << 20])
def test_the_bytes_that_are_hashed_are_those_that_are_read(form, size, monkeypatch, tmp_path):
    """A text that is changed in between, and later changed back, is refused: no shards of one text with the
    hash of another.
    """
    monkeypatch.setattr("crfbook.distributed.reading.BLOCK", size)
    path, options = tmp_path / f"a.{form}", {"columns": NAMES, "label": "y", "shard_tokens": 40}
    if form == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet as parquet

        cells = {name: [[cells[j] for cells in s] for s in ROWS] for j, name in enumerate(NAMES)}
        parquet.write_table(pyarrow.table(cells), path, compression="none", use_dictionary=False)
    else:
        write_columns(path, ROWS)
    text, crf, real = path.read_bytes(), CRF(template=TEMPLATE), writing.pieces
    assert text.count(b"w1") > 3
    wanted = write_shards([path], tmp_path / "wanted", crf, **options)

    def changing(*args, **kwargs):
        path.write_bytes(text.replace(b"w1", b"v1"))
        yield from real(*args, **kwargs)
        path.write_bytes(text)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "pieces", changing)
        told = rf"^{path}: expected a file that stays as it is, it changed while it was read$"
        with pytest.raises(ValueError, match=told):
            write_shards([path], tmp_path / "s", crf, **options)
    path.write_bytes(text)
    assert write_shards([path], tmp_path / "s", crf, **options).digest == wanted.digest


def test_what_is_added_while_a_text_is_read_is_not_read(monkeypatch, tmp_path):
    monkeypatch.setattr("crfbook.distributed.reading.BLOCK", 4)
    (tmp_path / "a").write_bytes(b"w1 t1 O\n")  # two blocks
    with same_file(tmp_path / "a") as file:
        (tmp_path / "a").write_bytes(b"w1 t1 O\nw2 t1 O\n")
        assert file.read(100) == b"w1 t1 O\n"


@pytest.mark.parametrize("name", ["shard-00001.crfbook", "alphabet.crfbook"])
def test_a_file_that_is_damaged_is_found_by_the_same_call(name, tmp_path):
    shards = write_shards(parts(names), tmp_path, CRF())
    path = tmp_path / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    told = rf": {name} is damaged: remove manifest\.json there, and the same call writes it again$"
    with pytest.raises(ShardError, match=told):
        write_shards(parts(names), tmp_path, CRF())
    os.unlink(tmp_path / writing.MANIFEST)
    assert write_shards(parts(names), tmp_path, CRF()).digest == shards.digest


def test_a_damaged_shard_of_a_stopped_call_is_made_anew(monkeypatch, tmp_path):
    def stop(*_):
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(writing, "write_manifest", stop)
        write_shards(parts(names), tmp_path / "s", CRF())
    header, arrays = load_arrays(tmp_path / "s" / "shard-00001.crfbook", "shard")
    arrays["features.node_label"][0] = 99
    save_arrays(tmp_path / "s" / "shard-00001.crfbook", "shard", header, arrays)
    wanted = write_shards(parts(names), tmp_path / "t", CRF())
    assert write_shards(parts(names), tmp_path / "s", CRF()).digest == wanted.digest
    assert fit(CRF(max_iterations=2), tmp_path / "s").n_iter_ > 0


def test_parts_that_cannot_be_used_are_told_with_the_way_out(monkeypatch, tmp_path):
    def stop(*_):
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(writing, "cut", stop)
        write_shards(parts(names), tmp_path / "s", CRF())
    (path,) = (tmp_path / "s" / writing.PARTS).glob("text-00001-*.ids")
    header, arrays = load_arrays(path, writing.PART)
    arrays["corpus.attr_idx"][0] = 10**6
    save_arrays(path, writing.PART, header, arrays)
    with pytest.raises(ShardError, match="expected what an earlier call left there, IndexError"):
        write_shards(parts(names), tmp_path / "s", CRF())
    (done,) = (tmp_path / "s" / writing.PARTS).glob("text-00001*.done")
    header, _ = load_arrays(done, writing.PART)
    for rows in ([{"file": 3}], [{**header["rows"][0], "n_tokens": "3"}], 7):
        save_arrays(done, writing.PART, header | {"rows": rows}, {})
        path.unlink(missing_ok=True)
        found = write_shards(parts(names), tmp_path / "s", CRF())
        os.unlink(tmp_path / "s" / writing.MANIFEST)
    assert found.digest == write_shards(parts(names), tmp_path / "t", CRF()).digest


def test_names_that_no_file_has(tmp_path):
    for attempt in (
        lambda: write_shards(["a\0b"], tmp_path, CRF(template=TEMPLATE), columns=NAMES),
        lambda: write_shards([names(ROWS)], "a\0b", CRF()),
        lambda: Shards("a\0b"),
    ):
        with pytest.raises(ValueError, match=r"^path: expected the name of a file, got 'a\\x00b'$"):
            attempt()
