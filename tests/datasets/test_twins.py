"""The built-in twins: what they promise, and the text files that hold their words and rules."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import crfbook
from crfbook import datasets
from crfbook.datasets import simulated, twin, word_forms
from crfbook.datasets.english import english_sentences, iob1, mistagged
from crfbook.datasets.grammar import Grammar, TextFile, weighted, word_classes, zipf
from crfbook.datasets.word_forms import pronounced_words

TWINS = Path(datasets.__file__).parent / "twins"
TASKS = [(name, task) for name, (tasks, _) in datasets.CATALOGUE.items() for task in tasks]


@pytest.mark.parametrize(("name", "task"), TASKS)
def test_twins_are_deterministic_in_their_seed(name, task):
    def both(seed):
        splits, extra = twin(name, task, 30, 10, 20, seed)
        return splits, extra.get("pairs")

    assert both(0) == both(0)
    assert both(0) != both(1)


def test_a_larger_twin_begins_as_the_smaller():
    small, large = (twin("treebank", "pos", n, 5, 5)[0]["train"] for n in (20, 60))
    assert large.head(20) == small


def test_the_callers_changes_stay_with_the_caller():
    first = crfbook.load_dataset("atis", source="builtin", verbose=False)
    first.train.labels[0] = first.train.columns["word"][0] = "spoilt"
    second = crfbook.load_dataset("atis", source="builtin", verbose=False)
    assert "spoilt" not in (second.train.labels[0], second.train.columns["word"][0])


@pytest.mark.parametrize("name", ["conll2000", "treebank", "wnut17", "ud-turkish-imst", "atis"])
def test_twins_have_rare_and_unseen_words(name):
    dataset = crfbook.load_dataset(name, source="builtin", verbose=False)
    seen = Counter(dataset.train.columns["word"])
    unseen = sum(word not in seen for word in dataset.test.columns["word"]) / dataset.test.n_tokens
    assert 0.005 < unseen < 0.4
    if name != "atis":  # the corpus, too, has a small vocabulary
        assert sum(n == 1 for n in seen.values()) > 0.3 * len(seen)


def test_english_twin_is_ambiguous_and_its_test_part_has_an_unseen_label():
    dataset = crfbook.load_dataset("treebank", source="builtin", verbose=False)
    tags = {}
    for word, tag in zip(dataset.train.columns["word"], dataset.train.labels, strict=True):
        tags.setdefault(word, set()).add(tag)
    assert sum({"NN", "VB"} <= t or {"NNS", "VBZ"} <= t for t in tags.values()) > 20
    assert {"IN", "DT", "WDT"} <= tags["that"]
    chunks = crfbook.load_dataset("conll2000", source="builtin", verbose=False)
    assert set(chunks.test.labels) - set(chunks.train.labels) == {"I-LST"}


def valid_bio(tags):
    return all(t[0] != "I" or p[1:] == t[1:] for p, t in zip(["O", *tags], tags, strict=False))


@pytest.mark.parametrize("name", ["conll2000", "conll2002", "wnut17", "fewnerd-inter", "atis"])
def test_twins_are_valid_bio(name):
    for part in crfbook.load_dataset(name, source="builtin", verbose=False).splits.values():
        assert all(valid_bio(tags) for tags in part.labels_by_sequence())


def test_english_dependencies_are_trees():
    for sentence in english_sentences(300, 5, unseen_list_mark=True):
        heads = [token.head for token in sentence]
        assert heads.count(0) == 1 and all(0 <= head <= len(heads) for head in heads)
        for i in range(1, len(heads) + 1):
            steps = 0
            while i and steps <= len(heads):
                i, steps = heads[i - 1], steps + 1
            assert i == 0, "a cycle"


def test_iob1():
    assert iob1(["B-X", "I-X", "B-X", "B-Y", "O", "B-Y"]) == ["I-X", "I-X", "B-X", "I-Y", "O", "I-Y"]


def test_mistakes_of_the_tagger():
    tags = ["NN", "VBD", ".", "IN"] * 2000
    wrong = [a for a, b in zip(tags, mistagged(tags, 1, 0.1), strict=True) if a != b]
    assert 0.08 < len(wrong) / 6000 < 0.12 and "." not in wrong


GOOD = b"""# what it holds
[words]
DT 0.8 2 : the a
    an
_ 1 2 : _
  # not a comment: a continuation
[numbers]
one : 1 x
"""


def test_text_files():
    file = TextFile(GOOD)
    rows = list(file.rows("words", "class <power> <shift> : word ..."))
    assert [row[1:] for row in rows] == [
        (("DT", 0.8, 2.0), ("the", "a", "an")),
        (("", 1.0, 2.0), ("", "#", "not", "a", "comment:", "a", "continuation")),
    ]
    assert rows[1][0] == "<bytes>, line 5"
    assert file.table("numbers", "name : <value> unit") == {"one": (1.0, "x")}
    assert file.table("numbers", "name : value ...") == {"one": ("1", "x")}
    assert TextFile(b"[a]\nx : y\n").table("a", "key : value") == {"x": "y"}
    assert TextFile(b"[a]\nx : y\n").table("a", "key : value ...") == {"x": ("y",)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"x : 1\n", r"<bytes>, line 1: expected a \[section\] first, found 'x : 1'"),
        (b"[a]\nx 1\n", "line 2: expected 'key : value', found 'x 1'"),
        (b"[a]\n x 1\n", "line 2: expected 'key : value', found ' x 1'"),
        (b"[a]\nx: 1\n", "line 2: expected 'key : value', found 'x: 1'"),
        (b"[a]\nx : 1\n  y : 2\n", "line 3: expected 'key : value', found '  y : 2'"),
        (b"[a]\nx : 1 : 2\n", "line 2: expected 'key : value', found 'x : 1 : 2'"),
        (b"[a]\n[b]\n[a]\n", r"line 3: expected a new section, found \[a\] again"),
        (b"[b]\nx : 1\n", r"<bytes>: expected a section \[a\]"),
        (b"[a]\nx : 1\nx : 2\n", "line 3: expected one line for 'x', found a second"),
        (b"[a]\n# x\nx y : 1\n", "line 3: expected 'key : <weight>', found 'x y : 1'"),
        (b"[a]\nx : 1\n  2\n", "line 2: expected 'key : <weight>', found 'x : 1 2'"),
        (b"[a]\nx :\n", "line 2: expected 'key : <weight>', found 'x : '"),
        (b"[a]\nx : _\n", "line 2: expected 'key : <weight>', found 'x : _'"),
        (b"[a]\nx : one\n", "line 2: expected 'key : <weight>', found 'x : one'"),
        (b"[a]\nx : -1\n", "line 2: expected 'key : <weight>', found 'x : -1'"),
        (b"[a]\nx : nan\n", "line 2: expected 'key : <weight>', found 'x : nan'"),
        (b"[a]\nx : inf\n", "line 2: expected 'key : <weight>', found 'x : inf'"),
        (b"[a]\nx : \xe9\n", "line 2: expected UTF-8"),
    ],
)
def test_wrong_text_files_are_told_where(text, message):
    with pytest.raises(ValueError, match=message):
        TextFile(text).table("a", "key : <weight>")


def test_a_damaged_file_of_a_twin_is_named(tmp_path):
    text = (TWINS / "english_grammar.txt").read_text()
    path = tmp_path / "mine.txt"
    path.write_text(text.replace("S 40 : ", "S forty : "))
    line = text[: text.index("S 40 : ")].count("\n") + 1
    with pytest.raises(
        ValueError, match=rf"mine\.txt, line {line}: expected 'SYMBOL <weight> : item \.\.\.'"
    ):
        Grammar(TextFile(path), {})


def test_grammar_errors_name_the_line():
    with pytest.raises(ValueError, match="line 3: no rule and no words for 'NX'"):
        Grammar(TextFile(b"[rules]\nTOP 1 : A\nA 1 : NX"), {})
    with pytest.raises(ValueError, match="line 2: no rule and no words for ''"):
        Grammar(TextFile(b"[rules]\nTOP 1 : _"), {})
    with pytest.raises(ValueError, match="line 2: expected 'SYMBOL <weight> : item ...', found 'TOP : a_X'"):
        Grammar(TextFile(b"[rules]\nTOP : a_X"), {})


def test_a_small_grammar():
    file = TextFile(b"[rules]\nTOP 1 : [NP <PER N/nsubj a_DT > ] V.t^ ._.\nV.$c 1 : VB.$c^\n")
    one = zipf(["x"])
    sentence = Grammar(file, {"N": one, "VB.t": one, "VB.i": one}, "ti").sentence(lambda: 0.5)
    assert [tuple(token) for token in sentence] == [
        ("x", "N", "B-NP", "B-PER", "nsubj", 3),
        ("a", "DT", "I-NP", "I-PER", "dep", 3),
        ("x", "VB", "O", "O", "root", 0),
        (".", ".", "O", "O", "punct", 3),
    ]


def test_choices():
    words = zipf(["a", "b"])
    assert words.draw(0.0) == "a" and words.draw(0.999999) == "b"
    never = weighted({"a": 0, "b": 1, "c": 3}, [0, 1, 3])
    assert [never.draw(u) for u in (0.0, 0.2499, 0.25, 0.9999)] == ["b", "b", "c", "c"]


def test_word_classes():
    lists = {"made": ["x", "y", "z"], "Up": ["a"]}

    def words(line, **options):
        return word_classes(TextFile(b"[w]\nA 1 2 : " + line), "w", lists, **options)["A"].options

    assert words(b"a b a") == ["a", "b", "a"]
    assert words(b"x @made a @Up") == ["x", "y", "z", "a"]
    assert words(b"x @made a @Up", distinct=False) == ["x", "x", "y", "z", "a", "a"]
    assert words(b"@made:1-") == ["y", "z"] and words(b"q @made:0-2") == ["q", "x", "y"]
    for wrong in (b"@", b"@mad", b"@made:", b"@made:1", b"@made:-1", b"@made:1:2", b"b @made-1"):
        with pytest.raises(ValueError, match=r"line 2: expected @ and a list \(made, Up\), found '@"):
            words(wrong)


def test_an_unknown_part_of_a_frame_is_named(monkeypatch):
    monkeypatch.setattr(
        word_forms, "text_file", lambda name: TextFile(b"[frames]\n1 : subject verb\n2 : vrb\n")
    )
    with pytest.raises(ValueError, match="line 3: expected parts among subject, .* verb; found 'vrb'"):
        word_forms._frames.__wrapped__()


@pytest.mark.parametrize("path", sorted(TWINS.glob("*.txt")), ids=lambda path: path.stem)
def test_text_files_say_what_they_hold(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ") and any(line.startswith("# Format: ") for line in lines)
    assert max(map(len, lines)) <= 110
    file = TextFile(path)
    assert file.sections and all(file.sections.values())
    for section in file.sections:  # what is in a section stands above it, or in the rules' case in the header
        at = lines.index(f"[{section}]")
        assert lines[at - 1].startswith("# ") or section == "rules"


def test_text_files_are_read_when_a_twin_is():
    code = "from crfbook.datasets import english, grammar, word_forms\n"
    code += "print(grammar.text_file.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_spelling_is_aligned_and_its_stress_is_on_vowels():
    for word, phonemes, stress in pronounced_words(500, 3):
        assert len(word) == len(phonemes) == len(stress)
        assert "1" in stress and set(stress) <= set("012<>")


def test_sparse_hmm_has_the_errors_of_its_source():
    """Bayes error of one token, over all 5^5 strings, by the forward-backward recursion in probabilities."""
    start, transition, emission = simulated.SPARSE_HMM
    for rows in (start[None], transition, emission):
        np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-12)
    assert transition[4, 0] == transition[5, 1] == 2 / 3 and emission[4, 4] == emission[5, 4] == 0.92
    strings = np.indices((5,) * 5).reshape(5, -1)
    alpha, beta = [start * emission.T[strings[0]]], [np.ones((3125, 6))]
    for t in range(1, 5):
        alpha.append(alpha[-1] @ transition * emission.T[strings[t]])
        beta.insert(0, (beta[0] * emission.T[strings[5 - t]]) @ transition.T)
    right = np.mean([(a * b).max(axis=1).sum() for a, b in zip(alpha, beta, strict=True)])
    assert 1 - right == pytest.approx(0.1545, abs=5e-5)


def test_simulated_frequencies_are_those_of_the_model():
    labels, symbols = simulated.sample(simulated.SPARSE_HMM, [5] * 40_000, 1)
    pair = np.zeros((6, 6))
    y = labels.reshape(-1, 5)
    np.add.at(pair, (y[:, :-1].ravel(), y[:, 1:].ravel()), 1)
    emitted = np.zeros((6, 5))
    np.add.at(emitted, (labels, symbols), 1)
    model = simulated.SPARSE_HMM
    np.testing.assert_allclose(pair / pair.sum(axis=1, keepdims=True), model.transition, atol=0.01)
    np.testing.assert_allclose(emitted / emitted.sum(axis=1, keepdims=True), model.emission, atol=0.01)
    labels, _ = simulated.sample(model, [3, 0, 1, 7], 1)
    assert len(labels) == 11


def test_large_label_set():
    tokens = simulated.large_label_sequences(600, n_labels=300)
    assert len(set(tokens.labels)) > 250
    assert max(map(len, tokens.labels_by_sequence())) <= 30
