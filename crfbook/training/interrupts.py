"""Signals that have a handler in Python, such as Ctrl-C, are delivered between pieces of work, not inside.

Python runs a handler after any instruction, and the handler may raise. It may raise between two assignments
that belong together, or before a changed setting is recorded. Inside `held_back` a signal waits for the next
`deliver_signals`, or for the end. Signals come to the main thread alone. In other threads these functions do
nothing.
"""

import signal
import threading
import time
from _signal import getsignal  # as in `signal`, without its names for numbers: quick
from _signal import signal as set_handler
from contextlib import contextmanager

STRETCH = 512  # sequences per compiled call of an epoch: Ctrl-C is delivered between calls
PATIENCE = 2.0  # seconds: a second Ctrl-C after that is delivered at once, wherever the program is
_NUMBERS = sorted(signal.valid_signals())


class _Held:
    """What the program does at each signal, whether signals wait now, and those that do.

    One assignment, to `inside`, decides for all signals. `_wait` replaces their handlers. While `inside` is
    false it calls them, so it is harmless where a signal prevents its removal.
    """

    handlers = {}  # noqa: RUF012  number: handler
    inside = False
    waiting = None  # or [(number, frame, when)], each number once


def _in_main_thread():
    return threading.current_thread() is threading.main_thread()


def _wait(number, frame):
    row = next((row for row in _Held.waiting or () if row[0] == number), None)
    now = time.monotonic()
    if not _Held.inside:
        _Held.handlers[number](number, frame)
    elif row is None:
        _Held.waiting = [*(_Held.waiting or ()), (number, frame, now)]
    elif number == signal.SIGINT and now - row[2] > PATIENCE:
        _Held.waiting.remove(row)
        _Held.waiting = _Held.waiting or None
        _Held.handlers[number](number, frame)


def deliver_signals():
    """Raise KeyboardInterrupt, or do what else the program does at a signal, if one waits."""
    while _Held.waiting is not None and _in_main_thread():
        (number, frame, _), *rest = _Held.waiting
        _Held.waiting = rest or None
        _Held.handlers[number](number, frame)


def interruptible_stretches(order):
    """The sequences of an epoch in stretches, one for a compiled call. Signals are delivered before each."""
    for first in range(0, len(order), STRETCH):
        deliver_signals()
        yield order[first : first + STRETCH]


@contextmanager
def held_back():
    """Context manager: signals wait for `deliver_signals`. The outermost one delivers them at its end."""
    if _Held.inside or not _in_main_thread():
        yield
        return
    mine = []
    try:
        for number, handler in zip(_NUMBERS, map(getsignal, _NUMBERS), strict=True):
            if callable(handler) and handler is not _wait:
                _Held.handlers[number] = handler
                mine.append(number)
                set_handler(number, _wait)
        _Held.inside = True
        yield
    finally:
        try:
            _Held.inside = False
            _give_back(mine)
        finally:  # again: a restored handler may have raised before the others were restored
            _give_back(mine)
            deliver_signals()


def _give_back(numbers):
    """Their handlers, unless the program has set others meanwhile."""
    for number in numbers:
        if getsignal(number) is _wait:
            set_handler(number, _Held.handlers[number])


class signals_at_once:  # noqa: N801  not a generator: a signal could delay its end
    """Context manager for the user's code inside `held_back`, such as a callback: signals do not wait there.

    A signal that waits already goes on waiting. So the callback sees every iteration of the history.
    """

    def __enter__(self):
        self.inside = _Held.inside and _in_main_thread()
        if self.inside:
            _Held.inside = False

    def __exit__(self, *_):
        if self.inside:
            _Held.inside = True
