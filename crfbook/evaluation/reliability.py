"""Are probabilities what they say? Reliability curves with their error, and what abstaining is worth.

Of predictions that a calibrated model gives the probability p, a share p is right. `reliability` compares
both in bins. `abstention` leaves the sentences that a model is least sure of to a person, and scores the
others. Sources: Guo, Pleiss, Sun and Weinberger (2017), section 2; Geifman and El-Yaniv (2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from .metrics import (
    Interval,
    Labels,
    check_lengths,
    count_chunks,
    generator,
    metric_function,
    readable,
    resample,
)
from .schemes import chunk_lists, reading_of, refuse_sets


class Reliability(NamedTuple):
    """B bins that are not empty, by rising confidence."""

    confidence: np.ndarray  # (B,): mean probability
    accuracy: np.ndarray  # (B,): share that is right
    low: np.ndarray  # (B,): bootstrap interval of the accuracy, NaN where no resample has the bin
    high: np.ndarray  # (B,)
    size: np.ndarray  # int64 (B,): predictions
    ece: Interval  # expected calibration error: mean of |accuracy - confidence|, weighted by the sizes
    ece_calibrated: float  # what a calibrated model with the same probabilities has, by chance, on average


def reliability(
    gold: Labels, predicted: Sequence[Sequence[Any]], of: str = "tokens", *, n_bins: int = 10,
    level: float = 0.95, n_samples: int = 1000, random_state: Any = 0, scheme: str = "auto",
) -> Reliability:  # fmt: skip
    """Confidence against accuracy of predicted labels or spans, in bins of equal width.

    gold : sequences of labels. Tokens whose label is None count nowhere, nor do spans with such a
        token in them or beside them.
    predicted : for "tokens" what `predict_marginals` gives, a dict {label: probability} for each token; the
        most probable label is the prediction. For "spans" what `predict_spans` gives, (type, start, stop,
        probability) each; one is right if gold has that chunk.
    of : "tokens" or "spans".
    level, n_samples : of the bootstrap over sentences; samples without a prediction are left out. It draws
        the ECE of a finite sample upwards: hold its interval against `ece_calibrated`, not against 0.
    random_state : as in scikit-learn.
    scheme : of gold's labels, for spans: a name, "conlleval" or "auto".

    Raises ValueError naming the sequence for other lengths or no probability, and where nothing is predicted.
    """
    if of not in ("tokens", "spans"):
        raise ValueError(f"of: expected 'tokens' or 'spans', got {of!r:.80}")
    whole = all(isinstance(n, Integral) and type(n) is not bool and n >= 1 for n in (n_bins, n_samples))
    if not (whole and n_bins <= 1000 and isinstance(level, Real) and 0 < level < 1):
        got = f"{n_bins!r:.20}, {n_samples!r:.20} and {level!r:.20}"
        wanted = "n_bins >= 1, n_samples >= 1 and 0 < level < 1 (whole numbers; at most 1,000 bins)"
        raise ValueError(f"expected {wanted}, got {got}")
    gold, predicted = _lists("gold", gold), _lists("predicted", predicted)
    refuse_sets(gold)
    outcomes = _of_tokens(gold, predicted) if of == "tokens" else _of_spans(gold, predicted, scheme)
    if not outcomes:
        raise ValueError(f"expected some predicted {of} with a gold label, got none")
    sentence, p, right = (np.array(column) for column in zip(*outcomes, strict=True))
    if bad := np.flatnonzero(~((p >= 0) & (p <= 1 + 1e-9))).tolist()[:1]:
        raise ValueError(f"sequence {sentence[bad[0]]}: expected a probability, got {p[bad[0]]}")
    place = np.minimum((p * n_bins).astype(np.int64), n_bins - 1)
    cell, n_cells = sentence * n_bins + place, len(gold) * n_bins
    sums = [np.bincount(cell, values, minlength=n_cells) for values in (np.ones(len(p)), p, right)]
    table = np.stack(sums, axis=1).reshape(len(gold), n_bins, 3)
    rng, total = generator(random_state), table.sum(axis=0)
    drawn, ends = resample(table, n_samples, rng), [0.5 - level / 2, 0.5 + level / 2]
    drawn = drawn[full] if (full := drawn[..., 0].any(axis=1)).any() else total[None]
    with np.errstate(invalid="ignore"):
        shares = drawn[..., 2] / drawn[..., 0]
    some = np.flatnonzero(total[:, 0])
    limits = [
        np.quantile(share[~np.isnan(share)], ends) if not np.isnan(share).all() else [np.nan] * 2
        for share in shares[:, some].T
    ]
    chance = total[None].repeat(n_samples, axis=0)
    for sample in chance:
        sample[:, 2] = np.bincount(place, rng.random(len(p)) < p, minlength=n_bins)
    low, high = np.transpose(limits)
    size, confidence, accuracy = total[some].T
    ece = Interval(*map(float, (_ece(total), *np.quantile(_ece(drawn), ends))))
    means = confidence / size, accuracy / size
    return Reliability(*means, low, high, size.astype(np.int64), ece, float(_ece(chance).mean()))


def _lists(name, rows):
    for i, row in enumerate(rows := list(rows)):
        if not hasattr(row, "__iter__"):
            raise ValueError(f"{name}, sequence {i}: expected a list, got {row!r:.80}")
    return list(map(list, rows))


def _ece(table):
    """Of sums (..., n_bins, 3): predictions, probabilities, right ones."""
    return np.abs(table[..., 2] - table[..., 1]).sum(axis=-1) / table[..., 0].sum(axis=-1)


def _of_tokens(gold, predicted):
    """[(sentence, probability, right), ...]"""
    check_lengths(gold, predicted)
    found = []
    for i, (labels, rows) in enumerate(zip(gold, predicted, strict=True)):
        for label, row in zip(labels, rows, strict=True):
            if not (isinstance(row, dict) and row and all(isinstance(p, Real) for p in row.values())):
                raise ValueError(
                    f"sequence {i}: expected a dict {{label: probability}} a token, got {row!r:.80}"
                )
            best = max(row, key=row.__getitem__)
            if label is not None:
                found.append((i, row[best], bool(best == label)))
    return found


def _of_spans(gold, predicted, scheme):
    """[(sentence, probability, right), ...]"""
    if len(gold) != len(predicted):
        raise ValueError(f"expected spans of {len(gold)} sequences, got those of {len(predicted)}")
    read, found, numbers = reading_of(gold, scheme), [], (Integral, Integral, Real)
    known = [["O" if label is None else label for label in labels] for labels in gold]
    for i, (labels, chunks, spans) in enumerate(zip(gold, chunk_lists(known, read), predicted, strict=True)):
        for span in spans:
            four = isinstance(span, tuple) and len(span) == 4 and all(map(isinstance, span[1:], numbers))
            if not (four and 0 <= span[1] < span[2] <= len(labels)):
                raise ValueError(f"sequence {i}: expected (type, start, stop, probability), got {span!r:.80}")
            kind, start, stop, p = span
            if None not in labels[max(start - 1, 0) : stop + 1]:  # beside it, the chunk may go on
                found.append((i, p, (kind, start, stop) in chunks))
    return found


def _numbers(name, values):
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected numbers, got {values!r:.80}") from None


class Abstention(NamedTuple):
    """n shares of the sentences that are left to a person, and the metric of the others."""

    share: np.ndarray  # (n,)
    score: np.ndarray  # (n,)


def abstention(
    gold: Labels, predicted: Labels, confidence: Sequence[float], metric: str = "f1", *,
    shares: Sequence[float] | None = None, scheme: str = "auto", strict: bool = False,
) -> Abstention:  # fmt: skip
    """A metric against the share of sentences that a person labels: those of the lowest confidence.

    confidence : (S,), of each sentence: its log probability, minus its entropy. Of equal ones the last are
        left to a person first.
    metric, scheme, strict : as in `bootstrap_interval`; it is that of the sentences that are kept.
    shares : numbers in [0, 1): of S sentences the whole part of share * S is left to a person. None: 0, 0.05,
        0.1 to 0.95.
    """
    rate, gold, predicted = metric_function(metric), list(gold), list(predicted)
    order = _numbers("confidence", confidence)
    share = np.arange(20) / 20 if shares is None else _numbers("shares", shares)
    if order.shape != (len(gold),) or np.isnan(order).any():
        raise ValueError(
            f"confidence: expected a number for each of {len(gold)} sequences, got {confidence!r:.80}"
        )
    if share.ndim != 1 or not ((share >= 0) & (share < 1)).all():
        raise ValueError(f"shares: expected numbers from 0 to below 1, got {shares!r:.80}")
    if any(label is None for row in gold for label in row):
        raise ValueError("gold: expected a label for every token, got None: leave such sentences out")
    read, gold, predicted = readable(gold, [predicted], scheme, strict, metric)
    counts, _ = count_chunks(gold, predicted, read, strict)
    kept = np.cumsum(counts[np.argsort(-order, kind="stable")], axis=0)
    n_kept = len(kept) - np.floor(share * len(kept) + 1e-9).astype(np.int64)
    return Abstention(share, rate(kept[n_kept - 1]) if len(kept) else np.zeros(len(share)))
