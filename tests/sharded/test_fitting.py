"""Training on shards: as `CRF.fit`, the same bits whoever computes, stopped and gone on with anywhere."""

import errno
import os
import signal
import warnings

import numpy as np
import pytest
from helpers.sharded import (
    TEMPLATE,
    assert_same_bits,
    assert_same_history,
    columns,
    names,
    sentences,
    some_shards,
    trained,
)

import crfbook.distributed.fitting as fitting
from crfbook import CRF
from crfbook._checks import ModelFileError
from crfbook.distributed import fit, write_shards
from crfbook.distributed.objective import CACHE
from crfbook.distributed.shards import read_shard
from crfbook.learners.online import perceptron
from crfbook.learners.stochastic import sdca
from crfbook.training.loop import run

METHODS = {
    "lbfgs": {"algorithm": "lbfgs", "c2": 0.5},
    "owlqn": {"algorithm": "owlqn", "c1": 0.5, "c2": 0.0},
    "both": {"algorithm": "lbfgs", "c1": 0.5, "c2": 0.1},
    "auto": {"algorithm": "auto", "c2": 0.5},
    "auto-l1": {"algorithm": "auto", "c1": 0.5, "c2": 0.1},
    "no penalty": {"algorithm": "auto", "c2": 0.0, "max_iterations": 8},
    "perceptron": {"algorithm": "perceptron", "max_iterations": 4},
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return some_shards(tmp_path_factory.mktemp("fitting"), shard_tokens=60)


@pytest.fixture(scope="module")
def reference(shards):
    """{name of a method: the model that this process finds in one go}."""
    return {name: trained(shards, rules=rules) for name, rules in METHODS.items()}


@pytest.mark.parametrize("method", ["lbfgs", "owlqn", "both", "auto", "auto-l1"])
def test_ends_where_crf_fit_ends(method, reference):
    crf = CRF(**METHODS[method]).fit(*names(sentences()))
    mine = reference[method]
    np.testing.assert_allclose(mine.objective_, crf.objective_, rtol=2e-6 if "auto" in method else 1e-9)
    assert mine.status_ == crf.status_ == "converged"
    assert mine.predict(names(sentences())[0]) == crf.predict(names(sentences())[0])


def test_the_same_rules_for_an_end(shards):
    """CRFsuite's epsilon and delta: "auto" is then L-BFGS, as in one process."""
    for rules in ({"epsilon": 1e-2}, {"period": 5, "delta": 1e-2}):
        crf = CRF("auto", **rules).fit(*names(sentences()))
        mine = trained(shards, rules={"algorithm": "auto", **rules})
        assert (mine.status_, mine.n_iter_) == (crf.status_, crf.n_iter_)
        np.testing.assert_allclose(mine.weights_, crf.weights_, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_bits_for_any_group_and_budget(method, shards, reference):
    for options in ({"group": 1}, {"group": 4, "budget": 0}, {"group": 2**40}):
        assert_same_bits(trained(shards, rules=METHODS[method], **options), reference[method])
    threads = METHODS[method] | {"n_jobs": 2}
    assert_same_bits(trained(shards, rules=threads), reference[method])


@pytest.mark.parametrize("method", METHODS)
def test_the_same_bits_with_two_workers(method, shards, reference, client):
    assert_same_bits(trained(shards, client, rules=METHODS[method]), reference[method])


def test_the_same_bits_with_one_worker(shards, reference, client, monkeypatch):
    monkeypatch.setattr("crfbook.distributed.engine.Cluster._workers", one_of_them)
    assert_same_bits(trained(shards, client, rules=METHODS["both"], group=2), reference["both"])


def one_of_them(self):
    return sorted(self._info())[:1]


def test_history_counts_on_through_the_stages(reference):
    for method, crf in reference.items():
        assert crf.history_.iteration.tolist() == list(range(1, crf.n_iter_ + 1)), method
        assert np.isfinite(crf.history_.objective).all() and (crf.history_.seconds.diff().dropna() >= 0).all()


# ---- stopped anywhere and gone on with


class Stopped(Exception):
    pass


def iterations(crf):
    """Where to stop: beginning, end and all turns of each stage, or about so."""
    n = crf.n_iter_
    return sorted({1, 2, 12, n // 2, n - 1, n} & set(range(1, n + 1)))


@pytest.mark.parametrize("method", METHODS)
def test_gone_on_with_after_the_callback_raised(method, shards, reference, tmp_path):
    for k in iterations(reference[method]):
        path, seen = tmp_path / f"{k}", []

        def fails(step, _, k=k):
            if step.iteration == k:
                raise Stopped

        with pytest.raises(Stopped):
            trained(shards, rules=METHODS[method], callback=fails, checkpoint=path, every=1)
        found = trained(
            shards, rules=METHODS[method], checkpoint=path, every=100, group=2,
            callback=lambda step, _, seen=seen: seen.append(step.iteration),
        )  # fmt: skip
        assert_same_bits(found, reference[method])
        first = 1 if not seen else seen[0]
        assert first == k + 1 or first == 1 == k or k == reference[method].n_iter_, "it began anew"


@pytest.mark.parametrize("method", METHODS)
def test_gone_on_with_after_the_callback_said_stop(method, shards, reference, tmp_path):
    """Also where the file is some iterations old; the last state is written at the end in any case."""
    for k in iterations(reference[method])[1::2]:
        stopped = trained(
            shards, rules=METHODS[method], checkpoint=tmp_path / f"{k}", every=4,
            callback=lambda step, _, k=k: step.iteration == k,
        )  # fmt: skip
        assert stopped.n_iter_ == k
        assert stopped.status_ == "stopped by callback" or k == reference[method].n_iter_
        found = trained(shards, rules=METHODS[method], checkpoint=tmp_path / f"{k}")
        assert_same_bits(found, reference[method])
        again = trained(shards, rules=METHODS[method], checkpoint=tmp_path / f"{k}")  # nothing is left to do
        assert again.weights_.tobytes() == found.weights_.tobytes() and again.status_ == found.status_
        assert_same_history(again, found)


def test_l1_is_gone_on_with_on_its_support(shards, reference, tmp_path):
    """The iterations above include those in which only some weights travel."""
    states = []

    def keep(step, w, state):
        states.append(state())

    keep.wants_state = True
    trained(shards, rules=METHODS["both"], callback=keep)
    free = [k for k, state in enumerate(states, 1) if "free" in state]
    assert free and len(states[-1]["w"]) < len(reference["both"].weights_)
    assert set(free) & set(iterations(reference["both"]))


@pytest.mark.parametrize("method", ["lbfgs", "auto-l1", "perceptron"])
def test_gone_on_with_by_a_cluster(method, shards, reference, client, tmp_path):
    k = reference[method].n_iter_ // 2
    trained(
        shards, rules=METHODS[method], checkpoint=tmp_path / "c", callback=lambda step, _: step.iteration == k
    )
    assert_same_bits(
        trained(shards, client, rules=METHODS[method], checkpoint=tmp_path / "c"), reference[method]
    )


def test_more_iterations_after_the_last_one(shards, reference, tmp_path):
    for method in ("lbfgs", "auto", "both"):
        short = METHODS[method] | {"max_iterations": 5}
        assert trained(shards, rules=short, checkpoint=tmp_path / method).status_ == "max_iterations"
        found = trained(shards, rules=METHODS[method], checkpoint=tmp_path / method)
        assert_same_bits(found, reference[method])


def test_checkpoints_of_others_are_refused(shards, tmp_path):
    path = tmp_path / "c"
    trained(shards, rules={"max_iterations": 2, "num_memories": np.int64(5)}, checkpoint=path)
    with pytest.raises(
        ValueError, match=r"c: it is of a training with other parameters \(c2\); name another f"
    ):
        trained(shards, rules={"c2": 2.0, "num_memories": 5}, checkpoint=path)
    with pytest.raises(ValueError, match=r"with other parameters \(num_memories\)"):
        trained(shards, rules={"num_memories": np.int64(4)}, checkpoint=path)
    other = some_shards(tmp_path / "s", shard_tokens=90)
    with pytest.raises(ValueError, match="it is of a training on other shards; name another file$"):
        trained(other, rules={"num_memories": 5}, checkpoint=path)
    assert trained(shards, rules={"num_memories": 5, "max_iterations": 3}, checkpoint=path).n_iter_ == 3


def test_damaged_checkpoints_are_refused(shards, tmp_path):
    path = tmp_path / "c"
    crf = trained(shards, rules={"max_iterations": 2}, checkpoint=path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelFileError, match=r"c: the model file is cut short or damaged"):
        trained(shards, rules={"max_iterations": 3}, checkpoint=path)
    crf.save(path)
    with pytest.raises(ModelFileError, match="expected a saved checkpoint, got a saved CRF"):
        trained(shards, rules={"max_iterations": 3}, checkpoint=path)
    with pytest.raises(
        FileNotFoundError, match="^checkpoint: expected a file in a folder that exists, there is"
    ):
        trained(shards, rules={}, checkpoint=tmp_path / "nothing" / "c")


def test_a_full_disk_keeps_the_checkpoint_before(shards, reference, monkeypatch, tmp_path):
    def full(_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "c"
    trained(shards, rules=METHODS["lbfgs"] | {"max_iterations": 4}, checkpoint=path)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "fsync", full)
        trained(shards, rules=METHODS["lbfgs"], checkpoint=path, every=1)
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    assert_same_bits(trained(shards, rules=METHODS["lbfgs"], checkpoint=path), reference["lbfgs"])


# ---- Ctrl-C


@pytest.mark.parametrize("method", ["lbfgs", "auto", "auto-l1", "perceptron"])
def test_ctrl_c_keeps_a_model_and_its_checkpoint(method, shards, reference, tmp_path):
    def press(step, _):
        if step.iteration == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(UserWarning, match="training was interrupted after 3 iterations"):
        crf = trained(shards, rules=METHODS[method], callback=press, checkpoint=tmp_path / "c")
    assert crf.status_ == "interrupted" and len(crf.history_) == 3
    assert_same_bits(trained(shards, rules=METHODS[method], checkpoint=tmp_path / "c"), reference[method])


@pytest.mark.parametrize("method", ["auto", "perceptron"])
@pytest.mark.parametrize("on_cluster", [False, True])
def test_ctrl_c_while_shards_train_alone(method, on_cluster, shards, monkeypatch, request):
    """The trainings inside of tasks do not swallow it."""
    client = request.getfixturevalue("client") if on_cluster else None
    name = "alone" if method == "auto" else "mixed_epoch"
    real, calls = getattr(fitting, name), []

    def pressed(result, callback=None):
        calls.append(1)
        os.kill(os.getpid(), signal.SIGINT)
        return run(result, callback)

    if on_cluster:
        submit = client.submit

        def press_and_submit(task, *args, **kwargs):
            if real in args and not calls:
                calls.append(1)
                os.kill(os.getpid(), signal.SIGINT)
            return submit(task, *args, **kwargs)

        monkeypatch.setattr(client, "submit", press_and_submit)
    elif method == "auto":
        monkeypatch.setattr(fitting, "run", lambda learner, callback=None: (
            pressed if isinstance(learner, fitting.DualAscent) else run)(learner, callback))  # fmt: skip
    else:
        inner = fitting.perceptron

        def press_and_train(*args, **kwargs):
            if not calls:
                calls.append(1)
                os.kill(os.getpid(), signal.SIGINT)
            return inner(*args, **kwargs)

        monkeypatch.setattr(fitting, "perceptron", press_and_train)
    with pytest.warns(UserWarning, match="training was interrupted after 0 iterations"):
        crf = trained(shards, client, rules=METHODS[method])
    assert crf.status_ == "interrupted" and calls == [1] and not crf.weights_.any()


# ---- what is asked for


@pytest.mark.parametrize(
    ("rules", "options", "message"),
    [
        (
            {"algorithm": "sgd"},
            {},
            "^algorithm: on shards expected one of lbfgs, owlqn, auto, perceptron, got",
        ),
        ({"loss": "exp"}, {}, "^loss: on shards expected 'log', got 'exp'"),
        ({"inference": "active"}, {}, "^inference: on shards expected 'exact', got 'active'"),
        ({"patience": 2}, {}, "^patience: on shards expected None, got 2"),
        ({"tag_dictionary": 2}, {}, "^tag_dictionary: on shards expected None, got 2"),
        ({}, {"group": 1.5}, "^group: expected an integer >= 1, got 1.5$"),
        ({}, {"group": 0}, "^group: expected an integer >= 1, got 0$"),
        ({"algorithm": "perceptron"}, {"group": -8}, "^group: expected an integer >= 1, got -8$"),
        ({}, {"budget": -1}, "^budget: expected an integer >= 0, got -1$"),
        ({}, {"every": 0}, "^every: expected an integer >= 1, got 0$"),
        ({}, {"callback": 5, "checkpoint": "c"}, "^callback: expected a function or None, got 5$"),
        ({}, {"client": 5}, "^client: expected None or a dask.distributed.Client, got 5$"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(rules, options, message, shards, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(), pytest.raises((ValueError, TypeError), match=message):
        warnings.simplefilter("ignore")
        trained(shards, rules=rules, **options)


def test_what_is_no_crf_and_what_are_no_shards(shards):
    for use in (lambda: fit(None, shards), lambda: write_shards([], "nowhere", None)):
        with pytest.raises(TypeError, match="^crf: expected a CRF, got None$"):
            use()
    with pytest.raises(TypeError, match="^shards: expected Shards or the path of their folder, got 5$"):
        fit(CRF(), 5)


def test_threads_are_for_this_process(shards, client):
    with pytest.raises(
        ValueError, match="^n_jobs: expected None beside a client, whose workers do the work, g"
    ):
        trained(shards, client, rules={"n_jobs": 1})


def test_a_model_that_was_trained_before(shards, reference):
    crf = CRF(**METHODS["lbfgs"])
    fit(crf, shards)
    assert_same_bits(fit(crf, shards.folder), reference["lbfgs"])
    warm = CRF(warm_start=True, **METHODS["lbfgs"])
    fit(warm, shards)
    assert fit(warm, shards).n_iter_ <= 1
    for method in ("auto", "perceptron"):
        crf = CRF(warm_start=True, **METHODS["lbfgs"]).fit(*names(sentences()))
        crf.set_params(**METHODS[method])
        assert len(fit(crf, shards).history_) <= 15


def test_nothing_is_kept_of_shards_here(shards):
    trained(shards, rules={"max_iterations": 1})
    assert not CACHE.things


def test_few_iterations(shards):
    for method, rules in METHODS.items():
        for n in (0, 1):
            crf = trained(shards, rules=rules | {"max_iterations": n})
            assert (crf.n_iter_, crf.status_, len(crf.history_)) == (n, "max_iterations", n), method
            assert np.isfinite(crf.objective_)


@pytest.mark.parametrize(
    "rules", [{"c1": 1e200, "c2": 0.0}, {"c1": 1e-12, "c2": 0.0}, {"c2": 1e200}, {"c2": 1e-9}]
)
def test_extreme_penalties_end_as_in_one_process(rules, shards):
    rules = {"algorithm": "auto", "max_iterations": 300, **rules}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine, crf = trained(shards, rules=rules), CRF(**rules).fit(*names(sentences()))
    assert mine.status_ == crf.status_
    np.testing.assert_allclose(mine.objective_, crf.objective_, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("algorithm", ["lbfgs", "auto", "perceptron"])
@pytest.mark.parametrize(
    ("X", "y"),
    [([[["a"]]], [["x"]]), ([[["a"]], [["b"], []]], [["x"], ["x", "x"]]), ([[[]], [[]]], [["x"], ["y"]])],
    ids=["one token", "one label", "no attributes"],
)
def test_tiny_texts(algorithm, X, y, tmp_path):
    found = write_shards([(X, y)], tmp_path, CRF(), shard_tokens=1)
    assert fit(CRF(algorithm), found).score(X, y) >= 0.5


def test_numbers_that_leave_float64_are_named(tmp_path):
    found = write_shards([([[{"a": 1e300}], [{"b": 1e300}]], [["x"], ["y"]])], tmp_path, CRF())
    with pytest.warns(Warning, match="attribute values up to 1e\\+300: sums leave float64, scale them"):
        assert fit(CRF(), found).status_ == "non-finite objective"


@pytest.mark.parametrize("method", ["auto", "perceptron"])
def test_a_model_from_shards_can_be_saved_and_trained_on(method, tmp_path):
    crf = CRF(template=TEMPLATE, **METHODS[method])
    fit(crf, write_shards([columns(sentences())], tmp_path / "s", crf, shard_tokens=30))
    crf.save(tmp_path / "model")
    again = CRF.load(tmp_path / "model")
    assert again.predict(columns(sentences())) == crf.predict(columns(sentences()))
    if method == "perceptron":
        again.partial_fit(columns(sentences()))
        crf.partial_fit(columns(sentences()))
        assert again.weights_.tobytes() == crf.weights_.tobytes()


def test_parameter_mixing_on_one_shard_is_the_perceptron(tmp_path):
    """Up to the order of the sequences, in which each epoch differs."""
    found = write_shards([names(sentences())], tmp_path, CRF())
    for averaging in (True, False):
        rules = {"algorithm": "perceptron", "max_iterations": 1, "averaging": averaging}
        crf, mine = CRF(**rules).fit(*names(sentences())), trained(found, rules=rules)
        np.testing.assert_allclose(mine.weights_, crf.weights_, rtol=1e-12, atol=1e-12)
        assert mine.objective_ == crf.objective_


# ---- what shards find alone, and its mean


def of_each(shards):
    """(corpus, features, place) of each shard that has tokens."""
    found = [read_shard(*file)[:3] for file in shards.files]
    return [one for one in found if one[0].n_tokens]


@pytest.mark.parametrize("rules", [{"c2": 0.5}, {"c1": 0.2, "c2": 0.1}])
def test_auto_begins_at_the_mean_over_the_shards_that_have_a_weight(rules, tmp_path):
    shards = write_shards([names(sentences()[:40]), ([], [])], tmp_path, CRF(), shard_tokens=60)
    total, count = np.zeros((2, shards.features.n_features))
    parts = of_each(shards)
    assert 2 < len(parts) == len(shards) - 1
    for corpus, features, place in parts:
        c2 = sum(rules.values()) / len(parts)
        found = sdca(corpus, features, c2=c2, tol=1e-4, max_iterations=fitting.ALONE_EPOCHS, random_state=0)
        total[place] += found.w
        count[place] += 1
    first, rules = [], {"algorithm": "auto", "random_state": 0, **rules}
    trained(shards, rules=rules, callback=lambda step, w: first.append(w.copy()))
    np.testing.assert_allclose(first[0], total / count, rtol=1e-12, atol=1e-15)
    assert count.min() == 1 < count.max()


def test_auto_without_memory_for_its_duals_begins_at_zeros(shards):
    first, rules = [], {"algorithm": "auto", "memory_limit": 1}
    trained(shards, rules=rules, callback=lambda step, w: first.append(w.copy()))
    assert not first[0].any() and first[-1].any()


def test_parameter_mixing_by_hand(tmp_path):
    """Two epochs: each shard moves from the common weights; the means go over the shards with tokens."""
    shards = write_shards([names(sentences()), ([], [])], tmp_path, CRF(), shard_tokens=60)
    parts, last, passed = of_each(shards), np.zeros(shards.features.n_features), 0.0
    for epoch in range(2):
        move, mean = np.zeros((2, len(last)))
        for corpus, features, place in parts:
            own = last[place]
            found = perceptron(corpus, features, own, max_iterations=1, random_state=3 + 1009 * epoch)
            move[place] += found.state["w"] - own
            mean[place] += found.w - own
        passed = passed + last + mean / len(parts)
        last = last + move / len(parts)
    rules = {"algorithm": "perceptron", "max_iterations": 2, "random_state": 3}
    np.testing.assert_allclose(trained(shards, rules=rules).weights_, passed / 2, rtol=1e-12, atol=1e-14)
    of_last = trained(shards, rules=rules | {"averaging": False}).weights_
    np.testing.assert_allclose(of_last, last, rtol=1e-12, atol=1e-14)
    assert len(parts) == len(shards) - 1 and np.abs(last - passed / 2).max() > 1e-3


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 300])
def test_a_checkpoint_that_cannot_be_written_shows_at_once(name, shards, tmp_path):
    path = f"{tmp_path}{os.sep}{name}"
    with pytest.raises((ValueError, OSError)):
        fit(
            CRF(max_iterations=1),
            shards,
            checkpoint=path,
            callback=lambda *_: pytest.fail("training has begun"),
        )


def test_a_model_stays_where_its_last_checkpoint_fails(shards, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(fitting, "save_arrays", full)
    crf = CRF(max_iterations=2)
    with pytest.raises(OSError, match="no space left"):
        fit(crf, shards, checkpoint=tmp_path / "c", every=1000)
    assert crf.weights_.any() and crf.n_iter_ == 2


@pytest.mark.parametrize("weight", [1e100, 1e308])
@pytest.mark.parametrize("algorithm", ["perceptron", "auto"])
def test_extreme_sample_weights_end_with_a_status(algorithm, weight, tmp_path):
    X, y = names(sentences())
    shards = write_shards([(X[:30], y[:30], np.full(30, weight)), (X[30:], y[30:], np.full(30, weight))],
                          tmp_path, CRF())  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crf = fit(CRF(algorithm=algorithm), shards)
        alone = CRF(algorithm=algorithm).fit(X, y, sample_weight=np.full(60, weight))
    gave_up = crf.status_.startswith("non-finite")
    assert gave_up == alone.status_.startswith("non-finite")
    assert gave_up or crf.weights_.any()


def test_a_checkpoint_knows_its_seed(shards, tmp_path):
    rules = {"algorithm": "perceptron", "max_iterations": 2}
    fit(CRF(random_state=np.random.RandomState(1), **rules), shards, checkpoint=tmp_path / "c")
    with pytest.raises(ValueError, match=r"with other parameters \(random_state\)"):
        fit(CRF(random_state=np.random.RandomState(2), **rules), shards, checkpoint=tmp_path / "c")
