"""Chapter 04: the four losses when some training labels are wrong, in several draws of the wrong ones."""

import numpy as np

from crfbook.chain.losses.form import LOSSES
from crfbook.data.columns import TokenColumns
from crfbook.evaluation import paired_test

from .c04 import along_variances, distance, fit_loss
from .harness import study
from .records import each
from .work import columns_of, dataset, encode

RATES, DRAWS = (0.0, 0.02, 0.05, 0.1), 5  # shares of wrong labels; nothing is drawn where it is 0
N_SENTENCES = 200
VARIANCES = tuple(digit * 10.0**k for k in range(-7, 3) for digit in (1, 3))


def with_wrong_labels(columns, rate, draw=0):
    """(columns with a share of the labels replaced by other ones at random, which tokens (N,) these are)."""
    rng, labels = np.random.default_rng(draw), np.array(columns.labels)
    names, number = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"columns: expected two labels or more, of which one can be wrong, got {len(names)}")
    wrong = rng.random(len(labels)) < rate
    number = np.where(wrong, number + rng.integers(1, len(names), len(labels)), number) % len(names)
    return TokenColumns(columns.columns, columns.seq_ptr, names[number].tolist()), wrong


def noise_rows(wrong, draw, n_sentences=N_SENTENCES):
    """All losses trained on one draw, each with the variance that is best on dev, whose labels are right.

    wrong : share of wrong labels. p : paired test on the test part, against the log loss.
    """
    _, train, parts = columns_of("pos", n_sentences)
    setup, rows, logs = encode("pos", "s2", with_wrong_labels(train, wrong, draw)[0], parts), [], None
    for loss in LOSSES:
        tried, *_ = along_variances(setup, loss, VARIANCES, "dev")
        best = max(tried, key=tried.get)
        result, seconds = fit_loss(setup, loss, best)
        ours = setup.guess(result.w, "test")
        logs = logs or ours
        tested = ours is not logs and paired_test(setup.parts["test"].gold, logs, ours, "accuracy")
        scores = {name: f"{value:.2f}" for name, value in setup.scores(result.w).items()}
        along = {f"{v:g}": f"{tried[v]:.2f}" if v in tried else "" for v in VARIANCES}
        ends = {"inside": min(tried) < best < max(tried), "status": result.status}
        of_end = distance(setup, loss, best, result.w)
        rows.append({"loss": loss, **scores, "p": f"{tested.p_value:.4f}" if tested else "",
                     "variance": f"{best:g}", **ends, **of_end, **along,
                     "iterations": result.n_iter, "seconds": f"{seconds:.1f}"})  # fmt: skip
    return rows


@study("04_noise.csv", frozen=("lbfgs, BIO and a tag dictionary", "exp", "pointwise-log", "pointwise-exp"))
def label_noise(n_sentences=N_SENTENCES):
    """Wrong labels in the first 200 sentences of the treebank, five draws of each share; some minutes."""
    cells = [{"wrong": rate, "draw": draw} for rate in RATES for draw in range(DRAWS if rate else 1)]
    yield "04_noise.csv", each(noise_rows, cells, n_sentences=n_sentences), [dataset("pos")]
