"""Work arrays of one thread, as long as the largest batch of a packing: n rows, B sequences,
M padded labels.
"""

from queue import SimpleQueue
from typing import NamedTuple

import numpy as np


class Work(NamedTuple):
    """What the log loss needs (likelihood.py)."""

    log_node: np.ndarray  # (n, M)
    p_node: np.ndarray  # (n, M)
    alpha: np.ndarray  # (n, M)
    prev: np.ndarray  # (n, M)
    gain: np.ndarray  # (n,)
    pair: np.ndarray  # (M, M)
    flags: np.ndarray  # uint8 (B,)


class LossWork(NamedTuple):
    """What the other losses need (chain/losses/batched.py);
    the last four are empty unless the loss is pointwise.
    """

    log_node: np.ndarray  # (n, M)
    p_node: np.ndarray  # (n, M)
    alpha: np.ndarray  # (n, M)
    prev: np.ndarray  # (n, M)
    gain: np.ndarray  # (n,)
    pair: np.ndarray  # (M, M)
    flags: np.ndarray  # uint8 (B,)
    score: np.ndarray  # (B,): of the gold paths
    slope: np.ndarray  # (B,): weight * phi'(u), summed over the tokens if pointwise
    event: np.ndarray  # (n,): weight * phi'(u) / p of each gold label
    ahead: np.ndarray  # (n, M): events at later rows, see chain/losses/batched.py
    behind: np.ndarray  # (n, M): events at this and later rows
    step: np.ndarray  # (2, B, M): operands of one time step


def make_work(packing, width):
    """`Work` for the batches of a packing."""
    n = int(np.diff(packing.row_ptr).max(initial=0))
    rows = (np.empty((n, width)) for _ in range(4))
    return Work(
        *rows,
        np.empty(n),
        np.empty((width, width)),
        np.empty(int(np.diff(packing.slot_ptr).max(initial=0)), np.uint8),
    )


def make_loss_work(work, loss):
    """`LossWork` for a `Loss`: the arrays of a `Work`, shared, and more of the same sizes."""
    (n, width), n_slots = work.log_node.shape, len(work.flags)
    rows, slots = (n, n_slots) if loss.pointwise else (0, 0)
    return LossWork(
        *work,
        np.empty(n_slots),
        np.empty(n_slots),
        np.empty(rows),
        np.empty((rows, width)),
        np.empty((rows, width)),
        np.empty((2, slots, width)),
    )


class Spare:
    """Work arrays, one for each thread: who needs some gets them, and puts them back."""

    def __init__(self, items):
        self.items = list(items)
        self.fill()

    def fill(self):
        """All of them again, before an evaluation: where Ctrl-C came between `get` and `put`,
        whoever is next would wait for ever.
        """
        queue = SimpleQueue()
        for item in self.items:
            queue.put(item)
        self.get, self.put = queue.get, queue.put
