"""The chain that the book computes by hand: three words, two labels, potentials 1, 2 and 3.

Its eight labellings have 100 as the sum of their products: a probability is a product in per cent. Word by
word the labels are N V N; the best labelling is N V V. With the second chain the sum is 9,100 over 64 pairs
of labellings; with the link of the first and the last word it is 152.
"""

from typing import NamedTuple

import numpy as np


class TinyChain(NamedTuple):
    """T words, L labels; potentials are whole numbers, scores their logarithms in nats."""

    words: list  # T strings
    labels: list  # L strings
    psi_node: np.ndarray  # float64 (T, L)
    psi_edge: np.ndarray  # float64 (L, L), [previous, next]
    second: list  # labels of a second chain over the words: inside or outside of a noun phrase
    psi_second: np.ndarray  # float64 (2, 2): its pairs of neighbours
    psi_link: np.ndarray  # float64 (L, 2): a label beside its label of the second chain
    psi_skip: np.ndarray  # float64 (L, L): labels of the first and the last word, which close a triangle

    @property
    def log_node(self):
        return np.log(self.psi_node)

    @property
    def log_edge(self):
        return np.log(self.psi_edge)


def _table(*rows):
    table = np.array(rows, dtype=float)
    table.setflags(write=False)
    return table


TINY = TinyChain(
    words=["fish", "can", "swim"], labels=["N", "V"],
    psi_node=_table([2, 1], [1, 2], [2, 1]), psi_edge=_table([2, 2], [1, 3]),
    second=["I", "O"], psi_second=_table([1, 2], [1, 2]), psi_link=_table([3, 1], [1, 2]),
    psi_skip=_table([2, 1], [1, 2]),
)  # fmt: skip
