"""The letter tests of the sparse-CRF paper as shipped templates, against n-grams cut by hand,
and their numbers on NetTalk.
"""

import pytest

from crfbook.data.columns import TokenColumns
from crfbook.datasets import load_dataset
from crfbook.encoding import templates
from crfbook.encoding.encoder import Encoder

WORDS = ["abcab", "b", "ca", "abcba", "bca"]
N_GRAMS = ("ngrams_3", "ngrams_5", "ngrams_3_inside", "ngrams_5_inside")


def encoded(name, words=WORDS):
    columns = TokenColumns.from_sentences([list(word) for word in words], ("letter",))
    columns.labels = ["x"] * columns.n_tokens
    encoder = Encoder(templates.load(name))
    return encoder, encoder.fit_transform(columns)


def cut_by_hand(name, word, t):
    """Texts of the tests that hold at letter t."""
    reach = 2 if "5" in name else 1

    def outside(i):
        return f"_B{i}" if i < 0 else f"_B+{i - len(word) + 1}" if i >= len(word) else word[i]

    if name.startswith("pseudo"):
        return {f"{k:02d}:{outside(t + o)}" for k, o in enumerate(range(-reach, reach + 1))}
    found = {"", f"00:{word[t]}"}
    for k in range(1, reach + 1):
        window = range(t - k, t + k + 1)
        if not name.endswith("inside") or (t >= k and t + k < len(word)):
            found.add(f"{k:02d}:" + "/".join(map(outside, window)))
    return found


@pytest.mark.parametrize("name", [*N_GRAMS, "pseudo_ngrams_3", "pseudo_ngrams_5"])
def test_each_test_is_for_the_label_and_for_the_pair(name):
    encoder, corpus = encoded(name)
    node, edge, t = encoder.attribute_names(), encoder.edge_attribute_names(), 0
    for word in WORDS:
        for i in range(len(word)):
            wanted = cut_by_hand(name, word, i)
            assert {
                node[a][1:] for a in corpus.attr_idx[corpus.attr_ptr[t] : corpus.attr_ptr[t + 1]]
            } == wanted
            if i:  # no transition leads into a first letter
                k = corpus.edge_class[t]
                mine = {edge[b] for b in corpus.class_attr[corpus.class_ptr[k] : corpus.class_ptr[k + 1]]}
                assert mine == {"B", *(f"*{test}" for test in wanted if test)}
            t += 1


def test_inside_gives_nothing_beyond_the_ends_of_a_text_not_seen_in_training():
    encoder, _ = encoded("ngrams_3_inside")
    corpus = encoder.transform(
        TokenColumns.from_sentences([list("ab"), list("xbc"), list("abc")], ("letter",))
    )
    names = encoder.attribute_names()
    found = [
        {names[a] for a in corpus.attr_idx[i:j]}
        for i, j in zip(corpus.attr_ptr, corpus.attr_ptr[1:], strict=False)
    ]
    assert found == [
        {"*", "*00:a"},
        {"*", "*00:b"},
        {"*"},
        {"*", "*00:b"},
        {"*", "*00:c"},
        {"*", "*00:a"},
        {"*", "*00:b", "*01:a/b/c"},
        {"*", "*00:c"},
    ]


def test_letter_tests_are_one_class_a_letter():
    encoder, corpus = encoded("letter_tests")
    assert (encoder.n_attrs, encoder.n_edge_attrs, corpus.n_classes) == (3, 4, 3)


@pytest.mark.real_data("nettalk")
@pytest.mark.parametrize(
    "name, tests, pair_tests",
    [
        (
            "letter_tests",
            26,
            27,
        ),  # 26 blocks and the constant edge attribute, which the paper's Table 2 leaves out
        (
            "pseudo_ngrams_3",
            80,
            80,
        ),  # with the boundary before first letters, which never fires: Wapiti's 161
        ("pseudo_ngrams_5", 136, 135),
        ("ngrams_3", 5455, 5193),
        ("ngrams_3_inside", 4897, 4897),
        ("ngrams_5", 52_767, 50_266),  # 52,767 (51 + 51^2): 139.9 million virtual weights
        ("ngrams_5_inside", 35_172, 35_172),
    ],
)
def test_numbers_of_tests_on_nettalk(name, tests, pair_tests):
    data = load_dataset("nettalk", source="real", verbose=False)
    encoder = Encoder(templates.load(name))
    encoder.fit_transform(data.train)
    assert (encoder.n_attrs, encoder.n_edge_attrs, encoder.n_labels) == (tests, pair_tests, 51)
