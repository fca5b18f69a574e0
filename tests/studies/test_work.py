"""The work of studies is what it says; the peer has the same features under other names."""

import numpy as np
import pytest

from crfbook import load_dataset
from crfbook.chain.inference import decode
from studies import crfsuite, work


@pytest.fixture
def columns():
    return load_dataset("conll2000", source="builtin", verbose=False).train


def test_every_joint_label_is_among_the_chosen_sentences(columns):
    few = work.joint(columns, 60)
    assert set(few.labels) == set(work.joint(columns, None).labels) and len(few) >= 60
    assert list(few.columns) == ["word"]


def test_attribute_strings_are_the_templates_attributes(columns):
    """Same features for both sides: equal strings exactly where the encoder's attributes are equal."""
    for template in ("chunking", "words"):
        task = work.encode("chunking", template, columns.head(40))
        rows = [row for rows in crfsuite.attribute_strings(columns.head(40), template) for row in rows]
        names = crfsuite.attribute_names(task)
        assert len(set(names.values())) == task.features.n_attrs
        for t, row in enumerate(rows):
            ids = task.corpus.attr_idx[task.corpus.attr_ptr[t] : task.corpus.attr_ptr[t + 1]]
            assert sorted(names[a] for a in ids.tolist()) == sorted(row)


def test_attributes_by_number_are_those_of_the_corpus(columns):
    task = work.encode("chunking", "words", columns.head(5))
    rows, labels = crfsuite.sentences(task, numbers=True)
    assert [len(row) for row in rows] == [len(y) for y in labels] == np.diff(task.corpus.seq_ptr).tolist()
    assert [int(a) for row in rows for token in row for a in token] == task.corpus.attr_idx.tolist()


def test_the_peer_s_weights_say_what_the_peer_says(columns):
    pytest.importorskip("pycrfsuite")
    task = work.encode("chunking", "chunking", columns.head(60), {"test": columns[60:80]})
    tagger, last = crfsuite.train_tagger(task, 10)
    w = crfsuite.weights_of(task, tagger)
    theirs = [tagger.tag(rows) for rows in crfsuite.attribute_strings(task.words, "chunking")]
    assert last["num"] == 10 and np.count_nonzero(w) > 500 and task.guess(w, "test") == theirs
    seconds = crfsuite.seconds_per_evaluation(crfsuite.trainer(*crfsuite.sentences(task)), 4)
    assert 0 <= seconds < 10


@pytest.mark.usefixtures("on_twins")
@pytest.mark.parametrize("task", [task for task in work.TASKS if task != "conll2003"])
def test_every_task_can_be_loaded(task):
    found = work.load(task, n_sentences=50)
    assert len(found.columns) == found.corpus.n_sequences == 50 and list(found.parts) == list(
        work.TASKS[task].parts
    )
    w = np.zeros(found.features.n_features)
    scores, gold = found.scores(w), {name: part.gold for name, part in found.parts.items()}
    assert all(0 <= score < 100 for score in scores.values())
    assert set(found.scores(gold).values()) == {100.0}
    assert work.dataset(task) is work.dataset(task) and work.set_up(task, None, 9) is work.set_up(
        task, None, 9
    )


def test_another_task_is_refused():
    with pytest.raises(ValueError, match="work: expected chunking, .* or ewt, got 'chunks'"):
        work.load("chunks")


@pytest.mark.usefixtures("on_twins")
def test_errors_of_tokens_and_of_sequences():
    found = work.load("nettalk", n_sentences=60)
    wrong = np.zeros(found.held.n_tokens, bool)
    wrong[[0, 1, found.held.seq_ptr[7]]] = True
    tokens, deviation, words = work.error_of(found.held, wrong)
    n = found.held.n_tokens
    assert tokens == pytest.approx(300 / n) and words == pytest.approx(200 / found.held.n_sequences)
    assert deviation == pytest.approx(
        100 * np.std([2, 1] + [0] * (found.held.n_sequences - 2)) * found.held.n_sequences**0.5 / n
    )
    model = work.random_support(found.everything, 300)
    path = decode(found.held, *model)
    assert work.model_error(found.held, _Model(*model))[0] == pytest.approx(
        100 * np.mean(path != found.held.labels)
    )


class _Model:
    def __init__(self, features, w):
        self.features, self.w = features, w
