"""The stated outcomes of the exercises of chapter 00, solved on the corpus at hand."""

from functools import cache
from itertools import pairwise

import numpy as np

from crfbook import CRF, load_dataset
from crfbook.evaluation import chunk_report

TEMPLATE = """
U0:%lower[-2,word]
U1:%lower[-1,word]
U2:%lower[0,word]
U3:%lower[1,word]
U4:%lower[2,word]
U5:%lower[-1,word]/%lower[0,word]
U6:%lower[0,word]/%lower[1,word]
U7:%prefix[0,word,1,3]
U8:%suffix[0,word,1,4]
U9:%shortshape[0,word]
"""


@cache
def parts():
    data = load_dataset("conll2000", verbose=False)
    return data.train.head(2000), data.test


@cache
def tagger(template=TEMPLATE, n=2000, columns=("word",)):
    model = CRF(c2=0.5, template=template, constraints="BIO", tol=0.01)
    return model.fit(parts()[0].select(list(columns)).head(n))


def report(model, columns=("word",)):
    test = parts()[1].select(list(columns))
    gold, found = test.labels_by_sequence(), model.predict(test)
    return chunk_report(gold, found).f1, np.concatenate(gold) == np.concatenate(found)


def test_2_some_short_sentence_has_two_readings():
    test = parts()[1].select(["word"])
    short = test.take(np.flatnonzero(np.diff(test.seq_ptr) <= 10))
    assert any(
        sum(0.4 <= p <= 0.6 for p in word.values()) == 2
        for row in tagger().predict_marginals(short)
        for word in row
    )


def test_3_the_word_to_before_speaks_for_i_vp():
    weights = tagger().weights_to_frame()
    ranked = weights[(weights.kind == "state") & (weights.label == "I-VP")].nlargest(10, "weight")
    assert "U1:to" in set(ranked.attribute)


def test_4_without_spelling_unseen_words_lose_most():
    short = "\n".join(TEMPLATE.strip().splitlines()[:7])
    (with_f1, with_right), (f1, right) = report(tagger()), report(tagger(short))
    seen = {word.lower() for word in parts()[0].columns["word"]}
    known = np.array([word.lower() in seen for word in parts()[1].columns["word"]])
    lost = with_right.astype(float) - right
    assert f1 < with_f1 - 0.01 and lost[~known].mean() > 1.2 * lost[known].mean() > 0


def test_5_every_doubling_helps_and_the_last_by_about_half_of_the_first():
    f1 = [report(tagger(n=n))[0] for n in (125, 250, 500, 1000, 2000)]
    gains = np.diff(f1)
    assert (gains > 0).all() and 0.3 * gains[0] < gains[-1] < 0.7 * gains[0]


def test_6_parts_of_speech_raise_f1():
    both = ("word", "pos")
    assert report(tagger("chunking", columns=both), both)[0] > report(tagger())[0] + 0.02


def test_7_asking_where_the_marginal_is_low_beats_asking_at_random():
    test = parts()[1].select(["word"])
    _, right = report(tagger())
    found = tagger().predict(test)
    rows = zip(tagger().predict_marginals(test), found, strict=True)
    sure = np.array([p[y] for row, labels in rows for p, y in zip(row, labels, strict=True)])
    n_wrong_kept = (~right[np.argsort(sure)])[::-1].cumsum()[::-1]  # where the words before are passed on
    asked = np.arange(len(right)) / len(right)
    at_random = (~right).mean() * (1 - asked)
    middle = (asked > 0.01) & (asked < 0.99)
    assert (n_wrong_kept / len(right) < at_random)[middle].all()
    assert asked[np.argmax(n_wrong_kept <= 0.01 * len(right))] < 0.5


def test_per_word_labels_of_a_constrained_model_can_be_impossible():
    """What the chapter says of marginals under BIO (section 4)."""
    best = [
        [max(p, key=p.get) for p in row] for row in tagger().predict_marginals(parts()[1].select(["word"]))
    ]
    broken = [any(b[0] == "I" and a[1:] != b[1:] for a, b in pairwise(["O", *y])) for y in best]
    assert 0 < np.mean(broken) < 0.1
