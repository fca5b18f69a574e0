"""Files that no honest program writes, as many as CRFBOOK_ATTACKS asks for: shards, manifests, tables, texts.

Each is refused in one sentence that names the file, or it means what it says: training on shards is training
on the corpus that they hold, tagging a text is tagging what `read_conll` finds in it.
"""

import contextlib
import io
import json
import os
import shutil
import warnings
from itertools import pairwise

import numpy as np
import pytest
from helpers.attacks import ODD_TEXTS, attacks, changed, one_sentence
from helpers.sharded import (
    NAMES,
    TEMPLATE,
    columns,
    dicts,
    forget,
    names,
    read_file,
    replaced,
    rewritten,
    sentences,
)

from crfbook import CRF
from crfbook.chain.objective import Objective
from crfbook.data.corpus import make_corpus
from crfbook.data.features import FeatureSet
from crfbook.data.files import load_arrays, save_arrays
from crfbook.data.readers import iter_conll, read_conll
from crfbook.distributed import (
    ShardedObjective,
    ShardError,
    Shards,
    fit,
    predict_files,
    write_shards,
    writing,
)
from crfbook.distributed.engine import Local
from crfbook.distributed.shards import ALPHABET, MANIFEST, part_of

pytestmark = pytest.mark.kernels  # which check nothing, where NumPy would refuse an index

ROWS = sentences(24)
RULES = {"template": TEMPLATE, "constraints": "BIO", "on_violation": "drop"}
WEIGHTED = (*dicts(ROWS[:12]), np.linspace(0.5, 2.0, 12))
# what was written honestly -> (texts, parameters of the CRF)
HONEST = {
    "names": ([names(ROWS[:10]), names(ROWS[10:])], {}),
    "dicts": ([WEIGHTED, dicts(ROWS[12:])], {"all_possible_states": True}),
    "template": ([columns(ROWS)], RULES),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """{name: (folder, parameters)} of shards as `write_shards` leaves them."""
    found = {}
    for name, (texts, params) in HONEST.items():
        folder = tmp_path_factory.mktemp(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write_shards(texts, folder, CRF(**params), shard_tokens=40)
        found[name] = folder, params
    return found


def with_one_field_changed(header, arrays, rng):
    """A file with one array, or one field of its header, changed."""
    if arrays and rng.random() < 0.85:
        name = rng.one_of(sorted(arrays))
        new = changed(arrays[name], rng)
        held = {key: array for key, array in arrays.items() if key != name}
        return name, header, held if rng.random() < 0.03 else held | {name: new}
    name = rng.one_of([name for name in header if name != "digest"])
    return name, header | {name: changed(header[name], rng)}, arrays


def forged(folder, rng):
    """Change one field of a shard or of the alphabet; make all hashes anew, and as a rule all sizes."""
    name = rng.one_of([*sorted(path.name for path in folder.glob("shard-*")) * 3, ALPHABET])
    field, header, arrays = with_one_field_changed(*read_file(folder, name), rng)
    replaced(folder, name, header, arrays, sizes=rng.random() < 0.7)
    return f"{name}: {field}"


def rebuilt(shards):
    """(corpus, features) of the whole, from the arrays of all files: attributes have the numbers that the
    alphabet gives them. What a shard knows and has no weight for becomes one attribute more.
    """
    header, arrays = load_arrays(os.path.join(shards.folder, ALPHABET), "alphabet")
    whole = FeatureSet(*header["sizes"], **part_of("features", arrays))
    node, edge = (np.append(ptr, ptr[-1]) for ptr in (whole.node_ptr, whole.edge_ptr))
    more = whole._replace(
        n_attrs=whole.n_attrs + 1, n_edge_attrs=whole.n_edge_attrs + 1, node_ptr=node, edge_ptr=edge
    )
    corpora = []
    for path, _ in shards.files:
        _, arrays = load_arrays(path, "shard")
        corpus, own = part_of("corpus", arrays), part_of("features", arrays)
        place, n_node = arrays["place"].astype(np.int64), len(own["node_label"])
        for name, kind, at in (
            ("attr_idx", "node", place[:n_node]),
            ("class_attr", "edge", place[n_node:] - whole.n_node),
        ):
            ptr, of_whole = own[f"{kind}_ptr"], getattr(whole, f"{kind}_ptr")
            number = [
                int(np.searchsorted(of_whole, at[first], "right")) - 1 if first < last else len(of_whole) - 1
                for first, last in pairwise(ptr.tolist())
            ]
            corpus[name] = np.array(number, np.int32)[corpus[name].astype(np.int64)]
        distinct = [np.unique(row) for row in np.split(corpus["class_attr"], corpus["class_ptr"][1:-1])]
        corpus["class_attr"] = np.concatenate(distinct)
        corpus["class_ptr"] = np.cumsum([0, *map(len, distinct)])
        corpora.append(make_corpus(**corpus))
    return corpora, more


def in_memory(shards, w):
    """(value, gradient, size of scores) of a corpus rebuilt from the shards."""
    corpora, features = rebuilt(shards)
    value, grad = 0.0, np.zeros(len(w))
    size = max(float(np.abs(corpus.attr_val).max(initial=1.0)) for corpus in corpora)
    for corpus in corpora:
        if corpus.n_tokens:
            one = Objective(corpus, features, constraints=shards.constraints)(w)
            value, grad = value + one[0], grad + one[1]
    return value, grad, size


def trained_or_refused(folder, params, rng):
    """None and a sentence, or shards on which training is that of the corpus that they hold."""
    forget()
    algorithm = rng.one_of(["lbfgs", "lbfgs", "perceptron", "auto"])
    try:
        shards = Shards(folder)
        crf = fit(CRF(algorithm=algorithm, max_iterations=1, **params), shards)
    except (ShardError, ValueError) as error:
        assert one_sentence(error), str(error)
        return None
    assert np.isfinite(crf.weights_).all()
    with contextlib.suppress(ValueError):
        crf.predict(HONEST["names"][0][0][0])
    w = rng.normal(size=len(crf.weights_))
    value, grad = ShardedObjective(shards, Local())(w)
    same_value, same_grad, size = in_memory(shards, w)
    np.testing.assert_allclose(value, same_value, rtol=1e-9, atol=1e-9 + 1e-12 * size)  # scores cancel
    largest = 1.0 + np.abs(grad).max(initial=0.0)
    np.testing.assert_allclose(grad, same_grad, rtol=1e-7, atol=(1e-7 + 1e-12 * size) * largest)
    return shards


def test_shards(honest, tmp_path):
    refused = 0
    for rng in attacks("shards"):
        folder, params = honest[rng.one_of(HONEST)]
        copy = tmp_path / str(rng.number)
        shutil.copytree(folder, copy)
        what = forged(copy, rng)
        try:
            refused += trained_or_refused(copy, params, rng) is None
        except Exception as error:
            raise AssertionError(f"try {rng.number}, {what}: {error!r}") from error
        shutil.rmtree(copy)
    assert refused


# ---- manifests


def test_manifests(honest, tmp_path):
    for rng in attacks("manifests"):
        folder, params = honest[rng.one_of(HONEST)]
        copy = tmp_path / str(rng.number)
        shutil.copytree(folder, copy)
        before = json.loads((copy / MANIFEST).read_text("utf-8"))
        try:
            rewritten(copy, lambda about, rng=rng: changed(about, rng))
        except RecursionError:
            (copy / MANIFEST).write_text('{"schema": 2, "settings": ' + "[" * 100_000)
        try:
            shards = trained_or_refused(copy, params, rng)
        except Exception as error:
            text = (copy / MANIFEST).read_text("utf-8")
            raise AssertionError(f"try {rng.number}: {error!r}, {text[:2000]}") from error
        if shards is not None:
            rows = [[os.path.basename(row[0]), *row[1:]] for row in shards.shards]
            assert all(row in before["shards"] for row in rows), f"try {rng.number}: {rows}, {before}"
        shutil.rmtree(copy)


# ---- texts

LIMITS = {"MAX_LINE": 1500, "MAX_SENTENCE": 12, "MAX_PIECE": 3000}
ODD_CELLS = (
    b"\0", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", "\u00a0".encode(), "\u2028".encode(), b"\x1b[2J", b"\x1c",
    b"x" * 1499, b"x" * 2000, b"-DOCSTART-", b"#", b"\xef\xbb\xbf", b"\x85", b"", b"\r", b"a\tb", b"a b",
    b"\x0b",
)  # fmt: skip


def column_text(rng):
    """Bytes of a file of columns: at least half of them are right but for one cell, line or line ending."""
    rows = [[list(token) for token in ROWS[i]] for i in rng.integers(0, len(ROWS), rng.integers(1, 8))]
    lines = [" ".join(token).encode() for sentence in rows for token in (*sentence, [])]
    end, at = rng.one_of([b"\n", b"\n", b"\r\n", b"\r\r\n"]), int(rng.integers(len(lines)))
    for _ in range(rng.one_of([0, 1, 1, 1, 2, 5])):
        at, how = int(rng.integers(len(lines))), rng.integers(8)
        cells = lines[at].split()
        if how < 3 and cells:
            cells[rng.integers(len(cells))] = rng.one_of(ODD_CELLS)
            lines[at] = b" ".join(cells)
        elif how == 3:
            lines[at] = b" ".join(cells[:-1])
        elif how == 4:
            lines[at] += rng.one_of([b" ", b"\t", b" x", b"\r", b"\0", b"\n\r\n", b"\x0c"])
        elif how == 5:
            lines = [line for line in lines if line] + [b""]
            at = 0
        elif how == 6:
            lines[at:at] = [b""] * int(rng.integers(1, 4000))
        else:
            lines[at:at] = lines[:at] * int(rng.integers(1, 5))
    data = end.join(lines) + (end if rng.random() < 0.8 else b"")
    if rng.random() < 0.1:
        data = rng.one_of([b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\0"]) + data
    return data[: int(rng.integers(len(data)))] if rng.random() < 0.05 else data


def said(job, path=None):
    """(result, None) of job(), or (None, its sentence), which names the file."""
    try:
        return job(), None
    except (ValueError, TypeError) as error:
        assert one_sentence(error), str(error)
        assert path is None or str(path) in str(error), str(error)
        return None, str(error)


def test_texts(tmp_path, monkeypatch):
    crf = CRF("perceptron", template=TEMPLATE, max_iterations=2).fit(columns(ROWS))
    for name, size in LIMITS.items():
        monkeypatch.setattr(f"crfbook.data.readers.{name}", size)
    for rng in attacks("texts"):
        path, label = tmp_path / f"{rng.number}.txt", rng.one_of(["y", None])
        path.write_bytes(column_text(rng))
        monkeypatch.setattr("crfbook.data.readers._CHUNK", int(rng.one_of([1, 7, 300, 1 << 18])))
        try:
            whole, sentence = said(lambda path=path, label=label: read_conll(path, NAMES, label), path)
            n_tokens = int(rng.integers(1, 30))
            pieces, of_pieces = said(
                lambda p=path, y=label, n=n_tokens: [*iter_conll(p, NAMES, y, n_tokens=n)], path
            )
            if sentence is None and of_pieces is not None:
                assert "3,000 bytes" in of_pieces
                continue
            assert (of_pieces is None) == (sentence is None), (sentence, of_pieces)
            out = tmp_path / f"out-{rng.number}"
            options = {"columns": NAMES, "piece_tokens": n_tokens}
            tagged, of_tags = said(lambda p=path, o=out, kw=options: predict_files(crf, [p], o, **kw), path)
            assert (of_tags is None) == (sentence is None), (sentence, of_tags)
            shards, of_shards = said(
                lambda p=path, n=rng.number: write_shards(
                    [p],
                    tmp_path / f"s-{n}",
                    CRF(template=TEMPLATE),
                    columns=NAMES,
                    label="y",
                    shard_tokens=20,
                )
            )
            if sentence is not None:
                assert of_shards is not None and list(out.iterdir()) == []
                continue
            assert [*whole.sentences()] == [sentence for piece in pieces for sentence in piece.sentences()]
            assert tagged[0].n_tokens == whole.n_tokens and (
                shards is None or shards.n_tokens == whole.n_tokens
            )
            again = read_conll(tagged[0].path, (*NAMES, "label"), "label")
            assert all(again.columns[name] == whole.columns.get(name, whole.labels) for name in NAMES)
            assert again.labels_by_sequence() == crf.predict(whole.select(NAMES[:2]))
        except Exception as error:
            raise AssertionError(f"try {rng.number}: {error!r}") from error


# ---- tables: Parquet, and what an unfinished call of `write_shards` leaves


def a_table(rng):
    """A table of Parquet with one column, cell or type changed."""
    pyarrow = pytest.importorskip("pyarrow")
    rows = [ROWS[i] for i in rng.integers(0, len(ROWS), rng.integers(0, 12))]
    cells = {name: [[token[j] for token in row] for row in rows] for j, name in enumerate(NAMES)}
    name, types = rng.one_of(NAMES), {}
    how = rng.integers(12)
    if how == 0:
        cells[rng.one_of(["", "label", "Word"])] = cells.pop(name)
    elif how == 1 and rows:
        cells[name][rng.integers(len(rows))] = rng.one_of([None, [], [None], ["x"] * 20])
    elif how == 2 and rows and rows[0]:
        cells[name][0][rng.integers(len(rows[0]))] = rng.one_of([*ODD_TEXTS[:5], *ODD_TEXTS[6:], None])
    elif how < 9:
        makes = {
            "binary": lambda cell: [x.encode() for x in cell], "ints": lambda cell: [len(x) for x in cell],
            "floats": lambda cell: [float("nan") for x in cell], "texts": lambda cell: " ".join(cell),
            "lists": lambda cell: [[x] for x in cell], "structs": lambda cell: [{"x": x} for x in cell],
            "nulls": lambda cell: None, "numbers": len, "bools": lambda cell: [bool(x) for x in cell],
        }  # fmt: skip
        make = makes[rng.one_of(makes)]
        cells[name] = [make(cell) for cell in cells[name]]
    else:
        string = pyarrow.string()
        types[name] = rng.one_of([
            pyarrow.large_list(string), pyarrow.list_(pyarrow.large_string()), pyarrow.list_(string, 4),
            pyarrow.list_(pyarrow.dictionary(pyarrow.int32(), string)), pyarrow.list_(pyarrow.binary()),
        ])  # fmt: skip
    try:
        arrays = [pyarrow.array(cell, types.get(key)) for key, cell in cells.items()]
    except (pyarrow.ArrowException, ValueError, TypeError):  # no table can hold it
        return pyarrow.table({key: [] for key in cells})
    keys = [*cells]
    if rng.random() < 0.05:
        keys[-1] = keys[0]
    return pyarrow.Table.from_arrays(arrays, keys)


def table_bytes(rng):
    """Bytes of a file of Parquet; of a third of them some are changed."""
    import pyarrow.parquet as parquet

    file = io.BytesIO()
    parquet.write_table(a_table(rng), file, compression=rng.one_of(["none", "snappy"]), row_group_size=5)
    data = bytearray(file.getvalue())
    if rng.random() < 1 / 3:
        for at in rng.integers(0, len(data), rng.integers(1, 9)):
            data[at] = rng.integers(256)
        data = data[: rng.integers(len(data))] if rng.random() < 0.2 else data
    return bytes(data)


def test_tables(tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    crf = CRF("perceptron", template=TEMPLATE, max_iterations=2).fit(columns(ROWS))
    for rng in attacks("tables"):
        path, out = tmp_path / f"{rng.number}.parquet", tmp_path / f"out-{rng.number}"
        path.write_bytes(table_bytes(rng))
        try:
            tagged, sentence = said(lambda p=path, o=out: predict_files(crf, [p], o), path)
            shards, of_shards = said(
                lambda p=path, n=rng.number: write_shards(
                    [p], tmp_path / f"s-{n}", CRF(template=TEMPLATE), label="y", shard_tokens=20
                )
            )
            assert sentence is None or list(out.iterdir()) == []
            if sentence is None:
                table = parquet.read_table(tagged[0].path)
                assert tagged[0].n_sequences == len(table)
                assert all(map(isinstance, table["label"].to_pylist(), [list] * len(table)))
            assert shards is None or of_shards is None
        except Exception as error:
            raise AssertionError(f"try {rng.number}: {error!r}") from error


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """{name: folder of a call of `write_shards` that was stopped before its last step}."""

    def stop(*_):
        raise KeyboardInterrupt

    found = {}
    for name, (texts, params) in HONEST.items():
        found[name] = tmp_path_factory.mktemp(f"unfinished-{name}")
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(writing, "cut", stop)
            write_shards(texts, found[name], CRF(**params), shard_tokens=40)
    return found


def test_parts(unfinished, tmp_path):
    for rng in attacks("tables"):
        name = rng.one_of(HONEST)
        texts, params = HONEST[name]
        folder = tmp_path / str(rng.number)
        shutil.copytree(unfinished[name], folder)
        parts = folder / writing.PARTS
        file = rng.one_of(sorted(path.name for path in parts.iterdir() if path.name != "lock"))
        kind = "alphabet" if file == "encoder" else writing.PART
        field, header, arrays = with_one_field_changed(*load_arrays(parts / file, kind), rng)
        save_arrays(parts / file, kind, header, arrays)
        forget()
        try:
            shards, _ = said(
                lambda f=folder, t=texts, p=params: write_shards(t, f, CRF(**p), shard_tokens=40)
            )
            if shards is not None:
                trained_or_refused(folder, params, rng)
        except Exception as error:
            raise AssertionError(f"try {rng.number}, {file} of {name}: {field}: {error!r}") from error
        shutil.rmtree(folder)
