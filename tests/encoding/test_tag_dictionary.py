"""Label sets of words: training, decoding and marginals by enumeration over the allowed labellings;
the dictionary itself.
"""

import itertools

import numpy as np
import pytest
from helpers.corpora import brute_node_scores, random_corpus, random_model

from crfbook.chain import inference
from crfbook.chain.objective import Objective
from crfbook.data.columns import TokenColumns
from crfbook.data.constraints import Constraints, constraints_from
from crfbook.data.corpus import slice_sequences, take_sequences
from crfbook.data.features import log_edge
from crfbook.encoding.tag_dictionary import TagDictionary, free_blocked
from crfbook.models.crf import CRF
from crfbook.models.parameters import ALGORITHMS, NEEDED, NONE

L = 3


def with_sets(rng, corpus, transitions=False):
    """The corpus with random label sets that allow gold, and the constraints that hold them."""
    sets = rng.random((4, L)) < 0.4
    sets[0] = True
    label_set = rng.integers(0, 4, corpus.n_tokens).astype(np.int32)
    sets[label_set, corpus.labels] = True
    allowed = np.ones((L, L), bool)
    if transitions:
        t = np.flatnonzero(np.isin(np.arange(corpus.n_tokens), corpus.seq_ptr, invert=True))
        allowed[:] = False
        allowed[corpus.labels[t - 1], corpus.labels[t]] = True
    return corpus._replace(label_set=label_set), Constraints(
        allowed, np.ones(L, bool), np.ones(L, bool), sets
    )


def allowed_paths(corpus, constraints, features, w, i):
    """{labelling: score} of all allowed labellings of sequence i."""
    tokens = range(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
    node, edge = (
        brute_node_scores(corpus, features, w),
        log_edge(features, w, corpus.class_ptr, corpus.class_attr),
    )
    scores = {}
    for path in itertools.product(range(L), repeat=len(tokens)):
        if all(
            constraints.label_sets[corpus.label_set[t], y] for t, y in zip(tokens, path, strict=True)
        ) and all(constraints.allowed[pair] for pair in itertools.pairwise(path)):
            pairs = sum(
                edge[corpus.edge_class[t], a, b]
                for t, (a, b) in zip(tokens[1:], itertools.pairwise(path), strict=True)
            )
            scores[path] = sum(node[t, y] for t, y in zip(tokens, path, strict=True)) + pairs
    return scores


@pytest.mark.parametrize("size", [1.0, 300.0])
@pytest.mark.parametrize("n_classes, transitions", [(1, False), (1, True), (3, True)])
def test_masked_quantities_are_sums_over_allowed_labellings(size, n_classes, transitions):
    rng = np.random.default_rng(n_classes + transitions)
    corpus, constraints = with_sets(rng, random_corpus(rng, n_classes=n_classes, weighted=True), transitions)
    features, w = random_model(rng, corpus, size=size)
    value, p_node = 0.1 * w @ w, np.zeros((corpus.n_tokens, L))
    decoded = inference.decode(corpus, features, w, constraints)
    log_proba = inference.log_proba(corpus, features, w, constraints)
    for i in range(corpus.n_sequences):
        tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
        scores = allowed_paths(corpus, constraints, features, w, i)
        log_z = np.logaddexp.reduce(list(scores.values()))
        for path, score in scores.items():
            p_node[np.arange(tokens.start, tokens.stop), path] += np.exp(score - log_z)
        gold = scores[tuple(corpus.labels[tokens])] - log_z
        value -= corpus.seq_weight[i] * gold
        assert log_proba[i] == pytest.approx(gold, rel=1e-9, abs=1e-9)
        assert scores[tuple(decoded[tokens])] == pytest.approx(max(scores.values()), rel=1e-12)
    got, grad = Objective(corpus, features, c2=0.1, constraints=constraints)(w)
    assert got == pytest.approx(value, rel=1e-10)
    marginals = inference.node_marginals(corpus, features, w, constraints)
    np.testing.assert_allclose(marginals, p_node, atol=1e-9, err_msg="rounding of log Z")
    assert (marginals[~constraints.label_sets[corpus.label_set]] == 0).all()  # exactly
    if size == 1.0:
        objective = Objective(corpus, features, c2=0.1, constraints=constraints)
        for k in range(0, features.n_features, 5):
            e = np.zeros_like(w)
            e[k] = 1e-5
            slope = (objective(w + e)[0] - objective(w - e)[0]) / 2e-5
            assert grad[k] == pytest.approx(slope, abs=1e-6), k


def test_label_sets_follow_their_sequences():
    rng = np.random.default_rng(0)
    corpus, constraints = with_sets(rng, random_corpus(rng))
    features, w = random_model(rng, corpus)
    whole = inference.log_proba(corpus, features, w, constraints)
    assert np.allclose(
        inference.log_proba(slice_sequences(corpus, 2, 5), features, w, constraints), whole[2:5]
    )
    assert np.allclose(
        inference.log_proba(take_sequences(corpus, [4, 0]), features, w, constraints), whole[[4, 0]]
    )


def test_label_sets_that_nobody_knows_are_refused():
    rng = np.random.default_rng(0)
    corpus, constraints = with_sets(rng, random_corpus(rng))
    features, w = random_model(rng, corpus)
    for bad in (
        None,
        constraints._replace(label_sets=None),
        constraints._replace(label_sets=constraints.label_sets[:2]),
    ):
        for call in (
            lambda c=bad: Objective(corpus, features, constraints=c),
            lambda c=bad: inference.decode(corpus, features, w, c),
        ):
            with pytest.raises(ValueError, match="label_set: expected rows of constraints.label_sets"):
                call()
    with pytest.raises(ValueError, match=r"label_sets bool \(D, 3\), got int64 \(1, 4\)"):
        constraints_from(constraints._replace(label_sets=np.zeros((1, 4), int)), range(3))
    corpus.labels[0] = (corpus.labels[0] + 1) % L
    sets = np.eye(L, dtype=bool)
    forbidden = corpus._replace(label_set=((corpus.labels + 1) % L).astype(np.int32))
    with pytest.raises(ValueError, match="not among the labels of this token's word"):
        Objective(forbidden, features, constraints=constraints._replace(label_sets=sets))


# ---- the dictionary, and a CRF that has one

SENTENCES = [
    [("the", "D"), ("run", "N")],
    [("the", "D"), ("dogs", "N"), ("run", "V")],
    [("the", "D"), ("cat", "N")],
    [("dogs", "N"), ("run", "V"), ("the", "D"), ("run", "N")],
] * 2 + [[("the", "D"), ("rare", "A"), ("dogs", "V")]]
COLUMNS = TokenColumns.from_sentences(SENTENCES, ("word", "pos"), label="pos")


def model(algorithm="lbfgs", **params):
    row = ALGORITHMS[algorithm]
    penalties = {"c1": 0.1 if row.c1 == NEEDED else 0.0, "c2": 0.1 if row.c2 != NONE else None}
    return CRF(
        algorithm,
        template="U:%x[0,0]\nU1:%x[-1,0]",
        **{"max_iterations": 10, "tag_dictionary": 3, **penalties, **params},
    )


def test_what_is_learnt():
    dictionary = TagDictionary.learn(COLUMNS, min_count=3)
    assert (
        dictionary.entries == {"the": {"D"}, "run": {"N", "V"}, "dogs": {"N", "V"}} and len(dictionary) == 3
    )
    assert (
        TagDictionary.learn(COLUMNS.by_sequence("word"), COLUMNS.labels_by_sequence(), 3).entries
        == dictionary.entries
    )
    sets = dictionary.encode(["A", "D", "N", "V"])
    assert sets.sets.tolist() == [[True] * 4, [False, True, False, False], [False, False, True, True]]
    assert sets.label_set([["the", "run", "new"], ["dogs"]]).tolist() == [1, 2, 0, 2]
    assert dictionary.encode(["A", "B"]).sets.tolist() == [[True, True]]  # no known label: free
    assert repr(dictionary) == "<TagDictionary: 3 words>"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_known_words_keep_to_their_labels(algorithm):
    crf = model(algorithm).fit(COLUMNS)
    probabilities = crf.predict_marginals([["rare", "the", "run", "new"]])[0]
    assert probabilities[1] == {"A": 0, "D": pytest.approx(1), "N": 0, "V": 0}
    assert probabilities[2]["A"] == probabilities[2]["D"] == 0 < probabilities[2]["N"]
    assert all(0 < p < 1 for p in probabilities[3].values()) or algorithm == "boosting"
    assert crf.predict([["the"], ["the", "the"]]) == [["D"], ["D", "D"]]
    assert crf.log_proba([["the"]], [["N"]])[0] == -np.inf


def test_a_loaded_model_keeps_its_dictionary(tmp_path):
    crf = model("perceptron").fit(COLUMNS)
    crf.save(tmp_path / "model")
    again = CRF.load(tmp_path / "model")
    assert again.predict_marginals([["the", "dogs"]]) == crf.predict_marginals([["the", "dogs"]])
    assert np.array_equal(again.partial_fit(COLUMNS).weights_, crf.partial_fit(COLUMNS).weights_)
    assert again.fit(COLUMNS).label_sets_.row_of == crf.label_sets_.row_of


def test_a_stream_keeps_its_first_dictionary():
    crf = model("perceptron").partial_fit(COLUMNS)
    against = TokenColumns.from_sentences([[("the", "N")], [("run", "V")]], ("word", "pos"), label="pos")
    with pytest.raises(
        ValueError, match="1 of 2 .*sequence 0, token 0: 'N' is not among the labels of this token's word"
    ):
        crf.partial_fit(against)
    with pytest.warns(UserWarning, match="1 training sequences violate"):
        crf.set_params(on_violation="drop").partial_fit(against)
    assert crf.n_dropped_ == 1 and crf.predict([["the"]]) == [["D"]]


def test_a_dictionary_from_elsewhere_allows_what_training_shows():
    given = TagDictionary({"the": ["D"], "cat": ["V"], "unseen": ["A"]}, column="word")
    crf = model(tag_dictionary=given).fit(COLUMNS)
    assert crf.predict([["unseen"]]) == [["A"]] and crf.predict_marginals([["cat"]])[0][0].keys() == {
        "A",
        "D",
        "N",
        "V",
    }
    allowed = {label for label, p in crf.predict_marginals([["cat"]])[0][0].items() if p > 0}
    assert allowed == {"N", "V"}
    dev = crf.fit(COLUMNS, X_dev=COLUMNS).history_.dev_accuracy
    assert dev.iloc[-1] > 0.9


def test_words_that_are_not_known_make_no_difference():
    plain, free = (
        model(tag_dictionary=None).fit(COLUMNS),
        model(tag_dictionary=TagDictionary({"unseen": ["A"]})).fit(COLUMNS),
    )
    assert np.array_equal(plain.weights_, free.weights_)


@pytest.mark.parametrize(
    "given, message",
    [
        (0, "tag_dictionary: expected an integer >= 1, got 0"),
        (2.5, "expected an integer"),
        ("yes", "expected an integer"),
        (TagDictionary({}, column="lemma"), "no column 'lemma'; there are 'word'"),
        (TagDictionary({}, column=3), "no column 3"),
    ],
)
def test_what_is_no_dictionary_is_refused(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        model(tag_dictionary=given).fit(COLUMNS)


def test_other_mistakes():
    with pytest.raises(TypeError, match="collection of labels for 'the', got 'D'"):
        TagDictionary({"the": "D"})
    with pytest.raises(TypeError, match="expected a dict"):
        TagDictionary(["the"])
    with pytest.raises(ValueError, match="expected labels y"):
        TagDictionary.learn([["the"]])
    with pytest.raises(ValueError, match="1 tokens, got 2"):
        TagDictionary.learn([["the"]], [["D", "N"]])
    with pytest.raises(ValueError, match="columns of words with a template"):
        CRF(tag_dictionary=3).fit([[["a"]]], [["A"]])


def test_sequences_without_any_labelling_are_freed():
    """By enumeration: the label sets of a sequence go if, and only if, they leave nothing."""
    freed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        corpus = random_corpus(rng, lengths=(3, 0, 1, 2, 4))
        corpus = corpus._replace(label_set=rng.integers(0, 4, corpus.n_tokens).astype(np.int32))
        sets, allowed = rng.random((4, L)) < 0.5, rng.random((L, L)) < 0.6
        sets[0], sets[1:, 0] = True, sets[1:, 0] | ~sets[1:].any(axis=1)
        constraints = Constraints(allowed, np.array([True, True, False]), np.array([True, False, True]), sets)
        found = free_blocked(corpus, constraints)
        for i in range(corpus.n_sequences):
            tokens = slice(corpus.seq_ptr[i], corpus.seq_ptr[i + 1])
            n = tokens.stop - tokens.start
            possible = [
                y
                for y in itertools.product(range(L), repeat=n)
                if n == 0
                or (
                    constraints.start[y[0]]
                    and constraints.end[y[-1]]
                    and all(allowed[a, b] for a, b in itertools.pairwise(y))
                    and all(sets[corpus.label_set[tokens.start + t], y[t]] for t in range(n))
                )
            ]
            expected = corpus.label_set[tokens] if possible else np.zeros(n, np.int32)
            np.testing.assert_array_equal(found.label_set[tokens], expected)
            freed += not possible
    assert 10 < freed < 190


@pytest.mark.parametrize("algorithm", ["lbfgs", "perceptron"])
def test_new_text_that_the_dictionary_forbids_with_the_constraints(algorithm):
    """A word known as I-NP only may open a new sentence."""
    X = TokenColumns({"word": ["the", "man"] * 6}, np.arange(0, 13, 2), ["B-NP", "I-NP"] * 6)
    model = CRF(algorithm, template="words", constraints="BIO", tag_dictionary=5).fit(X)
    new = TokenColumns({"word": ["man", "the", "man", "the", "man"]}, np.array([0, 3, 5]))
    assert model.predict(new)[1] == ["B-NP", "I-NP"] and model.predict(new)[0][0] == "B-NP"
    for row in model.predict_marginals(new)[0]:
        assert sum(row.values()) == pytest.approx(1.0)
