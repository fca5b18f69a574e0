"""The table of chapter 12 on a few sentences of the built-in twin: what arms are told, and what rows say."""

import numpy as np
import pytest

from crfbook.data.columns import TokenColumns
from crfbook.encoding import templates
from crfbook.encoding.encoder import Encoder
from studies import c12, read_record, run, work

pytestmark = pytest.mark.usefixtures("on_twins")


def text(*sentences):
    """Columns word, pos and chunk of sentences written as word/TAG."""
    rows = [[(*token.split("/"), "O") for token in sentence.split()] for sentence in sentences]
    return TokenColumns.from_sentences(rows, ("word", "pos", "chunk"))


def test_a_lexicon_has_the_tags_seen_twice():
    parts = text("plans/NNS rise/VB", "plans/VBZ plans/NNS a/DT"), text("plans/VBZ rise/NN")
    assert c12.lexicon(parts[:1]) == {"plans": ["NNS"]}
    assert c12.lexicon(parts) == {"plans": ["NNS", "VBZ"]} and c12.lexicon([]) == {}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("Rort", "Aa"), ("A", "A AA"), ("IBM", "AA"), ("McCo", "AaAa"), ("McCoy", ""), ("B-2", "0"),
        ("May", "Aa month"), ("may", ""), ("Mon.", "day"), ("Six", "Aa number"), ("rises", ""),
    ],
)  # fmt: skip
def test_marks_are_patterns_lists_and_tags(word, expected):
    """The pattern of McCo ends, as printed, in one small letter."""
    assert c12.marks(word, ()) == expected
    assert c12.marks(word, ("NN", "VB")).split() == [*expected.split(), "has:NN", "has:VB"]


def attributes_of(columns, **options):
    """Number of attributes of each token."""
    template = templates.as_template(c12.template(**options))
    corpus = Encoder(template).fit_transform(columns.select(columns.names, "chunk"))
    return (corpus.attr_ptr[1:] - corpus.attr_ptr[:-1]).tolist()


def test_attributes_are_those_of_seven_tokens():
    """A constant, 7 words (some of them boundaries), the marks within reach and, for chunks, 7 tags."""
    columns = text("a/DT b/NN c/NN d/NN e/NN")
    n_marks = [1, 0, 2, 0, 3]
    named = {**columns.columns, "marks": [" ".join("xyz"[:n]) for n in n_marks]}
    columns = TokenColumns(named, columns.seq_ptr)
    near = [sum(n_marks[max(0, t - 3) : t + 4]) for t in range(5)]
    assert attributes_of(columns) == [1 + 7 + n for n in near]
    assert attributes_of(columns, pos=True) == [1 + 14 + n for n in near]


def test_subsets_are_those_of_the_seed_and_lexica_those_of_the_setting():
    none, known = (c12.Task(c12.Setting("NP", source), 30, 1) for source in ("none", "everything"))
    whole = work.dataset("chunking").train
    order = np.random.default_rng(1).permutation(len(whole))
    assert none.train.by_sequence("word") == whole.take(order[:30]).by_sequence("word")
    assert set(none.train.columns["chunk"]) == {"B-NP", "I-NP", "O"}
    none, known = (task.marked[1].columns["marks"] for task in (none, known))
    assert not any("has:" in marks for marks in none)
    has = [marks for marks in known if "has:" in marks]
    assert len(has) > 0.9 * len(known)  # of a word seen twice in training and test


def test_chains_of_pairs_have_no_other_weights():
    one = c12.Task(c12.Setting("NP", "subset", pairs=True), 8, 1).tagger.model
    n = len(one.classes_["label"])
    assert one.layout_.n_cells == n + n * n and [table.size for table in one.layout_.tables] == [n * n]
    text = c12.Task(c12.SETTINGS[c12.SUBSET], 8, 1).marked[0]
    assert set(one.predict(text)[0]) <= set(one.classes_["label"])


@pytest.mark.parametrize("setting", [c12.PAIRS, c12.MEMORY])
def test_joint_models_are_those_of_the_setting(setting):
    model = c12.two_chains(c12.Task(c12.SETTINGS[setting], 8, 1)).models[0].model
    names = {model.encoder_.attribute_name(a) for a in range(model.encoder_.n_attrs)}
    assert "U" not in names and len(names) > 20
    if setting == c12.PAIRS:  # rows have scores of pairs of labels, and single labels have no weight
        tables = [table for table in model.layout_.tables if table.start >= 0]
        assert model.engine_ == "elimination" and {len(table.shape) for table in tables} == {2}
        assert model.layout_.n_cells == sum(model.layout_.sizes) + sum(table.size for table in tables)
    else:
        assert model.engine_ == "junction" and model.classes_["last"][0] is None


def test_folds_label_what_they_have_not_seen(monkeypatch):
    task, seen = c12.Task(c12.SETTINGS[c12.SUBSET], 12, 1), []
    monkeypatch.setattr(c12, "FOLDS", 3)

    class Reader:
        def __init__(self, columns):
            self.known = set(map(tuple, columns.by_sequence("word")))

        def predict(self, columns):
            words = columns.by_sequence("word")
            assert not any(tuple(w) in self.known for w in words)
            return [["new"] * len(w) for w in words]

    monkeypatch.setattr(c12.Task, "chain", lambda self, columns, labels: c12.Trained(Reader(columns), 0.0))
    monkeypatch.setattr(c12, "cascade", lambda task, tags: seen.append(tags) or c12.Labelled(None, [], ["x"]))
    found = c12.jackknifed_cascade(task)
    assert [len(s) for s in seen[0]] == [len(s) for s in task.train.by_sequence("word")]
    assert {tag for s in seen[0] for tag in s} == {"new"} and len(found.models) == 4


def test_subsets_of_the_table(tmp_path, monkeypatch):
    """Each row has the arms of its setting and size."""
    monkeypatch.setattr(c12, "subset_rows", lambda **cell: {"arms": " ".join(cell["arms"])})
    plan = (c12.ALL, c12.PAIRS), (223, 447), (1, 2)
    rows = read_record(*run("dcrf-table", folder=tmp_path, plan=[plan]))[1]
    found = [(row["setting"], row["size"], row["seed"]) for row in rows]
    assert found == [
        (name, size, seed) for size in ("223", "447") for name in (c12.ALL, c12.PAIRS) for seed in "12"
    ]
    assert rows[0]["arms"] == " ".join(c12.ARMS) and "predicted" not in rows[4]["arms"]
    assert "flat" in rows[4]["arms"] and "flat" not in rows[2]["arms"]


def test_rows_of_the_table(tmp_path, monkeypatch):
    def gold(task):
        """An arm as another file may add it: here one that knows the answers."""
        return c12.Labelled(task.test.by_sequence("pos"), task.test.by_sequence("chunk"), [task.tagger])

    monkeypatch.setitem(c12.ARMS, "gold", gold)
    arms = ("CRF+CRF", "Brill+CRF", "independent", "flat", "FCRF", "gold")
    options = {"plan": [((c12.SUBSET,), (40,), (1,))], "arms": arms}
    rows = {row["arm"]: row for row in read_record(*run("dcrf-table", folder=tmp_path, **options))[1]}
    assert list(rows) == list(arms) and {row["status"] for row in rows.values()} == {"converged"}
    assert rows["gold"]["joint"] == rows["gold"]["F1"] == "100.00" and float(rows["gold"]["p joint"]) < 0.01
    assert rows["CRF+CRF"]["p joint"] == rows["Brill+CRF"]["POS"] == rows["independent"]["p joint"] == ""
    assert float(rows["Brill+CRF"]["chunk"]) > float(rows["CRF+CRF"]["chunk"])
    for arm in ("CRF+CRF", "flat", "FCRF"):
        scores = {name: float(rows[arm][name]) for name in ("POS", "chunk", "joint")}
        assert 50 < scores["joint"] <= min(scores["POS"], scores["chunk"])
