"""Ctrl-C between pieces of work, not inside them.

Python raises KeyboardInterrupt after any instruction: between two assignments that belong together, or where
a setting has been changed and nobody yet knows how to put it back. Inside `held_back` a signal waits for the
next `listen`, or for the end. Signals come to the main thread alone; elsewhere all of this does nothing.
"""

import signal
import threading
import time
from contextlib import contextmanager

CHUNK = 512  # sequences per compiled call of an epoch: Ctrl-C is heard between calls
PATIENCE = 2.0  # seconds: who presses Ctrl-C again after that is heard at once, wherever the program is


class _Held:
    """What the program does at Ctrl-C while it is held back, and the first signal that waits."""

    handler = None
    waiting = None  # (number, frame, when)


def _in_main_thread():
    return threading.current_thread() is threading.main_thread()


def _wait(number, frame):
    if _Held.waiting is None:
        _Held.waiting = number, frame, time.monotonic()
    elif time.monotonic() - _Held.waiting[2] > PATIENCE:
        _Held.waiting = None
        _Held.handler(number, frame)


def listen():
    """Raise KeyboardInterrupt, or do what else the program does at Ctrl-C, if a signal waits."""
    if _Held.waiting is not None and _in_main_thread():
        (number, frame, _), _Held.waiting = _Held.waiting, None
        _Held.handler(number, frame)


def heard_chunks(order):
    """The sequences of an epoch, cut into stretches for one compiled call each; before each it listens."""
    for first in range(0, len(order), CHUNK):
        listen()
        yield order[first : first + CHUNK]


@contextmanager
def held_back():
    """Context manager: Ctrl-C waits for `listen`. The one that was entered first listens when it is left."""
    handler = signal.getsignal(signal.SIGINT)
    if not _in_main_thread() or not callable(handler) or handler is _wait:
        yield
        return
    _Held.handler = handler
    signal.signal(signal.SIGINT, _wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        listen()


@contextmanager
def heard_at_once():
    """Context manager for what is not ours, inside `held_back`: a callback may sleep, and Ctrl-C wakes it.

    A signal that waits already goes on waiting: the callback sees every iteration that the history has.
    """
    if signal.getsignal(signal.SIGINT) is not _wait or not _in_main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _Held.handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _wait)
