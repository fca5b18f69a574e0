"""Signals that wait: nothing is left half done, and nothing waits for ever."""

import contextlib
import signal
import sys
from threading import Thread

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from crfbook.training import interrupts, threads
from crfbook.training.interrupts import deliver_signals, held_back, interruptible_stretches, signals_at_once


def press():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def as_it_was():
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before and interrupts._Held.waiting is None


def test_a_signal_waits_for_the_next_listen():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        press()
        done.append("after the signal")
        deliver_signals()
        done.append("never")
    assert done == ["after the signal"]


def test_or_for_the_end_of_the_outermost():
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        with held_back():
            press()
        done.append("left the inner one")
    assert done == ["left the inner one"]


def test_without_a_signal_nothing_happens():
    deliver_signals()
    with held_back():
        deliver_signals()


def test_an_epoch_is_interrupted_between_its_chunks(monkeypatch):
    monkeypatch.setattr(interrupts, "STRETCH", 4)
    order, seen = np.arange(10)[::-1], []
    assert list(map(list, interruptible_stretches(order))) == [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]
    with pytest.raises(KeyboardInterrupt), held_back():
        for part in interruptible_stretches(order):
            if seen:
                press()
            seen += list(part)
    assert seen == list(order[:8])


def test_who_presses_again_after_a_while_is_heard_at_once(monkeypatch):
    with pytest.raises(KeyboardInterrupt), held_back():
        press()
        press()  # the same moment: one wish
        monkeypatch.setattr(interrupts, "PATIENCE", -1.0)
        press()
        raise AssertionError("not heard")


def test_a_callback_is_interrupted_where_it_is():
    with pytest.raises(KeyboardInterrupt), held_back(), signals_at_once():
        press()
        raise AssertionError("not heard")


def test_a_signal_that_waits_lets_the_callback_see_its_iteration():
    seen = []
    with pytest.raises(KeyboardInterrupt), held_back():
        press()
        with signals_at_once():
            seen.append("iteration")
        deliver_signals()
    assert seen == ["iteration"]


def test_what_the_program_does_at_ctrl_c_is_done():
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append("own"))
    try:
        with held_back():
            press()
            assert not heard
            deliver_signals()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == ["own"]


def test_other_threads_leave_signals_alone():
    found = []

    def work():
        with held_back(), signals_at_once():
            deliver_signals()
            found.append(signal.getsignal(signal.SIGINT))

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]


class Alarm(Exception):
    """What the handler of a program raises."""


@pytest.fixture(params=[name for name in ("SIGINT", "SIGALRM", "SIGUSR1") if hasattr(signal, name)])
def number(request):
    """A signal whose handler raises `Alarm`; its handler is there again at the end."""

    def handler(*_):
        raise Alarm

    number = getattr(signal, request.param)
    before = signal.signal(number, handler)
    yield number
    found = signal.signal(number, before)
    assert found is handler


def test_every_signal_with_a_handler_waits(number):
    done = []
    with pytest.raises(Alarm), held_back():
        signal.raise_signal(number)
        done.append("after the signal")
        with pytest.raises(Alarm), signals_at_once():
            signal.raise_signal(number)
        done.append("after the callback")
        deliver_signals()
        done.append("never")
    assert done == ["after the signal", "after the callback"]


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no alarms")
def test_two_signals_wait_side_by_side():
    heard = []
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append("alarm"))
    try:
        with pytest.raises(KeyboardInterrupt), held_back():
            signal.raise_signal(signal.SIGALRM)
            press()
            signal.raise_signal(signal.SIGALRM)  # the same wish
            assert not heard
    finally:
        signal.signal(signal.SIGALRM, before)
    assert heard == ["alarm"]


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no alarms")
def test_a_handler_that_a_callback_sets_stays():
    def mine(*_):
        pass

    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        with held_back(), signals_at_once():
            signal.signal(signal.SIGALRM, mine)
            with held_back():  # the callback predicts
                pass
        assert signal.getsignal(signal.SIGALRM) is mine
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_callback_that_is_held_back_itself_lets_the_rest_wait(number):
    done = []
    with pytest.raises(Alarm), held_back():
        with signals_at_once(), held_back():
            pass
        signal.raise_signal(number)
        done.append("after the signal")
    assert done == ["after the signal"]


def blas_threads():
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


def pressed_at(line):
    """Ctrl-C at the `line`th line that `one_blas_thread` runs, entering or leaving; was there such a line?"""
    seen = 0

    def trace(frame, event, _):
        nonlocal seen
        if frame.f_code.co_filename not in (threads.__file__, interrupts.__file__):
            return None
        if event == "line":
            seen += 1
            if seen == line:
                press()
        return trace

    sys.settrace(trace)
    try:
        with threads.one_blas_thread():
            pass
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return seen >= line


def test_ctrl_c_at_any_line_leaves_nothing_limited():
    with threadpool_limits(3, user_api="blas"):
        line = 1
        while pressed_at(line):
            assert blas_threads() == {3} and threads._Limit.inside == 0, f"line {line}"
            interrupts._Held.waiting = None
            line += 1
    assert line > 20


def work():
    with threads.one_blas_thread(), threads.one_blas_thread():
        with signals_at_once(), held_back():
            pass
        deliver_signals()


def raised_at(instruction, number):
    """The signal comes at this instruction of `work` and of all that it enters and leaves: was there one?"""
    seen, files = 0, (threads.__file__, interrupts.__file__, contextlib.__file__, __file__)

    def trace(frame, event, _):
        nonlocal seen
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == instruction:
                signal.raise_signal(number)
        return trace

    sys.settrace(trace)
    try:
        work()
    except Alarm:
        pass
    finally:
        sys.settrace(None)
    return seen >= instruction


def test_a_handler_that_raises_at_any_instruction_leaves_nothing_limited(number, monkeypatch):
    monkeypatch.setattr(interrupts, "_NUMBERS", sorted({signal.SIGINT, number, signal.SIGTERM}))
    handler, libraries = signal.getsignal(number), threads._controller().lib_controllers
    with threadpool_limits(3, user_api="blas"):
        instruction = 1
        while raised_at(instruction, number):
            state = {lib.num_threads for lib in libraries if lib.user_api == "blas"}, threads._Limit.inside
            assert state == ({3}, 0), f"instruction {instruction}"
            assert not interrupts._Held.inside and interrupts._Held.waiting is None
            assert signal.getsignal(number) is handler, f"instruction {instruction}"
            instruction += 1
    assert instruction > 300
