"""Threads change nothing: same bits for 1, 2 and 4, errors come through, BLAS stays on one thread."""

import os
import warnings
from threading import Event, Thread

import numpy as np
import pytest
from helpers.corpora import random_corpus, random_model
from threadpoolctl import threadpool_info, threadpool_limits

from crfbook.chain.objective import Objective
from crfbook.training.threads import one_blas_thread, resolve_threads, run_tasks

pytestmark = pytest.mark.usefixtures("kernels_only")


@pytest.mark.parametrize("options", [{}, {"n_classes": 3, "valued": True, "weighted": True}])
def test_value_and_gradient_have_the_same_bits(options):
    rng = np.random.default_rng(0)
    corpus = random_corpus(rng, lengths=tuple(rng.integers(0, 30, 200)), n_labels=6, n_attrs=50, **options)
    features, w = random_model(rng, corpus, 6, 50, size=2.0)
    value, grad = Objective(corpus, features, c2=0.1)(w)
    for n_threads in (2, 4):
        objective = Objective(corpus, features, c2=0.1, n_threads=n_threads)
        for _ in range(3):
            other_value, other_grad = objective(w)
            assert other_value == value
            np.testing.assert_array_equal(other_grad, grad)
    assert objective._packing.n_shards == 4


def test_threads_allocate_nothing_that_they_share():
    """Who is second would replace what the first has written into."""
    rng = np.random.default_rng(1)
    corpus = random_corpus(rng, lengths=(4,) * 40)
    features, _ = random_model(rng, corpus)
    objective = Objective(corpus, features, n_threads=2, form="batched")
    form, _ = objective._form(np.zeros(features.n_features))
    assert "edge_parts" in vars(objective._problem) and form.parts is objective._problem.edge_parts
    assert objective.with_loss("exp")._terms.parts is form.parts, "losses share it"


def test_results_keep_their_order():
    for n_threads in (1, 2, 7):
        assert run_tasks(lambda i: i * i, 5, n_threads) == [0, 1, 4, 9, 16]
    assert run_tasks(lambda i: i, 0, 4) == []


def test_errors_come_through():
    def task(i):
        if i == 2:
            raise ValueError("piece 2")
        return i

    for n_threads in (1, 3):
        with pytest.raises(ValueError, match="piece 2"):
            run_tasks(task, 4, n_threads)


def blas_threads():
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


@pytest.fixture
def three_blas_threads():
    """A setting to be put back: where BLAS stands at one already, nothing would show."""
    with threadpool_limits(3, user_api="blas"):
        assert set(blas_threads()) == {3}
        yield


def test_blas_is_held_to_one_thread(three_blas_threads):
    with one_blas_thread():
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {3}


def test_blas_limit_holds_until_the_last_thread_has_left(three_blas_threads):
    """Each restoring what it found: the first to leave would free BLAS under the other,
    who then leaves it at one.
    """
    before, first_in, second_in, first_out, seen = blas_threads(), Event(), Event(), Event(), []

    def first():
        with one_blas_thread():
            first_in.set()
            assert second_in.wait(60)
        first_out.set()

    def second():
        assert first_in.wait(60)
        with one_blas_thread(), one_blas_thread():
            second_in.set()
            assert first_out.wait(60)
            seen.append(blas_threads())

    threads = [Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == [[1] * len(before)] and blas_threads() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_child_of_a_fork_is_not_held_by_threads_it_does_not_have(three_blas_threads):
    before, inside, leave = blas_threads(), Event(), Event()

    def stay():
        with one_blas_thread():
            inside.set()
            leave.wait(60)

    thread = Thread(target=stay)
    thread.start()
    assert inside.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later: fork with threads
        child = os.fork()
    if child == 0:
        good = False
        try:
            good = blas_threads() == before
            with one_blas_thread():
                good = good and set(blas_threads()) == {1}
            good = good and blas_threads() == before
        finally:
            os._exit(0 if good else 1)
    leave.set()
    thread.join(60)
    assert os.waitpid(child, 0)[1] == 0


def test_numbers_of_threads():
    assert resolve_threads(None) == 1 and resolve_threads(3) == 3 and resolve_threads(-1) >= 1
    for wrong in (0, 1.5, "2", True):
        with pytest.raises(ValueError, match="n_threads: expected"):
            resolve_threads(wrong)
