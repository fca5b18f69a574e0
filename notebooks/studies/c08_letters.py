"""Chapter 08: are SBCD and OWL-QN as accurate as each other in Table 2? A paired test of their labels.

Both begin at zero with the c1 of 08_choice.csv and end after the paper's number of sweeps or iterations, as
their rows of 08_letters.csv do.
"""

import numpy as np

from crfbook.chain.inference import decode
from crfbook.learners.coordinate.arrays import Sparse

from .c08 import Letters, tested
from .harness import follow, study
from .records import each
from .work import dataset, error_of

C1 = 0.2  # as 08_choice.csv chose
PAIRS = (("OWL-QN", "SBCD, from zero"),)


def trained(letters, name):
    """`Sparse` of a method of Table 2 after the paper's number of iterations from zero."""
    (learner, _, n), last = letters.from_zero(name), []

    def look(step, w, seconds):
        last[:] = [w.copy()]

    follow(learner, max_iterations=n, look=look)
    return last[0] if isinstance(last[0], Sparse) else Sparse(letters.everything, last[0])


def paired_row(before, after, c1=C1, n_words=None):
    """Errors of two methods; how many points fewer the second makes, its standard error, p."""
    letters = Letters(c1, n_words)
    held, names = letters.setup.held, (before, after)
    paths = [decode(held, *trained(letters, name)) for name in names]
    less = (paths[0] != held.labels).astype(int) - (paths[1] != held.labels)
    errors = [100 * np.mean(path != held.labels) for path in paths]
    fewer, p = tested(letters.setup, *paths)
    found = dict(zip(("error before", "error after", "difference"), (*errors, fewer), strict=True))
    found["standard error"] = error_of(held, less)[1]
    return {"c1": f"{c1:g}", **{name: f"{value:.2f}" for name, value in found.items()}, "p": f"{p:.4f}"}


@study("08_letters_paired.csv", frozen=("sbcd", "owlqn", "decoding, sparse"))
def letters_paired(n_words=None, c1=C1):
    """SBCD against OWL-QN in Table 2: a paired test after the paper's numbers of iterations; a minute."""
    cells = [dict(zip(("before", "after"), pair, strict=True)) for pair in PAIRS]
    yield "08_letters_paired.csv", each(paired_row, cells, c1=c1, n_words=n_words), [dataset("nettalk")]
