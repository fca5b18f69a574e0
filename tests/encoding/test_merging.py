"""An encoder merged from encoders of parts is the encoder of the whole; so are the corpora."""

import numpy as np
import pytest
from scipy import sparse

from crfbook.data.columns import TokenColumns
from crfbook.encoding import families
from crfbook.encoding.encoder import Encoder, renumbered

SEVERAL = "U0:%x[0,0]\nU1:%x[-1,0]/%x[0,0]/%x[1,1]\nU:%x[-1,1]\nU:%x[1,1]\nU2:%suffix[0,0,2]\nB\nB1:%x[0,1]\n"


def text(rng, n_sentences, n_words):
    rows = [
        [
            (f"w{i}", f"t{i % 5}", f"l{(i + rng.integers(2)) % 4}")
            for i in rng.integers(0, n_words, rng.integers(0, 7))
        ]
        for _ in range(n_sentences)
    ]
    return TokenColumns.from_sentences(rows, ("word", "pos", "y"), "y")


def dicts(columns):
    X = [[{"w": w, p: 1.0, "n": float(len(w))} for w, p, _ in s] for s in columns.sentences()]
    return X, columns.labels_by_sequence()


def matrices(columns):
    X = [
        np.array([[float(len(w)), p == "t1", p == "t3", 0] for w, p, _ in s]).reshape(-1, 4)
        for s in columns.sentences()
    ]
    return [sparse.csr_matrix(x) if len(x) else x for x in X], columns.labels_by_sequence()


def rows(corpus):
    """All that a corpus says, whatever the order of a token's attributes."""
    by_token = [
        sorted(zip(corpus.attr_idx[a:b].tolist(), corpus.values[a:b].tolist(), strict=True))
        for a, b in zip(corpus.attr_ptr[:-1], corpus.attr_ptr[1:], strict=True)
    ]
    sets = [
        corpus.class_attr[a:b].tolist()
        for a, b in zip(corpus.class_ptr[:-1], corpus.class_ptr[1:], strict=True)
    ]
    edges = [sets[corpus.edge_class[t]] for t in corpus.inner]
    return corpus.seq_ptr.tolist(), by_token, edges, corpus.labels.tolist()


def parts_of(columns, cuts):
    return [columns[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]


def check(columns, cuts, given, template=None):
    whole = Encoder(template)
    whole.fit_transform(*given(columns))
    encoders, corpora = [], []
    for part in parts_of(columns, cuts):
        encoders.append(Encoder(template))
        corpora.append(encoders[-1].fit_transform(*given(part)))
    for order in (1, -1):
        together = encoders[::order][0]
        for encoder in encoders[::order][1:]:
            together = together.merged(encoder)
        state, wanted = together.get_state(), whole.get_state()
        assert state["header"] == wanted["header"]
        assert state["arrays"].keys() == wanted["arrays"].keys()
        for name, array in wanted["arrays"].items():
            np.testing.assert_array_equal(state["arrays"][name], array, err_msg=name)
    for part, encoder, corpus in zip(parts_of(columns, cuts), encoders, corpora, strict=True):
        assert rows(renumbered(corpus, encoder, together)) == rows(whole.transform(*given(part)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limit", [None, 40])
def test_templates(seed, limit, monkeypatch):
    if limit:  # beginnings are numbered anew, tables are replaced by searching
        monkeypatch.setattr(families, "LIMIT", limit)
        monkeypatch.setattr(families, "TABLE", 10)
    columns = text(np.random.default_rng(seed), 40, 25)
    check(columns, [0, 7, 30, 40], lambda part: (part,), SEVERAL)


@pytest.mark.parametrize("given", [dicts, matrices])
def test_dicts_and_numbers(given):
    columns = text(np.random.default_rng(5), 60, 30)
    check(columns, [0, 20, 41, 60], given)


def test_a_part_with_labels_of_its_own():
    a = TokenColumns({"0": ["x", "y"]}, [0, 2], ["B", "A"])
    b = TokenColumns({"0": ["y"]}, [0, 1], ["C"])
    encoders = [Encoder("U:%x[0,0]") for _ in "ab"]
    corpora = [e.fit_transform(part) for e, part in zip(encoders, (a, b), strict=True)]
    together = encoders[0].merged(encoders[1])
    assert together.labels_ == ["A", "B", "C"]
    assert [renumbered(c, e, together).labels.tolist() for c, e in zip(corpora, encoders, strict=True)] == [
        [1, 0],
        [2],
    ]


def test_parts_that_differ_are_refused():
    a, b, c = Encoder("U:%x[0,0]"), Encoder("U:%x[-1,0]"), Encoder()
    columns = TokenColumns({"0": ["x"]}, [0, 1], ["A"])
    a.fit(columns)
    b.fit(columns)
    c.fit([[["x"]]], [["A"]])
    with pytest.raises(ValueError, match="template: expected the same in all parts"):
        a.merged(b)
    with pytest.raises(ValueError, match="form of X: expected the same in all parts"):
        a.merged(c)
