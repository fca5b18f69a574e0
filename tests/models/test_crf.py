"""The CRF estimator end to end: by enumeration over its own named weights, beside sklearn-crfsuite,
and its conveniences.
"""

import itertools
import math
import threading

import numpy as np
import pytest

from crfbook.data.columns import TokenColumns
from crfbook.data.corpus import make_corpus
from crfbook.models import crf as crf_module
from crfbook.models.crf import CRF

SENTENCES = [
    "Melbourne/NNP/B-LOC (/(/O Australia/NNP/B-LOC )/)/O ,/,/O 25/CD/O may/NNP/O",
    "La/DA/B-LOC Coruña/NC/I-LOC ,/,/O 23/Z/O may/NC/O (/(/O EFECOM/NP/B-ORG )/)/O",
    "El/DA/O Abogado/NC/B-PER General/AQ/I-PER del/SP/O Estado/NC/B-ORG",
    "Daryl/VMI/B-PER Williams/NC/I-PER subrayó/VMI/O hoy/RG/O la/DA/O necesidad/NC/O",
    "de/SP/O tomar/VMN/O medidas/NC/O en/SP/O Australia/NC/B-LOC",
    "El/DA/O Estado/NC/B-ORG de/SP/O La/DA/B-LOC Coruña/NC/I-LOC",
]
SENTENCES = [[tuple(token.rsplit("/", 2)) for token in line.split()] for line in SENTENCES]


# ---- the functions of sklearn-crfsuite's tutorial, as its readers have them in their own code


def word2features(sent, i):
    word = sent[i][0]
    postag = sent[i][1]
    features = {
        "bias": 1.0,
        "word.lower()": word.lower(),
        "word[-3:]": word[-3:],
        "word.isupper()": word.isupper(),
        "word.istitle()": word.istitle(),
        "word.isdigit()": word.isdigit(),
        "postag": postag,
        "postag[:2]": postag[:2],
    }
    if i > 0:
        features.update(
            {
                "-1:word.lower()": sent[i - 1][0].lower(),
                "-1:word.istitle()": sent[i - 1][0].istitle(),
                "-1:postag": sent[i - 1][1],
            }
        )
    else:
        features["BOS"] = True
    if i < len(sent) - 1:
        features.update({"+1:word.lower()": sent[i + 1][0].lower(), "+1:postag": sent[i + 1][1]})
    else:
        features["EOS"] = True
    return features


def sent2features(sent):
    return [word2features(sent, i) for i in range(len(sent))]


def sent2labels(sent):
    return [label for token, postag, label in sent]


X = [sent2features(s) for s in SENTENCES]
Y = [sent2labels(s) for s in SENTENCES]


@pytest.fixture(scope="module")
def tutorial():
    crf = CRF(algorithm="lbfgs", c1=0.1, c2=0.1, max_iterations=100, all_possible_transitions=True)
    crf.fit(X, Y)
    return crf


@pytest.fixture(scope="module")
def smooth():
    """Converged, without L1: comparable with other tools to many digits."""
    return CRF(c2=0.5, tol=1e-10).fit(X, Y)


def test_tutorial_code_runs_after_changing_one_import(tutorial):
    labels = list(tutorial.classes_)
    labels.remove("O")
    assert sorted(labels) == ["B-LOC", "B-ORG", "B-PER", "I-LOC", "I-PER"]
    y_pred = tutorial.predict(X)
    assert isinstance(y_pred, list) and all(
        type(seq) is list and type(y) is str for seq in y_pred for y in seq
    )
    assert [len(seq) for seq in y_pred] == [len(seq) for seq in Y]
    assert tutorial.score(X, Y) > 0.9
    assert tutorial.predict_single(X[0]) == y_pred[0]
    weights = tutorial.transition_features_
    assert weights["B-PER", "I-PER"] > 0
    assert all(isinstance(a, str) and isinstance(b, str) for a, b in weights)
    assert all(
        isinstance(attribute, str) and label in tutorial.classes_
        for attribute, label in tutorial.state_features_
    )
    assert "word.istitle()" in tutorial.attributes_ and tutorial.num_attributes_ == len(tutorial.attributes_)
    assert 0 < len(tutorial.state_features_) < tutorial.features_.n_node  # c1 left some at zero


def test_marginals_have_the_shapes_and_sums_they_should(tutorial):
    marginals = tutorial.predict_marginals(X)
    arrays = tutorial.predict_marginals_array(X)
    pairs = list(tutorial.predict_edge_marginals(X))
    ids = tutorial.predict_array(X)
    for seq, table, pair, path, found in zip(marginals, arrays, pairs, ids, tutorial.predict(X), strict=True):
        assert [list(token) for token in seq] == [tutorial.classes_] * len(seq)
        assert np.allclose(table.sum(axis=1), 1, rtol=0, atol=1e-12)
        assert np.array_equal(table, [list(token.values()) for token in seq])
        assert np.allclose(pair.sum(axis=2), table[:-1], rtol=0, atol=1e-12)  # [previous, next]
        assert np.allclose(pair.sum(axis=1), table[1:], rtol=0, atol=1e-12)
        assert [tutorial.classes_[y] for y in path] == found
    alone = tutorial.predict_marginals_single(
        X[1]
    )  # another batch, another order of additions: the last bit may differ
    assert all(a == pytest.approx(b, rel=1e-13, abs=1e-15) for a, b in zip(alone, marginals[1], strict=True))


def enumerated(crf, xseq):
    """{labelling: probability} from the named weights, by walking every path:
    no array of the package is used.
    """
    state, transition = crf.state_features_, crf.transition_features_
    attributes = []
    for token in xseq:
        values = {
            f"{k}:{v}" if isinstance(v, str) else k: 1.0 if isinstance(v, str) else float(v)
            for k, v in token.items()
        }
        attributes.append(values)
    score = {}
    for path in itertools.product(crf.classes_, repeat=len(xseq)):
        s = sum(
            state.get((a, y), 0.0) * v
            for values, y in zip(attributes, path, strict=True)
            for a, v in values.items()
        )
        score[path] = s + sum(transition.get(pair, 0.0) for pair in itertools.pairwise(path))
    log_z = math.log(sum(math.exp(s) for s in score.values()))
    return {path: math.exp(s - log_z) for path, s in score.items()}


def test_predictions_and_probabilities_by_enumeration(smooth):
    for i in (2, 4, 5):
        xseq = X[i][:4]
        p = enumerated(smooth, xseq)
        best = max(p, key=p.get)
        assert smooth.predict_single(xseq) == list(best)
        for path in (best, tuple(Y[i][:4])):
            assert smooth.log_proba([xseq], [path])[0] == pytest.approx(math.log(p[path]), rel=1e-10)
        for t, token in enumerate(smooth.predict_marginals_single(xseq)):
            for label, probability in token.items():
                assert probability == pytest.approx(
                    sum(v for path, v in p.items() if path[t] == label), abs=1e-12
                )


def test_objective_is_what_the_docstring_says(smooth):
    w = smooth.weights_
    assert smooth.objective_ == pytest.approx(-smooth.log_proba(X, Y).sum() + 0.5 * w @ w, rel=1e-12)
    again = CRF(c1=0.3, c2=0.2, max_iterations=15).fit(X, Y)
    w = again.weights_
    assert again.objective_ == pytest.approx(
        -again.log_proba(X, Y).sum() + 0.3 * np.abs(w).sum() + 0.2 * w @ w, rel=1e-12
    )
    assert again.n_iter_ == 15 and again.status_ == "max_iterations"


@pytest.mark.parametrize(
    "params",
    [
        {"c1": 0.0, "c2": 0.5},
        {"c1": 0.1, "c2": 0.1, "all_possible_transitions": True},
        {"c2": 1.0, "min_freq": 2},
        {"c2": 0.3, "all_possible_states": True},
    ],
)
def test_same_optimum_and_predictions_as_sklearn_crfsuite(params):
    peer_package = pytest.importorskip("sklearn_crfsuite")
    peer = peer_package.CRF(algorithm="lbfgs", epsilon=1e-9, delta=1e-12, max_iterations=2000, **params).fit(
        X, Y
    )
    ours = CRF(algorithm="lbfgs", tol=1e-11, **params).fit(X, Y)
    assert ours.objective_ <= peer.training_log_.last_iteration["loss"] * (1 + 1e-6)
    assert ours.objective_ == pytest.approx(peer.training_log_.last_iteration["loss"], rel=1e-5)
    assert ours.predict(X) == [list(seq) for seq in peer.predict(X)]
    for label in ours.classes_:
        column = [token[label] for seq in ours.predict_marginals(X) for token in seq]
        theirs = [token[label] for seq in peer.predict_marginals(X) for token in seq]
        assert np.allclose(column, theirs, rtol=0, atol=2e-4)  # CRFsuite stops a little early
    for pair, w in peer.transition_features_.items():
        assert ours.transition_features_.get(pair, 0.0) == pytest.approx(w, abs=5e-3)
    unlike = [
        name
        for name, w in peer.state_features_.items()
        if abs(ours.state_features_.get(name, 0.0) - w) > 5e-3
    ]
    assert unlike == []


# ---- kinds of input


def test_every_kind_of_input_gives_the_same_model():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(0)
    dense = [rng.normal(size=(t, 3)).round(2) for t in (4, 1, 3, 6)]
    y = [rng.choice(["a", "b", "c"], size=len(x)).tolist() for x in dense]
    dicts = [[{f"f{j}": float(v) for j, v in enumerate(row)} for row in x] for x in dense]
    names = ["f0", "f1", "f2"]
    models = [
        CRF(c2=0.1, tol=1e-10).fit(data, y)
        for data in (dense, [scipy_sparse.csr_matrix(x) for x in dense], dicts)
    ]
    for model, data in zip(models, (dense, [scipy_sparse.csr_matrix(x) for x in dense], dicts), strict=True):
        assert model.objective_ == pytest.approx(models[0].objective_, rel=1e-9)
        assert model.predict(data) == models[0].predict(dense)
    assert sorted(models[2].attributes_) == names


def test_lists_of_strings_are_attributes_of_value_one():
    lists = [[[f"{k}={v}" for k, v in token.items()] for token in seq] for seq in X]
    dicts = [[dict.fromkeys(token, 1.0) for token in seq] for seq in lists]
    a, b = CRF(max_iterations=5).fit(lists, Y), CRF(max_iterations=5).fit(dicts, Y)
    assert a.objective_ == b.objective_ and a.predict(lists) == b.predict(dicts)


def test_token_columns_with_a_template():
    columns = TokenColumns.from_sentences(SENTENCES, ("word", "pos", "label"), label="label")
    text = "U00:%x[0,0]\nU01:%x[-1,0]\nU02:%x[0,1]\nB\nB01:%x[0,1]\n"
    crf = CRF(template=text, c2=0.1).fit(columns)
    unlabelled = columns.select(["word", "pos"])
    assert crf.predict(unlabelled) == Y == crf.predict(columns)
    assert crf.score(columns) == 1.0 and crf.score(unlabelled, Y) == 1.0
    assert np.allclose(crf.log_proba(columns), crf.log_proba(unlabelled, Y))
    assert crf.edge_features_ and crf.transition_features_
    assert crf.predict_single([("La", "DA"), ("Coruña", "NC")]) == ["B-LOC", "I-LOC"]  # text as one types it
    kinds = set(crf.weights_to_frame()["kind"])
    assert kinds == {"state", "transition", "edge"}


def test_words_alone_and_one_time_iterables():
    words = [[token[0] for token in sentence] for sentence in SENTENCES]
    crf = CRF(template="U00:%x[0,0]\nU01:%x[-1,0]/%x[0,0]\n", c2=0.1).fit(iter(words), iter(Y))
    assert crf.predict(iter(words)) == Y and crf.predict_single(["La", "Coruña"]) == ["B-LOC", "I-LOC"]


def test_ready_corpus_has_integer_labels():
    corpus = make_corpus([0, 3, 3, 5], [0, 1, 2, 4, 5, 6], [0, 1, 0, 2, 1, 0], labels=[0, 1, 0, 1, 0])
    crf = CRF(c2=0.01).fit(corpus)
    assert crf.predict(corpus) == [[0, 1, 0], [], [1, 0]]
    assert crf.classes_ == [0, 1] and crf.score(corpus) == 1.0
    unseen = corpus._replace(attr_idx=corpus.attr_idx + 7)  # ids beyond those of training: ignored
    assert [len(seq) for seq in crf.predict(unseen)] == [3, 0, 2]
    with pytest.raises(ValueError, match="without an encoder: expected a Corpus, got list"):
        crf.predict([[{"a": 1}]])


@pytest.mark.parametrize("labels", [[3, 1], [np.int64(3), np.int64(1)], [(1, "x"), (2, "y")], [True, False]])
def test_labels_of_any_kind_come_back(labels):
    y = [[labels[0], labels[1]], [labels[1]]]
    crf = CRF(c2=0.01).fit([[["a"], ["b"]], [["b"]]], y)
    assert crf.predict([[["a"], ["b"]], [["b"]]]) == y
    for seq in crf.predict([[["a"]]]):
        assert type(seq[0]) is type(labels[0]) or isinstance(seq[0], int)


# ---- training


def test_sample_weight_counts_a_sequence_so_often():
    doubled = CRF(c2=0.3, tol=1e-11).fit([*X, X[0], X[0]], [*Y, Y[0], Y[0]])
    weighted = CRF(c2=0.3, tol=1e-11).fit(X, Y, sample_weight=[3, 1, 1, 1, 1, 1])
    assert weighted.objective_ == pytest.approx(doubled.objective_, rel=1e-9)
    left_out = CRF(c2=0.3, tol=1e-11).fit(X, Y, sample_weight=[0, 1, 1, 1, 1, 1])
    assert left_out.objective_ < CRF(c2=0.3, tol=1e-11).fit(X, Y).objective_


def test_threads_do_not_change_a_bit():
    one, two = (CRF(max_iterations=8, n_jobs=n).fit(X * 5, Y * 5) for n in (1, 2))
    assert np.array_equal(one.weights_, two.weights_)


def test_history_and_callback():
    seen = []
    crf = CRF(max_iterations=6).fit(X, Y, callback=lambda step, w: seen.append((step.iteration, w.shape)))
    assert [i for i, _ in seen] == [1, 2, 3, 4, 5, 6] == crf.history_["iteration"].tolist()
    assert {"objective", "violation", "n_active", "seconds"} <= set(crf.history_.columns)
    assert crf.history_["objective"].iloc[-1] == crf.objective_
    stopped = CRF().fit(X, Y, callback=lambda step, w: step.iteration == 3)
    assert stopped.n_iter_ == 3 and "callback" in stopped.status_


def test_dev_set_is_recorded_and_stops():
    crf = CRF(max_iterations=10).fit(X[:4], Y[:4], X_dev=X[4:], y_dev=[["?"] * len(Y[4]), Y[5]])
    assert len(crf.history_) == len(crf.history_["dev_accuracy"]) == 10
    assert crf.history_["dev_accuracy"].max() <= 0.5  # labels nobody knows are errors
    early = CRF(patience=2, tol=1e-12).fit(X[:4], Y[:4], X_dev=X[4:], y_dev=Y[4:])
    best = int(early.history_["dev_accuracy"].to_numpy().argmax())
    assert early.n_iter_ == best + 3 and "held-out" in early.status_
    assert early.score(X[4:], Y[4:]) == pytest.approx(early.history_["dev_accuracy"].max())
    assert early.objective_ == early.history_["objective"].iloc[best]


def test_interruption_leaves_a_usable_model():
    def press_ctrl_c(step, w):
        if step.iteration == 3:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted after 3 iterations"):
        crf = CRF().fit(X, Y, callback=press_ctrl_c)
    assert crf.status_ == "interrupted" and crf.n_iter_ == 3
    assert np.array_equal(crf.weights_, CRF(max_iterations=3).fit(X, Y).weights_)
    assert len(crf.predict(X)) == len(X)


def test_warm_start_matches_weights_by_name():
    crf = CRF(c2=0.3, warm_start=True, tol=1e-9).fit(X, Y)
    cold = crf.n_iter_
    old = crf.state_features_
    crf.fit(X[::-1], Y[::-1])  # the same problem: nothing left to do
    assert crf.n_iter_ <= 2 < cold
    crf.set_params(max_iterations=0).fit([*X, [{"new": 1.0}]], [*Y, ["NEW"]])
    assert crf.state_features_.keys() == old.keys()
    assert all(crf.state_features_[name] == pytest.approx(w, abs=1e-3) for name, w in old.items())
    assert "NEW" in crf.classes_


def test_crfsuite_stopping_rules_when_asked_for():
    full = CRF(c2=0.1, tol=1e-9).fit(X, Y)
    by_delta = CRF(c2=0.1, tol=1e-9, delta=1e-2, period=3).fit(X, Y)
    by_epsilon = CRF(c2=0.1, tol=1e-9, epsilon=1e-1).fit(X, Y)
    assert by_delta.n_iter_ < full.n_iter_ and by_epsilon.n_iter_ < full.n_iter_
    assert "epsilon" in by_epsilon.status_


@pytest.mark.parametrize("c1", [0.02, 0.2])
def test_without_c2_a_small_change_ends_training(c1):
    """delta = 1e-6 over 10 iterations, unless delta is given; c2 > 0 keeps its certificate."""
    crf = CRF(c1=c1, c2=0.0, tol=0.0).fit(X, Y)
    values = crf.history_["objective"].to_numpy()
    assert crf.status_ == "small change" and values[-11] - values[-1] <= 1e-6 * values[-1]
    assert values[-12] - values[-2] > 1e-6 * values[-2]
    assert CRF(c1=c1, c2=0.0, tol=0.0, delta=1e-3).fit(X, Y).n_iter_ < crf.n_iter_
    patient = CRF(c1=c1, c2=0.0, delta=0).fit(X, Y)
    assert patient.status_ == "converged" and patient.history_["violation"].iloc[-1] <= 1e-3
    assert CRF(c1=c1, c2=0.1, tol=1e-9).fit(X, Y).status_ == "converged"
    separable = CRF(c1=0.0, c2=0.0).fit(X, Y)  # the objective goes to 0, no change is small
    assert separable.status_ == "converged" and separable.objective_ < 0.1


def test_min_freq_cuts_weights_not_attributes():
    crf = CRF(min_freq=2, max_iterations=3).fit(X, Y)
    assert ("bias", "O") in crf.state_features_
    counts = {}
    for xs, ys in zip(X, Y, strict=True):
        for token, y in zip(xs, ys, strict=True):
            for k, v in token.items():
                key = (f"{k}:{v}" if isinstance(v, str) else k, y)
                counts[key] = counts.get(key, 0) + (1 if isinstance(v, str) else float(v))
    assert crf.features_.n_node == sum(count >= 2 for count in counts.values())


def test_weights_to_frame(tutorial):
    frame = tutorial.weights_to_frame()
    assert list(frame.columns) == ["kind", "attribute", "from", "label", "weight"]
    assert len(frame) == len(tutorial.state_features_) + len(tutorial.transition_features_)
    assert np.all(np.diff(np.abs(frame["weight"])) <= 0)
    row = frame[frame["kind"] == "transition"].iloc[0]
    assert tutorial.transition_features_[row["from"], row["label"]] == row["weight"]


# ---- constraints


BAD = [["I-LOC", "O", "I-PER", "O", "O", "O", "O"], *Y[1:]]


def test_constraints_hold_in_training_and_decoding():
    crf = CRF(c2=0.1, constraints="BIO").fit(X, Y)
    free = CRF(c2=0.1).fit(X, Y)
    assert crf.objective_ < free.objective_  # fewer paths share the probability
    labels = crf.classes_
    inside = [labels.index("I-LOC"), labels.index("I-PER")]
    rng = np.random.default_rng(1)
    noise = [
        [{f"word.lower():{w}": 5.0 * rng.normal()} for w in rng.choice(["la", "coruña", "de"], size=5)]
        for _ in range(20)
    ]
    for seq in crf.predict(noise):
        for before, y in zip(["O", *seq], seq, strict=False):
            assert not y.startswith("I-") or before[2:] == y[2:]
    assert all(table[0, inside].max() == 0 for table in crf.predict_marginals_array(noise))
    assert crf.log_proba([X[0][:2]], [["O", "I-LOC"]])[0] == -np.inf
    assert not any(pair[1].startswith("I-") and pair[0] == "O" for pair in crf.transition_features_)


def test_gold_violations_are_listed_or_dropped():
    with pytest.raises(
        ValueError, match=r"1 of 6 .*sequence 0, token 0: 'I-LOC' may not start.*sequence 0, token 2: 'I-PER'"
    ):
        CRF(constraints="BIO").fit(X, BAD)
    with pytest.warns(UserWarning, match="1 training sequences violate the constraints and were left out"):
        crf = CRF(constraints="BIO", on_violation="drop", c2=0.2).fit(X, BAD)
    assert crf.n_dropped_ == 1
    assert crf.objective_ < CRF(c2=0.2).fit(X[1:], Y[1:]).objective_
    with pytest.raises(ValueError, match="all training sequences"):
        CRF(constraints="BIO", on_violation="drop").fit([X[0]], [BAD[0]])


def test_unseen_is_not_forbidden():
    crf = CRF(c2=1.0).fit([[["a"], ["b"]], [["a"], ["b"]]], [["A", "B"]] * 2)
    assert ("B", "A") not in crf.transition_features_
    assert crf.predict([[["b"], ["a"]]]) == [["B", "A"]]  # never seen, weight 0, and yet the best
    strict = CRF(c2=1.0, constraints={"allowed": [[False, True], [False, True]]}).fit(
        [[["a"], ["b"]]], [["A", "B"]]
    )
    assert strict.predict([[["b"], ["a"]]])[0] != ["B", "A"]


# ---- saving, threads


def test_saved_model_is_the_same_model(tmp_path, smooth):
    columns = TokenColumns.from_sentences(SENTENCES, ("word", "pos", "label"), label="label")
    templated = CRF(
        template="U00:%x[0,0]\nU01:%x[0,1]/%x[-1,1]\nB01:%x[0,1]\n", constraints="BIO", c1=0.1
    ).fit(columns)
    corpus = make_corpus([0, 3], [0, 1, 2, 3], [0, 1, 0], labels=[0, 1, 0])
    for i, (crf, data) in enumerate([(smooth, X), (templated, columns), (CRF().fit(corpus), corpus)]):
        crf.save(tmp_path / f"{i}.crf")
        again = CRF.load(tmp_path / f"{i}.crf")
        assert again.predict(data) == crf.predict(data)
        assert np.array_equal(again.weights_, crf.weights_) and again.classes_ == crf.classes_
        assert again.state_features_ == crf.state_features_ and again.edge_features_ == crf.edge_features_
        for p, q in zip(again.predict_marginals_array(data), crf.predict_marginals_array(data), strict=True):
            assert np.allclose(p, q, rtol=0, atol=1e-12)  # the one may have loaded kernels, the other not
        assert again.history_.equals(crf.history_) and again.objective_ == crf.objective_
        assert (again.c1, again.c2, again.status_, again.n_iter_) == (
            crf.c1,
            crf.c2,
            crf.status_,
            crf.n_iter_,
        )
        again.set_params(warm_start=True, max_iterations=1)
        assert again.fit(data, Y if data is X else None).objective_ <= crf.objective_ * (1 + 1e-12)


def test_parameters_of_numpy_survive_saving(tmp_path):
    CRF(c1=np.float64(0.1), max_iterations=np.int64(3), all_possible_states=np.bool_(True)).fit(X, Y).save(
        tmp_path / "m"
    )
    again = CRF.load(tmp_path / "m")
    assert (again.c1, again.max_iterations, again.all_possible_states) == (0.1, 3, True)


def test_integer_labels_survive_saving(tmp_path):
    crf = CRF(c2=0.01).fit([[["a"], ["b"]]], [[7, 3]])
    crf.save(tmp_path / "m")
    assert CRF.load(tmp_path / "m").predict([[["a"], ["b"]]]) == [[7, 3]]


def test_one_model_many_threads(tutorial):
    expected, p = tutorial.predict(X), np.concatenate(tutorial.predict_marginals_array(X))
    results = []

    def work():  # kernels may come in between: they agree with NumPy but for rounding
        for _ in range(5):
            close = np.allclose(np.concatenate(tutorial.predict_marginals_array(X)), p, rtol=0, atol=1e-12)
            results.append(close and tutorial.predict(X) == expected)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 20


def test_verbose_prints_a_forecast_first(capsys):
    CRF(max_iterations=2, verbose=True).fit(X, Y)
    out = capsys.readouterr().out
    first = out.splitlines()[0]
    assert "6 sequences" in first and "6 labels" in first and "MB" in first and "s per iteration" in first


ZEROS = [
    [{"w": w, "up": w.isupper(), "rare": w == "B" and 2.0, "never": 0.0} for w in words]
    for words in ("aBb", "BaaB", "bb", "abBA")
]
Y_ZEROS = [["x", "y", "x"], ["y", "x", "x", "y"], ["x", "y"], ["x", "y", "y", "x"]]


@pytest.mark.parametrize(
    "algorithm", ["lbfgs", "owlqn", "sdca", "sag", "sgd", "sgd-l1", "perceptron", "pa", "arow", "sbcd", "cd"]
)
def test_occurrences_of_value_0_are_no_work_and_change_nothing(algorithm, monkeypatch):
    """A feature function's `False` is a value of 0: its weights exist, training and tagging never see it."""
    coordinates = algorithm in ("sbcd", "cd")  # their order is that of numbers of occurrences
    settings = dict(algorithm=algorithm, max_iterations=5, c2=None)
    settings |= dict(max_iterations=500, tol=1e-9) if coordinates else {}
    settings |= {"c1": 0.5, "c2": 0} if algorithm in ("owlqn", "sgd-l1", "sbcd", "cd") else {}
    trained = []
    run = crf_module.train

    def watched(ready, *args, **options):
        trained.append(ready.corpus)
        return run(ready, *args, **options)

    monkeypatch.setattr(crf_module, "train", watched)
    model = CRF(**settings).fit(ZEROS, Y_ZEROS)
    values, names = trained[0].attr_val, set(model.encoder_.attribute_names())
    assert values.all() and "never" in names and len(model.weights_) == model.features_.n_features
    monkeypatch.setattr("crfbook.models.inputs.without_zeros", lambda corpus: corpus)
    with_zeros = CRF(**settings).fit(ZEROS, Y_ZEROS)
    assert not trained[1].attr_val.all()
    assert all(np.array_equal(a, b) for a, b in zip(model.features_, with_zeros.features_, strict=True))
    assert model.objective_ == pytest.approx(with_zeros.objective_, rel=1e-7)
    if coordinates:  # several minima
        return
    np.testing.assert_allclose(model.weights_, with_zeros.weights_, rtol=1e-6, atol=1e-9)
    for a, b in zip(
        model.predict_marginals_array(ZEROS), with_zeros.predict_marginals_array(ZEROS), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-7)
