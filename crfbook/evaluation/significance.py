"""How sure can one be: bootstrap intervals of a metric,
and tests between two systems on the same sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .metrics import Labels, count_chunks, metric_function, warn_unread


class Interval(NamedTuple):
    value: float
    low: float
    high: float


class PairedTest(NamedTuple):
    difference: float  # metric of b minus metric of a
    p_value: float  # two-sided
    value_a: float
    value_b: float


def _generator(random_state):
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31)
    return np.random.default_rng(random_state)


def _resample(counts, n_samples, rng):
    """Sums (n_samples, ...) of `counts` (S, ...) over S sentences drawn with replacement."""
    size = len(counts)
    return np.stack([counts[rng.integers(size, size=size)].sum(axis=0) for _ in range(n_samples)])


def bootstrap_interval(
    gold: Labels, predicted: Labels, metric: str = "f1", *, level: float = 0.95, n_samples: int = 1000,
    random_state: Any = 0, scheme: str = "conlleval",
) -> Interval:  # fmt: skip
    """Percentile bootstrap interval of a metric, resampling whole sentences: `Interval(value, low, high)`.

    metric : "f1", "precision", "recall" (of chunks), "accuracy" (of tokens), "sentence_accuracy".
    """
    rate = metric_function(metric)
    if len(gold) == 0 or not 0 < level < 1 or n_samples < 1:
        raise ValueError(
            f"expected sentences, 0 < level < 1 and n_samples >= 1, got {len(gold)}, {level} and {n_samples}"
        )
    counts = count_chunks(gold, predicted, scheme).counts
    warn_unread(gold, predicted, scheme, metric)
    values = rate(_resample(counts, n_samples, _generator(random_state)))
    low, high = np.quantile(values, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(rate(counts.sum(axis=0))), float(low), float(high))


def paired_test(
    gold: Labels, predicted_a: Labels, predicted_b: Labels, metric: str = "f1", *,
    method: str = "randomisation", n_samples: int = 10000, random_state: Any = 0, scheme: str = "conlleval",
) -> PairedTest:  # fmt: skip
    """Is system b better than a on the same sentences? `PairedTest(difference, p_value, value_a, value_b)`.

    "randomisation" (Noreen 1989; Yeh 2000): the two outputs of each sentence are swapped by a coin; p is the
    share of such shuffles whose difference is at least as large as ours, in either direction. "bootstrap":
    sentences are resampled; p is twice the smaller share of samples on one side of zero.
    Both count the sample at hand, so p is never 0.
    """
    rate = metric_function(metric)
    if method not in ("randomisation", "bootstrap"):
        raise ValueError(f'method: expected "randomisation" or "bootstrap", got {method!r:.80}')
    if len(gold) == 0 or n_samples < 1:
        raise ValueError(f"expected sentences and n_samples >= 1, got {len(gold)} and {n_samples}")
    a, b = (count_chunks(gold, labels, scheme).counts for labels in (predicted_a, predicted_b))
    warn_unread(gold, [*predicted_a, *predicted_b], scheme, metric)
    total_a, total_b = a.sum(axis=0), b.sum(axis=0)
    value_a, value_b = float(rate(total_a)), float(rate(total_b))
    rng, slack = _generator(random_state), 1e-12  # equal shuffles count as equal in spite of rounding
    if method == "bootstrap":
        sums = _resample(np.stack([a, b], axis=1), n_samples, rng)
        moved = rate(sums[:, 1]) - rate(sums[:, 0])
        one_side = min((moved <= slack).sum(), (moved >= -slack).sum())
        p_value = min(1.0, 2.0 * (one_side + 1) / (n_samples + 1))
    else:
        change = (b - a)[(a != b).any(axis=1)].astype(np.float64)
        at_least = 1
        for first in range(0, n_samples, 500):
            swap = rng.integers(0, 2, size=(min(500, n_samples - first), len(change))) @ change
            shuffled = rate(total_b - swap) - rate(total_a + swap)
            at_least += int((np.abs(shuffled) >= abs(value_b - value_a) - slack).sum())
        p_value = at_least / (n_samples + 1)
    return PairedTest(value_b - value_a, float(p_value), value_a, value_b)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """The p-values (n,) of n tests, corrected for their number (Holm 1979), in their order: all with at most
    a are shown at level a, and the chance that one of them is false is a at most. ValueError outside [0, 1].
    """
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p_values: expected numbers from 0 to 1, (n,), got {p_values!r:.80}")
    order, corrected = np.argsort(p, kind="stable"), np.empty(len(p))
    corrected[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(corrected, 1.0)
